"""One open tab: what its page is asking for, and whether anybody can still do anything with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from playwright.async_api import Error, Frame, Page, Request

from .tree import AccessibilityTree, Numbers

_STORM_DIALOGS = 10
_STORM_SECONDS = 6.0
_RESTLESS_MOVES = 4
_RESTLESS_SECONDS = 3.0
_STOP_SECONDS = 3.0
_STOPS = 20
_STAYED_SECONDS = 0.1
_SHOWN_TITLE = 200
_WAITED_FOR = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})


@dataclass
class Tab:
    """One open page: its requests under way, with the times they began at, and what is known of it.

    `numbers` are those of its elements, `seen` is what was last seen of it, and where; `is_slow`: it was waited for in
    vain; `moves` is how many documents it has shown, `moved_at` has the times of the newest since it was told
    what to do, and `dialogs` those of the newest ones that its present document has shown.
    """

    id: str
    page: Page
    requests: dict[Request, float] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=Numbers)
    is_slow: bool = False
    moves: int = 0
    moved_at: deque[float] = field(default_factory=lambda: deque(maxlen=_RESTLESS_MOVES))
    seen: AccessibilityTree = field(default_factory=AccessibilityTree)
    seen_url: str = ""
    dialogs: deque[float] = field(default_factory=lambda: deque(maxlen=_STORM_DIALOGS))

    def begun(self, request: Request) -> None:
        """A request of the page began."""
        if request.resource_type in _WAITED_FOR:
            self.requests[request] = time.monotonic()

    def ended(self, request: Request) -> None:
        """It ended, well or not."""
        self.requests.pop(request, None)

    @property
    def asks_for_another(self) -> bool:
        """Whether it is on its way to another document; its frames may be, too."""
        return bool(self.seconds_asking)

    @property
    def seconds_asking(self) -> float:
        """For how long it has been on its way to another document; 0 when it is not."""
        begun = [since for request, since in self.requests.items() if self._is_for_page(request)]
        return max(1e-9, time.monotonic() - min(begun)) if begun else 0.0

    async def stop_loading(self) -> None:
        """Let it stay at the document that it shows, whatever it is asking for."""
        with contextlib.suppress(Error, asyncio.TimeoutError):
            await asyncio.wait_for(self._stop(), _STOP_SECONDS)
        self.requests.clear()

    async def _stop(self) -> None:
        line = await self.page.context.new_cdp_session(self.page)
        await line.send("Page.stopLoading")
        await line.detach()

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """While in it, the page does nothing by itself: a page that never stays can be looked at."""
        line = await self.page.context.new_cdp_session(self.page)
        try:
            await line.send("Emulation.setScriptExecutionDisabled", {"value": True})
            for _ in range(_STOPS):  # between two documents there is nobody to hear it
                moves = self.moves
                await self.stop_loading()
                await asyncio.sleep(_STAYED_SECONDS)
                if moves == self.moves:
                    break
            yield
        finally:
            with contextlib.suppress(Error):
                await line.detach()  # which gives the page its scripts back

    def forget(self) -> None:
        """No number means anything until the next look."""
        self.numbers.forget()
        self.seen, self.seen_url = AccessibilityTree(), ""

    def saw(self, tree: AccessibilityTree) -> None:
        """The tree that its page was last shown by."""
        self.seen, self.seen_url = tree, self.page.url

    def _is_for_page(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and request.frame == self.page.main_frame
        except Error:
            return False  # its frame is not there yet

    async def title(self, seconds: float) -> str:
        """Its page's title; "" for a page that does not tell it within so many seconds."""
        try:
            return (await asyncio.wait_for(self.page.title(), seconds))[:_SHOWN_TITLE]
        except (Error, asyncio.TimeoutError):
            return ""

    @property
    def keeps_asking(self) -> bool:
        """Whether it shows one dialog after the other, so that nobody gets away from it."""
        is_many = len(self.dialogs) == _STORM_DIALOGS
        return is_many and time.monotonic() - self.dialogs[0] < _STORM_SECONDS

    def was_told(self) -> None:
        """Whatever documents it has shown until now, somebody wanted them."""
        self.moved_at.clear()

    @property
    def keeps_moving(self) -> bool:
        """Whether it goes from document to document by itself, which may win against where it is to go."""
        is_often = len(self.moved_at) == _RESTLESS_MOVES
        return is_often and time.monotonic() - self.moved_at[0] < _RESTLESS_SECONDS

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
            self.moves += 1
            self.moved_at.append(time.monotonic())
            self.requests.clear()
            self.dialogs.clear()
        return is_page
