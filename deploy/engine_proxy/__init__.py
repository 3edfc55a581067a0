"""The filtering proxy between Drydock's server and the Docker engine: standard library only.

Whoever may talk to a Docker engine is root on its host. This program passes exactly the calls that Docker sandboxes
need, and only on the containers, volumes and networks of the one instance that is served (by its label, not of a
compose project), which it asks the engine about with each call; a name proves nothing. Containers can have no
privileges, capabilities, host paths, host namespaces, published ports or things of others.

It never passes on what a client wrote: path, query, headers and JSON bodies are parsed, checked and written anew, so
the engine cannot understand anything other than what was checked. A connection carries one request.
"""
