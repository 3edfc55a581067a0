from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.event import utc_now
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings
from server.db.repositories.idempotency_keys import RETENTION, Attempt, IdempotencyKeys, _Row
from server.db.tables import idempotency_keys
from server.errors import KeyInUseError, KeyReusedError


class Work:
    """Something that is to be done once."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.begun = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, attempt: Attempt) -> dict[str, Any]:
        self.attempts.append(attempt)
        self.begun.set()
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        return {"made": attempt.resource}


async def once(
    keys: IdempotencyKeys, work: Work, key: str | None = "k", *, resource: str = "a", **values: Any
) -> dict[str, Any]:
    wanted = {"user_id": "", "scope": "create", "request": {"x": 1}, **values}
    return await keys.once(key, work, resource=resource, **wanted)


async def test_what_comes_twice_is_done_once_and_answered_the_same(database: Database) -> None:
    work = Work()
    assert await once(database.idempotency_keys, work) == {"made": "a"}
    assert await once(database.idempotency_keys, work, resource="b") == {"made": "a"}
    assert work.attempts == [Attempt("a", is_repeated=False)]


async def test_without_a_key_everything_is_done_each_time(database: Database) -> None:
    work = Work()
    for _ in range(2):
        await once(database.idempotency_keys, work, None)
    assert len(work.attempts) == 2


@pytest.mark.parametrize("other", [{"user_id": "u"}, {"scope": "send:1"}, {"key": "l"}])
async def test_keys_of_other_users_and_scopes_are_other_keys(database: Database, other: dict[str, Any]) -> None:
    work = Work()
    await once(database.idempotency_keys, work)
    assert await once(database.idempotency_keys, work, resource="b", **other) == {"made": "b"}


async def test_a_key_that_comes_with_another_request_is_refused_and_nothing_is_done(database: Database) -> None:
    work = Work()
    await once(database.idempotency_keys, work)
    with pytest.raises(KeyReusedError, match="'k' came with another request"):
        await once(database.idempotency_keys, work, request={"x": 2})
    assert len(work.attempts) == 1


async def test_the_order_of_fields_makes_no_other_request(database: Database) -> None:
    work = Work()
    await once(database.idempotency_keys, work, request={"a": 1, "b": 2})
    await once(database.idempotency_keys, work, request={"b": 2, "a": 1})
    assert len(work.attempts) == 1


async def test_keys_outlive_the_process(tmp_path: Path, database_settings: DatabaseSettings) -> None:
    work = Work()
    for _ in range(2):
        async with open_database(tmp_path, database_settings) as database:
            assert await once(database.idempotency_keys, work) == {"made": "a"}
    assert len(work.attempts) == 1


async def test_a_repetition_waits_for_the_first_one(database: Database) -> None:
    work = Work()
    work.goes_on.clear()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(once(database.idempotency_keys, work, resource=str(n))) for n in range(5)]
        await work.begun.wait()
        work.goes_on.set()
    assert [task.result() for task in tasks] == [{"made": "0"}] * 5
    assert len(work.attempts) == 1


async def test_of_two_servers_that_are_asked_at_once_one_is_first(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, work, claim, seen = database.idempotency_keys, Work(), _Row.claim, list[str]()
    await once(keys, work)

    async def late(row: _Row, connection: AsyncConnection, resource: str, now: datetime) -> Any:
        seen.append(resource)
        if len(seen) == 1:  # it had looked before the other's was there
            values = {**row._asdict(), "resource": resource, "answer": None, "created_at": now}
            await connection.execute(insert(idempotency_keys), values)
        return await claim(row, connection, resource, now)

    monkeypatch.setattr(_Row, "claim", late)
    assert await once(keys, work, resource="b") == {"made": "a"}
    assert (len(work.attempts), len(seen)) == (1, 2)


async def test_a_repetition_does_not_wait_for_ever(database: Database) -> None:
    keys = IdempotencyKeys(database.writer, wait_seconds=0.01)
    work = Work()
    work.goes_on.clear()
    first = asyncio.create_task(once(keys, work))
    await work.begun.wait()
    with pytest.raises(KeyInUseError, match="still being carried out"):
        await once(keys, work)
    work.goes_on.set()
    assert await first == {"made": "a"}


async def test_a_refusal_gives_the_key_free(database: Database) -> None:
    work = Work()
    work.error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await once(database.idempotency_keys, work, refusals=(ValueError,))
    work.error = None
    assert await once(database.idempotency_keys, work, resource="b", request={"x": 2}) == {"made": "b"}
    assert work.attempts[-1] == Attempt("b", is_repeated=False)


async def test_what_failed_is_taken_up_with_what_it_had_chosen(database: Database) -> None:
    work = Work()
    work.error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await once(database.idempotency_keys, work)
    work.error = None
    assert await once(database.idempotency_keys, work, resource="b") == {"made": "a"}
    assert work.attempts[-1] == Attempt("a", is_repeated=True)


async def test_an_attempt_that_broke_off_is_taken_up_with_what_it_had_chosen(database: Database) -> None:
    work = Work()
    work.goes_on.clear()
    first = asyncio.create_task(once(database.idempotency_keys, work))
    await work.begun.wait()
    first.cancel()
    await asyncio.wait([first])
    work.goes_on.set()
    assert await once(database.idempotency_keys, work, resource="b") == {"made": "a"}
    assert work.attempts[-1] == Attempt("a", is_repeated=True)


async def test_old_keys_are_forgotten(database: Database) -> None:
    work = Work()
    now = utc_now()
    keys = IdempotencyKeys(database.writer, now=lambda: now)
    await once(keys, work)
    now += RETENTION - timedelta(seconds=1)
    await once(keys, work)
    now += timedelta(seconds=2)
    assert await once(keys, work, resource="b") == {"made": "b"}
