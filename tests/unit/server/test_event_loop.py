"""Names that nobody answers for keep nobody else waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from server.cli import event_loop
from server.cli.event_loop import ServerLoop
from tests.listening import listening

HANGING = 100


@pytest.fixture
def ends() -> threading.Event:
    """Set, it ends what hangs."""
    return threading.Event()


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch, ends: threading.Event) -> Iterator[list[str]]:
    """The system's, which does not answer for names that begin with ``hang``; the names that it was asked for."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, family: int = 0, kind: int = 0, proto: int = 0, flags: int = 0) -> Any:
        if not flags & socket.AI_NUMERICHOST:
            asked.append(host)
            if host.startswith("hang"):
                ends.wait(60)
                raise socket.gaierror(socket.EAI_AGAIN, "nobody answers")
        return real(host, port, family, kind, proto, flags)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield asked
    ends.set()


def run(main: Any) -> None:
    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        runner.run(asyncio.wait_for(main, 60))


def test_a_hundred_names_that_hang_hold_up_neither_other_names_nor_addresses(resolver: list[str]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        hanging = [loop.create_task(_outcome(loop.getaddrinfo(f"hang{n}.test", 80))) for n in range(HANGING)]
        await asyncio.sleep(0)
        assert await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
        async with listening(_greet) as port:
            for host in ("127.0.0.1", "localhost"):
                reader, writer = await asyncio.open_connection(host, port)
                assert await reader.read() == b"hello"
                writer.close()
            with socket.socket() as client:  # the way of aiohttp, which litellm has
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", port))
        assert len([name for name in resolver if name.startswith("hang")]) == HANGING
        for task in hanging:
            task.cancel()

    run(main())


def test_one_name_is_looked_up_once_for_all_who_ask_and_left_when_nobody_waits(
    resolver: list[str], ends: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "LOOKUP_THREADS", 1)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ServerLoop)
        first = [loop.create_task(_outcome(loop.getaddrinfo("hang.test", 80))) for _ in range(20)]
        given_up = loop.create_task(_outcome(loop.getaddrinfo("hang-later.test", 80)))
        while not resolver:  # noqa: ASYNC110 - a thread tells no event
            await asyncio.sleep(0.01)
        for task in (*first, given_up):
            task.cancel()
        await asyncio.wait([*first, given_up])
        again = loop.create_task(_outcome(loop.getaddrinfo("hang.test", 80)))  # shares what is still under way
        await asyncio.sleep(0.05)
        again.cancel()
        assert resolver == ["hang.test"]
        ends.set()
        while loop._look_ups:  # noqa: ASYNC110 - nothing is kept of what nobody waited for
            await asyncio.sleep(0.01)

    run(main())
    assert resolver == ["hang.test"]


def test_the_answer_and_the_refusal_are_those_of_the_system() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for host in ("localhost", "127.0.0.1", "::1", None):
            expected = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)
            assert await loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM) == expected
        for _ in range(2):
            with pytest.raises(socket.gaierror):
                await loop.getaddrinfo("no such name", 80)

    run(main())


async def _outcome(answer: Any) -> Any:
    try:
        return await answer
    except OSError as error:
        return error


async def _greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    writer.close()
