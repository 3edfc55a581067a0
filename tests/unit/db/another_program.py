"""Somebody else at the same database file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from server.db.database import DATABASE_FILE, Database


@contextmanager
def another_program(database: Database) -> Iterator[sqlite3.Connection]:
    """A connection of somebody else to the same file."""
    connection = sqlite3.connect(
        database.data_dir / DATABASE_FILE, isolation_level=None, timeout=30, check_same_thread=False
    )
    try:
        yield connection
    finally:
        connection.close()
