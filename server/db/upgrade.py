"""Brings the database to the schema of this version (the steps are in `migrations`)."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

import migrations
from server.db.errors import DatabaseVersionError
from server.db.failures import database_error

HEAD = "0006"
"""The newest step in `migrations/versions` (a test compares them): known here so that a start need not load Alembic."""


async def upgrade(engine: AsyncEngine) -> None:
    """Apply the missing steps, all in one transaction where the database can do that; nothing when up to date.

    Raises:
        DatabaseVersionError: a newer version of Drydock made this database.
        DatabaseError: it cannot be read or changed.
    """
    try:
        async with engine.connect() as connection:
            revision = await connection.run_sync(stored_revision)
        if revision == HEAD:
            return
        async with engine.begin() as connection:
            await connection.run_sync(_run)
    except (SQLAlchemyError, OSError) as error:
        raise database_error(f"the database {engine.url.render_as_string()} could not be opened", error) from error


def stored_revision(connection: Connection) -> str | None:
    """The last step that was applied, None for an empty database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _run(connection: Connection) -> None:
    # Loaded only when there is something to do: an ordinary start is faster and smaller without Alembic.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    revision = stored_revision(connection)
    if revision is not None and revision not in known:
        raise DatabaseVersionError(
            f"the database {connection.engine.url.render_as_string()} was made by a newer version of Drydock "
            f"(its schema is {revision}, this version knows up to {HEAD}); "
            "install that version again, or choose another data folder"
        )
    command.upgrade(config, HEAD)
