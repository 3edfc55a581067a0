"""Waiting until a page has done what a call made it do; never for long."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from playwright.async_api import Error
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from .errors import has_moved
from .tab import Tab

_STEP_SECONDS = 0.03
_QUIET_SECONDS = 0.12
_REQUEST_SECONDS = 3.0
_PARSED_SECONDS = 4.0
_LOADED_SECONDS = 2.0
_AGAIN_SECONDS = 0.1
_RESTLESS_SECONDS = 3.0
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
    deadline = time.monotonic() + _RESTLESS_SECONDS
    while True:
        try:
            return await ask()
        except Error as error:
            if not has_moved(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_STEP_SECONDS)
