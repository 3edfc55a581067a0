"""Passes the text of a streaming answer on, in pieces that people can follow and machines can bear."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.transport.exchange import is_half, whole_characters

logger = logging.getLogger(__name__)

INTERVAL = 0.03

DeltaListener = Callable[[TextDelta | TextDiscarded], None]


class DeltaSink:
    """Gathers the text of one answer and tells the listener: the first piece at once, then every `INTERVAL` seconds."""

    def __init__(self, response_id: str, listener: DeltaListener | None) -> None:
        self._response_id = response_id
        self._listener = listener
        self._pieces: list[str] = []
        self._channel: Literal["message", "reasoning"] = "message"
        self._timer: asyncio.TimerHandle | None = None
        self._has_sent = False

    def add(self, text: str, channel: Literal["message", "reasoning"] = "message") -> None:
        if not text or self._listener is None:
            return
        if channel != self._channel:
            self._send()
            self._pieces.clear()
            self._channel = channel
        self._pieces.append(text)
        if self._timer is None:
            self._tick()

    def _tick(self) -> None:
        self._timer = None
        if self._pieces:
            self._send()
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._tick)

    def _send(self) -> None:
        if self._pieces and self._listener is not None:
            text = "".join(self._pieces)
            self._pieces.clear()
            if is_half(text[-1]):
                self._pieces.append(text[-1])  # its other half may be on the way
                text = text[:-1]
            text = whole_characters(text)
            if not text:
                return
            self._has_sent = True
            self._listener(TextDelta(self._response_id, text, self._channel))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """The answer is complete: what is left goes out."""
        self._stop()
        self._send()

    def discard(self) -> None:
        """The answer broke off: nothing more of it goes out, and what went out is void."""
        self._stop()
        self._pieces.clear()
        if self._has_sent and self._listener is not None:
            self._listener(TextDiscarded(self._response_id))
            self._has_sent = False


TokenListener = Callable[[TextDelta], Any]
"""Called in the event loop with each piece of text; what it returns is awaited if that can be, one after another."""


@contextlib.asynccontextmanager
async def combined_listener(
    on_delta: DeltaListener | None, on_token: TokenListener | None
) -> AsyncIterator[DeltaListener | None]:
    """A listener for both; in the end `on_token` has heard all, unless the caller failed; what it raises is logged."""
    if on_token is None:
        yield on_delta
        return
    untold: asyncio.Queue[TextDelta | None] = asyncio.Queue()

    def offer(delta: TextDelta | TextDiscarded) -> None:
        if on_delta is not None:
            on_delta(delta)
        if isinstance(delta, TextDelta):
            untold.put_nowait(delta)

    delivery = asyncio.create_task(_tell(untold, on_token), name="on-token")
    try:
        yield offer
        untold.put_nowait(None)
        await delivery
    finally:
        if not delivery.done():
            delivery.cancel()
            await asyncio.wait([delivery])


async def _tell(untold: asyncio.Queue[TextDelta | None], on_token: TokenListener) -> None:
    while (delta := await untold.get()) is not None:
        try:
            result = on_token(delta)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - whatever a program's function raises
            logger.warning("a listener to a model's text failed: %s", type(error).__name__)
