"""The REST routes, one module for each group of docs/protocol.md."""
