"""Tells a peer that is silent from one that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Silence:
    """Looks from time to time whether anything was heard; a time limit for each reading would cost more than it.

    After `limit` seconds of silence a peer that owes something is asked for a sign of life; after as long again it is
    given up, and this ends.
    """

    def __init__(
        self, limit: float, *, owes: Callable[[], bool], ask: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        self._limit = limit
        self._owes = owes
        self._ask = ask
        self._give_up = give_up
        self._heard = 0.0
        self._was_asked = False
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin to look, in the running loop."""
        self.broken()
        self._plan(self._limit)

    def broken(self) -> None:
        """Something was heard."""
        self._heard, self._was_asked = asyncio.get_running_loop().time(), False

    def end(self) -> None:
        """Look no more; harmless where it has not begun."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _plan(self, seconds: float) -> None:
        self._next = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        left = self._heard + self._limit - asyncio.get_running_loop().time()
        if left > 0:
            self._plan(left)
        elif self._was_asked and self._owes():
            self._next = None
            self._give_up()
        else:
            self._was_asked = self._owes()
            self._plan(self._limit)
            if self._was_asked:
                self._ask()
