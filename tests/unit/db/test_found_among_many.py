"""What grows with the years is never looked through as a whole: statements find their rows by an index, in one turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, Table, event, insert, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.event import utc_now
from server.db import event_rows
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.inbox import KEEP, InboxRepository
from server.db.repositories.leases import LeaseRepository
from server.db.tables import inbox, owners

MANY = 4000


@pytest.fixture
async def database(tmp_path: Path, database_settings: DatabaseSettings) -> AsyncIterator[Database]:
    settings = database_settings.model_copy(update={"touch_interval_seconds": 60.0})  # so that nobody else writes
    async with open_database(tmp_path, settings) as database:
        yield database


@contextmanager
def statements() -> Iterator[list[tuple[str, Any, bool]]]:
    """What is asked of all databases meanwhile: statement, parameters, and whether it is for many rows."""
    heard: list[tuple[str, Any, bool]] = []

    def hear(_connection: object, _cursor: object, sql: str, values: Any, _context: object, many: bool) -> None:
        heard.append((sql, values, many))

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        event.remove(Engine, "before_cursor_execute", hear)


async def fill(database: Database, table: Table, rows: list[dict[str, Any]]) -> None:
    async def apply(connection: AsyncConnection) -> None:
        await connection.execute(insert(table), rows)

    await database.writer.change(apply)


async def plan(database: Database, sql: str, values: Any, table: str) -> str:
    """How the database goes about it, when it knows how many rows there are."""
    is_sqlite = database.engines.kind == "sqlite"

    async def explain(connection: AsyncConnection) -> str:
        await connection.execute(text(f"ANALYZE {table}"))
        rows = await connection.exec_driver_sql(f"EXPLAIN {'QUERY PLAN ' if is_sqlite else ''}{sql}", values)
        return "\n".join(str(row[-1]) for row in rows)

    return await database.writer.change(explain)


def looks_through(plan: str, table: str) -> bool:
    return any(f"{word} {table}" in plan and "ix_" not in plan for word in ("SCAN", "Seq Scan on"))


async def test_the_logs_below_one_are_those_alone_whatever_their_names(database: Database) -> None:
    below = ["a~x", "a~x~y", "a~Ü", "a~~"]
    others = ["a", "a-x", "A~x", "aa~x", "a}", "a\u00e4~x", "a%~x", "b~a~x", "~a~x"]
    for log in [*below, *others]:
        await database.events.claim(log)
    found = await database.engines.select(event_rows.select_below("a"))
    assert sorted(row.conversation_id for row in found) == sorted(below)


async def test_they_are_found_without_a_look_at_all_of_them(database: Database) -> None:
    await fill(database, owners, [{"conversation_id": f"{n:032x}", "epoch": 1} for n in range(MANY)])
    with statements() as heard:
        await database.events.last_ids(f"{7:032x}")
    sql, values, _ = next(one for one in heard if "owners" in one[0])
    told = await plan(database, sql, values, "owners")
    assert not looks_through(told, "owners"), told


async def test_what_waits_in_the_inbox_and_what_is_old_in_it_is_found_by_an_index(database: Database) -> None:
    letters = InboxRepository(database.engines, database.writer)
    row = {"number": 0, "after": 0, "event": {}, "created_at": utc_now(), "answer": {"id": 1}}
    rows = [{**row, "id": f"{n}", "conversation_id": f"c{n % 40}"} for n in range(MANY)]
    rows[0]["created_at"] = utc_now() - KEEP - timedelta(seconds=1)
    await fill(database, inbox, rows)
    await database.conversations.create(ConversationRecord(id="c1"))
    leases = LeaseRepository(database.engines, database.writer)
    me = await leases.register("http://here", 60)
    await leases.take("c1", me)
    letter = await letters.put("c1", b"{}", after=0)
    assert await letters.waiting_for(me) == {"c1"}
    with statements() as heard:
        await letters.waiting_for(me)
        await letters.answer(letter, {"id": 1})
    for verb in ("SELECT inbox", "DELETE FROM inbox"):
        sql, values, _ = next(one for one in heard if one[0].startswith(verb))
        told = await plan(database, sql, values, "inbox")
        assert not looks_through(told, "inbox"), told
    assert await letters.waiting_for(me) == set()
    left = await database.engines.fetch("SELECT count(*) FROM inbox")
    assert left[0][0] == MANY


async def test_a_server_tells_of_all_its_conversations_in_one_turn(database: Database) -> None:
    leases = LeaseRepository(database.engines, database.writer)
    me = await leases.register("http://here", 60)
    names = [f"c{n}" for n in range(9)]
    for name in names:
        await leases.take(name, me)
    with statements() as heard:
        await leases.tell({name: {"status": "RUNNING", "name": name} for name in names}, me)
        await leases.tell({}, me)
    assert [many for sql, _, many in heard if "leases" in sql] == [True]
    assert {one.conversation_id: (one.live or {})["name"] for one in await leases.all()} == {one: one for one in names}


async def test_a_start_looks_at_those_alone_that_have_a_sandbox(database: Database) -> None:
    for n in range(5):
        sandbox = {"id": n} if n % 2 else None
        await database.conversations.create(ConversationRecord(id=f"c{n}", sandbox=sandbox))
    found = await database.conversations.having_sandboxes(after="", limit=9)
    assert [one.id for one in found] == ["c1", "c3"]
    assert await database.conversations.update("c1", sandbox=None)
    assert [one.id for one in await database.conversations.having_sandboxes(after="", limit=9)] == ["c3"]
    assert await database.conversations.having_sandboxes(after="c3", limit=9) == []


async def test_a_text_is_looked_for_in_titles_repositories_and_ids(database: Database) -> None:
    start = utc_now()
    for n, title in enumerate(["Fix the login", "Faster by 100%", "Notes Über alles", None]):
        repository = "Owner/name" if n < 2 else None
        created_at = start + timedelta(seconds=n)
        await database.conversations.create(
            ConversationRecord(id=f"c{n}", title=title, selected_repository=repository, created_at=created_at)
        )
    await database.conversations.create(ConversationRecord(id="other", user_id="bob", title="Fix the login"))

    async def found(query: str) -> list[str]:
        return [one.id for one in (await database.conversations.list_page(limit=10, query=query)).results]

    assert await found("LOGIN") == ["c0"]
    assert await found("100%") == ["c1"]
    assert await found("0_") == []
    assert await found("ÜBER") == await found("über") == await found("C2") == ["c2"]
    assert await found("owner/") == ["c1", "c0"]
    assert await found("") == ["c3", "c2", "c1", "c0"]
