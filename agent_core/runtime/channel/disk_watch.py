"""`DiskWatch`: watches the disk of a running sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from agent_core.errors import DrydockError
from agent_core.events.transient import DISK_LIMIT as DISK_LIMIT
from agent_core.runtime.channel.channel import RunnerChannel
from agent_core.runtime.sandbox import DiskUsage, Progress, Sandbox
from agent_core.troubles import Trouble, coded

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
_ASK_EVERY = 5
_ANSWER_SECONDS = 5.0
_SLACK_BYTES = 16 * 1024**2
_SLACK_ENTRIES = 2000
_STRIKES = 2
"""Looks in a row that found more than the one before: what ends it from within has a moment for that."""
_FIX = "Remove files first (du -ah /workspace ~ | sort -h | tail shows large ones)."


class DiskWatch:
    """Looks at a running sandbox's disk: tells what was ended in it, and stops it when that did not help.

    The runner keeps to its limits by itself, unless hostile: so it is measured from outside as well, with a little
    allowance, and told when that finds more. `channel` gives the connection to the runner, while the sandbox is not
    frozen; `stop` lets go of it for a reason and ends the sandbox's processes.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        channel: Callable[[], RunnerChannel | None],
        stop: Callable[[str], Awaitable[None]],
        tell: Progress,
    ) -> None:
        self._sandbox = sandbox
        self._limits = sandbox.spec.limits
        self._channel = channel
        self._stop_sandbox = stop
        self._tell = tell
        self._task: asyncio.Task[None] | None = None
        self._known: tuple[str, int] = ("", 0)
        self._least: DiskUsage | None = None
        self._strikes = 0

    def begin(self) -> None:
        if (self._limits.disk or self._limits.inodes) and (self._task is None or self._task.done()):
            self._least, self._strikes = None, 0  # what a stopped one had when it ended may be removed by the next
            name = f"disk-watch {self._sandbox.spec.conversation_id}"
            self._task = asyncio.create_task(self._watch(), name=name)

    async def end(self) -> None:
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait({task})

    async def _watch(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            channel = self._channel()
            if channel is None:
                continue
            turn += 1
            try:
                found = await self._sandbox.usage()
                if found is not None and self._channel() is channel and self._goes_on(found):
                    await self._stop(found)
                    return
                if found is not None and self._least is found:  # new, or grown: asked, the runner looks, too
                    channel.post("disk.state", {})
                if turn % _ASK_EVERY == 0:
                    await self._ask(channel)
            except (DrydockError, TimeoutError, OSError) as error:
                logger.debug("the disk of %s could not be looked at: %s", self._sandbox.spec.conversation_id, error)

    async def _ask(self, channel: RunnerChannel) -> None:
        async with asyncio.timeout(_ANSWER_SECONDS):
            state = (await channel.request("disk.state", {})).result
        boot, before = self._known
        stops = int(state["stops"])
        self._known = (channel.hello.boot, stops)
        if stops > (before if boot == channel.hello.boot else 0):
            found = DiskUsage(state["bytes"], state["entries"])
            self._tell(DISK_LIMIT, f"What ran in the sandbox was ended: {self._about(found)} {_FIX}")

    def _goes_on(self, found: DiskUsage) -> bool:
        """Whether it becomes more and more although it is too much: what there is may stay, for somebody to remove."""
        least = self._least
        limits = self._limits
        most_entries = limits.inodes + limits.inodes // 20 + _SLACK_ENTRIES if limits.inodes else 0
        too_large = bool(limits.disk) and found.bytes > limits.disk_bound
        if not (too_large or (most_entries and found.entries > most_entries) or not found.whole):
            self._least, self._strikes = None, 0
            return False
        if least is None:
            self._least = found
            return False
        grows = found.bytes > least.bytes + _SLACK_BYTES or found.entries > least.entries + _SLACK_ENTRIES
        self._strikes = self._strikes + 1 if grows else 0
        self._least = found if grows else DiskUsage(min(found.bytes, least.bytes), min(found.entries, least.entries))
        return self._strikes >= _STRIKES

    async def _stop(self, found: DiskUsage) -> None:
        about = self._about(found)
        try:
            await self._stop_sandbox("its disk limit is reached")
        except DrydockError as error:
            where = self._sandbox.spec.conversation_id
            extra = coded(Trouble.SANDBOX_NOT_STOPPED, where)
            text = "conversation %s: its sandbox is beyond its disk limit, and could not be stopped: %s"
            logger.warning(text, where, error, extra=extra)
        with contextlib.suppress(DrydockError):
            self._tell(DISK_LIMIT, f"The sandbox was stopped: {about} The next command starts it again. {_FIX}")

    def _about(self, found: DiskUsage) -> str:
        limits = self._limits
        size = f"its files take {found.bytes / 1024**2:.1f} MiB"
        size += f" of {limits.disk / 1024**2:.1f} MiB" if limits.disk else ""
        count = f"and are {found.entries}" + (f" of {limits.inodes}" if limits.inodes else "")
        return f"{size}, {count} with their folders."
