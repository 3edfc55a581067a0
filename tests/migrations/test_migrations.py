from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

import migrations
from server.db.database import HEAD, stored_revision, upgrade
from server.db.engine import DatabaseSettings, create_engines, sqlite_url
from server.db.errors import DatabaseError
from server.db.tables import metadata


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    engines = create_engines(sqlite_url(tmp_path / "x.db"), DatabaseSettings(busy_timeout_seconds=0.05))
    yield engines.write
    await engines.dispose()


@pytest.fixture
async def postgresql_engine(new_postgresql_url: str) -> AsyncIterator[AsyncEngine]:
    engines = create_engines(new_postgresql_url, DatabaseSettings())
    yield engines.write
    await engines.dispose()


@pytest.fixture(params=["engine", pytest.param("postgresql_engine", marks=pytest.mark.postgresql)])
def either(request: pytest.FixtureRequest) -> AsyncEngine:
    """An engine of SQLite, and one of PostgreSQL."""
    engine: AsyncEngine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture
def config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return config


def differences(connection: Connection) -> list[object]:
    """What Alembic would still have to do to bring the database to the tables of the code."""
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return list(compare_metadata(context, metadata))


def test_the_code_knows_the_newest_step(config: Config) -> None:
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def shape(connection: Connection) -> dict[str, object]:
    """All that a database says of its tables, whatever the order in which steps have added columns."""
    seen = inspect(connection)
    indexes = text("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = :table")

    def columns(table: str) -> list[tuple[object, ...]]:
        found = seen.get_columns(table)
        return [*sorted((it["name"], str(it["type"]), it["nullable"], it["default"]) for it in found)]

    return {
        table: (
            columns(table),
            seen.get_pk_constraint(table),
            sorted(seen.get_unique_constraints(table), key=repr),
            seen.get_foreign_keys(table),
            seen.get_check_constraints(table),
            sorted(connection.scalars(indexes, {"table": table})),
        )
        for table in seen.get_table_names()
    }


async def test_the_steps_make_exactly_the_tables_of_the_code_and_what_a_new_database_has(
    engine: AsyncEngine, config: Config, tmp_path: Path
) -> None:
    def steps(connection: Connection) -> None:
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)

    stepwise = create_engines(sqlite_url(tmp_path / "stepwise.db"), DatabaseSettings()).write
    async with stepwise.begin() as connection:
        await connection.run_sync(steps)
        assert await connection.run_sync(differences) == []
        expected = await connection.run_sync(shape)
    await stepwise.dispose()
    await upgrade(engine)
    async with engine.connect() as connection:
        assert await connection.run_sync(stored_revision) == HEAD
        assert await connection.run_sync(differences) == []
        assert await connection.run_sync(shape) == expected


@pytest.mark.postgresql
async def test_the_steps_make_the_tables_of_the_code_in_postgresql_and_the_index_of_some_rows(
    postgresql_engine: AsyncEngine,
) -> None:
    await upgrade(postgresql_engine)
    await upgrade(postgresql_engine)  # changes nothing
    index = text("SELECT indexdef FROM pg_indexes WHERE indexname = 'ix_events_blob'")
    async with postgresql_engine.connect() as connection:
        assert await connection.run_sync(stored_revision) == HEAD
        assert await connection.run_sync(differences) == []
        assert str(await connection.scalar(index)).endswith("WHERE (blob IS NOT NULL)")


@pytest.mark.postgresql
async def test_servers_that_start_at_once_over_the_same_database_make_its_tables_once(new_postgresql_url: str) -> None:
    engines = [create_engines(new_postgresql_url, DatabaseSettings()) for _ in range(3)]
    await asyncio.gather(*(upgrade(one.write) for one in engines))
    async with engines[0].write.connect() as connection:
        assert await connection.run_sync(differences) == []
    for one in engines:
        await one.dispose()


async def test_upgrading_again_changes_nothing(engine: AsyncEngine) -> None:
    await upgrade(engine)
    await upgrade(engine)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_each_step_can_be_taken_back_and_applied_again(either: AsyncEngine, config: Config) -> None:
    await upgrade(either)

    def back_and_forth(connection: Connection) -> None:
        config.attributes["connection"] = connection
        for script in ScriptDirectory.from_config(config).walk_revisions():
            before = tables_of(connection)
            command.downgrade(config, "-1")
            after = tables_of(connection)
            assert after != before, f"step {script.revision} changes nothing"
            command.upgrade(config, "+1")
            assert tables_of(connection) == before
            command.downgrade(config, "-1")
            assert tables_of(connection) == after
        assert after == {"alembic_version": ["version_num"]}

    async with either.begin() as connection:
        await connection.run_sync(back_and_forth)
    await upgrade(either)
    async with either.connect() as connection:
        assert await connection.run_sync(differences) == []


def tables_of(connection: Connection) -> dict[str, list[str]]:
    """Each table, with its columns and indexes."""
    seen = inspect(connection)
    return {
        table: [
            *(it["name"] for it in seen.get_columns(table)),
            *sorted(str(it["name"]) for it in seen.get_indexes(table)),
        ]
        for table in seen.get_table_names()
    }


async def test_a_step_that_fails_leaves_the_database_as_it_was(engine: AsyncEngine, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("CREATE TABLE conversations (mine TEXT)")
    connection.commit()
    with pytest.raises(DatabaseError, match="could not be opened"):
        await upgrade(engine)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    connection.close()
    assert tables == [("conversations",)]
