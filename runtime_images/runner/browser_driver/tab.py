"""One open tab: what its page is asking for, and whether anybody can still do anything with it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from playwright.async_api import Error, Frame, Page, Request

from .tree import Numbers

_STORM_DIALOGS = 10
_STORM_SECONDS = 6.0
_WAITED_FOR = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})


@dataclass
class Tab:
    """One open page: its requests under way, the numbers of its elements, and whether it was waited for in vain.

    `dialogs` has the times of the newest ones that its present document has shown.
    """

    id: str
    page: Page
    requests: set[Request] = field(default_factory=set)
    numbers: Numbers = field(default_factory=Numbers)
    is_slow: bool = False
    dialogs: deque[float] = field(default_factory=lambda: deque(maxlen=_STORM_DIALOGS))

    def begun(self, request: Request) -> None:
        """A request of the page began."""
        if request.resource_type in _WAITED_FOR:
            self.requests.add(request)

    def ended(self, request: Request) -> None:
        """It ended, well or not."""
        self.requests.discard(request)

    @property
    def asks_for_another(self) -> bool:
        """Whether it is on its way to another document; its frames may be, too."""
        return any(self._is_for_page(request) for request in self.requests)

    def _is_for_page(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and request.frame == self.page.main_frame
        except Error:
            return False  # its frame is not there yet

    @property
    def keeps_asking(self) -> bool:
        """Whether it shows one dialog after the other, so that nobody gets away from it."""
        is_many = len(self.dialogs) == _STORM_DIALOGS
        return is_many and time.monotonic() - self.dialogs[0] < _STORM_SECONDS

    async def reacts(self, seconds: float) -> bool:
        """Whether its page does anything that it is asked within so many seconds."""
        try:
            await asyncio.wait_for(self.page.evaluate("1"), seconds)
        except Error:
            return True  # there is something to hear from
        except asyncio.TimeoutError:
            return False
        return True

    def moved(self, frame: Frame) -> bool:
        """A frame shows another document; True for the page's own: what it asked for before is of no interest then."""
        is_page = frame is self.page.main_frame
        if is_page:
            self.requests.clear()
            self.dialogs.clear()
        return is_page
