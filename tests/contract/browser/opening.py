"""A sandbox with a browser and a site, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from agent_core.runtime.docker.images import DEFAULT_IMAGE
from agent_core.runtime.sandbox import SandboxProvider
from agent_core.testing.sandbox_contract import LIMITS, SandboxKit
from tests.contract.suites.browser_kit import BrowserKit

ROOMY = replace(LIMITS, memory=2 * 1024**3, processes=512, tmp_size=256 * 1024**2)


@asynccontextmanager
async def open_web(provider: SandboxProvider, data_dir: str, image: str = DEFAULT_IMAGE) -> AsyncIterator[BrowserKit]:
    """A sandbox of the provider with the site in it."""
    kit = SandboxKit(provider, data_dir, image=image)
    try:
        web = BrowserKit(kit.connect(limits=ROOMY))
        await web.open()
        yield web
    finally:
        await kit.close()
