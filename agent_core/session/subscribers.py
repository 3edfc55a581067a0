"""The tasks of a session's subscribers: begun together, started again when they fail, ended within a bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice

logger = logging.getLogger(__name__)

RESTART_SECONDS = (0.1, 1.0, 5.0)


class Subscribers:
    """Owns what follows a stream until that is closed."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, name: str, run: Callable[[], Coroutine[Any, Any, None]], stream: EventStream) -> None:
        """Run this one; when it fails (a bug) that is logged, and it is started again at its position."""
        task = asyncio.create_task(_supervised(name, run, stream), name=f"{name}:{stream.conversation_id}")
        self._tasks.append(task)

    async def end(self, *, patience_seconds: float, limit_seconds: float) -> None:
        """Wait for their end: the stream is closed, they read to its end and return. Who does not is cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=patience_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=limit_seconds)


async def _supervised(name: str, run: Callable[[], Coroutine[Any, Any, None]], stream: EventStream) -> None:
    for delay in (*RESTART_SECONDS, None):
        try:
            await run()
            return
        except Exception:
            logger.exception("subscriber %s of conversation %s failed", name, stream.conversation_id)
            if delay is None or stream.closed:
                break
            await asyncio.sleep(delay)
    detail = f"The {name} of this conversation failed repeatedly; stop the conversation and start it again."
    stream.publish(StatusNotice("STATUS$ERROR", detail, "error"))
