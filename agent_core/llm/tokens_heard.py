"""A program's function that hears a model's text as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.deltas import DeltaListener

logger = logging.getLogger(__name__)

TokenListener = Callable[[TextDelta], Any]
"""Called in the event loop with each piece of text; what it returns is awaited if that can be, one after another."""


@contextlib.asynccontextmanager
async def heard(on_delta: DeltaListener | None, on_token: TokenListener | None) -> AsyncIterator[DeltaListener | None]:
    """A listener for both; at the end `on_token` has heard everything, or hears no more where the caller failed.

    What `on_token` raises is logged: it says nothing about the answer, of which the rest is told all the same.
    """
    if on_token is None:
        yield on_delta
        return
    untold: asyncio.Queue[TextDelta | None] = asyncio.Queue()

    def offer(delta: TextDelta | TextDiscarded) -> None:
        if on_delta is not None:
            on_delta(delta)
        if isinstance(delta, TextDelta):
            untold.put_nowait(delta)

    telling = asyncio.create_task(_tell(untold, on_token), name="on-token")
    try:
        yield offer
        untold.put_nowait(None)
        await telling
    finally:
        if not telling.done():
            telling.cancel()
            await asyncio.wait([telling])


async def _tell(untold: asyncio.Queue[TextDelta | None], on_token: TokenListener) -> None:
    """Tell of each piece, in order, up to the None."""
    while (delta := await untold.get()) is not None:
        try:
            result = on_token(delta)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - whatever a program's function raises
            logger.warning("a listener to a model's text failed: %s", type(error).__name__)
