"""The thread behind the blocking client: nobody waits for work that is never done."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from drydock_client.errors import ClientError
from drydock_client.sync_client import ClientThread

LIMIT = 60.0


async def nothing() -> str:
    return "done"


def ask_until_closed(thread: ClientThread, started: threading.Barrier) -> str:
    started.wait(LIMIT)
    try:
        while thread.run(nothing()) == "done":
            pass
    except ClientError as error:
        return str(error)
    raise AssertionError("it never ended")


def test_a_call_that_is_under_way_ends_with_the_client() -> None:
    thread, begun = ClientThread(), threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    thread.start()
    with ThreadPoolExecutor(1) as callers:
        call: Future[None] = callers.submit(lambda: thread.run(endless()))
        assert begun.wait(LIMIT)
        thread.end()
        with pytest.raises(ClientError, match="closed meanwhile"):
            call.result(LIMIT)


def test_calls_that_race_the_end_are_done_or_refused() -> None:
    for _ in range(20):
        thread, started = ClientThread(), threading.Barrier(5)
        thread.start()
        with ThreadPoolExecutor(4) as callers:
            calls = [callers.submit(ask_until_closed, thread, started) for _ in range(4)]
            started.wait(LIMIT)
            thread.end()
            assert all("client" in call.result(LIMIT) for call in calls)
