"""The answers of a runner that are awaited, and what becomes of what it sends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.runtime.sandbox import RunnerReply
from runtime_images.runner import wire

logger = logging.getLogger(__name__)

_CALLERS_FAULT = frozenset({"bad_request", "not_found", "not_a_file", "too_large"})
_OUTCOME_UNKNOWN = frozenset({"interrupted", "forgotten"})


class ChannelClosedError(SandboxError):
    """The stream to the runner has ended; whether the request took effect is unknown.

    Attributes:
        reason: why, as the end of a sentence.
        replaced: somebody else has attached to the runner since.
    """

    def __init__(self, reason: str, *, replaced: bool = False) -> None:
        super().__init__(f"The stream to the sandbox has ended: {reason}.", code="channel_closed")
        self.reason = reason
        self.replaced = replaced


@dataclass(slots=True)
class _Pending:
    answer: asyncio.Future[RunnerReply]
    on_output: Callable[[str], None] | None


class PendingAnswers:
    """The requests of one stream that have no answer yet, by their ids."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @contextmanager
    def expect(self, ident: int, on_output: Callable[[str], None] | None) -> Iterator[asyncio.Future[RunnerReply]]:
        """The answer to a request, for as long as somebody waits for it; see `RunnerChannel.request` for its errors."""
        answer: asyncio.Future[RunnerReply] = asyncio.get_running_loop().create_future()
        self._pending[ident] = _Pending(answer, on_output)
        try:
            yield answer
        finally:
            del self._pending[ident]
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, also when the sending has failed first

    def dispatch(self, frame: wire.Frame) -> None:
        """Hand what the runner sent to whoever waits for it.

        Raises:
            ChannelClosedError: it was the runner's last word.
            SandboxError: ``protocol``, it has no known form.
        """
        message = frame.message
        ident = message.get("id")
        if ident is None and isinstance(message.get("error"), dict):
            error = message["error"]
            raise ChannelClosedError(str(error.get("message", ""))[:500], replaced=error.get("code") == "replaced")
        pending = self._pending.get(ident) if isinstance(ident, int) else None
        if pending is None or pending.answer.done():
            return
        output = message.get("output")
        if isinstance(output, str):
            _tell(pending.on_output, output)
        elif message.get("ok") is True and isinstance(message.get("result"), dict):
            pending.answer.set_result(RunnerReply(message["result"], frame.blob))
        elif message.get("ok") is False and isinstance(message.get("error"), dict):
            pending.answer.set_exception(_error(message["error"]))
        else:
            raise SandboxError("The sandbox sent an answer of an unknown form.", code="protocol")

    def fail(self, end: ChannelClosedError) -> None:
        """Nothing more will come: everybody who waits is told so."""
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(ChannelClosedError(end.reason, replaced=end.replaced))


def _tell(on_output: Callable[[str], None] | None, text: str) -> None:
    if on_output is None:
        return
    try:
        on_output(text)
    except Exception:
        logger.exception("a listener to live output failed")


def _error(error: Mapping[str, Any]) -> Exception:
    code = str(error.get("code", "internal"))[:100]
    text = str(error.get("message", "")) or f"The sandbox answered with the error {code}."
    if code in _CALLERS_FAULT:
        error_of_caller = ToolError(text)
        error_of_caller.code = code
        return error_of_caller
    if code in _OUTCOME_UNKNOWN:
        return SandboxLostError(f"{text[:1].upper()}{text[1:].rstrip('.')}.")
    return SandboxError(text, code=code)
