"""Settings: the server's own, each user's, and how they are read."""
