"""The server's end of one byte stream to a runner: requests with their answers, live output, cancelling."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_core.errors import SandboxError, ToolError
from agent_core.runtime.channel.answer_forms import SMALL, without_halves
from agent_core.runtime.channel.frame_reader import ChannelClosedError, FrameReader, protocol_error
from agent_core.runtime.channel.pending_answers import PendingAnswers
from agent_core.runtime.channel.tunnels import PortConnection, PortError, Tunnels
from agent_core.runtime.sandbox import Attachment, RunnerReply
from runtime_images.runner import wire

MAX_BOOT = 200


@dataclass(frozen=True, slots=True)
class RunnerHello:
    """A runner's greeting; `boot` is new for each start, `tunnels` and `programs` tell what can be connected to."""

    boot: str
    version: str
    python: str
    workspace: str
    user: str
    hostname: str
    tunnels: bool = False
    programs: bool = False

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> RunnerHello:
        """Read the first frame of a stream; raises `SandboxError` (``protocol``, ``protocol_version``)."""
        hello = message.get("hello")
        if not isinstance(hello, dict) or not isinstance(hello.get("boot"), str) or len(hello["boot"]) > MAX_BOOT:
            raise SandboxError("The sandbox did not begin with a greeting.", code="protocol")
        if hello.get("protocol") != wire.PROTOCOL:
            raise SandboxError(
                f"The program in the sandbox speaks version {str(hello.get('protocol'))[:20]} of the protocol, "
                f"not {wire.PROTOCOL}.",
                code="protocol_version",
                fix="Restart the sandbox.",
            )
        words = {name: _word(hello.get(name), 500) for name in ("python", "workspace", "user", "hostname")}
        return cls(
            boot=hello["boot"],
            version=_word(hello.get("runner"), 100),
            tunnels=hello.get("tunnels") is True,
            programs=hello.get("programs") is True,
            **words,
        )


def _word(value: object, limit: int) -> str:
    return without_halves(value[:limit]) if isinstance(value, str) else ""


class Watchdog:
    """Pings a silent peer that owes something after `limit` seconds, then gives it up."""

    def __init__(
        self, limit: float, *, owes: Callable[[], bool], ask: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        self._limit = limit
        self._owes = owes
        self._ask = ask
        self._give_up = give_up
        self._heard_at = 0.0
        self._was_asked = False
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self.heard()
        self._plan(self._limit)

    def heard(self) -> None:
        self._heard_at, self._was_asked = asyncio.get_running_loop().time(), False

    def end(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _plan(self, seconds: float) -> None:
        self._next = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        left = self._heard_at + self._limit - asyncio.get_running_loop().time()
        if left > 0:
            self._plan(left)
        elif self._was_asked and self._owes():
            self._next = None
            self._give_up()
        else:
            self._was_asked = self._owes()
            self._plan(self._limit)
            if self._was_asked:
                self._ask()


logger = logging.getLogger(__name__)

RESTART = "Stop the conversation and start it again."


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """Bounds of a channel, in seconds. Results are forgotten within `forget_seconds`."""

    hello_seconds: float = 20.0
    silence_seconds: float = 20.0
    forget_seconds: float = 0.5
    pending: int = 512


class RunnerChannel:
    """Requests to one runner over one stream; make it with `open`, end it with `close`.

    For ports and programs see `Tunnels`; an older runner has neither (`PortError`, ``unsupported``).
    """

    def __init__(self, attachment: Attachment, limits: ChannelLimits) -> None:
        reader, self._writer = attachment
        self._limits = limits
        self._ids = itertools.count(1)
        self._pending = PendingAnswers()
        self._tunnels = Tunnels(self._post, self._drain)
        self._ended: ChannelClosedError | None = None
        self._reading: asyncio.Task[None] | None = None
        self._hello: RunnerHello | None = None
        self._forgettable: list[str] = []
        self._forgetting: asyncio.TimerHandle | None = None
        self._watchdog = Watchdog(
            limits.silence_seconds,
            owes=lambda: bool(self._pending) and not self.suspended,
            ask=lambda: self.post("ping", {}),
            give_up=self._lost,
        )
        self._frames = FrameReader(reader, self._watchdog.heard)
        self.suspended = False

    @classmethod
    async def open(cls, attachment: Attachment, limits: ChannelLimits | None = None) -> RunnerChannel:
        """Read the greeting and begin to listen; a failure (`ChannelClosedError`, `SandboxError`) closes the stream."""
        channel = cls(attachment, limits or ChannelLimits())
        try:
            async with asyncio.timeout(channel._limits.hello_seconds):
                message, _ = await channel._frames.message(lambda: SMALL, SMALL)
            if "blob" in message:
                raise protocol_error("a greeting with an attachment")
            channel._hello = RunnerHello.from_message(message)
        except TimeoutError:
            channel._writer.close()
            raise SandboxError("The program in the sandbox did not greet in time.", code="start_timeout") from None
        except BaseException:
            channel._writer.close()
            raise
        channel._reading = asyncio.create_task(channel._read(), name="sandbox-channel")
        channel._watchdog.begin()
        return channel

    @property
    def is_open(self) -> bool:
        return self._ended is None

    @property
    def hello(self) -> RunnerHello:
        assert self._hello is not None  # noqa: S101 - `open` returns only after it
        return self._hello

    async def request(
        self,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        on_output: Callable[[str], None] | None = None,
        blob: bytes | None = None,
    ) -> RunnerReply:
        """Send a request and wait for the answer. A cancelled caller cancels the operation in the sandbox.

        Raises `ToolError` for refused arguments, `ChannelClosedError` if the stream ends before, `SandboxLostError` for
        another runner or a forgotten result, and `SandboxError` if the runner fails at it.
        """
        if self._ended is not None:
            raise self._ended
        if len(self._pending) >= self._limits.pending:
            raise SandboxError("Too many requests to this sandbox at once.", code="busy", fix="Wait for some to end.")
        ident = next(self._ids)
        frame = _frame(ident, op, args, key, blob, self._forgettable)
        self._forgotten()
        try:
            with self._pending.expect(ident, op, args, on_output) as answer:
                self._writer.write(frame)
                del frame
                await self._drain()
                return await answer
        except asyncio.CancelledError:
            self.post("cancel", {"id": ident} if key is None else {"key": key})
            raise

    async def connect_port(self, port: int) -> PortConnection:
        if self._ended is not None:
            raise self._ended
        if not self.hello.tunnels:
            raise PortError("This sandbox was started before ports could be reached.", code="unsupported", fix=RESTART)
        return await self._tunnels.open(port)

    async def start_program(self, order: Mapping[str, Any]) -> PortConnection:
        if self._ended is not None:
            raise self._ended
        if not self.hello.programs:
            text = "This sandbox was started before programs could be spoken to."
            raise PortError(text, code="unsupported", fix=RESTART)
        return await self._tunnels.start_program(order)

    def post(self, op: str, args: Mapping[str, Any]) -> None:
        """Send a request whose answer nobody looks at; does nothing when the stream has ended."""
        if self._ended is None:
            ident = next(self._ids)
            self._pending.ignore(ident, op, args)
            self._post(_frame(ident, op, args))

    def _post(self, data: bytes) -> None:
        if self._ended is None:
            self._writer.write(data)

    def forget(self, keys: Iterable[str]) -> None:
        """Let the runner forget these results: said in the next request, or after a while, to save messages."""
        if self._ended is not None:
            return
        self._forgettable.extend(keys)
        if self._forgetting is None:
            loop = asyncio.get_running_loop()
            self._forgetting = loop.call_later(self._limits.forget_seconds, self._forget_now)

    def _forget_now(self) -> None:
        if self._forgettable and self._ended is None:
            self.post("journal.ack", {"keys": self._forgettable})
        self._forgotten()

    def _forgotten(self) -> None:
        self._forgettable = []
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None

    async def ping(self, limit: float) -> bool:
        try:
            async with asyncio.timeout(limit):
                await self.request("ping", {})
        except (TimeoutError, SandboxError):
            return False
        return True

    async def close(self, reason: str = "it was closed") -> None:
        self._forget_now()
        self._fail(ChannelClosedError(reason))
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _read(self) -> None:
        end = ChannelClosedError("it was closed")
        try:
            while True:
                message, length = await self._frames.message(self._pending.most_json, SMALL)
                if "stream" in message:
                    blob = await self._frames.blob(message, self._tunnels.most_blob(length))
                    self._tunnels.dispatch(wire.Frame(message, blob))
                else:
                    blob = await self._frames.blob(message, self._pending.most_blob(message, length))
                    await self._pending.take(message, blob, length)
        except ChannelClosedError as error:
            end = error
        except SandboxError as error:
            logger.warning("the stream to a sandbox is ended: %s", error)
            end = ChannelClosedError(str(error).rstrip("."))
        finally:
            self._fail(end)

    def _lost(self) -> None:
        self._fail(ChannelClosedError("the sandbox gave no sign of life"))
        if self._reading is not None:
            self._reading.cancel()

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            reason = str(error) or type(error).__name__
            end = ChannelClosedError(reason)
            self._fail(end)  # at once: nobody is to be sent to a stream that is known to be dead
            raise end from error

    def _fail(self, end: ChannelClosedError) -> None:
        if self._ended is not None:
            return
        self._ended = end
        self._forgotten()
        self._watchdog.end()
        self._pending.fail(end)
        self._tunnels.fail(end)
        with contextlib.suppress(OSError, RuntimeError):  # the transport may be gone already
            self._writer.close()


def _frame(
    ident: int,
    op: str,
    args: Mapping[str, Any],
    key: str | None = None,
    blob: bytes | None = None,
    forget: Sequence[str] = (),
) -> bytes:
    message: dict[str, Any] = {"id": ident, "op": op, "args": dict(args)}
    if forget:
        message["forget"] = forget
    if key is not None:
        message["key"] = key
    try:
        return wire.encode(message, blob)
    except wire.ProtocolError as error:
        raise ToolError(f"The request {op} cannot be sent to the sandbox: {error}.") from error
