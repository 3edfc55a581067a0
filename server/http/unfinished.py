"""`Unfinished`: how much clients have sent, all together, of what has no end yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

TOO_MUCH: Final = "the server is waiting for the ends of as much as it takes; come back in a few seconds"


class Unfinished:
    """Counts heads of requests and messages of WebSockets whose ends have not come, of all connections.

    Each has a bound of its own, but there may be tens of thousands of them. `on_refused` is called for each that is
    refused.
    """

    most_bytes: ClassVar[int] = 256 * 1024**2
    small_bytes: ClassVar[int] = 8 * 1024
    """So much is always taken: what clients send that mean no harm has its end by then."""

    def __init__(self, on_refused: Callable[[], None] = lambda: None) -> None:
        self.bytes = 0
        self._on_refused = on_refused

    def grew(self, before: int, now: int) -> bool:
        """Note that one connection keeps `now` bytes; returns whether it may."""
        self.bytes += now - before
        if now <= max(before, self.small_bytes) or self.bytes <= self.most_bytes:
            return True
        self._on_refused()
        return False
