"""The Socket.IO side of the server: connections, what they send, and the feed that each of them gets."""
