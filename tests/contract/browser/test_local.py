"""The conformance suite of the browser tools in sandboxes under bubblewrap, with the host's Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from agent_core.runtime.local.provider import LocalProvider
from tests.contract.browser.opening import open_web
from tests.contract.suites.browser_contract import BrowserContract
from tests.contract.suites.browser_hostile import HostilePagesContract
from tests.contract.suites.browser_kit import BrowserKit
from tests.contract.suites.browser_restless import RestlessPagesContract
from tests.contract.suites.browser_tabs import TabsContract

pytestmark = [pytest.mark.bubblewrap, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrowserKit]:
    folder = str(tmp_path_factory.mktemp("data"))
    async with open_web(LocalProvider(folder), folder) as made:
        yield made


class TestBrowser(BrowserContract, TabsContract, HostilePagesContract, RestlessPagesContract):
    pass
