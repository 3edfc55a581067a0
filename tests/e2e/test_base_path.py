"""The page behind a proxy, below a path that is the proxy's: a whole visit with everything below that path."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.conftest import StartServer, ask, free_port, until_phase
from tests.integration.server.test_wheel import HURRIED
from tests.proxies import nginx

pytestmark = [pytest.mark.browser, pytest.mark.proxies, pytest.mark.asyncio(loop_scope="module")]

TOKEN = "a-token-for-servers-behind-proxies"


async def test_a_whole_visit_lies_below_the_path(browser: Browser, start_server: StartServer, tmp_path: Path) -> None:
    settings = {"TOKEN": TOKEN, "BASE_PATH": "/drydock", "TRUSTED_PROXIES": "127.0.0.1", "SANDBOX": "unconfined"}
    server = await start_server(**HURRIED, **{f"DRYDOCK_{name}": value for name, value in settings.items()})
    assert urlsplit(server.url).path == "/drydock"
    ports = free_port(), free_port()
    async with nginx(tmp_path, urlsplit(server.url).port or 0, ports, path="/drydock") as proxy:
        context = await browser.new_context(ignore_https_errors=True)
        try:
            page = await context.new_page()
            elsewhere: list[str] = []
            sockets: list[str] = []
            page.on("request", lambda one: None if one.url.startswith(f"{proxy.url}/") else elsewhere.append(one.url))
            page.on("websocket", lambda line: sockets.append(line.url))
            await page.goto(f"https://localhost:{proxy.port}/drydock#token={TOKEN}")
            await ask(page, "Show me around.")
            await until_phase(page, "finished")
            await expect(page).to_have_url(f"{proxy.url}/conversations/{urlsplit(page.url).path.rpartition('/')[2]}")
            await page.reload()
            await expect(page.get_by_text("Show me around.").first).to_be_visible()
            await page.get_by_test_id("settings-link").click()
            await expect(page).to_have_url(f"{proxy.url}/settings")
            await page.get_by_test_id("conversation-item").get_by_role("link").click()
            await expect(page.get_by_test_id("composer-input")).to_be_visible()
            await page.get_by_test_id("new-conversation").click()
            await expect(page).to_have_url(f"{proxy.url}/")
            assert elsewhere == [f"https://localhost:{proxy.port}/drydock"]  # which leads to the path with a slash
            assert sockets
            assert all(one.startswith(f"wss://localhost:{proxy.port}/drydock/socket.io/") for one in sockets)
            assert await page.evaluate("Object.keys(sessionStorage)") == ["/drydockdrydock.token"]
        finally:
            await context.close()
