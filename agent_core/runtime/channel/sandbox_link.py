"""The way from a connection to an open channel: one start for all who wait, attaching again, letting go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from agent_core.errors import SandboxClosedError, SandboxError, SandboxLostError
from agent_core.runtime.channel.channel import ChannelLimits, RunnerChannel
from agent_core.runtime.channel.disk_watch import DiskWatch
from agent_core.runtime.sandbox import Progress, Sandbox, SandboxStatus

logger = logging.getLogger(__name__)

_FIRST_DELAY, _LONGEST_DELAY = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of a connection, in seconds.

    Attributes:
        request_seconds: outer limit of a request that names none.
        reattach_seconds: how long a living sandbox is tried before it counts as lost.
        ping_seconds: within which a runner that did not end a request in time must give a sign of life.
        attempts: most streams that are used for one request.
    """

    request_seconds: float = 3600.0
    reattach_seconds: float = 15.0
    ping_seconds: float = 5.0
    attempts: int = 4
    channel: ChannelLimits = field(default_factory=ChannelLimits)


class SandboxLink:
    """One sandbox and, while there is one, the channel to its runner.

    Attributes:
        listeners: told what happens, as ``(status id of docs/protocol.md, text)``.
        paused: the sandbox was frozen through this link.
        closed: nothing is brought up any more.
    """

    def __init__(self, sandbox: Sandbox, limits: ConnectionLimits) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self.listeners: list[Progress] = []
        self.paused = False
        self.closed = False
        self._channel: RunnerChannel | None = None
        self._bringing_up: asyncio.Task[RunnerChannel] | None = None
        self._attached_before = False
        self._watch = DiskWatch(sandbox, self.usable, self._stop_full, self.tell)

    @property
    def channel(self) -> RunnerChannel | None:
        """The open channel, also that of a frozen sandbox."""
        return self._channel if self._channel is not None and self._channel.is_open else None

    def usable(self) -> RunnerChannel | None:
        channel = self._channel
        return channel if channel is not None and channel.is_open and not self.paused and not self.closed else None

    async def ready(self, *, revive: bool) -> RunnerChannel:
        """An open channel; all who need one share one attempt, which no caller's cancelling ends."""
        while True:
            self._refuse_if_closed()
            channel = self.usable()
            if channel is not None:
                return channel
            joined = self._bringing_up is not None
            task = self._bringing_up or self._spawn(self._bring_up(revive))
            await asyncio.wait({task})
            if task.cancelled():
                self._refuse_if_closed()
                raise SandboxLostError("The sandbox was let go while it started.")
            error = task.exception()
            if error is None:
                return task.result()
            if not (joined and revive and isinstance(error, SandboxLostError)):
                raise error

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise SandboxClosedError("The connection to the sandbox is closed.")

    def _spawn(self, work: Coroutine[Any, Any, RunnerChannel]) -> asyncio.Task[RunnerChannel]:
        task = asyncio.create_task(work, name=f"sandbox-start {self._sandbox.spec.conversation_id}")
        self._bringing_up = task
        task.add_done_callback(self._brought_up)
        return task

    def _brought_up(self, task: asyncio.Task[RunnerChannel]) -> None:
        if self._bringing_up is task:
            self._bringing_up = None
        if not task.cancelled():
            task.exception()  # those who waited raise it; nobody may be left

    async def _bring_up(self, revive: bool) -> RunnerChannel:
        if self.paused:
            await self._sandbox.resume()
            self.paused = False
            if self._channel is not None and self._channel.is_open:
                self._channel.suspended = False
                return self._channel
        if self._attached_before:
            try:
                return await self._reattach()
            except SandboxLostError as error:
                self._attached_before = False
                self.tell("STATUS$ERROR_RUNTIME_DISCONNECTED", str(error))
                if not revive:
                    raise
        elif not revive:
            raise SandboxLostError("The sandbox is gone.")
        return await self._start()

    async def _start(self) -> RunnerChannel:
        try:
            await self._sandbox.start(self.tell)
            try:
                channel = await self._attach()
            except SandboxError as error:
                if error.code != "protocol_version":
                    raise
                await self._sandbox.stop()  # a runner of another release: started again, it is replaced by ours
                await self._sandbox.start(self.tell)
                channel = await self._attach()
        except SandboxError as error:
            self.tell("STATUS$ERROR", str(error))
            raise
        self.tell("STATUS$READY", "The sandbox is ready")
        return channel

    async def _attach(self) -> RunnerChannel:
        channel = await RunnerChannel.open(await self._sandbox.attach(), self._limits.channel)
        self._channel = channel
        self._attached_before = True
        self._watch.begin()
        return channel

    async def _reattach(self) -> RunnerChannel:
        """A new stream to the sandbox that lives; raises `SandboxLostError` when there is none, or none in time."""
        delay = 0.02
        reason = "it does not answer"
        is_silent = False
        try:
            async with asyncio.timeout(self._limits.reattach_seconds):
                while True:
                    try:
                        status = await self._sandbox.poll()
                        if status is SandboxStatus.PAUSED:
                            await self._sandbox.resume()
                        elif status is not SandboxStatus.RUNNING:
                            raise SandboxLostError(f"The sandbox has gone ({status.value}).")
                        is_silent = True
                        return await self._attach()
                    except SandboxLostError:
                        raise
                    except SandboxError as error:
                        is_silent, reason = False, str(error)
                    await asyncio.sleep(delay)
                    delay = min(1.0, delay * 2)
        except TimeoutError:
            if is_silent:  # it would be as silent to everybody who attaches to it, instead of starting it anew
                await self._stop_silent()
            raise SandboxLostError(f"The sandbox could not be reached again: {reason}") from None

    async def _stop_full(self, reason: str) -> None:
        await self.let_go(reason)
        await self._sandbox.stop()

    async def _stop_silent(self) -> None:
        try:
            await self._sandbox.stop()
        except SandboxError:
            logger.exception("a sandbox that does not answer could not be stopped")

    async def let_go(self, reason: str) -> None:
        self._attached_before = False
        self.paused = False
        await self._watch.end()
        task, self._bringing_up = self._bringing_up, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(reason)

    def tell(self, status: str, text: str) -> None:
        for listener in list(self.listeners):
            try:
                listener(status, text)
            except Exception:
                logger.exception("a listener to the sandbox's status failed")
