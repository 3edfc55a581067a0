"""The filtering proxy between Drydock's server and the Docker engine: standard library only.

Whoever may talk to a Docker engine is root on its host. This program lets through exactly the calls that the server's
Docker sandboxes need, and of those only what concerns Drydock's own containers, volumes and networks: those with the
label of the one instance that is served, and of no compose project. The engine is asked for that with each call; a name
proves nothing. A container can be made only without privileges, capabilities, host paths, host namespaces, published
ports or things of others.

It never passes on what a client wrote. Path, query, headers and JSON bodies are read, checked against what is named
here, and written anew, so the engine cannot understand anything other than what was checked. A connection carries one
request.
"""
