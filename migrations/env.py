"""Alembic's entry: runs the steps on the connection that `server.db.database` hands over."""

from __future__ import annotations

from alembic import context

from server.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
context.run_migrations()
