"""The answers of a runner that are awaited."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.runtime.channel.answer_forms import (
    MAX_ERROR,
    MAX_LIVE,
    SMALL,
    AnswerForm,
    Asked,
    UnexpectedError,
    form_of,
    is_number,
    without_halves,
)
from agent_core.runtime.channel.frame_reader import LARGE, ChannelClosedError, in_thread, protocol_error
from agent_core.runtime.sandbox import RunnerReply
from runtime_images.runner import wire

logger = logging.getLogger(__name__)

MAX_ABANDONED: Final = 4096
PIECES_AT_ONCE: Final = 10_000
PIECES_PER_SECOND: Final = 500
_CODE: Final = re.compile("[a-z_]{1,40}")
_CALLERS_FAULT = frozenset({"bad_request", "not_found", "not_a_file", "too_large"})
_OUTCOME_UNKNOWN = frozenset({"interrupted", "forgotten"})


class _Request:
    """A request, and what may still come of it."""

    __slots__ = ("answer", "asked", "asked_at", "form", "most_blob", "most_json", "on_output", "pieces")

    def __init__(
        self,
        form: AnswerForm,
        asked: Asked,
        answer: asyncio.Future[RunnerReply] | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> None:
        self.form = form
        self.asked = asked
        self.answer = answer
        self.on_output = on_output
        self.most_json = form.most_json(asked)
        self.most_blob = form.most_blob(asked)
        self.asked_at = asyncio.get_running_loop().time()
        self.pieces = 0

    def abandon(self) -> None:
        self.answer = self.on_output = None
        self.asked = {}


class PendingAnswers:
    """The requests of one stream, by their ids, as long as something may come of them.

    What no request has asked for is a `SandboxError` (``protocol``), with which the stream is over.
    """

    def __init__(self) -> None:
        self._awaited: dict[int, _Request] = {}
        self._abandoned: dict[int, _Request] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    @contextmanager
    def expect(
        self, ident: int, op: str, asked: Asked, on_output: Callable[[str], None] | None
    ) -> Iterator[asyncio.Future[RunnerReply]]:
        """The answer to a request, for as long as somebody waits for it; see `RunnerChannel.request` for its errors."""
        answer: asyncio.Future[RunnerReply] = asyncio.get_running_loop().create_future()
        self._awaited[ident] = request = _Request(form_of(op), asked, answer, on_output)
        try:
            yield answer
        finally:
            if self._awaited.pop(ident, None) is not None:
                request.abandon()
                self._abandon(ident, request)
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, also when the sending has failed first

    def ignore(self, ident: int, op: str, asked: Asked) -> None:
        self._abandon(ident, _Request(form_of(op), asked))

    def _abandon(self, ident: int, request: _Request) -> None:
        while len(self._abandoned) >= MAX_ABANDONED:  # some never get an answer: asked again under their key
            del self._abandoned[next(iter(self._abandoned))]
        self._abandoned[ident] = request

    def most_json(self) -> int:
        every = (*self._awaited.values(), *self._abandoned.values())
        return max((request.most_json for request in every), default=SMALL)

    def most_blob(self, message: wire.Message, length: int) -> int:
        request = self._request_of(message) if "id" in message else None
        is_answer = request is not None and "output" not in message
        most = request.most_json if request is not None and is_answer else SMALL
        if length > most:
            raise protocol_error(f"a frame of {length} bytes where at most {most} were asked for")
        return request.most_blob if request is not None and is_answer else 0

    async def take(self, message: wire.Message, blob: bytes | None, length: int) -> None:
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
        if request.pieces > PIECES_AT_ONCE + PIECES_PER_SECOND * (asyncio.get_running_loop().time() - request.asked_at):
            raise protocol_error("more pieces of live output than a command can have")
        if request.on_output is not None:
            try:
                request.on_output(without_halves(output[:MAX_LIVE]))
            except Exception:
                logger.exception("a listener to live output failed")

    async def _take_result(self, message: wire.Message, request: _Request, blob: bytes | None, length: int) -> None:
        if request.answer is None:
            self._over(message["id"], request, None)
            return
        form, asked, result = request.form, request.asked, message.get("result")
        try:
            checked = (
                form.result(result, asked) if length <= LARGE else await in_thread(lambda: form.result(result, asked))
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

    def _request_of(self, message: wire.Message) -> _Request:
        ident = message.get("id")
        request = self._awaited.get(ident) or self._abandoned.get(ident) if is_number(ident) else None
        if request is not None:
            return request
        raise protocol_error("an answer that nobody has asked for")

    def fail(self, end: ChannelClosedError) -> None:
        for request in self._awaited.values():
            if request.answer is not None and not request.answer.done():
                request.answer.set_exception(ChannelClosedError(end.reason, replaced=end.replaced))


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
