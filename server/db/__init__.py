"""Storage of the server: the event log, conversations and settings, in SQLite or PostgreSQL."""
