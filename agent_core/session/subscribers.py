"""The tasks of a session's subscribers: begun together, started again when they fail, ended within a bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from agent_core.events.stream import EventStream

logger = logging.getLogger(__name__)

RESTART_SECONDS = (0.1, 1.0, 5.0)


class Subscribers:
    """Owns what follows a stream until that is closed."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def begin(
        self,
        name: str,
        run: Callable[[], Coroutine[Any, Any, None]],
        stream: EventStream,
        give_up: Callable[[str], Awaitable[None]],
    ) -> None:
        """Run this one; when it fails (a bug) that is logged, and it is started again at its position.

        `give_up` is told, in words for people, when that does not help.
        """
        work = _supervised(name, run, stream, give_up)
        self._tasks.append(asyncio.create_task(work, name=f"{name}:{stream.conversation_id}"))

    async def end(self, *, patience_seconds: float, limit_seconds: float) -> None:
        """Wait for their end: the stream is closed, they read to its end and return. Who does not is cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=patience_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=limit_seconds)


async def _supervised(
    name: str,
    run: Callable[[], Coroutine[Any, Any, None]],
    stream: EventStream,
    give_up: Callable[[str], Awaitable[None]],
) -> None:
    for delay in (*RESTART_SECONDS, None):
        try:
            await run()
            return
        except Exception:
            logger.exception("subscriber %s of conversation %s failed", name, stream.conversation_id)
            if stream.closed:
                return
            if delay is None:
                break
            await asyncio.sleep(delay)
    await give_up(f"The {name} of this conversation failed repeatedly; stop it and start it again.")
