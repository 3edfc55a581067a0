"""The server's end of one byte stream to a runner: requests with their answers, live output, cancelling."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.runtime.channel.answer_forms import (
    MAX_ERROR,
    MAX_LIVE,
    SMALL,
    AnswerForm,
    Args,
    UnexpectedError,
    form_of,
    is_number,
    without_halves,
)
from agent_core.runtime.channel.frame_reader import LARGE, ChannelClosedError, FrameReader, in_thread, protocol_error
from agent_core.runtime.channel.tunnels import PortConnection, PortError, Tunnels
from agent_core.runtime.sandbox import Attachment, RunnerReply
from runtime_images.runner import wire

logger = logging.getLogger(__name__)

RESTART = "Stop the conversation and start it again."
MAX_BOOT = 200
MAX_ABANDONED: Final = 4096
PIECES_AT_ONCE: Final = 10_000
PIECES_PER_SECOND: Final = 500
_CODE: Final = re.compile("[a-z_]{1,40}")
_CALLERS_FAULT = frozenset({"bad_request", "not_found", "not_a_file", "too_large"})
_OUTCOME_UNKNOWN = frozenset({"interrupted", "forgotten"})


@dataclass(frozen=True, slots=True)
class RunnerHello:
    """A runner's greeting; `boot` is new for each start, `tunnels` and `programs` tell what can be connected to."""

    boot: str
    workspace: str
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
        workspace = hello.get("workspace")
        return cls(
            boot=hello["boot"],
            workspace=without_halves(workspace[:500]) if isinstance(workspace, str) else "",
            tunnels=hello.get("tunnels") is True,
            programs=hello.get("programs") is True,
        )


class Watchdog:
    """Pings a silent peer that owes something after `limit` seconds, then gives it up."""

    def __init__(
        self, limit: float, *, owes: Callable[[], bool], ask: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        self._limit = limit
        self._owes = owes
        self._ask = ask
        self._give_up = give_up
        self._last_activity = 0.0
        self._was_pinged = False
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self.note_activity()
        self._plan(self._limit)

    def note_activity(self) -> None:
        self._last_activity, self._was_pinged = asyncio.get_running_loop().time(), False

    def end(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _plan(self, seconds: float) -> None:
        self._next = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        if (left := self._last_activity + self._limit - asyncio.get_running_loop().time()) > 0:
            self._plan(left)
        elif self._was_pinged and self._owes():
            self._next = None
            self._give_up()
        else:
            self._was_pinged = self._owes()
            self._plan(self._limit)
            if self._was_pinged:
                self._ask()


@dataclass(slots=True)
class _Request:
    """A request, and what may still come of it."""

    form: AnswerForm
    args: Args
    answer: asyncio.Future[RunnerReply] | None = None
    on_output: Callable[[str], None] | None = None
    most_json: int = 0
    most_blob: int = 0
    sent_at: float = 0.0
    pieces: int = 0

    def __post_init__(self) -> None:
        self.most_json, self.most_blob = self.form.most_json(self.args), self.form.most_blob(self.args)
        self.sent_at = asyncio.get_running_loop().time()


class PendingAnswers:
    """The requests of one stream, by their ids, as long as something may come of them.

    What no request has asked for is a `SandboxError` (``protocol``), with which the stream is over.
    """

    def __init__(self) -> None:
        self._awaited: dict[int, _Request] = {}
        self._abandoned: dict[int, _Request] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    @contextlib.contextmanager
    def expect(
        self, ident: int, op: str, args: Args, on_output: Callable[[str], None] | None
    ) -> Iterator[asyncio.Future[RunnerReply]]:
        """The answer to a request, for as long as somebody waits for it; see `RunnerChannel.request` for its errors."""
        answer: asyncio.Future[RunnerReply] = asyncio.get_running_loop().create_future()
        self._awaited[ident] = request = _Request(form_of(op), args, answer, on_output)
        try:
            yield answer
        finally:
            if self._awaited.pop(ident, None) is not None:
                request.answer = request.on_output = None
                request.args = {}
                self._abandon(ident, request)
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, also when the sending has failed first

    def ignore(self, ident: int, op: str, args: Args) -> None:
        self._abandon(ident, _Request(form_of(op), args))

    def _abandon(self, ident: int, request: _Request) -> None:
        while len(self._abandoned) >= MAX_ABANDONED:  # some never get an answer: asked again under their key
            del self._abandoned[next(iter(self._abandoned))]
        self._abandoned[ident] = request

    def most_json(self) -> int:
        every = (*self._awaited.values(), *self._abandoned.values())
        return max((request.most_json for request in every), default=SMALL)

    def most_blob(self, message: wire.FrameMessage, length: int) -> int:
        request = self._request_of(message) if "id" in message else None
        is_answer = request is not None and "output" not in message
        most = request.most_json if request is not None and is_answer else SMALL
        if length > most:
            raise protocol_error(f"a frame of {length} bytes where at most {most} were asked for")
        return request.most_blob if request is not None and is_answer else 0

    async def take(self, message: wire.FrameMessage, blob: bytes | None, length: int) -> None:
        """Hand a message to whoever waits for it; raises `ChannelClosedError` if it was the runner's last."""
        if "id" not in message and isinstance(message.get("error"), dict):
            error = message["error"]
            raise ChannelClosedError(_message(error)[:500], replaced=error.get("code") == "replaced")
        request = self._request_of(message)
        if "output" in message:
            self._take_output(request, message["output"])
            return
        if message.get("ok") is True:
            await self._take_result(message, request, blob, length)
        elif message.get("ok") is False and isinstance(message.get("error"), dict):
            self._over(message["id"], request, _error(message["error"]))
        else:
            raise protocol_error("an answer of an unknown form")

    def _take_output(self, request: _Request, output: object) -> None:
        if not isinstance(output, str) or not request.form.is_live:
            raise protocol_error("live output that nobody has asked for")
        request.pieces += 1
        if request.pieces > PIECES_AT_ONCE + PIECES_PER_SECOND * (asyncio.get_running_loop().time() - request.sent_at):
            raise protocol_error("more pieces of live output than a command can have")
        if request.on_output is not None:
            try:
                request.on_output(without_halves(output[:MAX_LIVE]))
            except Exception:
                logger.exception("a listener to live output failed")

    async def _take_result(
        self, message: wire.FrameMessage, request: _Request, blob: bytes | None, length: int
    ) -> None:
        if request.answer is None:
            self._over(message["id"], request, None)
            return
        form, args, result = request.form, request.args, message.get("result")
        try:
            checked = (
                form.result(result, args) if length <= LARGE else await in_thread(lambda: form.result(result, args))
            )
        except UnexpectedError as error:
            problem = protocol_error(f"an answer in which {error}")
            self._over(message["id"], request, problem)
            raise problem from error
        self._over(message["id"], request, RunnerReply(checked, blob))

    def _over(self, ident: int, request: _Request, outcome: RunnerReply | Exception | None) -> None:
        self._awaited.pop(ident, None)
        self._abandoned.pop(ident, None)
        if request.answer is None or request.answer.done():
            return
        if isinstance(outcome, RunnerReply):
            request.answer.set_result(outcome)
        elif outcome is not None:
            request.answer.set_exception(outcome)

    def _request_of(self, message: wire.FrameMessage) -> _Request:
        ident = message.get("id")
        request = self._awaited.get(ident) or self._abandoned.get(ident) if is_number(ident) else None
        if request is not None:
            return request
        raise protocol_error("an answer that nobody has asked for")

    def fail(self, end: ChannelClosedError) -> None:
        for request in self._awaited.values():
            if request.answer is not None and not request.answer.done():
                request.answer.set_exception(end.again())


def _message(error: Mapping[str, Any]) -> str:
    text = error.get("message", "")
    return without_halves(text)[:MAX_ERROR] if isinstance(text, str) else ""


def _error(error: Mapping[str, Any]) -> Exception:
    code = error.get("code")
    code = code if isinstance(code, str) and _CODE.fullmatch(code) else "internal"
    text = _message(error) or f"The sandbox answered with the error {code}."
    if code in _CALLERS_FAULT:
        error_of_caller = ToolError(text)
        error_of_caller.code = code
        return error_of_caller
    if code in _OUTCOME_UNKNOWN:
        return SandboxLostError(f"{text[:1].upper()}{text[1:].rstrip('.')}.")
    return SandboxError(text, code=code)


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """Bounds of a channel, in seconds. Results are forgotten within `forget_seconds`."""

    hello_seconds: float = 20.0
    silence_seconds: float = 20.0
    forget_seconds: float = 0.5
    pending: int = 512


class RunnerChannel:
    """Requests to one runner over one stream; make it with `open`, end it with `close`."""

    hello: RunnerHello

    def __init__(self, attachment: Attachment, limits: ChannelLimits) -> None:
        reader, self._writer = attachment
        self._limits = limits
        self._ids = itertools.count(1)
        self._pending = PendingAnswers()
        self._tunnels = Tunnels(self._post, self._drain)
        self._ended: ChannelClosedError | None = None
        self._reading: asyncio.Task[None] | None = None
        self._forgettable: list[str] = []
        self._forgetting: asyncio.TimerHandle | None = None
        self._watchdog = Watchdog(
            limits.silence_seconds,
            owes=lambda: bool(self._pending) and not self.suspended,
            ask=lambda: self.post("ping", {}),
            give_up=self._lost,
        )
        self._frames = FrameReader(reader, self._watchdog.note_activity)
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
            channel.hello = RunnerHello.from_message(message)
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
            raise self._ended.again()
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

    async def connect(self, order: Mapping[str, Any]) -> PortConnection:
        """Connect to a port or a program, as `Tunnels.open`; an older runner has neither (``unsupported``)."""
        if self._ended is not None:
            raise self._ended.again()
        if not (self.hello.tunnels if "port" in order else self.hello.programs):
            missing = "ports could be reached" if "port" in order else "programs could be spoken to"
            raise PortError(f"This sandbox was started before {missing}.", code="unsupported", fix=RESTART)
        return await self._tunnels.open(order)

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
                    self._tunnels.dispatch(message, blob)
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
