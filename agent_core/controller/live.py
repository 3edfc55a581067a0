"""What users see of a step while it goes on: text as it comes, and retries."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from agent_core.errors import LLMRateLimitError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.masking import StreamingMask
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice, TextDelta, TextDiscarded
from agent_core.llm.llm import RetryNotice

T = TypeVar("T")


class Deltas:
    """Passes streamed text on, with secrets masked across the borders of its pieces."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._response_id = ""
        self._masks: dict[str, StreamingMask] = {}

    def offer(self, delta: TextDelta | TextDiscarded) -> None:
        if isinstance(delta, TextDiscarded):
            self._masks.clear()
            self._response_id = ""
            self._stream.publish(delta)
            return
        self._response_id = delta.response_id
        mask = self._masks.setdefault(delta.channel, StreamingMask(self._stream.secrets))
        if text := mask.feed(delta.text):
            self._stream.publish(TextDelta(delta.response_id, text, delta.channel))

    def discard(self) -> None:
        """What was shown of the answer is void."""
        if self._response_id:
            self._stream.publish(TextDiscarded(self._response_id))
            self._response_id = ""


class Retries:
    """Tells the user about retries; a limited rate is a state of its own."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._writing: asyncio.Task[object] | None = None
        self.was_limited = False

    def note(self, notice: RetryNotice) -> None:
        text = (
            f"Retrying LLM request, {notice.attempt} / {notice.max_attempts}"
            f" in {notice.wait_seconds:.0f} s: {notice.error}"
        )
        self._stream.publish(StatusNotice("STATUS$LLM_RETRY", text))
        if isinstance(notice.error, LLMRateLimitError) and not self.was_limited:
            self.was_limited = True
            limited = AgentStateChanged(agent_state=AgentState.RATE_LIMITED, detail=str(notice.error))
            self._writing = asyncio.create_task(self._stream.add_event(limited), name="rate-limited")

    async def settle(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])
            if error := self._writing.exception():
                raise error


async def whole(writing: asyncio.Task[T]) -> T:
    """Wait for the end of `writing`, also when cancelled meanwhile, and return its result."""
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        if not writing.cancelled():
            writing.exception()  # seen; whoever cancelled has other things to do
        raise
