from __future__ import annotations

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


async def test_upgrading_again_changes_nothing(engine: AsyncEngine) -> None:
    await upgrade(engine)
    await upgrade(engine)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_every_step_can_be_taken_back_and_applied_again(engine: AsyncEngine, config: Config) -> None:
    await upgrade(engine)
    async with engine.begin() as connection:

        def downgrade(connection: Connection) -> list[str]:
            config.attributes["connection"] = connection
            command.downgrade(config, "base")
            return inspect(connection).get_table_names()

        assert await connection.run_sync(downgrade) == ["alembic_version"]
    await upgrade(engine)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_a_step_that_fails_leaves_the_database_as_it_was(engine: AsyncEngine, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("CREATE TABLE conversations (mine TEXT)")
    connection.commit()
    with pytest.raises(DatabaseError, match="could not be opened"):
        await upgrade(engine)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    connection.close()
    assert tables == [("conversations",)]
