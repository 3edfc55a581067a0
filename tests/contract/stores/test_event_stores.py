from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from agent_core.events.store import EventStore, InMemoryEventStore
from agent_core.testing.store_contract import EventStoreContract
from server.db import event_rows
from server.db.database import open_database
from server.db.engine import DatabaseSettings
from server.db.event_store import SqlEventStore
from server.db.reads import PooledReads
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


@pytest.mark.postgresql
class TestSqlEventStoreOverPostgreSQL(EventStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path, postgresql_url: str) -> AsyncIterator[EventStore]:
        async with open_database(tmp_path, DatabaseSettings(url=postgresql_url)) as database:
            yield database.events


class TestSqlEventStoreInTheWaysOfEveryDatabase(EventStoreContract):
    """The statements that PostgreSQL would get, instead of SQLite's short cuts."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[EventStore]:
        async with open_database(tmp_path, FAST) as database:
            await database.writer.close()
            reads = PooledReads(create_async_engine(database.engines.write.url), at_once=4)
            engines = replace(database.engines, insert_events=event_rows.insert_events, max_rows=100, reads=reads)
            async with AsyncExitStack() as stack:
                stack.push_async_callback(reads.close)
                writer = await stack.enter_async_context(Writer(engines, close_timeout_seconds=5))
                yield SqlEventStore(engines, writer, database.blobs, inline_payload_bytes=64)
