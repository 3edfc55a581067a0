"""`ProgressTeller`: how far something that takes long has come, in lines for people."""

from __future__ import annotations

import time
from collections.abc import Callable

PROGRESS_SECONDS = 1.0

Say = Callable[[str], None]
"""Takes one line for people: how far it has come."""


class ProgressTeller:
    """Says how far something has come, at most once in `PROGRESS_SECONDS`."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._next = time.monotonic() + PROGRESS_SECONDS

    def tell(self, what: str, done: int, whole: int) -> None:
        self.tell_count(what, 100 * done // max(whole, 1), "%")

    def tell_count(self, what: str, count: int, unit: str) -> None:
        if (now := time.monotonic()) >= self._next:
            self._next = now + PROGRESS_SECONDS
            self._say(f"{what}: {count} {unit}")
