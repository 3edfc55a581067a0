"""What servers tell each other by way of a real Redis, which is stopped, frozen and started again."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from agent_core.errors import DrydockError
from agent_core.troubles import Trouble
from server.db import redis_notices
from server.db.redis_notices import RedisNotices, examine_redis
from server.errors import ConfigurationError
from server.metrics import ServerMetrics
from tests.redis_server import PASSWORD, RedisServer
from tests.waiting import until

pytestmark = pytest.mark.redis


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked often, and a busy machine is no reason to take it for gone."""
    for name, seconds in {"AGAIN": 0.05, "GREETING": 0.1, "SILENT": 30.0, "ANSWER": 30.0}.items():
        monkeypatch.setattr(redis_notices, f"{name}_SECONDS", seconds)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SILENT", "ANSWER"):
        monkeypatch.setattr(redis_notices, f"{name}_SECONDS", 1.0)


class Server:
    """One that tells others, and keeps what it is told."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.heard: list[Any] = []
        self.unheard: list[Any] = []
        self.changes = 0
        self.metrics = ServerMetrics()
        self.notices = RedisNotices(
            url,
            server_id=lambda: self.name,
            heard=self._hear,
            unheard=lambda message: self.unheard.append(message["word"]),
            changed=self._change,
            metrics=self.metrics,
        )

    def _hear(self, message: Mapping[str, Any]) -> None:
        self.heard.append(message["word"])

    def _change(self) -> None:
        self.changes += 1

    def tell(self, other: str, word: object) -> None:
        self.notices.send(other, {"word": word})

    async def until_there(self) -> None:
        await until(lambda: self.notices.is_there)

    async def until_away(self) -> None:
        await until(lambda: not self.notices.is_there)


@asynccontextmanager
async def servers(url: str, *names: str) -> AsyncIterator[list[Server]]:
    made = [Server(url, name) for name in names]
    tasks = [asyncio.create_task(one.notices.run()) for one in made]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)  # and none has failed before


async def test_a_server_is_told_alone_and_in_order(redis: RedisServer) -> None:
    async with servers(redis.url, "a", "b", "c") as (a, b, c):
        for one in (a, b, c):
            await one.until_there()
        words = ["ä\ud800\n", *range(1000)]
        for word in words:
            a.tell("b", word)
        await until(lambda: len(b.heard) == len(words))
        assert b.heard == words
        assert (a.heard, c.heard, a.unheard) == ([], [], [])


async def test_what_nobody_hears_is_given_back(redis: RedisServer) -> None:
    async with servers(redis.url, "a") as (a,):
        a.tell("b", "before it is there")
        await a.until_there()
        a.tell("nobody", "now")
        await until(lambda: a.unheard == ["before it is there", "now"])


async def test_a_server_with_another_name_hears_what_is_said_to_that(redis: RedisServer) -> None:
    async with servers(redis.url, "a", "b") as (a, b):
        await a.until_there()
        await b.until_there()
        b.name = ""
        await asyncio.sleep(0.1)
        b.name = "b2"

        def told() -> bool:
            a.tell("b2", "new")
            return "new" in b.heard

        await until(told)
        a.unheard.clear()
        a.tell("b", "old")
        await until(lambda: a.unheard == ["old"])
        assert set(b.heard) == {"new"}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["stopped", "frozen"])
async def test_redis_goes_and_comes_back(redis: RedisServer, how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with servers(redis.url, "a", "b") as (a, b):
        await a.until_there()
        await b.until_there()
        (redis.stop if how == "stopped" else redis.freeze)()
        await a.until_away()
        await b.until_away()
        a.tell("b", "by another way")
        assert a.unheard[-1:] == ["by another way"]
        told = a.changes, a.metrics.troubles(Trouble.REDIS_AWAY)
        await asyncio.sleep(0.3)  # for some tries more
        assert told == (a.changes, a.metrics.troubles(Trouble.REDIS_AWAY))
        assert told >= (2, 1)
        (redis.start if how == "stopped" else redis.thaw)()
        await a.until_there()
        await b.until_there()

        def told_again() -> bool:
            a.tell("b", "back")
            return "back" in b.heard

        await until(told_again)
    assert "Redis is away (" in caplog.text
    assert "Redis is there again" in caplog.text
    assert PASSWORD not in caplog.text


async def test_a_redis_that_refuses_is_away_and_its_password_is_not_shown(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = redis.url.replace(PASSWORD, "wrong-password")
    async with servers(wrong, "a") as (a,):
        await until(lambda: a.metrics.troubles(Trouble.REDIS_AWAY) == 1)
        assert not a.notices.is_there
    with pytest.raises(DrydockError):
        await examine_redis(wrong)
    assert "wrong-password" not in caplog.text
    assert (await examine_redis(redis.url)).startswith("Redis ")


@pytest.mark.usefixtures("impatient")
async def test_a_redis_that_does_not_tell_is_away(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a way that lets nothing back, or a server that may not listen."""
    async with servers(redis.url, "a") as (a,):
        await a.until_there()
        monkeypatch.setattr(redis_notices, "_channel_of", lambda name: f"elsewhere:{name}")
        await a.until_away()


async def test_a_connection_that_the_event_loop_has_closed_is_one_that_is_away(redis: RedisServer) -> None:
    """As uvloop says it of what the client writes to a connection that was lost in that moment."""

    def closed(name: str) -> str:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    async with servers(redis.url, "a") as (a,):
        await a.until_there()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(redis_notices, "_channel_of", closed)
            await a.until_away()
        await a.until_there()
    assert a.metrics.troubles(Trouble.REDIS_AWAY) == 1


def test_what_is_wrong_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="redis_url has an option that the client does not take"):
        Server("redis://127.0.0.1/0?unheard_of=1", "a")
    with suppress(KeyError):
        monkeypatch.delitem(sys.modules, "redis.asyncio")
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'drydock\[redis\]'"):
        Server("redis://127.0.0.1/0", "a")
