"""What the server keeps: the event log, conversations and settings, in SQLite or PostgreSQL."""
