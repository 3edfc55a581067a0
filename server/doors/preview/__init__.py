"""Previews: what programs in a sandbox serve, seen through the server's own port on an origin of its own."""
