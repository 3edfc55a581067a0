"""The conformance suite of the browser tools in Docker containers of the image with a browser: another Chromium.

What tabs, restless and hostile pages do meets the same code in both, and is tried with the host's alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from agent_core.runtime.docker.provider import DockerProvider
from tests.contract.browser.opening import open_web
from tests.contract.suites.browser_contract import BrowserContract
from tests.contract.suites.browser_kit import BrowserKit

pytestmark = [pytest.mark.docker, pytest.mark.browser_image, pytest.mark.asyncio(loop_scope="module")]

IMAGE = "drydock/sandbox:browser"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrowserKit]:
    folder = str(tmp_path_factory.mktemp("data"))
    async with open_web(DockerProvider(), folder, image=IMAGE) as made:
        yield made


class TestBrowser(BrowserContract):
    pass
