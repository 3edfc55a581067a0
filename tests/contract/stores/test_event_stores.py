from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_core.events.store import EventStore, InMemoryEventStore
from agent_core.testing.store_contract import EventStoreContract
from server.db import engine, event_rows
from server.db.database import open_database
from server.db.engine import DatabaseSettings
from server.db.event_store import SqlEventStore
from server.db.writer import Writer

FAST = DatabaseSettings(synchronous="NORMAL")


class TestInMemoryEventStore(EventStoreContract):
    @pytest.fixture
    def store(self) -> EventStore:
        return InMemoryEventStore()


class TestSqlEventStore(EventStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[EventStore]:
        async with open_database(tmp_path, FAST) as database:
            yield database.events


class TestSqlEventStoreInTheWaysOfEveryDatabase(EventStoreContract):
    """The statements that PostgreSQL would get, instead of SQLite's short cuts."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[EventStore]:
        async with open_database(tmp_path, FAST) as database:
            await database.writer.close()
            engines = replace(
                database.engines, insert_events=event_rows.insert_events, max_rows=100, fetch_rows=engine.fetch_rows
            )
            async with Writer(engines, close_timeout_seconds=5) as writer:
                yield SqlEventStore(engines, writer, database.blobs, inline_payload_bytes=64)
