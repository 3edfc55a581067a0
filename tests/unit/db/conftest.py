from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings
from server.db.repositories.user_settings import ENCRYPTED, StoredSettings


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    settings = DatabaseSettings(synchronous="NORMAL", busy_timeout_seconds=0.05, touch_interval_seconds=0.05)
    async with open_database(tmp_path, settings) as database:
        yield database


async def save_settings(database: Database, settings: StoredSettings, user_id: str = "") -> None:
    """Store a user's settings, whatever was stored before."""
    await database.settings.change(lambda stored: settings, user_id, sets=ENCRYPTED)
