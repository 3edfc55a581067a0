"""Work that is under way when Chromium ends is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Error

from runtime_images.runner.browser.browser_driver.errors import is_gone
from runtime_images.runner.browser.browser_driver.session import BrowserSession
from runtime_images.runner.browser.browser_driver.workspace_files import WorkspaceFiles


@pytest.fixture
def session(tmp_path: Path) -> BrowserSession:
    return BrowserSession("chromium", WorkspaceFiles(str(tmp_path)), 1.0)


async def test_work_that_is_left_without_an_answer_fails_when_chromium_has_ended(session: BrowserSession) -> None:
    was_cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    asyncio.get_running_loop().call_later(0.05, session.has_ended.set)
    async with asyncio.timeout(60):
        with pytest.raises(Error) as caught:
            await session.unless_ended(hang())
    assert is_gone(caught.value)
    assert was_cancelled.is_set()


async def test_work_that_knows_its_end_in_that_moment_tells_it(session: BrowserSession) -> None:
    async def work() -> str:
        await session.has_ended.wait()
        await asyncio.sleep(0.05)
        return "done"

    asyncio.get_running_loop().call_later(0.05, session.has_ended.set)
    assert await session.unless_ended(work()) == "done"
    session.has_ended.clear()
    with pytest.raises(ValueError, match="no such tab"):
        await session.unless_ended(_failing())


async def _failing() -> None:
    raise ValueError("no such tab")
