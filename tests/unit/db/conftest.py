from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings
from server.db.repositories.user_settings import ENCRYPTED, StoredSettings

only_sqlite = pytest.mark.parametrize("database_settings", ["sqlite"], indirect=True)
"""For tests of what is SQLite's own: its file, its lock, its columns that take anything."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database_settings(request: pytest.FixtureRequest) -> DatabaseSettings:
    """Those of both databases: a test that uses them, or `database`, runs over each."""
    url = request.getfixturevalue("postgresql_url") if request.param == "postgresql" else None
    return DatabaseSettings(url=url, synchronous="NORMAL", busy_timeout_seconds=0.05, touch_interval_seconds=0.05)


@pytest.fixture
async def database(tmp_path: Path, database_settings: DatabaseSettings) -> AsyncIterator[Database]:
    async with open_database(tmp_path, database_settings) as database:
        yield database


async def save_settings(database: Database, settings: StoredSettings, user_id: str = "") -> None:
    """Store a user's settings, whatever was stored before."""
    await database.settings.change(lambda stored: settings, user_id, sets=ENCRYPTED)
