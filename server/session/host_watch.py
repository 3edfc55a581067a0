"""`HostWatch`: notices what befalls the whole process and nothing else would say: a set clock, no descriptors left."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from functools import partial
from types import TracebackType
from typing import Final, Self

from agent_core.troubles import Trouble
from agent_core.version import VERSION
from server.clock import since_boot
from server.metrics import ServerMetrics

LOOK_SECONDS: Final = 5.0
LAG_SECONDS: Final = 0.5
"""How often it is measured how late the event loop is."""
JUMP_SECONDS: Final = 30.0
"""A clock that is kept right by small steps has no trouble."""


class HostWatch:
    """While it is entered, what it notices is counted and written to the log."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._clock = _clock()
        self._lags = (0.0, 0.0)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._show()
        self._task = asyncio.create_task(self._run(), name="host-watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            lag = 0.0
            for _ in range(round(LOOK_SECONDS / LAG_SECONDS)):
                due = loop.time() + LAG_SECONDS
                await asyncio.sleep(LAG_SECONDS)
                lag = max(lag, loop.time() - due)
            self._lags = (self._lags[1], lag)
            self.look()

    def _show(self) -> None:
        gauge = self._metrics.gauge
        gauge("drydock_info", lambda: 1, VERSION)
        gauge("drydock_tasks", lambda: len(asyncio.all_tasks()))
        gauge("drydock_threads", threading.active_count)
        gauge("drydock_loop_lag_seconds", lambda: max(self._lags))
        gauge("process_cpu_seconds_total", time.process_time)
        gauge("process_start_time_seconds", partial(float, time.time()))
        gauge("process_open_fds", lambda: len(os.listdir("/proc/self/fd")))
        gauge("process_max_fds", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])

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
