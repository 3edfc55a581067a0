"""The open tabs, and what pages do by themselves: open others, ask, download, crash."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from playwright.async_api import BrowserContext, Dialog, Download, Error, FileChooser, Frame, Page, Request
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from .errors import has_moved
from .tree import AccessibilityTree, ElementNumbers
from .workspace_files import WorkspaceFiles

_STORM_DIALOGS = 10
_RESTLESS_MOVES = 4
_WAITED_FOR = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})
_MOST_TABS = 20
_REACTION_SECONDS = 2.0
_STEP_SECONDS = 0.03
_BUSY_SECONDS = 10.0
_DOWNLOAD_SECONDS = 120.0
_AGAIN_SECONDS = 0.1
UNANSWERED = "The page asked for another one, which has not answered yet."
STILL_LOADING = "The page is still loading; what it shows may change."
T = TypeVar("T")


@dataclass
class Tab:
    """One open page, its pending requests with their start times, and its state.

    `seen` is what was last seen of it, and where; `is_slow`: it was waited for in vain; `moves` counts its documents,
    `moved_at` has the newest times since it was told what to do, `dialogs` those of its newest dialogs.
    """

    id: str
    page: Page
    requests: dict[Request, float] = field(default_factory=dict)
    numbers: ElementNumbers = field(default_factory=ElementNumbers)
    is_slow: bool = False
    moves: int = 0
    moved_at: deque[float] = field(default_factory=lambda: deque(maxlen=_RESTLESS_MOVES))
    seen: AccessibilityTree = field(default_factory=AccessibilityTree)
    seen_url: str = ""
    dialogs: deque[float] = field(default_factory=lambda: deque(maxlen=_STORM_DIALOGS))

    def request_started(self, request: Request) -> None:
        if request.resource_type in _WAITED_FOR:
            self.requests[request] = time.monotonic()

    def request_ended(self, request: Request) -> None:
        self.requests.pop(request, None)

    @property
    def asks_for_another(self) -> bool:
        """Whether it, or a frame of it, is on its way to another document."""
        return bool(self.seconds_asking)

    @property
    def seconds_asking(self) -> float:
        starts = [since for request, since in self.requests.items() if self._is_for_page(request)]
        return max(1e-9, time.monotonic() - min(starts)) if starts else 0.0

    async def stop_loading(self) -> None:
        async def stop() -> None:
            connection = await self.page.context.new_cdp_session(self.page)
            await connection.send("Page.stopLoading")
            await connection.detach()

        with contextlib.suppress(Error, asyncio.TimeoutError):
            await asyncio.wait_for(stop(), 3.0)
        self.requests.clear()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Meanwhile the page does nothing by itself: one that never stays can be looked at."""
        connection = await self.page.context.new_cdp_session(self.page)
        try:
            await connection.send("Emulation.setScriptExecutionDisabled", {"value": True})
            for _ in range(20):  # between two documents there is nobody to hear it
                moves = self.moves
                await self.stop_loading()
                await asyncio.sleep(0.1)
                if moves == self.moves:
                    break
            yield
        finally:
            with contextlib.suppress(Error):
                await connection.detach()  # which gives the page its scripts back

    def forget(self) -> None:
        self.numbers.forget()
        self.seen, self.seen_url = AccessibilityTree(), ""

    def _is_for_page(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and request.frame == self.page.main_frame
        except Error:
            return False  # its frame is not there yet

    async def title(self, seconds: float) -> str:
        """Its page's title; "" for one that does not tell it within so many seconds."""
        try:
            return (await asyncio.wait_for(self.page.title(), seconds))[:200]
        except (Error, asyncio.TimeoutError):
            return ""

    @property
    def keeps_asking(self) -> bool:
        """Whether it shows one dialog after the other, so that nobody can leave it."""
        is_many = len(self.dialogs) == _STORM_DIALOGS
        return is_many and time.monotonic() - self.dialogs[0] < 6.0

    def clear_moves(self) -> None:
        self.moved_at.clear()

    @property
    def keeps_moving(self) -> bool:
        """Whether it changes documents by itself, which may win against where it is to go."""
        is_often = len(self.moved_at) == _RESTLESS_MOVES
        return is_often and time.monotonic() - self.moved_at[0] < 3.0

    async def reacts(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.page.evaluate("1"), seconds)
        except Error:
            return True  # there is something to hear from
        except asyncio.TimeoutError:
            return False
        return True


class Tabs:
    """Follows a context's pages; `take_notices` reports once what they did, repeated events once."""

    def __init__(self, context: BrowserContext, files: WorkspaceFiles) -> None:
        self._context = context
        self._files = files
        self._tabs: dict[str, Tab] = {}
        self._active = ""
        self._visited: list[str] = []  # the tabs that were active, the newest last
        self._opening = 0
        self._has_files = False
        self._notices: dict[str, int] = {}  # how often each was said
        self._opened_ids: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._downloading: set[asyncio.Task[None]] = set()
        self.downloads: list[str] = []
        self.may_open: Callable[[str], bool] = lambda _: True
        context.on("page", self._opened)

    def __len__(self) -> int:
        return len(self._tabs)

    def all(self) -> list[Tab]:
        return list(self._tabs.values())

    async def active(self) -> Tab:
        """The tab that calls work on; a fresh one if there is none."""
        tab = self._tabs.get(self._active)
        if tab is None or tab.page.is_closed():
            return await self.open()
        return tab

    async def open(self) -> Tab:
        self._opening += 1
        try:
            page = await self._context.new_page()
        finally:
            self._opening -= 1
        return self._activate(self._known(page))

    async def to_leave(self) -> Tab:
        """The active tab, to open another page in; a new one where its page would not let go."""
        tab = await self.active()
        if tab.asks_for_another:
            await tab.stop_loading()  # until that answers, its page does nothing that it is asked
        if tab.keeps_asking:
            return await self.leave_for_new(tab, "kept showing dialogs")
        if tab.keeps_moving:
            return await self.leave_for_new(tab, "kept going elsewhere")
        if not await tab.reacts(_BUSY_SECONDS):
            return await self.leave_for_new(tab, "did not react any more")
        return tab

    async def leave_for_new(self, tab: Tab, why: str) -> Tab:
        fresh = await self.open()
        self.note(f"The page of tab {tab.id} {why}; its tab was closed, and {fresh.id} is in its place.")
        self._drop(tab)
        return fresh

    async def arrive(self, limit: float) -> bool:
        """Wait for the page that the active tab asks for; after `limit` seconds it is given up."""
        tab = await self.active()
        deadline = time.monotonic() + 5.0
        while tab.asks_for_another:
            if tab.seconds_asking > limit:
                await tab.stop_loading()
                self.note(
                    f"The page that was asked for did not answer within {limit:g} s: the one before is still there."
                )
            elif time.monotonic() > deadline:
                return False
            else:
                await asyncio.sleep(_STEP_SECONDS)
        return True

    async def expect_reaction(self) -> None:
        """Raise ValueError, and close the active tab, if its page does not react any more."""
        tab = await self.active()
        if not await tab.reacts(_BUSY_SECONDS):
            self._drop(tab)
            raise ValueError("the page did not react any more, so its tab was closed")

    def switch(self, tab_id: str) -> Tab:
        """Make a tab the active one; ValueError for an unknown id."""
        if tab_id not in self._tabs:
            raise ValueError(f"there is no tab {tab_id!r}; open are: {', '.join(self._tabs) or 'none'}")
        return self._activate(self._tabs[tab_id])

    async def listed(self) -> list[dict[str, str]]:
        """Id, address and title of each, oldest first; a busy page has no title."""
        tabs = self.all()
        titles = await asyncio.gather(*(tab.title(_REACTION_SECONDS) for tab in tabs))
        return [{"id": tab.id, "url": tab.page.url, "title": title} for tab, title in zip(tabs, titles)]  # noqa: B905

    @property
    def active_index(self) -> int:
        return list(self._tabs).index(self._active) if self._active in self._tabs else -1

    def note(self, text: str) -> None:
        if text in self._notices or len(self._notices) < 20:
            self._notices[text] = self._notices.get(text, 0) + 1

    def take_notices(self) -> list[str]:
        notices, self._notices = self._notices, {}
        texts = [text if count == 1 else f"{text} ({count} times)" for text, count in notices.items()]
        opened, self._opened_ids = self._opened_ids, []
        if not opened:
            return texts
        if opened == [self._active]:
            return [f"A new tab {self._active} was opened and is the active one now.", *texts]
        one, many = f"A new tab {opened[0]} was opened", f"New tabs were opened: {', '.join(opened)}"
        words = one if len(opened) == 1 else many
        return [f"{words}; the active one is {self._active or 'none'} now.", *texts]

    async def drop_hung(self) -> bool:
        tab = self._tabs.get(self._active)
        if tab is None or await tab.reacts(_REACTION_SECONDS):
            return False
        self._drop(tab)
        return True

    async def finish_downloads(self, seconds: float) -> None:
        if self._downloading:
            await asyncio.wait(self._downloading, timeout=seconds)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    def _activate(self, tab: Tab) -> Tab:
        if tab.id != self._active:
            self._active = tab.id
            self._visited = [*(one for one in self._visited if one != tab.id), tab.id]
            tab.forget()
        return tab

    def _known(self, page: Page) -> Tab:
        for tab in self._tabs.values():
            if tab.page is page:
                return tab
        tab_id = secrets.token_hex(2)
        while tab_id in self._tabs:
            tab_id = secrets.token_hex(2)
        tab = self._tabs[tab_id] = Tab(tab_id, page)
        page.on("request", tab.request_started)
        page.on("requestfinished", tab.request_ended)
        page.on("requestfailed", tab.request_ended)
        page.on("dialog", lambda dialog: self._begin(self._answer(tab, dialog)))
        page.on("download", lambda download: self._downloads(tab, download))
        page.on("framenavigated", lambda frame: self._moved(tab, frame))
        page.on("filechooser", self._chooser_opened)
        page.on("crash", lambda _: self._crashed(tab))
        page.on("close", lambda _: self._closed(tab))
        return tab

    def _opened(self, page: Page) -> None:
        tab = self._known(page)
        if self._opening:
            return
        if len(self._tabs) > _MOST_TABS:
            self.note(f"The page tried to open more than {_MOST_TABS} tabs; the new one was closed.")
            self._begin(page.close())
        else:  # the page opened it: a browser's user would look at it now
            self._activate(tab)
            self._opened_ids.append(tab.id)

    async def _answer(self, tab: Tab, dialog: Dialog) -> None:
        """Pages wait for the answer, so it is given at once; the model reads what was asked."""
        tab.dialogs.append(time.monotonic())
        message = dialog.message[:500]
        if dialog.type == "beforeunload":
            await dialog.accept()
            return
        if dialog.type == "prompt":
            self.note(f"The page asked for text: {message!r}. It was given {dialog.default_value!r}.")
            await dialog.accept(dialog.default_value)
            return
        done = "OK was pressed" if dialog.type == "confirm" else "it was closed"
        self.note(f"The page showed a dialog ({dialog.type}): {message!r}; {done}.")
        await dialog.accept()

    def _moved(self, tab: Tab, frame: Frame) -> None:
        """The page shows another document: redirects are followed without asking, a forbidden place ends here."""
        if frame is not tab.page.main_frame:
            return
        tab.moves += 1
        tab.moved_at.append(time.monotonic())
        tab.requests.clear()
        tab.dialogs.clear()
        if not self.may_open(frame.url):
            self.note(f"The page led to {frame.url}, which is not among the allowed domains; it was left.")
            self._begin(tab.page.goto("about:blank"))

    def _downloads(self, tab: Tab, download: Download) -> None:
        tab.requests.clear()  # the one that became a download is never told to have ended
        task = self._begin(self._keep(download))
        self._downloading.add(task)
        task.add_done_callback(self._downloading.discard)

    async def _keep(self, download: Download) -> None:
        path = self._files.download_path(download.suggested_filename)
        path.touch()
        try:
            await asyncio.wait_for(download.save_as(path), _DOWNLOAD_SECONDS)
        except asyncio.TimeoutError:
            path.unlink(missing_ok=True)
            self.note(f"The download of {download.suggested_filename} took over {_DOWNLOAD_SECONDS:.0f} s: given up.")
        except Error as error:
            path.unlink(missing_ok=True)
            self.note(f"The download of {download.suggested_filename} failed: {error.message.splitlines()[0]}")
        else:
            self.downloads.append(str(path))
            self.note(f"Downloaded {download.suggested_filename} to {path}.")

    @contextlib.contextmanager
    def files_at_hand(self) -> Iterator[None]:
        """Meanwhile a page that asks for files is given some."""
        self._has_files = True
        try:
            yield
        finally:
            self._has_files = False

    def _chooser_opened(self, _: FileChooser) -> None:
        if not self._has_files:
            self.note("The page asks for a file: give the path to its file input.")

    def _crashed(self, tab: Tab) -> None:
        self.note(f"The page of tab {tab.id} ({tab.page.url}) crashed; the tab was closed.")
        self._drop(tab)

    def _drop(self, tab: Tab) -> None:
        self._closed(tab)
        self._begin(tab.page.close())

    def _closed(self, tab: Tab) -> None:
        """The tab active before becomes active: mostly the page that opened this window."""
        self._tabs.pop(tab.id, None)
        self._visited = [one for one in self._visited if one in self._tabs]
        if self._active == tab.id:
            self._active = ""
            next_id = self._visited[-1] if self._visited else next(reversed(self._tabs), "")
            if next_id:
                self._activate(self._tabs[next_id])

    def _begin(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        async def quietly() -> None:
            with contextlib.suppress(Error, OSError):  # that the page has gone meanwhile is nobody's fault
                await work

        task = asyncio.ensure_future(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def settle(tab: Tab) -> str:
    """Wait until the tab asks for nothing and its document is there; returns what there is to say.

    A page that goes on loading is waited for until its document is read, and a little longer.
    """
    deadline = time.monotonic() + (_AGAIN_SECONDS if tab.is_slow else 3.0)
    quiet_since = time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < 0.12:
        await asyncio.sleep(_STEP_SECONDS)
        if tab.requests:
            quiet_since = time.monotonic()
    if tab.asks_for_another:
        return UNANSWERED
    return await loaded(tab)


async def loaded(tab: Tab) -> str:
    """Wait, within limits, for the page's document and its parts; returns what there is to say.

    A page that was waited for in vain is not waited for again until it is done or goes on.
    """
    for state, seconds in (("domcontentloaded", 4.0), ("load", 2.0)):
        limit = _AGAIN_SECONDS if tab.is_slow else seconds
        with contextlib.suppress(Error):  # the page was closed, or went on to another
            try:
                await tab.page.wait_for_load_state(state, timeout=limit * 1000)  # type: ignore[arg-type] # one of its words
            except PlaywrightTimeoutError:
                tab.is_slow = True
                return STILL_LOADING
    tab.is_slow = False
    return ""


async def repeated(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask a page something, and for a while again if it changed documents meanwhile."""
    deadline = time.monotonic() + 3.0
    while True:
        try:
            return await ask()
        except Error as error:
            if not has_moved(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_STEP_SECONDS)
