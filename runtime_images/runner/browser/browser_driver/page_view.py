"""A look at a page: its tree, its picture, and in words what of it cannot be seen."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import html
import time
from typing import Any, NamedTuple

from playwright.async_api import BrowserContext, Error, Page
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from .calls import TEXT_LIMIT
from .errors import ActionError, has_moved, in_words, sentence
from .session import VIEWPORT, BrowserSession
from .tabs import UNANSWERED, Tab, Tabs, repeated
from .tree import AccessibilityTree, Box, read_tree
from .workspace_files import WorkspaceFiles

QUALITY = 80
_COLOURS = ("#d12b2b", "#1f5fd6", "#1b7f37", "#a0460a", "#7a2bbf", "#0b7285", "#b0126f", "#5c5f00")
_STYLE = """
body { margin: 0; position: relative; overflow: hidden }
img { display: block; width: 100vw }
div { position: absolute; box-sizing: border-box; border: 1px solid var(--c) }
b { position: absolute; left: -1px; top: -1px; background: var(--c); color: #fff;
    font: bold 11px/13px sans-serif; padding: 0 2px; white-space: nowrap }
"""
_LIMIT_MS = 10_000
_COUNT_SECONDS = 10.0
_LOOK_MS = 15_000.0
_RESTLESS_MOVES = 2
_WRITTEN = frozenset({"text/html", "application/xhtml+xml", "text/xml", "application/xml", "text/plain"})
_FACTS = """() => [document.readyState !== 'loading', Boolean(document.body || !document.documentElement),
    document.contentType, document.documentElement?.textContent.length ?? 0]"""
_WINDOW = Box(0, 0, VIEWPORT["width"], VIEWPORT["height"])
_JPEG = "data:image/jpeg;base64,"

Seen = dict[str, Any]


# The tree has numbers for what has a role or a pointing hand. A shape in a drawing (SVG) that listens for clicks has
# neither: such shapes are given the role of an image and the hand; words within a line that of a button,
# others the hand.
_SCRIPT = """(() => {
    const lines = 'span, i, b, em, strong, div, li, td, p, [onclick]', most = 3000;
    const kinds = ['click', 'mousedown', 'mouseup', 'pointerdown', 'pointerup'];
    const own = new Set(['A', 'BUTTON', 'INPUT', 'SELECT', 'OPTION', 'TEXTAREA', 'LABEL', 'SUMMARY', 'AREA']);
    const listens = e => {
        if (kinds.some(kind => e['on' + kind])) return true;
        const known = getEventListeners(e);
        return kinds.some(kind => known[kind]);
    };
    const show = (document, depth) => {
        const drawn = [...document.querySelectorAll('svg, svg *')].slice(0, most);
        const words = [...document.querySelectorAll(lines)].slice(0, most);
        for (const e of drawn) {
            if (e.closest('a, button, defs') || e.hasAttribute('role') || !listens(e)) continue;
            e.setAttribute('role', 'img');
            const title = e.querySelector(':scope > title, :scope > desc');
            const name = title ? title.textContent.trim() : e.textContent.trim() || e.id || e.tagName;
            if (!e.hasAttribute('aria-label') && !e.hasAttribute('aria-labelledby')) e.setAttribute('aria-label', name);
            e.style.cursor = 'pointer';
        }
        for (const e of words) {
            if (e.children.length || e.hasAttribute('role') || own.has(e.tagName)) continue;
            if (!e.textContent.trim() || !listens(e)) continue;
            if (getComputedStyle(e).display === 'inline') e.setAttribute('role', 'button');
            e.style.cursor = 'pointer';
        }
        for (const frame of depth ? document.querySelectorAll('iframe') : [])
            if (frame.contentDocument) show(frame.contentDocument, depth - 1);
    };
    show(document, 3);
})()"""


class _Document(NamedTuple):
    """A document before its tree is asked for; `is_read`: all of it is there."""

    is_read: bool
    has_body: bool
    kind: str
    size: int


class PageViewer:
    """Looks at the active tab."""

    def __init__(self, session: BrowserSession, tabs: Tabs, files: WorkspaceFiles, navigation_seconds: float) -> None:
        self._session = session
        self._tabs = tabs
        self._files = files
        self._navigation_seconds = navigation_seconds

    async def look(self, options: dict[str, bool]) -> Seen:
        requested = [name for name in ("tree", "marks", "screenshot") if options.get(name)]
        is_there = not requested or await self._tabs.arrive(self._navigation_seconds)
        tab = await self._tabs.active()
        page = tab.page
        listed = await self._tabs.listed()
        seen: Seen = {"tabs": listed, "active": self._tabs.active_index, "url": page.url, "notices": []}
        if not is_there:
            return {**seen, "notices": [UNANSWERED]}
        tree = AccessibilityTree()
        if "tree" in requested or "marks" in requested:
            try:
                tree = await self._tree(tab)
                tab.seen, tab.seen_url = tree, page.url
            except (PlaywrightTimeoutError, asyncio.TimeoutError):
                if tab.asks_for_another:
                    return {**seen, "notices": [UNANSWERED]}
                hung = await self._tabs.drop_hung()
                why = "did not react any more, so its tab was closed" if hung else "changes all the time"
                seen["notices"].append(f"What is on the page could not be read: it {why}.")
                requested = [] if hung else requested
            except ActionError as error:
                seen["notices"].append(sentence(str(error)))
                requested = [name for name in requested if name != "marks"]
            except Error as error:
                seen["notices"].append(sentence(f"what is on the page could not be read: {in_words(error)}"))
            seen["focused"] = tree.focused()
        if "tree" in requested:
            seen["tree"] = self._cut(tree.text(_WINDOW if options.get("visible_only") else None))
        if "screenshot" in requested:
            await self._picture(page, tree if "marks" in requested else None, seen)
        return seen

    async def _tree(self, tab: Tab) -> AccessibilityTree:
        """A page about to be another is waited for, and held when it never stays."""
        deadline, moves_before = time.monotonic() + 3.0, tab.moves
        while tab.moves - moves_before < _RESTLESS_MOVES:
            is_late, moves = time.monotonic() > deadline, tab.moves
            try:
                document = await _document_of(tab.page)
                tree = await _tree_now(tab, document)
                if tree.nodes or is_late or (document.is_read and moves == tab.moves):
                    if not tree.nodes and document.kind not in _WRITTEN:
                        words = f"The page is a file of the type {document.kind}"
                        self._tabs.note(f"{words}: only a screenshot shows what is in it.")
                    return tree
            except Error as error:
                is_elsewhere = isinstance(error, PlaywrightTimeoutError) and moves != tab.moves
                if is_late or not (is_elsewhere or has_moved(error)):
                    raise
            await asyncio.sleep(0.05)
        async with tab.paused():
            tree = await _tree_now(tab, await _document_of(tab.page))
        self._tabs.note("The page went on to another again and again; it was stopped where it was.")
        return tree

    async def _picture(self, page: Page, tree: AccessibilityTree | None, seen: Seen) -> None:
        try:
            picture = await page.screenshot(type="jpeg", quality=QUALITY, timeout=10_000.0)
            seen["screenshot"] = _JPEG + base64.b64encode(picture).decode("ascii")
            seen["screenshot_path"] = self._files.save_screenshot(picture)
            if tree is not None:
                marked = await _draw_marks(await self._session.own_context(), picture, tree.marks(_WINDOW))
                seen["marks"] = _JPEG + base64.b64encode(marked).decode("ascii")
        except Error as error:
            seen["notices"].append(sentence(f"there is no screenshot: {in_words(error)}"))

    def _cut(self, text: str) -> str:
        if len(text) <= TEXT_LIMIT:
            return text
        path = self._files.save_text(text)
        shown = text[:TEXT_LIMIT].rpartition("\n")[0]
        hidden = text.count("\n") - shown.count("\n")
        return f"{shown}\n[{hidden} more lines{f'; the whole tree is in {path}' if path else ''}]"


async def _tree_now(tab: Tab, document: _Document) -> AccessibilityTree:
    """The document's present tree; asyncio.TimeoutError when it does not react, `ActionError` when it is too large."""
    page = tab.page
    # By a locator, which works out of the reach of the page's own scripts.
    count = await asyncio.wait_for(repeated(page.locator("*").count), _COUNT_SECONDS)
    for number, most, what in ((count, 30_000, "elements"), (document.size, 5_000_000, "characters")):
        if number > most:
            more = f"{number} {what}, more than the {most} of which a tree is made"
            raise ActionError(f"the page has {more}; its text can be read")
    if not count:
        return AccessibilityTree()  # Playwright would wait for some
    await _show_clickable(page)
    if document.has_body:
        snapshot = await page.aria_snapshot(mode="ai", boxes=True, timeout=_LOOK_MS)
    else:  # a drawing, or XML
        snapshot = await page.locator(":root").aria_snapshot(mode="ai", boxes=True, timeout=_LOOK_MS)
    return read_tree(snapshot, tab.numbers)


async def _document_of(page: Page) -> _Document:
    """What kind of document it shows; asyncio.TimeoutError when it does not react."""
    return _Document(*await asyncio.wait_for(repeated(lambda: page.evaluate(_FACTS)), _COUNT_SECONDS))


async def _show_clickable(page: Page) -> None:
    """Have click listeners numbered in the next tree; a busy page stays as it is."""

    async def show() -> None:
        connection = await page.context.new_cdp_session(page)
        try:
            await connection.send("Runtime.evaluate", {"expression": _SCRIPT, "includeCommandLineAPI": True})
        finally:
            with contextlib.suppress(Error):
                await connection.detach()

    with contextlib.suppress(Error, asyncio.TimeoutError):
        await asyncio.wait_for(show(), 3.0)


async def _draw_marks(context: BrowserContext, picture: bytes, marks: list[tuple[int, Box]]) -> bytes:
    source = _JPEG + base64.b64encode(picture).decode("ascii")
    parts = [f"<!doctype html><style>{_STYLE}</style><img src='{html.escape(source)}'>"]
    for number, box in marks:
        colour = _COLOURS[number % len(_COLOURS)]
        place = f"left:{box.x}px;top:{max(0.0, box.y)}px;width:{box.width}px;height:{box.height}px;--c:{colour}"
        parts.append(f"<div style='{place}'><b>{number}</b></div>")
    page = await context.new_page()
    try:
        await page.set_content("".join(parts), wait_until="load", timeout=_LIMIT_MS)
        return await page.screenshot(type="jpeg", quality=QUALITY, timeout=_LIMIT_MS)
    finally:
        await page.close()
