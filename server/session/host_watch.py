"""`HostWatch`: notices what befalls the whole process and nothing else would say: a set clock, no descriptors left."""

from __future__ import annotations

import asyncio
import os
import time
from types import TracebackType
from typing import Final, Self

from agent_core.troubles import Trouble
from server.clock import since_boot
from server.metrics import ServerMetrics

LOOK_SECONDS: Final = 5.0
JUMP_SECONDS: Final = 30.0
"""A clock that is kept right by small steps has no trouble."""


class HostWatch:
    """While it is entered, what it notices is counted and written to the log."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._clock = _clock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="host-watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Look once."""
        before, self._clock = self._clock, _clock()
        if abs(jump := self._clock - before) >= JUMP_SECONDS:
            which = "forward" if jump > 0 else "back"
            text = f"the clock was set {which} by {abs(jump):.0f} s: see to it that the machine's time is kept right"
            self._metrics.trouble(Trouble.CLOCK_JUMPED, text)
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            text = (
                f"no descriptor is left ({error.strerror}): connections wait, and files and sandboxes cannot be opened."
                " Raise the limit (ulimit -n, LimitNOFILE), or lower max_connections"
            )
            self._metrics.trouble(Trouble.NO_DESCRIPTORS, text)


def _clock() -> float:
    """What the clock on the wall is ahead of one that nobody sets, in seconds."""
    return time.time() - since_boot()
