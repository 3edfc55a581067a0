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
from .tree import AccessibilityTree, Numbers
from .workspace_files import Places

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


_MOST = 20


class News:
    """Sentences, in the order in which they were first said, and the tabs that pages have opened."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}
        self._opened: list[str] = []

    def say(self, text: str) -> None:
        """Tell this; there is a limit to what is told at once."""
        if text in self._said or len(self._said) < _MOST:
            self._said[text] = self._said.get(text, 0) + 1

    def opened(self, tab_id: str) -> None:
        """A page has opened this tab."""
        self._opened.append(tab_id)

    def take(self, active: str) -> list[str]:
        """What was said since the last time; what was said often is told once. `active` is the active tab's id."""
        said, self._said = self._said, {}
        opened, self._opened = self._opened, []
        told = [text if count == 1 else f"{text} ({count} times)" for text, count in said.items()]
        return [_opened_words(opened, active), *told] if opened else told


def _opened_words(ids: list[str], active: str) -> str:
    """What is said of tabs that pages have opened; the active one may be another by now, or they closed themselves."""
    if len(ids) == 1 and ids[0] == active:
        return f"A new tab {active} was opened and is the active one now."
    words = f"A new tab {ids[0]} was opened" if len(ids) == 1 else f"New tabs were opened: {', '.join(ids)}"
    return f"{words}; the active one is {active or 'none'} now."


_MOST_TABS = 20
_SHOWN_MESSAGE = 500
_REACTION_SECONDS = 2.0
_ARRIVAL_SECONDS = 5.0
_STEP_SECONDS = 0.03
_BUSY_SECONDS = 10.0
_DOWNLOAD_SECONDS = 120.0


class Tabs:
    """Follows a context's pages. What they did is told once, by `take_notices`."""

    def __init__(self, context: BrowserContext, places: Places) -> None:
        self._context = context
        self._places = places
        self._tabs: dict[str, Tab] = {}
        self._active = ""
        self._visited: list[str] = []  # the tabs that were active, the newest last
        self._opening = 0
        self._has_files = False
        self._news = News()
        self._tasks: set[asyncio.Task[None]] = set()
        self._downloading: set[asyncio.Task[None]] = set()
        self.downloads: list[str] = []
        self.may_open: Callable[[str], bool] = lambda _: True
        context.on("page", self._opened)

    def __len__(self) -> int:
        return len(self._tabs)

    def all(self) -> list[Tab]:
        """The open tabs, in the order of their opening."""
        return list(self._tabs.values())

    async def active(self) -> Tab:
        """The tab that calls work on; a fresh one if there is none."""
        tab = self._tabs.get(self._active)
        if tab is None or tab.page.is_closed():
            return await self.open()
        return tab

    async def open(self) -> Tab:
        """A new empty tab, which becomes the active one."""
        self._opening += 1
        try:
            page = await self._context.new_page()
        finally:
            self._opening -= 1
        return self._activate(self._known(page))

    async def to_leave(self) -> Tab:
        """The active tab, to open another page in; a new one in its place where its page would let nobody go."""
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
        """A new tab in place of one whose page lets nobody go."""
        fresh = await self.open()
        self.note(f"The page of tab {tab.id} {why}; its tab was closed, and {fresh.id} is in its place.")
        self._drop(tab)
        return fresh

    async def arrive(self, limit: float) -> bool:
        """Wait a while until the page that the active tab asks for is there; after `limit` seconds it is given up."""
        tab = await self.active()
        deadline = time.monotonic() + _ARRIVAL_SECONDS
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
        """See that there is somebody to hear what is to be asked of the active tab's page.

        Raises:
            ValueError: it did not react any more; its tab is closed.
        """
        tab = await self.active()
        if not await tab.reacts(_BUSY_SECONDS):
            self._drop(tab)
            raise ValueError("the page did not react any more, so its tab was closed")

    def switch(self, tab_id: str) -> Tab:
        """Make a tab the active one.

        Raises:
            ValueError: there is none of that id.
        """
        if tab_id not in self._tabs:
            raise ValueError(f"there is no tab {tab_id!r}; open are: {', '.join(self._tabs) or 'none'}")
        return self._activate(self._tabs[tab_id])

    async def listed(self) -> list[dict[str, str]]:
        """Id, address and title of each, in the order of their opening; a page that is too busy has no title."""
        tabs = self.all()
        titles = await asyncio.gather(*(tab.title(_REACTION_SECONDS) for tab in tabs))
        return [{"id": tab.id, "url": tab.page.url, "title": title} for tab, title in zip(tabs, titles)]  # noqa: B905

    @property
    def active_index(self) -> int:
        """The place of the active tab in `listed`; -1 when none is open."""
        return list(self._tabs).index(self._active) if self._active in self._tabs else -1

    def note(self, text: str) -> None:
        """Tell this with the next result."""
        self._news.say(text)

    def take_notices(self) -> list[str]:
        """What happened since the last call; what happened often is told once."""
        return self._news.take(self._active)

    def take_downloads(self) -> list[str]:
        """The paths of the downloads that were finished since the last call."""
        taken, self.downloads = self.downloads, []
        return taken

    async def drop_hung(self) -> bool:
        """Close the active tab if its page does not react any more."""
        tab = self._tabs.get(self._active)
        if tab is None or await tab.reacts(_REACTION_SECONDS):
            return False
        self._drop(tab)
        return True

    async def finish_downloads(self, seconds: float) -> None:
        """Wait that long for downloads that are under way."""
        if self._downloading:
            await asyncio.wait(self._downloading, timeout=seconds)

    async def close(self) -> None:
        """End what is under way for the pages."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    def _activate(self, tab: Tab) -> Tab:
        """Numbers are those of the last look, and that was at another page."""
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
        page.on("request", tab.begun)
        page.on("requestfinished", tab.ended)
        page.on("requestfailed", tab.ended)
        page.on("dialog", lambda dialog: self._begin(self._answer(tab, dialog)))
        page.on("download", lambda download: self._downloads(tab, download))
        page.on("framenavigated", lambda frame: self._moved(tab, frame))
        page.on("filechooser", self._asked_for_file)
        page.on("crash", lambda _: self._crashed(tab))
        page.on("close", lambda _: self._closed(tab))
        return tab

    def _opened(self, page: Page) -> None:
        tab = self._known(page)
        if not self._opening:
            self._begin(self._adopt(tab))

    async def _adopt(self, tab: Tab) -> None:
        """A tab that a page has opened: it is what the user of a browser would look at now."""
        if len(self._tabs) > _MOST_TABS:
            self.note(f"The page tried to open more than {_MOST_TABS} tabs; the new one was closed.")
            await tab.page.close()
            return
        self._activate(tab)
        self._news.opened(tab.id)

    async def _answer(self, tab: Tab, dialog: Dialog) -> None:
        """Pages wait for the answer, so it is given at once; the model reads what was asked."""
        tab.dialogs.append(time.monotonic())
        message = dialog.message[:_SHOWN_MESSAGE]
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
        """Redirects are followed without asking; one that leads where pages must not come from ends here."""
        if tab.moved(frame) and not self.may_open(frame.url):
            self.note(f"The page led to {frame.url}, which is not among the allowed domains; it was left.")
            self._begin(self._leave(tab.page))

    async def _leave(self, page: Page) -> None:
        await page.goto("about:blank")

    def _downloads(self, tab: Tab, download: Download) -> None:
        tab.requests.clear()  # the one that became a download is never told to have ended
        task = self._begin(self._keep(download))
        self._downloading.add(task)
        task.add_done_callback(self._downloading.discard)

    async def _keep(self, download: Download) -> None:
        path = self._places.download_path(download.suggested_filename)
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
        """While in it, a page that asks for files is given some."""
        self._has_files = True
        try:
            yield
        finally:
            self._has_files = False

    def _asked_for_file(self, _: FileChooser) -> None:
        if not self._has_files:
            self.note("The page asks for a file: give the path to its file input.")

    def _crashed(self, tab: Tab) -> None:
        self.note(f"The page of tab {tab.id} ({tab.page.url}) crashed; the tab was closed.")
        self._drop(tab)

    def _drop(self, tab: Tab) -> None:
        self._closed(tab)
        self._begin(tab.page.close())

    def _closed(self, tab: Tab) -> None:
        """After the active one comes that which was active before it: the page that opened a window, mostly."""
        self._tabs.pop(tab.id, None)
        self._visited = [one for one in self._visited if one in self._tabs]
        if self._active == tab.id:
            self._active = ""
            next_id = self._visited[-1] if self._visited else next(reversed(self._tabs), "")
            if next_id:
                self._activate(self._tabs[next_id])

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """Work on behalf of a page; that the page has gone meanwhile is nobody's fault."""
    with contextlib.suppress(Error, OSError):
        await work


_QUIET_SECONDS = 0.12
_REQUEST_SECONDS = 3.0
_PARSED_SECONDS = 4.0
_LOADED_SECONDS = 2.0
_AGAIN_SECONDS = 0.1
_MOVING_SECONDS = 3.0
UNANSWERED = "The page asked for another one, which has not answered yet."
STILL_LOADING = "The page is still loading; what it shows may change."
T = TypeVar("T")


async def settle(tab: Tab) -> str:
    """Wait until the tab asks for nothing more and its document is there; returns what there is to say, if anything.

    A page that goes on loading is waited for until its document is read, and a little longer for the rest.
    """
    deadline = time.monotonic() + (_AGAIN_SECONDS if tab.is_slow else _REQUEST_SECONDS)
    quiet_since = time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < _QUIET_SECONDS:
        await asyncio.sleep(_STEP_SECONDS)
        if tab.requests:
            quiet_since = time.monotonic()
    if tab.asks_for_another:
        return UNANSWERED
    return await loaded(tab)


async def loaded(tab: Tab) -> str:
    """Wait for the page's document and what belongs to it, within limits; returns what there is to say, if anything.

    A page that was waited for in vain is not waited for again, until it is done or goes on to another.
    """
    for state, seconds in (("domcontentloaded", _PARSED_SECONDS), ("load", _LOADED_SECONDS)):
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
    """Ask a page something, and again if it went on to another document in the middle of it, for a while."""
    deadline = time.monotonic() + _MOVING_SECONDS
    while True:
        try:
            return await ask()
        except Error as error:
            if not has_moved(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_STEP_SECONDS)
