"""One run of Chromium: started when needed, started anew when it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    CDPSession,
    Error,
    Playwright,
    Route,
    ViewportSize,
    async_playwright,
)

from .tabs import Tabs
from .workspace_files import WorkspaceFiles

T = TypeVar("T")

VIEWPORT: ViewportSize = {"width": 1280, "height": 720}
_NAMES = (
    *("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "microsoft-edge",
)
_LIBRARY_FOLDERS = ("~/.cache/ms-playwright", "/ms-playwright", "/opt/ms-playwright")
_SHELL = "chromium_headless_shell-*/*/*headless*shell"
_OPTIONS = (
    # The sandbox of the conversation is the one that holds; there are no rights in it to make another.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_ANSWER_SECONDS = 5.0
_PATIENCE_SECONDS = 20.0
_LAST_WORDS_SECONDS = 2.0
_STAY = """addEventListener('click', event => {
    const link = event.composedPath().find(element => element.href && element.protocol);
    if (link && !/^(https?|ftp|file|data|blob|about|javascript):$/.test(link.protocol)) event.preventDefault();
}, true)"""
"""Links for other programs (``tel:``) are not followed: Chromium would ask in a window that nobody sees."""


def find_chromium() -> str | None:
    """The program to start: that of ``DRYDOCK_CHROMIUM``, one on the PATH, or one of Playwright's own."""
    path = os.environ.get("DRYDOCK_CHROMIUM")
    if path:
        return path if os.access(path, os.X_OK) else None
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is not None:
        return found
    folders = filter(None, [os.environ.get("PLAYWRIGHT_BROWSERS_PATH"), *_LIBRARY_FOLDERS])
    newest = (max(Path(folder).expanduser().glob(_SHELL), default=None) for folder in folders)
    return next((str(path) for path in newest if path is not None), None)


class NoBrowserError(Exception):
    """There is no browser to work with; the message says why."""


class BrowserSession:
    """Chromium with one context; `tabs` raises `NoBrowserError` where it cannot be started."""

    def __init__(self, chromium: str, files: WorkspaceFiles, start_seconds: float) -> None:
        self._chromium = chromium
        self._files = files
        self._start_seconds = start_seconds
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._context: BrowserContext | None = None
        self._own_context: BrowserContext | None = None
        self._tabs: Tabs | None = None
        self._connection: CDPSession | None = None
        self._allowed: tuple[str, ...] = ()
        self.has_ended = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return self._browser is not None and self._browser.is_connected()

    async def answers(self) -> bool:
        """Whether Chromium, and Playwright's process before it, still react."""
        if self._connection is None or not self.is_running:
            return False
        try:
            await asyncio.wait_for(self._connection.send("Browser.getVersion"), _ANSWER_SECONDS)
        except (Error, asyncio.TimeoutError):
            return False
        return True

    async def unless_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work; `Error` where Chromium ends meanwhile: Playwright leaves some calls without an answer then."""
        doing, ended = asyncio.ensure_future(work), asyncio.ensure_future(self.has_ended.wait())
        doing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait({doing, ended}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({doing}, timeout=_LAST_WORDS_SECONDS)
            if not doing.done():
                raise Error("The browser has been closed")
            return doing.result()
        finally:
            ended.cancel()
            doing.cancel()
            await asyncio.wait({doing}, timeout=_LAST_WORDS_SECONDS)

    async def tabs(self) -> Tabs:
        if self._tabs is not None and self.is_running:
            return self._tabs
        had_run = self._tabs is not None
        await self.end()
        try:
            tabs = await asyncio.wait_for(self._start(), self._start_seconds)
        except asyncio.TimeoutError:
            await self.end()
            raise NoBrowserError(f"Chromium did not start within {self._start_seconds:.0f} s") from None
        except Exception as error:  # Playwright raises plain ones while it starts
            await self.end()
            words = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise NoBrowserError(f"Chromium did not start: {words}") from error
        if had_run:
            tabs.note("The browser had ended and was started anew: its pages, cookies and logins are gone.")
        return tabs

    @property
    def context(self) -> BrowserContext:
        if self._context is None:
            raise NoBrowserError("Chromium does not run")
        return self._context

    async def own_context(self) -> BrowserContext:
        if self._browser is None:
            raise NoBrowserError("Chromium does not run")
        if self._own_context is None:
            options: dict[str, Any] = {"java_script_enabled": False, "offline": True}
            self._own_context = await self._browser.new_context(viewport=VIEWPORT, **options)
        return self._own_context

    async def unseen(self) -> int:
        """Pages that are no tabs yet: a new one is announced only when it is set up."""
        if self._connection is None or self._tabs is None:
            return 0
        targets = (await self._connection.send("Target.getTargets"))["targetInfos"]
        return len([target for target in targets if target["type"] == "page"]) - len(self._tabs)

    async def allow(self, domains: tuple[str, ...]) -> None:
        """Allow pages only from these hosts and their subdomains; none means all.

        A browser that does not take it is ended, since it might show what is not allowed (`NoBrowserError`).
        """

        async def route(context: BrowserContext) -> None:
            if self._allowed:
                await context.unroute("**/*")
            self._allowed = domains
            if domains:
                await context.route("**/*", self._judge)

        if domains == self._allowed or self._context is None:
            return
        routing = asyncio.ensure_future(route(self._context))
        last, drops = time.monotonic() + _PATIENCE_SECONDS, False
        try:
            # It takes long on a busy machine, and for ever where a page hangs; silent Chromium stands still.
            while not (await asyncio.wait({routing}, timeout=_ANSWER_SECONDS))[0] or (drops and routing.exception()):
                if routing.done():
                    drops, routing = False, asyncio.ensure_future(route(self._context))
                elif time.monotonic() > last or not await self.answers():
                    raise NoBrowserError("Chromium did not react any more; it is started anew with the next call")
                elif self._tabs is not None and await self._tabs.drop_hung():
                    drops = True
                    self._tabs.note("The page did not react any more, so its tab was closed.")
            routing.result()
        except BaseException:
            routing.cancel()
            await self.end()
            raise

    async def end(self) -> None:
        tabs, browser, playwright = self._tabs, self._browser, self._playwright
        self._context = self._own_context = self._browser = self._playwright = self._connection = None
        self._allowed = ()
        if tabs is not None:
            await tabs.close()
        for ending in (browser.close() if browser else None, playwright.stop() if playwright else None):
            if ending is not None:
                with contextlib.suppress(Error, asyncio.TimeoutError):
                    await asyncio.wait_for(ending, 5.0)

    async def _start(self) -> Tabs:
        self._playwright = await async_playwright().start()
        self._browser = await self._playwright.chromium.launch(
            executable_path=self._chromium,
            headless=True,
            args=list(_OPTIONS),
            timeout=self._start_seconds * 1000,
            chromium_sandbox=False,
        )
        self.has_ended = ended = asyncio.Event()
        self._browser.on("disconnected", lambda _: ended.set())
        self._connection = await self._browser.new_browser_cdp_session()
        self._context = await self._browser.new_context(viewport=VIEWPORT, accept_downloads=True)
        await self._context.add_init_script(_STAY)
        self._tabs = Tabs(self._context, self._files)
        self._tabs.may_open = self._may_open
        return self._tabs

    async def _judge(self, route: Route) -> None:
        request = route.request
        if request.is_navigation_request() and not self._may_open(request.url):
            await route.abort("blockedbyclient")
        else:
            await route.continue_()

    def _may_open(self, url: str) -> bool:
        if not self._allowed or url.startswith(("about:", "chrome-error:")):
            return True
        host = (urlsplit(url).hostname or "").lower()
        names = [name.lower().removeprefix("*.") for name in self._allowed]
        return any(host == name or host.endswith("." + name) for name in names)
