"""Serves requests: a few calls one after the other, then a look at the page, within a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any

from playwright.async_api import Error

from .calls import TabCalls
from .errors import ActionError, in_words, is_gone, sentence
from .page_view import PageViewer
from .session import BrowserSession, NoBrowserError
from .tabs import Tabs
from .workspace_files import WorkspaceFiles

DriverResult = dict[str, Any]


class BrowserDriver:
    """One browser for one sandbox; requests are served one at a time, in order."""

    def __init__(self, send: Callable[[dict[str, Any]], None], workspace: str, chromium: str) -> None:
        self._send = send
        self._files = WorkspaceFiles(workspace)
        self._chromium = chromium
        self._session: BrowserSession | None = None
        self._turn = asyncio.Lock()
        self._tasks: dict[Any, asyncio.Task[None]] = {}
        self._timeouts = 0

    def begin(self, message: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._serve(message))
        self._tasks[message["id"]] = task
        task.add_done_callback(lambda _: self._tasks.pop(message["id"], None))

    def cancel(self, ident: Any) -> None:
        if ident in self._tasks:
            self._tasks[ident].cancel()

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if self._session is not None:
            await self._session.end()

    async def _serve(self, message: dict[str, Any]) -> None:
        async with self._turn:
            limit = float(message["timeout"])
            if self._timeouts:
                limit = min(limit, 30.0)
            try:
                if self._session is None:
                    self._session = BrowserSession(self._chromium, self._files, float(message["start_seconds"]))
                tabs = await self._session.tabs()  # whose start has a limit of its own
                result = await asyncio.wait_for(self._session.unless_ended(self._do(message, tabs)), limit)
                self._timeouts = 0
            except asyncio.TimeoutError:
                result = await self._late(limit)
            except asyncio.CancelledError:
                await self._drop_hung()
                result = {"status": "interrupted"}
            except NoBrowserError as error:
                result = {"status": "unavailable", "error": f"{error}."}
            except Error as error:
                if self._session is not None:
                    await self._session.end()
                words = "The browser ended in the middle of it; it is started anew with the next call."
                result = {"status": "crashed", "error": words}
                if not is_gone(error):
                    result = {"status": "failed", "error": sentence(in_words(error))}
            except Exception as error:  # noqa: BLE001 - whatever it is, the asker must be answered
                sys.excepthook(*sys.exc_info())
                result = {"status": "failed", "error": f"The browser's program failed: {type(error).__name__}."}
        self._send({"id": message["id"], "result": result})

    async def _late(self, limit: float) -> DriverResult:
        self._timeouts += 1
        words = f"It was not done within {limit:g} s."
        if self._timeouts >= 3:
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

    async def _do(self, message: dict[str, Any], tabs: Tabs) -> DriverResult:
        session = self._session
        if session is None:
            raise NoBrowserError("Chromium does not run")
        await session.allow(tuple(message.get("allowed_domains") or ()))
        navigation_seconds = float(message["navigation_seconds"])
        calls = TabCalls(session, tabs, self._files, navigation_seconds)
        texts: list[str] = []
        error, status = "", "completed"
        for call in message["calls"]:
            try:
                texts.append(await calls.do(call["name"], call.get("args", {})))
            except ActionError as failure:
                error, status = sentence(str(failure)), "failed"
            except Error as failure:
                if is_gone(failure) and not await session.answers():
                    raise
                words = "the page was closed or crashed" if is_gone(failure) else in_words(failure)
                error, status = sentence(words), "failed"
            if error:
                break
        viewer = PageViewer(session, tabs, self._files, navigation_seconds)
        seen = await viewer.look(message.get("look", {}))
        notices = [*tabs.take_notices(), *seen.pop("notices")]
        downloads, tabs.downloads = tabs.downloads, []
        return {
            "status": status,
            "text": "\n".join(filter(None, texts)),
            "error": error,
            "notices": notices,
            "downloads": downloads,
            **seen,
        }

    async def _drop_hung(self) -> bool:
        session = self._session
        if session is None or not session.is_running:
            return False
        with contextlib.suppress(Error, NoBrowserError):
            tabs = await session.tabs()
            await (await tabs.active()).stop_loading()
            return await tabs.drop_hung()
        return False
