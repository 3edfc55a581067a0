"""A conversation's connection to its sandbox: started when needed, attached again when the stream drops.

Implements `agent_core.tools.spec.SandboxAccess`. Requests carry idempotency keys, so one whose stream dropped is asked
again over a new stream: the runner then hands over the journaled result, or attaches the asker to what still runs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_core.errors import SandboxAwayError, SandboxClosedError, SandboxError, SandboxLostError, ToolError
from agent_core.events.transient import SANDBOX_LOST, WAITING_FOR_ENGINE
from agent_core.runtime.channel.channel import ChannelLimits, RunnerChannel, RunnerHello
from agent_core.runtime.channel.disk_watch import DiskWatch
from agent_core.runtime.channel.frame_reader import ChannelClosedError
from agent_core.runtime.channel.tunnels import PortConnection
from agent_core.runtime.sandbox import KeyState, Progress, RunnerReply, Sandbox, SandboxStatus, TellsItsEnd
from agent_core.spans import Span
from agent_core.tools.context import SandboxAccess
from agent_core.troubles import Trouble, coded

logger = logging.getLogger(__name__)

_FIRST_DELAY, _LONGEST_DELAY = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of a connection, in seconds; `attempts` is the most streams that are used for one request.

    `away_seconds`: how long what the sandbox runs on is waited for while it cannot be reached.
    """

    request_seconds: float = 3600.0
    reattach_seconds: float = 15.0
    ping_seconds: float = 5.0
    attempts: int = 4
    frozen_seconds: float = 86_400.0
    away_seconds: float = 86_400.0
    channel: ChannelLimits = field(default_factory=ChannelLimits)


_STARTS_AGAIN = "The next command starts it again."
_READING = frozenset(
    {"ping", "journal.lookup", "ports.list", "file.read", "search.glob", "search.grep", "workspace.facts"}
    | {"git.diff", "git.identity", "git.log", "git.status", "folder.list"}
    | {"transfer.read", "transfer.next", "transfer.drop"}
)
"""Operations that write nothing, and need nothing of what runs in the sandbox."""
_REPEATABLE = (
    _READING
    | {"log.end", "processes.freeze", "processes.thaw", "shell.interrupt", "shell.kill"}
    | {"workspace.snapshot", "workspace.restore", "workspace.pack", "workspace.unpack"}
    | {"git.clone", "git.instructions", "transfer.write", "transfer.put"}
)
"""Operations that may run again without harm, so that they need no key."""


class ConversationSandbox(SandboxAccess, Protocol):
    """What a conversation's parts use of its sandbox: a `SandboxConnection` of its own, or a `SharedSandbox`."""

    async def start(self, progress: Progress | None = None) -> object: ...

    async def lookup(self, key: str) -> KeyState:
        """What is known of a key of an earlier process's action; makes no new sandbox.

        ``done`` and ``running``: asking again under the key gives the one result, or fails with `SandboxLostError`.
        ``unknown``: it never began. ``lost``: there is no sandbox, or it was started since.
        """

    async def until_thawed(self) -> None:
        """Wait while it is frozen for want of room; raises `SandboxError`, which says why, after a day."""

    async def ack(self, keys: Iterable[str]) -> None:
        """Let the runner forget results that are stored by now, soon. Costs no round trip."""

    async def connect_port(self, port: int) -> PortConnection:
        """See `Tunnels.open`. A frozen sandbox goes on; one that is gone is not started."""

    async def start_program(self, order: Mapping[str, Any]) -> PortConnection:
        """Start a program, and the sandbox if need be; see `Tunnels.open`."""


class SandboxConnection:
    """One conversation's sandbox, whose only user it is, and the stream to it.

    `on_status` is told what happens, as ``(status id of docs/protocol.md, text)``. `prepare`, where one is set, is
    awaited whenever the sandbox has started anew, before any other request reaches it; `on_running` is told when an
    action of an earlier process is found running.
    """

    def __init__(
        self, sandbox: Sandbox, *, on_status: Progress | None = None, limits: ConnectionLimits | None = None
    ) -> None:
        self.sandbox = sandbox
        self.prepare: Callable[[SandboxAccess], Awaitable[None]] | None = None
        self.on_running: Callable[[], None] | None = None
        self._limits = limits or ConnectionLimits()
        self._listeners: list[Progress] = [] if on_status is None else [on_status]
        self._paused = False
        self._frozen_for = ""  # why it is to stay frozen
        self._is_thawed = asyncio.Event()
        self._is_thawed.set()
        self._closed = False  # nothing is brought up any more
        self._channel: RunnerChannel | None = None
        self._bringing_up: asyncio.Task[RunnerChannel] | None = None
        self._stops = 0
        self._at_rest = asyncio.Event()  # not while it is being stopped: whoever needs it waits, and starts it again
        self._at_rest.set()
        self._attached_before = False
        self._is_away = False  # it was told that what it runs on cannot be reached
        self._watch = DiskWatch(sandbox, self._usable, self._stop, self._tell)
        self._begun: dict[str, str] = {}

    @property
    def working_dir(self) -> str:
        return self.sandbox.working_dir

    @property
    def is_ready(self) -> bool:
        return self._usable() is not None

    @property
    def hello(self) -> RunnerHello | None:
        return None if self._open_channel is None else self._open_channel.hello

    @property
    def _open_channel(self) -> RunnerChannel | None:
        return self._channel if self._channel is not None and self._channel.is_open else None

    def _usable(self) -> RunnerChannel | None:
        return None if self._paused or self._closed else self._open_channel

    async def start(self, progress: Progress | None = None) -> RunnerHello:
        """Bring the sandbox to READY, from whatever it is; returns the runner's greeting. Raises `SandboxError`."""
        if progress is not None:
            self._listeners.append(progress)
        try:
            return (await self._ready(revive=True)).hello
        finally:
            if progress is not None:
                self._listeners.remove(progress)

    def listen(self, progress: Progress) -> None:
        self._listeners.append(progress)

    async def request(
        self,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        limit_seconds: float | None = None,
        on_output: Callable[[str], None] | None = None,
        blob: bytes | None = None,
    ) -> RunnerReply:
        """See `SandboxAccess.request`. A request without a key gets one, unless it may be repeated.

        While it is frozen for want of room, what only reads is answered all the same; what has a key, as an action has,
        waits for the end of that; anything else is refused.
        """
        limit = self._limits.request_seconds if limit_seconds is None else limit_seconds
        with Span("sandbox_request", operation=op):
            if key is not None or op in _REPEATABLE:
                return await self._ask(op, args, key, limit, waits=key is not None, on_output=on_output, blob=blob)
            key = f"once:{secrets.token_hex(16)}"
            try:
                return await self._ask(op, args, key, limit, waits=False, on_output=on_output, blob=blob)
            finally:
                if self._open_channel is not None:
                    self._open_channel.forget([key])

    async def connect_port(self, port: int) -> PortConnection:
        return await (await self._ready(revive=False)).connect({"port": port})

    async def start_program(self, order: Mapping[str, Any]) -> PortConnection:
        return await (await self._ready(revive=True)).connect({"program": dict(order)})

    async def cancel(self, key: str) -> None:
        """Interrupt what runs under a key; its request answers with its output so far. Never starts a sandbox."""
        if (channel := self._usable()) is not None:
            channel.post("cancel", {"key": key})

    async def lookup(self, key: str) -> KeyState:
        if self._usable() is None and await self.sandbox.poll() is SandboxStatus.ABSENT:
            return "lost"
        reply = await self.request("journal.lookup", {"key": key})
        state = reply.result.get("state")
        if state not in ("running", "done"):
            return "unknown" if self.sandbox.survived else "lost"
        if self.hello is not None:
            self._begun[key] = self.hello.boot
        if state == "running" and self.on_running is not None:
            self.on_running()
        return "running" if state == "running" else "done"

    async def ack(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        for key in keys:
            self._begun.pop(key, None)
        if (channel := self._usable()) is not None:
            channel.forget(keys)

    async def pause(self) -> None:
        """Freeze what runs in it, until something is asked of it. Its runner stays awake: left alone, it ends itself.

        Only where there is no runner that can do so it is frozen with it, and then it is its server's to end.
        """
        if self._paused:
            return
        channel, self._paused = self._usable(), True
        if channel is not None and await self._told(channel, "processes.freeze"):
            return
        if channel is not None:
            channel.suspended = True
        await self.sandbox.pause()

    async def freeze(self, reason: str) -> None:
        """Pause it until `resume`, whatever is asked of it meanwhile."""
        self._frozen_for = reason
        self._is_thawed.clear()
        await self.pause()

    async def until_thawed(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.frozen_seconds):
                await self._is_thawed.wait()
        self._refuse_if_frozen()

    async def resume(self) -> None:
        self._unfreeze()
        if self._paused:
            await self._ready(revive=True)

    async def host_changed(self, reason: str) -> None:
        """What it runs on cannot be reached, for this reason (a sentence), or can again (""): who listens is told.

        Not where the sandbox itself answers all the same, nor while somebody waits for it, who hears of it anyway.
        """
        if not self._attached_before or self._bringing_up is not None:
            return
        if reason:
            channel = self._usable()
            if channel is None or not await channel.ping(self._limits.ping_seconds):
                self._told_away(reason)
        elif self._is_away:
            self._told_back()

    def _told_away(self, reason: str) -> None:
        self._is_away = True
        self._tell(WAITING_FOR_ENGINE, f"Waiting for the Docker host. {reason}")

    def _told_back(self) -> None:
        self._is_away = False
        self._tell("STATUS$READY", "The sandbox can be reached again")

    async def stop(self) -> None:
        """End the sandbox's processes; the workspace stays, and the next request starts it again."""
        await self._stop("the sandbox was stopped")
        self._tell("STATUS$STOPPED", "The sandbox is stopped")

    async def destroy(self) -> None:
        self._closed = True
        self._unfreeze()
        await self._let_go("the sandbox was removed")
        await self.sandbox.destroy()

    async def close(self) -> None:
        """Detach from the sandbox; what runs in it goes on, for whoever attaches next."""
        self._closed = True
        self._unfreeze()
        await self._let_go("this server let go of the sandbox")

    # --- the channel to its runner ---

    async def _ready(self, *, revive: bool) -> RunnerChannel:
        """An open channel; all who need one share one attempt, which no caller's cancelling ends."""
        while True:
            self._refuse_if_closed()
            self._refuse_if_frozen()
            if (channel := self._usable()) is not None:
                return channel
            joined = self._bringing_up is not None
            if (task := self._bringing_up) is None:
                name = f"sandbox-start {self.sandbox.spec.conversation_id}"
                task = self._bringing_up = asyncio.create_task(self._bring_up(revive), name=name)
                task.add_done_callback(self._brought_up)
            await asyncio.wait({task})
            if task.cancelled():
                self._refuse_if_closed()
                raise SandboxLostError("The sandbox was let go while it started.")
            error = task.exception()
            if error is None:
                self._refuse_if_frozen()
                return task.result()
            if not (joined and revive and isinstance(error, SandboxLostError)):
                raise error

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SandboxClosedError("The connection to the sandbox is closed.")

    def _refuse_if_frozen(self) -> None:
        if self._frozen_for:
            raise SandboxError(self._frozen_for, code="disk_reserve")

    def _unfreeze(self) -> None:
        self._frozen_for = ""
        self._is_thawed.set()

    def _awake(self, op: str) -> RunnerChannel | None:
        """For what only reads, the channel to what is frozen: its runner is awake, unless it was frozen with it."""
        channel = self._open_channel if self._frozen_for and op in _READING else None
        return None if channel is None or channel.suspended else channel

    def _brought_up(self, task: asyncio.Task[RunnerChannel]) -> None:
        if self._bringing_up is task:
            self._bringing_up = None
        if not task.cancelled():
            task.exception()  # those who waited raise it; nobody may be left

    async def _bring_up(self, revive: bool) -> RunnerChannel:
        await self._at_rest.wait()
        if self._paused:
            await self.sandbox.resume()
            self._paused = False
            if (channel := self._open_channel) is not None:
                was_whole, channel.suspended = channel.suspended, False
                if await self._told(channel, "processes.thaw") or was_whole:
                    return channel
                await channel.close("it does not answer")  # whoever attaches anew thaws it
        if self._attached_before:
            try:
                return await self._reattach()
            except SandboxLostError as error:
                self._attached_before = False
                self._tell(SANDBOX_LOST, f"{error} {_STARTS_AGAIN}")
                if not revive:
                    raise
        elif not revive:
            raise SandboxLostError("The sandbox is gone.")
        return await self._start()

    async def _start(self) -> RunnerChannel:
        with Span("sandbox_start") as span:
            try:
                return await self._started()
            finally:  # until it was looked for nobody may know whose it is
                span.facts |= {"provider": self.sandbox.provider, "survived": self.sandbox.survived}

    async def _started(self) -> RunnerChannel:
        try:
            await self.sandbox.start(self._tell)
            try:
                channel = await self._attach()
            except SandboxError as error:
                if error.code != "protocol_version":
                    raise
                await self.sandbox.stop()  # a runner of another release: started again, it is replaced by ours
                await self.sandbox.start(self._tell)
                channel = await self._attach()
            if self.prepare is not None and not self.sandbox.survived:
                await self.prepare(_NewSandbox(channel, self.working_dir, self._limits.request_seconds))
        except SandboxError as error:
            self._tell("STATUS$ERROR", str(error))
            raise
        self._tell("STATUS$READY", "The sandbox is ready")
        return channel

    async def _attach(self) -> RunnerChannel:
        channel = await RunnerChannel.open(await self.sandbox.attach(), self._limits.channel)
        self._channel = channel
        self._attached_before = True
        self._watch.begin()
        return channel

    async def _reattach(self) -> RunnerChannel:
        """A new stream to the living sandbox; raises `SandboxLostError` when there is none in time."""
        loop = asyncio.get_running_loop()
        delay = _FIRST_DELAY
        reason = "it does not answer"
        is_silent = waits = False
        try:
            async with asyncio.timeout(self._limits.reattach_seconds) as clock:
                while True:
                    try:
                        status = await self.sandbox.poll()
                        waits = False
                        if self._is_away:
                            clock.reschedule(loop.time() + self._limits.reattach_seconds)
                            self._told_back()
                        if status is SandboxStatus.PAUSED:
                            await self.sandbox.resume()
                        elif status is not SandboxStatus.RUNNING:
                            why = self.sandbox.ended if isinstance(self.sandbox, TellsItsEnd) else ""
                            raise SandboxLostError(f"The sandbox has gone ({why or status.value}).")
                        is_silent = True
                        return await self._attach()
                    except SandboxLostError:
                        raise
                    except SandboxError as error:
                        is_silent, reason = False, str(error)
                        if isinstance(error, SandboxAwayError):
                            if not waits:
                                clock.reschedule(loop.time() + self._limits.away_seconds)
                            waits = True
                            self._told_away(str(error))
                    await asyncio.sleep(delay)
                    delay = min(_LONGEST_DELAY, delay * 2)
        except TimeoutError:
            if is_silent:  # it would be as silent to everybody who attaches to it, instead of starting it anew
                await self._stop_silent(self.sandbox.stop())
            raise SandboxLostError(f"The sandbox could not be reached again: {reason}") from None

    async def _stop_silent(self, stopping: Awaitable[None]) -> None:
        try:
            await stopping
        except SandboxError as error:
            where = self.sandbox.spec.conversation_id
            extra = coded(Trouble.SANDBOX_NOT_STOPPED, where)
            text = "conversation %s: its sandbox does not answer, and could not be stopped: %s"
            logger.warning(text, where, error, extra=extra)

    async def _told(self, channel: RunnerChannel, op: str) -> bool:
        """Whether the runner did what it was told, in time."""
        try:
            async with asyncio.timeout(self._limits.ping_seconds):
                return bool((await channel.request(op, {})).result.get("frozen", True))
        except (SandboxError, ToolError, TimeoutError) as error:
            logger.debug("conversation %s: %s: %s", self.sandbox.spec.conversation_id, op, error or "no answer in time")
            return False

    async def _stop(self, reason: str) -> None:
        self._stops += 1
        self._at_rest.clear()
        try:
            await self._let_go(reason)
            await self.sandbox.stop()
        finally:
            self._stops -= 1
            if self._stops == 0:
                self._at_rest.set()

    async def _let_go(self, reason: str) -> None:
        self._attached_before = self._is_away = False
        self._paused = False
        await self._watch.end()
        task, self._bringing_up = self._bringing_up, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(reason)

    def _tell(self, status: str, text: str) -> None:
        for listener in list(self._listeners):
            try:
                listener(status, text)
            except Exception:
                logger.exception("a listener to the sandbox's status failed")

    # --- asking ---

    async def _ask(
        self, op: str, args: Mapping[str, Any], key: str | None, limit: float, *, waits: bool, **options: Any
    ) -> RunnerReply:
        loop = asyncio.get_running_loop()
        boot = self._begun.get(key) if key is not None else None
        left = limit
        reason = ""
        for _ in range(self._limits.attempts):
            try:
                if waits:
                    await self.until_thawed()
                channel = self._awake(op) or await self._ready(revive=boot is None or key is None)
            except SandboxLostError as error:
                if boot is None or isinstance(error, SandboxClosedError):
                    raise
                raise SandboxLostError(f"The sandbox ended while this ran in it. {error}", fix=_STARTS_AGAIN) from error
            began = loop.time()
            try:
                if boot is not None and key is not None and channel.hello.boot != boot:
                    await self._insist_on_result(channel, key, reason)
                boot = channel.hello.boot
                async with asyncio.timeout(left):
                    return await channel.request(op, args, key=key, **options)
            except TimeoutError:
                raise await self._overdue(channel, op, limit) from None
            except ChannelClosedError as error:
                if error.replaced:  # asking again would take the sandbox back, and so on for ever
                    raise SandboxLostError("Another server has taken over this sandbox.") from error
                reason = error.reason
                left = max(1.0, left - (loop.time() - began))
        raise SandboxLostError(f"The stream to the sandbox dropped {self._limits.attempts} times ({reason}).")

    async def _insist_on_result(self, channel: RunnerChannel, key: str, reason: str) -> None:
        try:
            async with asyncio.timeout(self._limits.ping_seconds):
                reply = await channel.request("journal.lookup", {"key": key})
        except TimeoutError:
            raise SandboxLostError("The sandbox was started anew and does not answer.") from None
        if reply.result.get("state") != "done":
            raise SandboxLostError(f"The sandbox ended while this ran in it, and was started anew ({reason}).")

    async def _overdue(self, channel: RunnerChannel, op: str, limit: float) -> SandboxError:
        if await channel.ping(self._limits.ping_seconds):
            return SandboxError(
                f"The sandbox did not finish {op} within {limit:g} s; it was told to stop it.", code="request_timeout"
            )
        self._tell(SANDBOX_LOST, f"The sandbox does not answer; it is stopped. {_STARTS_AGAIN}")
        if channel is self._open_channel:
            await self._stop_silent(self._stop("the sandbox did not answer"))
        return SandboxLostError(f"The sandbox did not answer within {limit:g} s and was stopped.", fix=_STARTS_AGAIN)


class _NewSandbox:
    """A sandbox that nobody else reaches yet (a `SandboxAccess`), over the first stream to it."""

    def __init__(self, channel: RunnerChannel, working_dir: str, limit_seconds: float) -> None:
        self.working_dir = working_dir
        self._channel = channel
        self._limit_seconds = limit_seconds

    async def request(
        self,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        limit_seconds: float | None = None,
        on_output: Callable[[str], None] | None = None,
        blob: bytes | None = None,
    ) -> RunnerReply:
        limit = self._limit_seconds if limit_seconds is None else limit_seconds
        try:
            async with asyncio.timeout(limit):
                return await self._channel.request(op, args, key=key, on_output=on_output, blob=blob)
        except TimeoutError:
            raise SandboxError(f"The sandbox did not finish {op} within {limit:g} s.", code="request_timeout") from None
        except ChannelClosedError as error:
            raise SandboxLostError(f"The sandbox was lost while it was set up ({error.reason}).") from error
