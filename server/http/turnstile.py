"""`Turnstile`: lets a crowd through one after the other, so that everybody else has a turn in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turnstile:
    """What many want at the same moment is begun for one of them in each turn of the event loop, in their order.

    It limits how much is begun at once, not how much is at work: who waits for something later holds nobody up.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_turning = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def enter(self, begin: Callable[[], None]) -> None:
        """Call `begin`, at once or when its turn has come; it must not raise."""
        if self._is_turning:
            self._waiting.append(begin)
            return
        self._is_turning = True
        asyncio.get_running_loop().call_soon(self._turn)
        begin()

    async def pass_through(self) -> None:
        """Wait for one's turn."""
        if not self._is_turning:
            self.enter(_nothing)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.enter(lambda: None if turn.done() else turn.set_result(None))
        await turn

    def _turn(self) -> None:
        if not self._waiting:
            self._is_turning = False
            return
        asyncio.get_running_loop().call_soon(self._turn)
        self._waiting.popleft()()


def _nothing() -> None:
    return
