"""The calls that the browser knows, by name; each says in a sentence what it did."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Error, Frame, Page, Response
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from .elements import Elements
from .errors import ActionError, has_moved, in_words, is_gone
from .session import VIEWPORT, BrowserSession
from .tabs import Tab, Tabs, loaded, repeated, settle
from .workspace_files import WorkspaceFiles

_SECONDS = 3.0
_READ = "() => [location.origin, Object.entries(sessionStorage)]"
_WRITE = """items => {
    sessionStorage.clear();
    for (const item of items) sessionStorage.setItem(item.name, item.value);
}"""
_SAME_SITE = {"strict": "Strict", "lax": "Lax", "none": "None", "no_restriction": "None"}
"""As programs that export cookies write it; what stands for nothing said is left out."""

PageState = dict[str, Any]

_FRAME_SECONDS = 5.0
_TEXT = "() => document.body ? document.body.innerText : document.documentElement?.textContent ?? ''"
_LINKS = """() => {
    const seen = new Map();
    for (const link of document.querySelectorAll('a[href]')) {
        const text = (link.innerText || link.getAttribute('aria-label') || '').trim().replace(/\\s+/g, ' ');
        if (/^https?:|^mailto:/.test(link.href) && !seen.has(link.href)) seen.set(link.href, text.slice(0, 200));
    }
    return [...seen].map(([address, text]) => text + ' <' + address + '>');
}"""
TEXT_LIMIT = 50_000
_SCHEME = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL = re.compile(r"\A(?:localhost|127(?:\.\d+){3}|\[::1\]|\d+(?:\.\d+){3}|[^/.:]+)(?::\d+)?(?:[/?#]|\Z)")
_SCROLLED = """() => {
    const e = document.scrollingElement || document.documentElement;
    return [Math.round(scrollY), innerHeight, e.scrollHeight];
}"""
_ONLY_LOOK = frozenset({"look", "content", "tabs", "get_storage"})
_NOT_OF_THE_PAGE = frozenset(
    {"look", "navigate", "back", "forward", "wait", "tabs", "switch_tab", "close_tab", "get_storage", "set_storage"}
    | {"start_recording", "stop_recording"}
)
_SCROLL_OVERLAP = 80
_ATTEMPTS = 3

DriverCall = Callable[[dict[str, Any]], Awaitable[str]]


async def read_storage(session: BrowserSession, tabs: Tabs) -> PageState:
    """All that sites have stored, as Playwright has it; of several tabs of a site, the one opened last counts."""
    state: PageState = dict(await session.context.storage_state())
    origins = {origin["origin"]: dict(origin) for origin in state.get("origins", ())}
    for origin, items in await asyncio.gather(*map(_session_storage, tabs.all())):
        if items:
            known = origins.setdefault(origin, {"origin": origin, "localStorage": []})
            known["sessionStorage"] = [{"name": name, "value": value} for name, value in items]
    return {**state, "origins": list(origins.values())}


async def replace_storage(session: BrowserSession, tabs: Tabs, state: PageState) -> str:
    """Replace all of it; says what was set, and which session storage had no tab to be set in."""
    cookies, origins = _list(state, "cookies"), _list(state, "origins")
    plain = [{"localStorage": [], **origin} for origin in origins]
    try:
        await session.context.set_storage_state({"cookies": [*map(_cookie, cookies)], "origins": plain})  # type: ignore[arg-type] # checked by Playwright
    except Error as error:
        raise ActionError(f"storage_state cannot be used: {in_words(error)}") from None
    storage = {origin.get("origin"): _list(origin, "sessionStorage") for origin in origins}

    async def set_session(tab: Tab) -> str:
        origin, _ = await _session_storage(tab)
        if origin:
            try:
                await asyncio.wait_for(tab.page.evaluate(_WRITE, storage.get(origin, [])), _SECONDS)
            except (Error, asyncio.TimeoutError):
                return ""
        return origin

    set_for = await asyncio.gather(*map(set_session, tabs.all()))
    text = f"Set {len(cookies)} cookies and the storage of {len(origins)} origins, in place of all there was."
    left = [str(origin) for origin, items in storage.items() if items and origin not in set_for]
    more = "the session storage needs an open tab of its site, so this was left out"
    return f"{text} But {more}: {', '.join(left)}." if left else text


async def _session_storage(tab: Tab) -> tuple[str, list[list[str]]]:
    if tab.asks_for_another:
        return "", []
    try:
        origin, items = await asyncio.wait_for(tab.page.evaluate(_READ), _SECONDS)
    except (Error, asyncio.TimeoutError):
        return "", []
    return origin, items


def _cookie(args: PageState) -> PageState:
    same_site = _SAME_SITE.get(str(args.get("sameSite") or "").lower())
    cookie = {name: value for name, value in args.items() if name != "sameSite"}
    return {**cookie, "sameSite": same_site} if same_site else cookie


def _list(state: PageState, name: str) -> list[PageState]:
    found = state.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ActionError(f"storage_state cannot be used: {name} must be a list of objects")
    return found


async def text_of(tab: Tab, *, with_links: bool) -> str:
    """All visible text of the page and then of its frames, and its links if wanted; a page that never stays is held."""
    try:
        return await _text_of(tab.page, with_links)
    except Error as error:
        if not has_moved(error):
            raise
    async with tab.paused():
        return await _text_of(tab.page, with_links)


async def _text_of(page: Page, with_links: bool) -> str:
    async def evaluate(frame: Frame, script: str) -> Any:
        return await asyncio.wait_for(repeated(lambda: frame.evaluate(script)), _FRAME_SECONDS)

    parts: list[str] = []
    links: list[str] = []
    for frame in page.frames[:20]:
        try:
            text = str(await evaluate(frame, _TEXT)).strip()
            if text:
                parts.append(text if frame is page.main_frame else f"[Frame {frame.url}]\n{text}")
            if with_links:
                links += await evaluate(frame, _LINKS)
        except asyncio.TimeoutError:
            if frame is page.main_frame:
                raise ActionError(f"the page did not tell its text within {_FRAME_SECONDS:g} s") from None
        except Error:
            if frame is page.main_frame:
                raise
    if links:
        parts.append("Links:\n" + "\n".join(links))
    return "\n\n".join(parts)


class TabCalls:
    """Carries out single calls on the active tab."""

    def __init__(self, session: BrowserSession, tabs: Tabs, files: WorkspaceFiles, navigation_seconds: float) -> None:
        self._session = session
        self._tabs = tabs
        self._files = files
        self._navigation_ms = navigation_seconds * 1000
        self._elements = elements = Elements(tabs, files)
        self._known: dict[str, DriverCall] = {
            "look": lambda _: asyncio.sleep(0, ""),
            "navigate": self._navigate,
            "back": lambda _: self._through_history(-1),
            "forward": lambda _: self._through_history(1),
            "wait": lambda args: asyncio.sleep(args.get("ms", 1000) / 1000, ""),
            "wheel": self._wheel,
            "scroll": self._scroll,
            "click": self._click,
            "type": lambda args: elements.type(args["id"], args["text"]),
            "fill": lambda args: elements.fill(args["id"], args["text"]),
            "clear": lambda args: elements.clear(args["id"]),
            "select": lambda args: elements.select(args["id"], args["options"]),
            "hover": lambda args: elements.hover(args["id"]),
            "focus": lambda args: elements.focus(args["id"]),
            "press": lambda args: elements.press(args["id"], args["keys"]),
            "drag": lambda args: elements.drag(args["from"], args["to"]),
            "upload": lambda args: elements.upload(args["id"], args["files"]),
            "content": self._content,
            "tabs": self._list_tabs,
            "switch_tab": self._switch_tab,
            "close_tab": self._close_tab,
            "get_storage": self._get_storage,
            "set_storage": lambda args: replace_storage(session, tabs, args["state"]),
            "start_recording": self._start_recording,
            "stop_recording": self._stop_recording,
        }

    async def do(self, name: str, args: dict[str, Any]) -> str:
        """Carry out one call and wait for the page's reaction; raises `ActionError` or Playwright's error."""
        call = self._known.get(name)
        if call is None:
            raise ActionError(f"there is no call {name!r}")
        unseen = await self._session.unseen()
        try:
            if name not in _NOT_OF_THE_PAGE:
                if not await self._tabs.arrive(self._navigation_ms / 1000):
                    raise ActionError(
                        "the page asked for another one, which has not answered yet: look again later, or navigate"
                    )
                await self._tabs.expect_reaction()
                (await self._tabs.active()).clear_moves()
            result = await call(args)
        except (ValueError, KeyError) as error:
            raise ActionError(str(error)) from error
        deadline = time.monotonic() + 3.0
        while name not in _ONLY_LOOK and await self._session.unseen() > unseen:  # tabs that the call has opened
            if time.monotonic() > deadline:
                self._tabs.note("The page opened a new tab, which has nothing to show yet.")
                break
            await asyncio.sleep(0.03)
        tab = await self._tabs.active()
        notice = await (loaded(tab) if name in _ONLY_LOOK and not tab.requests else settle(tab))
        await self._tabs.finish_downloads(5.0)
        return "\n".join(filter(None, (result, notice)))

    async def _navigate(self, args: dict[str, Any]) -> str:
        url = _address(args["url"])
        tab = await (self._tabs.open() if args.get("new_tab") else self._tabs.to_leave())
        tab.is_slow = False
        try:
            tab, response = await self._go(tab, url)
        except PlaywrightTimeoutError:
            await tab.stop_loading()
            raise ActionError(f"{url} did not answer within {self._navigation_ms / 1000:g} s: given up") from None
        except Error as error:
            if "Download is starting" in error.message:
                return f"{url} is a download."
            if is_gone(error):
                raise
            if "invalid URL" in error.message:
                raise ActionError(f"{url[:200]!r} is no address") from None
            with contextlib.suppress(Error):  # Chromium's own page about the error would interrupt the next one
                await tab.page.wait_for_url("chrome-error://**", wait_until="commit", timeout=1000)
            raise ActionError(in_words(error)) from None
        await loaded(tab)
        status = response.status if response is not None else 200
        answer = f" It answered with the error HTTP {status}." if status >= 400 else ""
        place = f" in the new tab {tab.id}" if args.get("new_tab") else ""
        return f"Opened {tab.page.url}{place}.{answer}"

    async def _go(self, tab: Tab, url: str) -> tuple[Tab, Response | None]:
        """A page that goes elsewhere by itself meanwhile, and again, is left for a new tab."""
        for attempt in range(_ATTEMPTS):
            try:
                response = await tab.page.goto(url, wait_until="commit", timeout=self._navigation_ms)
                tab.clear_moves()
                return tab, response
            except Error as error:
                # A page that moves by itself may break off where it is to go before it has gone elsewhere, too.
                is_broken_off = "net::ERR_ABORTED" in error.message and bool(tab.moved_at)
                is_elsewhere = is_broken_off or "interrupted by another navigation" in error.message
                if not is_elsewhere or attempt == _ATTEMPTS - 1:
                    raise
            if attempt == _ATTEMPTS - 2:
                tab = await self._tabs.leave_for_new(tab, "kept going elsewhere")
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    async def _click(self, args: dict[str, Any]) -> str:
        new_tab = args.get("new_tab", False)
        if new_tab and (address := await self._elements.address(args["id"])):
            return await self._navigate({"url": address, "new_tab": True})
        button, modifiers, times = args.get("button", "left"), args.get("modifiers", []), args.get("times", 1)
        return await self._elements.click(args["id"], button, modifiers, times, new_tab)

    async def _through_history(self, steps: int) -> str:
        tab = await self._tabs.active()
        tab.is_slow = False
        if tab.asks_for_another:
            await tab.stop_loading()
        await self._tabs.expect_reaction()
        page, before = tab.page, tab.page.url
        go = page.go_back if steps < 0 else page.go_forward
        try:
            response = await go(wait_until="commit", timeout=self._navigation_ms)
        except PlaywrightTimeoutError:
            await tab.stop_loading()
            raise ActionError("the page did not answer in time") from None
        if response is None and page.url == before:
            raise ActionError(f"there is no {'earlier' if steps < 0 else 'later'} page in this tab's history")
        tab.clear_moves()
        await loaded(tab)
        return f"The page is {page.url} now."

    async def _wheel(self, args: dict[str, Any]) -> str:
        page = (await self._tabs.active()).page
        await page.mouse.wheel(args["x"], args["y"])
        return "Turned the wheel."

    async def _scroll(self, args: dict[str, Any]) -> str:
        """Almost a screen, with the wheel over the middle, so that a list there scrolls in place of the page."""
        page = (await self._tabs.active()).page
        await page.mouse.move(VIEWPORT["width"] / 2, VIEWPORT["height"] / 2)
        distance = VIEWPORT["height"] - _SCROLL_OVERLAP
        await page.mouse.wheel(0, distance if args.get("direction", "down") == "down" else -distance)
        await asyncio.sleep(0.1)
        top, height, whole = await repeated(lambda: page.evaluate(_SCROLLED))
        return f"Scrolled {args.get('direction', 'down')}: the window shows {top} to {top + height} of {whole} pixels."

    async def _content(self, args: dict[str, Any]) -> str:
        text = await text_of(await self._tabs.active(), with_links=args.get("links", False))
        start = args.get("start", 0)
        if start and start >= len(text):
            raise ActionError(f"start_from_char is {start}, but the page has {len(text)} characters only")
        shown = text[start : start + TEXT_LIMIT]
        end = start + len(shown)
        if end == len(text):
            return shown or "The page has no text."
        path = self._files.save_text(text)
        saved = f" The whole text is in {path}." if path else ""
        return f"{shown}\n[Characters {start} to {end} of {len(text)}; go on with start_from_char={end}.{saved}]"

    async def _list_tabs(self, _: dict[str, Any]) -> str:
        index = self._tabs.active_index
        listed = await self._tabs.listed()
        lines = [
            f"{'*' if place == index else '-'} {tab['id']}: {tab['title'] or '(no title)'} <{tab['url']}>"
            for place, tab in enumerate(listed)
        ]
        return "\n".join(lines) or "No tab is open."

    async def _switch_tab(self, args: dict[str, Any]) -> str:
        tab = self._tabs.switch(args["tab"])
        await tab.page.bring_to_front()
        return f"Tab {tab.id} is the active one now: {tab.page.url}."

    async def _close_tab(self, args: dict[str, Any]) -> str:
        active = (await self._tabs.active()).id
        tab = self._tabs.switch(args["tab"])
        if active != tab.id:
            self._tabs.switch(active)
        await tab.page.close()
        return f"Closed tab {tab.id}; the active one is {(await self._tabs.active()).id} now."

    async def _get_storage(self, _: dict[str, Any]) -> str:
        text = json.dumps(await read_storage(self._session, self._tabs), indent=1, ensure_ascii=False)
        if len(text) <= TEXT_LIMIT:
            return text
        path = self._files.save_text(text)
        return f"{text[:TEXT_LIMIT]}\n[Cut; all {len(text)} characters are in {path or 'no file: the disk is full'}.]"

    async def _start_recording(self, _: dict[str, Any]) -> str:
        try:
            await self._session.context.tracing.start(screenshots=True, snapshots=True)
        except Error as error:
            raise ActionError(f"the recording cannot start: {in_words(error)}") from None
        return "Recording what happens in the browser."

    async def _stop_recording(self, _: dict[str, Any]) -> str:
        try:
            path = self._files.new_path(".browser_recordings", ".zip")
            await self._session.context.tracing.stop(path=path)
        except (Error, OSError) as error:
            words = in_words(error) if isinstance(error, Error) else str(error)
            raise ActionError(f"there is no recording to stop: {words}") from None
        return f"The recording is in {path}; `playwright show-trace` shows it."


def _address(url: str) -> str:
    url = url.strip()
    if not url:
        raise ActionError("url is empty")
    if _LOCAL.match(url):
        return f"http://{url}"
    return url if _SCHEME.match(url) else f"https://{url}"
