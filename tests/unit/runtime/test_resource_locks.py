"""Locks on what calls touch (agent-core 2.5.4)."""

from __future__ import annotations

import asyncio

import pytest

from agent_core.errors import ToolError
from agent_core.runtime import resource_locks
from agent_core.runtime.resource_locks import ResourceLocks
from agent_core.tools.spec import DeclaredResources

NOTHING = DeclaredResources(declared=True)
UNKNOWN = DeclaredResources()


def keys(*names: str) -> DeclaredResources:
    return DeclaredResources(keys=names, declared=True)


async def together(first: tuple[str, DeclaredResources], second: tuple[str, DeclaredResources]) -> bool:
    """Whether the second call gets on while the first one holds what it touches."""
    locks = ResourceLocks()
    async with locks.held(*first):
        waiting = asyncio.create_task(hold(locks, second))
        for _ in range(20):
            await asyncio.sleep(0)
        got_on = waiting.done()
    await waiting
    assert not locks._locks, "nothing is kept for nobody"
    return got_on


async def hold(locks: ResourceLocks, call: tuple[str, DeclaredResources]) -> None:
    async with locks.held(*call):
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
    async with asyncio.timeout(10):
        assert await together(first, second) is expected


@pytest.mark.parametrize("key", ["file:/x", "terminal:session", "other"])
async def test_a_call_does_not_wait_for_ever(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_locks, "LOCK_SECONDS", {"file": 0.001, "terminal": 0.002})
    monkeypatch.setattr(resource_locks, "OTHER_SECONDS", 0.003)
    locks = ResourceLocks()
    async with locks.held("a", keys(key)):
        with pytest.raises(ToolError, match=f"{key} is in use by another call"):
            await hold(locks, ("b", keys(key)))
    await hold(locks, ("b", keys(key)))


def test_the_limits_are_those_of_each_kind() -> None:
    limits = {"file": 30.0, "terminal": 300.0, "ipython": 300.0, "browser": 300.0, "mcp": 300.0, "tool": 60.0}
    assert (limits, 30.0) == (resource_locks.LOCK_SECONDS, resource_locks.OTHER_SECONDS)
