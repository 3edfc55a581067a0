"""Serves requests: a few calls one after the other, then a look at the page; within a limit of time."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
from collections.abc import Callable
from typing import Any

from playwright.async_api import Error, Page
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from .calls import TEXT_LIMIT, Calls
from .errors import ActionError, in_words, is_gone
from .launch import VIEWPORT
from .marks import QUALITY, draw_marks
from .places import Places
from .session import Session, SessionError
from .settling import repeated
from .tabs import Tabs
from .tree import Box, Tree, read_tree

_COUNT_SECONDS = 10.0
_MOST_ELEMENTS = 30_000
_LOOK_MS = 15_000.0
_PICTURE_MS = 10_000.0
_AFTER_TIMEOUT_SECONDS = 30.0
_TIMEOUTS_TO_RESET = 3
_WINDOW = Box(0, 0, VIEWPORT["width"], VIEWPORT["height"])

Result = dict[str, Any]


class Driver:
    """One browser for one sandbox. Requests are served one at a time, in the order of their coming."""

    def __init__(self, tell: Callable[[dict[str, Any]], None], workspace: str, chromium: str) -> None:
        self._tell = tell
        self._places = Places(workspace)
        self._chromium = chromium
        self._session: Session | None = None
        self._turn = asyncio.Lock()
        self._tasks: dict[Any, asyncio.Task[None]] = {}
        self._timeouts = 0

    def begin(self, message: dict[str, Any]) -> None:
        """Serve a request; the answer is told."""
        task = asyncio.ensure_future(self._serve(message))
        self._tasks[message["id"]] = task
        task.add_done_callback(lambda _: self._tasks.pop(message["id"], None))

    def cancel(self, ident: Any) -> None:
        """Break a request off; it is answered all the same."""
        task = self._tasks.get(ident)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End the browser."""
        for task in list(self._tasks.values()):
            task.cancel()
        if self._session is not None:
            await self._session.end()

    async def _serve(self, message: dict[str, Any]) -> None:
        async with self._turn:
            limit = float(message["timeout"])
            if self._timeouts:
                limit = min(limit, _AFTER_TIMEOUT_SECONDS)
            try:
                tabs = await self._started(message)
                result = await asyncio.wait_for(self._do(message, tabs), limit)
                self._timeouts = 0
            except asyncio.TimeoutError:
                result = await self._late(limit)
            except asyncio.CancelledError:
                await self._drop_hung()
                result = {"status": "interrupted"}
            except SessionError as error:
                result = {"status": "unavailable", "error": f"{error}."}
            except Error as error:
                result = await self._ended(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, the asker must be answered
                sys.excepthook(*sys.exc_info())
                result = {"status": "failed", "error": f"The browser's program failed: {type(error).__name__}."}
        self._tell({"id": message["id"], "result": result})

    async def _late(self, limit: float) -> Result:
        self._timeouts += 1
        words = f"It was not done within {limit:g} s."
        if self._timeouts >= _TIMEOUTS_TO_RESET:
            self._timeouts = 0
            if self._session is not None:
                await self._session.end()
            words += " That was the third time, so the browser is started anew with the next call."
        elif self._session is not None and not await self._session.answers():
            await self._session.end()
            words += " The browser did not react any more, so it is started anew with the next call."
        elif await self._drop_hung():
            words += " The page did not react any more, so its tab was closed."
        return {"status": "timeout", "error": words}

    async def _ended(self, error: Error) -> Result:
        """What is told of a call that the end of the browser broke off."""
        if self._session is not None:
            await self._session.end()
        if not is_gone(error):
            return {"status": "failed", "error": _sentence(in_words(error))}
        words = "The browser ended in the middle of it; it is started anew with the next call."
        return {"status": "crashed", "error": words}

    async def _started(self, message: dict[str, Any]) -> Tabs:
        """The tabs of the browser, which has a limit of its own for its start."""
        if self._session is None:
            self._session = Session(self._chromium, self._places, float(message["start_seconds"]))
        return await self._session.tabs()

    async def _do(self, message: dict[str, Any], tabs: Tabs) -> Result:
        session = self._session
        if session is None:
            raise SessionError("Chromium does not run")
        await session.allow(tuple(message.get("allowed_domains") or ()))
        calls = Calls(session, tabs, self._places, float(message["navigation_seconds"]))
        said: list[str] = []
        error, status = "", "completed"
        for call in message["calls"]:
            try:
                said.append(await calls.do(call["name"], call.get("args", {})))
            except ActionError as failure:
                error, status = _sentence(str(failure)), "failed"
            except Error as failure:
                if is_gone(failure) and not await session.answers():
                    raise
                words = "the page was closed or crashed" if is_gone(failure) else in_words(failure)
                error, status = _sentence(words), "failed"
            if error:
                break
        seen = await self._look(session, tabs, message.get("look", {}))
        notices = [*tabs.take_notices(), *seen.pop("notices")]
        return {
            "status": status,
            "text": "\n".join(filter(None, said)),
            "error": error,
            "notices": notices,
            "downloads": tabs.take_downloads(),
            **seen,
        }

    async def _look(self, session: Session, tabs: Tabs, wish: dict[str, bool]) -> Result:
        """What the page is like now; what cannot be seen of it is told."""
        tab = await tabs.active()
        page = tab.page
        seen: Result = {"tabs": await tabs.listed(), "active": tabs.active_index, "url": page.url, "notices": []}
        tree = Tree()
        if wish.get("tree") or wish.get("marks"):
            try:
                if await _has_elements(page):  # else the library would wait for some
                    tree = read_tree(await page.aria_snapshot(mode="ai", boxes=True, timeout=_LOOK_MS), tab.numbers)
            except (PlaywrightTimeoutError, asyncio.TimeoutError):
                hung = await tabs.drop_hung()
                why = "did not react any more, so its tab was closed" if hung else "changes all the time"
                seen["notices"].append(f"What is on the page could not be read: it {why}.")
                wish = {} if hung else wish
            except ActionError as error:
                seen["notices"].append(_sentence(str(error)))
                wish = {**wish, "marks": False}
            except Error as error:
                seen["notices"].append(_sentence(f"what is on the page could not be read: {in_words(error)}"))
            seen["focused"] = tree.focused()
        if wish.get("tree"):
            seen["tree"] = self._cut(tree.text(_WINDOW if wish.get("visible_only") else None))
        if wish.get("screenshot"):
            await self._picture(session, page, tree if wish.get("marks") else None, seen)
        return seen

    async def _picture(self, session: Session, page: Page, tree: Tree | None, seen: Result) -> None:
        try:
            picture = await page.screenshot(type="jpeg", quality=QUALITY, timeout=_PICTURE_MS)
            seen["screenshot"] = _data_url(picture)
            seen["screenshot_path"] = self._places.save_screenshot(picture)
            if tree is not None:
                marked = await draw_marks(await session.sketch(), picture, tree.marks(_WINDOW))
                seen["marks"] = _data_url(marked)
        except Error as error:
            seen["notices"].append(_sentence(f"there is no screenshot: {in_words(error)}"))

    def _cut(self, text: str) -> str:
        if len(text) <= TEXT_LIMIT:
            return text
        path = self._places.save_text(text)
        shown = text[:TEXT_LIMIT].rpartition("\n")[0]
        rest = text.count("\n") - shown.count("\n")
        return f"{shown}\n[{rest} more lines{f'; the whole tree is in {path}' if path else ''}]"

    async def _drop_hung(self) -> bool:
        """Stop what the active page loads; one that does not react any more is closed."""
        session = self._session
        if session is None or not session.is_running:
            return False
        with contextlib.suppress(Error, SessionError):
            tabs = await session.tabs()
            if await tabs.drop_hung():
                return True
            page = (await tabs.active()).page
            line = await page.context.new_cdp_session(page)
            await line.send("Page.stopLoading")
            await line.detach()
        return False


async def _has_elements(page: Page) -> bool:
    """Whether there is anything on the page.

    Raises:
        ActionError: it has so many elements that it would be busy listing them for longer than anybody waits.
        asyncio.TimeoutError: it does not react.
    """
    # By a locator, which works out of the reach of the page's own scripts.
    count = await asyncio.wait_for(repeated(page.locator("*").count), _COUNT_SECONDS)
    if count > _MOST_ELEMENTS:
        more = f"{count} elements, more than the {_MOST_ELEMENTS} of which a tree is made"
        raise ActionError(f"the page has {more}; its text can be read")
    return count > 0


def _data_url(picture: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(picture).decode("ascii")


def _sentence(words: str) -> str:
    first = words[:1].upper() if words.split(" ")[0].isalpha() else words[:1]
    return f"{first}{words[1:].rstrip('.')}."
