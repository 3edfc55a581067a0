"""The database schema and its history (Alembic); `server.db.upgrade` runs it at start."""
