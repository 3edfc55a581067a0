"""SerialExecutor: one piece of work after the other, each done whole whoever still waits for it."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from server.session.serial_executor import SerialExecutor


@pytest.fixture
def reported() -> Iterator[list[dict[str, Any]]]:
    """What the event loop reports of failures that nobody saw to."""
    told: list[dict[str, Any]] = []
    yield told
    assert told == []


async def test_work_is_done_one_piece_at_a_time_in_the_order_of_asking() -> None:
    executor, steps = SerialExecutor("t"), list[str]()

    async def work(name: str) -> str:
        steps.append(f"{name} begins")
        await asyncio.sleep(0)
        assert executor.is_running
        steps.append(f"{name} ends")
        return name

    assert (executor.is_running, executor.has_work) == (False, False)
    results = await asyncio.gather(*(executor.run(work(name)) for name in "abc"))
    assert results == ["a", "b", "c"]
    assert steps == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
    assert (executor.is_running, executor.has_work) == (False, False)


async def test_work_is_done_whole_when_whoever_asked_has_gone(reported: list[dict[str, Any]]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    executor, may_go_on, done = SerialExecutor("t"), asyncio.Event(), list[str]()

    async def work() -> None:
        await may_go_on.wait()
        done.append("whole")
        raise ValueError("nobody is left to be told of it")

    asker = asyncio.create_task(executor.run(work()))
    await asyncio.sleep(0)
    asker.cancel()
    await asyncio.gather(asker, return_exceptions=True)
    assert executor.has_work, "the work goes on without whoever asked for it"
    may_go_on.set()
    await executor.run(asyncio.sleep(0))
    assert done == ["whole"]
    gc.collect()


async def test_work_that_is_cancelled_before_its_turn_is_closed(reported: list[dict[str, Any]]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    executor, blocked = SerialExecutor("t"), asyncio.Event()

    async def never_begun() -> None:
        raise AssertionError("it began")

    first = asyncio.create_task(executor.run(wait_for(blocked)))
    work = never_begun()
    second = asyncio.create_task(executor.run(work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting = [task for task in asyncio.all_tasks() if task.get_name() == "t"]
    assert len(waiting) == 2
    for task in waiting:
        task.cancel()
    ends = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 2
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
    assert (executor.is_running, executor.has_work) == (False, False)


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()
