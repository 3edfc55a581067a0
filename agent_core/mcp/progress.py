"""How far a call of a remote tool is, as its server says: lines for people, not too many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MAX_LINES: Final = 1_000
MAX_CHARS: Final = 500


class Progress:
    """Turns a server's reports on one call into lines; the library calls it with each."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self._left = MAX_LINES
        self._last = ""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        done = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        line = f"[{done}] {' '.join((message or '').split())[:MAX_CHARS]}".rstrip()
        if line != self._last and self._left:
            self._last = line
            self._left -= 1
            self._told(f"{line}\n")
