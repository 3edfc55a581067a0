"""When an idle conversation is unloaded, and when its paused sandbox is stopped: pure rules, and the loop that asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

logger = logging.getLogger(__name__)


class Activity(NamedTuple):
    """What a loaded conversation is doing. `last_activity` is monotonic time: something was said or done then."""

    last_activity: float
    is_busy: bool
    connections: int


def is_idle(activity: Activity, *, now: float, limit_seconds: float) -> bool:
    """Whether to unload it: nobody is connected, nothing is at work, and it was silent for the limit (0: never)."""
    if limit_seconds <= 0 or activity.is_busy or activity.connections:
        return False
    return now - activity.last_activity >= limit_seconds


def is_pause_over(paused_at: float, *, now: float, limit_seconds: float) -> bool:
    """Whether a sandbox paused at `paused_at` should be stopped by now (limit 0: never)."""
    return limit_seconds > 0 and now - paused_at >= limit_seconds


async def cull_forever(cull: Callable[[], Awaitable[None]], *, interval_seconds: float) -> None:
    """Call `cull` again and again; a failed round is logged and the next one comes as usual. Ends by cancellation."""
    while True:
        await asyncio.sleep(interval_seconds)
        try:
            await cull()
        except Exception:
            logger.exception("looking for idle conversations failed; the next round tries again")
