"""A program's function that hears a model's text as it comes (agent-core 2.8)."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.deltas import DeltaListener

TokenListener = Callable[[TextDelta], Any]
"""Called in the event loop with each piece of text; what it returns is awaited if that can be, one after another."""


@contextlib.asynccontextmanager
async def heard(on_delta: DeltaListener | None, on_token: TokenListener | None) -> AsyncIterator[DeltaListener | None]:
    """A listener for both; at the end all that `on_token` has begun is done, or cancelled with the caller.

    Raises:
        Exception: what `on_token` raises.
    """
    if on_token is None:
        yield on_delta
        return
    last: asyncio.Task[None] | None = None

    def offer(delta: TextDelta | TextDiscarded) -> None:
        nonlocal last
        if on_delta is not None:
            on_delta(delta)
        if isinstance(delta, TextDelta) and inspect.isawaitable(result := on_token(delta)):
            last = asyncio.create_task(_after(last, result), name="on-token")

    try:
        yield offer
        if last is not None:
            await last
    finally:
        if last is not None and not last.done():
            last.cancel()
            await asyncio.wait([last])


async def _after(before: asyncio.Task[None] | None, result: Awaitable[object]) -> None:
    if before is not None:
        await before
    await result
