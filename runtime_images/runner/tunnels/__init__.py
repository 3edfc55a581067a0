"""Ports and programs of the sandbox, carried over the stream of the server."""
