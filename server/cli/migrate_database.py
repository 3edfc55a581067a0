"""``drydock migrate-database``: what a server keeps, from SQLite to PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import TextIO

from server.cli.audit import operator
from server.cli.backup import ending_cleanly, say
from server.db.engine import DatabaseSettings
from server.db.errors import DatabaseError
from server.db.moving import move_to_postgresql
from server.settings.settings import Settings


def migrate_database(settings: Settings, out: TextIO, *, to: str | None = None) -> int:
    """Move the database of a server that does not run, and say what is to be done then; returns the exit status."""
    url = to or settings.database_url
    if url is None:
        raise DatabaseError(
            "name the PostgreSQL to move to: --to postgresql://user:password@host/name, or database_url"
        )
    is_elsewhere = settings.database_url is not None and settings.database_url.startswith("sqlite")
    source = DatabaseSettings(url=settings.database_url if is_elsewhere else None)
    with ending_cleanly():
        moved = asyncio.run(move_to_postgresql(settings.data_dir.absolute(), source, url, say, operator()))
    filled = ", ".join(f"{name} {count:,}" for name, count in moved.rows.items() if count)
    out.write(f"Moved to {moved.target}, and compared row by row: {filled or 'nothing, there was none'}.\n")
    if moved.replaced:
        out.write(
            f"Texts with a NUL character, which PostgreSQL does not take: {moved.replaced}; it is \ufffd there.\n"
        )
    out.write(
        "Set database_url (DRYDOCK_DATABASE_URL) to that database, and start the server with the same data folder:"
        " keys and workspaces stay in it. The SQLite file and `blobs/` are left as they were, and not used any more.\n"
    )
    return 0
