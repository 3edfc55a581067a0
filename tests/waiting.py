"""Waiting for what no event tells of, with a limit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

LIMIT_SECONDS = 60.0


async def until(condition: Callable[[], object], *, seconds: float = LIMIT_SECONDS) -> None:
    """Wait until something is so; what the condition gives may be awaited itself."""
    async with asyncio.timeout(seconds):
        while True:
            found, pause = condition(), 0.002
            if inspect.isawaitable(found):
                found, pause = await found, 0.02  # servers refuse who asks too often
            if found:
                return
            await asyncio.sleep(pause)


async def ticks(count: int) -> None:
    """Let the loop go round that many times."""
    for _ in range(count):
        await asyncio.sleep(0)
