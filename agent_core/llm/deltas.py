"""Passes the text of a streaming answer on, in pieces that people can follow and machines can bear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.json_text import is_half, whole_characters

INTERVAL = 0.03

DeltaListener = Callable[[TextDelta | TextDiscarded], None]


class DeltaSink:
    """Gathers the text of one answer and tells the listener at most every `INTERVAL` seconds.

    The first piece goes out at once. `close` sends what is left; `discard` says that what went out is void.
    """

    def __init__(self, response_id: str, listener: DeltaListener | None) -> None:
        self._response_id = response_id
        self._listener = listener
        self._pieces: list[str] = []
        self._channel: Literal["message", "reasoning"] = "message"
        self._timer: asyncio.TimerHandle | None = None
        self._has_sent = False

    def add(self, text: str, channel: Literal["message", "reasoning"] = "message") -> None:
        """Pass on more text."""
        if not text or self._listener is None:
            return
        if channel != self._channel:
            self._send()
            self._pieces.clear()
            self._channel = channel
        self._pieces.append(text)
        if self._timer is None:
            self._send()
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._tick)

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
        """The answer is complete."""
        self._stop()
        self._send()

    def discard(self) -> None:
        """The answer broke off: nothing more of it goes out, and what went out is void."""
        self._stop()
        self._pieces.clear()
        if self._has_sent and self._listener is not None:
            self._listener(TextDiscarded(self._response_id))
            self._has_sent = False
