"""The standard streams of a kernel: whatever is printed, however fast, is published in bounded portions."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, List, Optional

from ipykernel.iostream import OutStream

from .outputs import OMITTED

_WINDOW_SECONDS = 0.2
_WINDOW_CHARACTERS = 128 * 1024
_TAIL_CHARACTERS = 64 * 1024


class BoundedStream(OutStream):  # type: ignore[misc] # the library has no types
    """Publishes what is written, in order; of a flood the beginning and the end of each moment, and how much it lacks.

    Without a bound the messages of a program that prints faster than they are read would fill the memory.
    """

    _last: Optional[BoundedStream] = None
    """The one that was written to last."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._bound = threading.RLock()
        self._window_began = 0.0
        self._room = _WINDOW_CHARACTERS
        self._held: List[str] = []
        self._held_length = 0
        self._next_look = 0
        self._left_out = 0
        self._is_dirty = False
        super().__init__(*args, **options)

    def write(self, string: str) -> int:
        """Take text."""
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string).__name__}")
        with self._bound:
            if self._held and self._held_length < self._next_look:  # in a flood: as little as possible
                self._held.append(string)
                self._held_length += len(string)
                return len(string)
            self._take(string)
        return len(string)

    def flush(self) -> None:
        """Publish what was written, except what is held back of a flood."""
        if self._is_dirty:
            self._is_dirty = False
            super().flush()

    def close(self) -> None:
        """Publish what there is. It stays open: the cells that follow have no other."""
        self.release()

    def put_back(self) -> None:
        """Be what prints go to again, where a cell has left nothing, or has closed it."""
        current = getattr(sys, self.name)
        if current is None or getattr(current, "closed", False):
            setattr(sys, self.name, self)

    def release(self) -> None:
        """Publish what was held back too."""
        with self._bound:
            self._release()
        self.flush()

    def _pass_on(self, text: str) -> None:
        before, BoundedStream._last = BoundedStream._last, self
        if before is not None and before is not self:
            before.flush()  # so that what two streams are given comes in its order
        self._is_dirty = True
        super().write(text)

    def _take(self, text: str) -> None:
        now = time.monotonic()
        if now - self._window_began > _WINDOW_SECONDS:
            self._release()
            self._window_began, self._room = now, _WINDOW_CHARACTERS
        if not self._held and self._room > 0:
            self._pass_on(text[: self._room])
            self._room -= len(text)
            text = text[self._room :] if self._room < 0 else ""
        if text:
            self._hold(text)

    def _hold(self, text: str) -> None:
        """Keep the end of what comes."""
        joined = "".join((*self._held, text))
        over = len(joined) - _TAIL_CHARACTERS
        if over > 0:
            self._left_out += over
            joined = joined[over:]
        if not self._held:
            self.pub_thread.schedule(self._release_later)
        self._held = [joined]
        self._held_length = len(joined)
        self._next_look = self._held_length + _TAIL_CHARACTERS

    def _release_later(self) -> None:
        self._io_loop.call_later(_WINDOW_SECONDS, self._release_if_free)

    def _release_if_free(self) -> None:
        """In the thread that publishes: whoever writes now may wait for this very thread."""
        if not self._bound.acquire(blocking=False):
            self._release_later()
            return
        try:
            self._release()
        finally:
            self._bound.release()

    def _release(self) -> None:
        if not self._held:
            return
        text = "".join(self._held)
        self._held = []
        left_out, self._held_length, self._left_out = self._left_out, 0, 0
        if left_out:
            self.flush()
            self.session.send(self.pub_thread, OMITTED, {"characters": left_out}, parent=self.parent_header)
        self._pass_on(text)
