"""Locks on what calls touch."""

from __future__ import annotations

import asyncio

import pytest

from agent_core.errors import ToolError
from agent_core.runtime import action_runner
from agent_core.runtime.action_runner import ResourceLocks, ResourceTurn
from agent_core.tools.spec import DeclaredResources

NOTHING = DeclaredResources(declared=True)
UNKNOWN = DeclaredResources()


def keys(*names: str) -> DeclaredResources:
    return DeclaredResources(keys=names, declared=True)


async def together(first: tuple[str, DeclaredResources], second: tuple[str, DeclaredResources]) -> bool:
    """Whether the second call gets on while the first one holds what it touches."""
    locks = ResourceLocks()
    async with locks.turn(*first):
        waiting = asyncio.create_task(hold(locks, second))
        for _ in range(20):
            await asyncio.sleep(0)
        got_on = waiting.done()
    await waiting
    assert not locks._queues, "nothing is kept for nobody"
    return got_on


async def hold(locks: ResourceLocks, call: tuple[str, DeclaredResources]) -> None:
    async with locks.turn(*call):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("a", UNKNOWN), ("a", UNKNOWN), False),
        (("a", UNKNOWN), ("b", UNKNOWN), True),
        (("a", NOTHING), ("a", NOTHING), True),
        (("a", UNKNOWN), ("a", NOTHING), True),
        (("a", keys("file:/x")), ("a", keys("file:/y")), True),
        (("a", keys("file:/x")), ("b", keys("file:/x")), False),
        (("a", keys("file:/x", "file:/y")), ("b", keys("file:/y", "file:/x")), False),
    ],
)
async def test_calls_run_together_unless_they_touch_the_same(
    first: tuple[str, DeclaredResources], second: tuple[str, DeclaredResources], expected: bool
) -> None:
    async with asyncio.timeout(60):
        assert await together(first, second) is expected


@pytest.mark.parametrize("key", ["file:/x", "terminal:session", "other"])
async def test_a_call_does_not_wait_for_ever(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_runner, "LOCK_SECONDS", {"file": 0.001, "terminal": 0.002})
    monkeypatch.setattr(action_runner, "OTHER_SECONDS", 0.003)
    locks = ResourceLocks()
    async with locks.turn("a", keys(key)):
        with pytest.raises(ToolError, match=f"{key} is in use by another call"):
            await hold(locks, ("b", keys(key)))
    await hold(locks, ("b", keys(key)))


def test_the_limits_are_those_of_each_kind() -> None:
    limits = {"file": 30.0, "terminal": 300.0, "ipython": 300.0, "browser": 300.0, "mcp": 300.0, "tool": 60.0}
    assert (limits, 30.0) == (action_runner.LOCK_SECONDS, action_runner.OTHER_SECONDS)


async def test_calls_that_touch_the_same_come_in_the_order_in_which_they_asked_whatever_else_they_touch() -> None:
    locks = ResourceLocks()
    touched = [
        keys("file:/a"),
        keys("file:/a", "file:/b"),
        keys("file:/b"),
        keys("file:/b", "file:/c"),
        keys("file:/c"),
    ]
    done: list[int] = []

    async def call(number: int, turn: ResourceTurn) -> None:
        await asyncio.sleep(0.001 * (len(touched) - number))  # what comes before: a hook, say
        async with turn:
            await asyncio.sleep(0)
            done.append(number)

    async with asyncio.timeout(60):
        turns = [locks.turn("t", one) for one in touched]
        await asyncio.gather(*(call(number, turn) for number, turn in enumerate(turns)))
    assert done == [0, 1, 2, 3, 4]
    assert not locks._queues


async def test_a_call_that_is_given_up_while_it_waits_holds_up_nobody() -> None:
    locks = ResourceLocks()
    first, second, third = (locks.turn("t", keys("file:/a")) for _ in range(3))
    async with asyncio.timeout(60):
        async with first:
            waiting = asyncio.create_task(second.__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        async with third:
            third.leave()
    assert not locks._queues
