"""A preview in Chromium: seen beside the conversation, and with no way from it to Drydock."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Frame, expect

from tests.e2e.conftest import OpenPage, StartServer
from tests.integration.server.conftest import create, following

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="module"),
]


SERVE = (
    "mkdir -p site && cd site && echo '<h1>hull</h1><script src=app.js></script>' > index.html && "
    "echo 'document.title = 1 + 1' > app.js && "
    "(python3 -m http.server 8765 --bind 127.0.0.1 > /dev/null 2>&1 &) && cd .."
)

ATTACKS = """async ([drydock, id]) => {
  const found = {};
  const attempt = async (name, act) => {
    try { found[name] = await act(); } catch (error) { found[name] = "refused: " + error.name; }
  };
  const paths = { list: "/api/conversations", log: `/api/conversations/${id}/events`, settings: "/api/settings" };
  for (const [name, path] of Object.entries(paths)) {
    await attempt(name, async () => (await fetch(drydock + path, { credentials: "include" })).text());
    await attempt(name + " blind", async () => (await fetch(drydock + path, { mode: "no-cors" })).text());
  }
  await attempt("written", async () => {
    const body = JSON.stringify({ message: "planted" });
    return (await fetch(`${drydock}/api/conversations/${id}/message`, { method: "POST", body, mode: "no-cors" })).type;
  });
  await attempt("embedding page", () => window.parent.document.title);
  await attempt("its storage", () => Object.keys(window.parent.localStorage).length);
  const line = (transport) => `/socket.io/?EIO=4&transport=${transport}&conversation_id=${id}&latest_event_id=-1`;
  await attempt("socket", () => new Promise((resolve, reject) => {
    const socket = new WebSocket(drydock.replace("http", "ws") + line("websocket"));
    socket.onopen = () => resolve("open");
    socket.onerror = () => reject(new DOMException("", "closed"));
  }));
  await attempt("script", () => new Promise((resolve, reject) => {
    window.___eio = [(text) => resolve(text)];
    const script = document.createElement("script");
    script.src = drydock + line("polling") + "&j=0";
    script.onload = () => resolve("ran");
    script.onerror = () => reject(new DOMException("", "blocked"));
    document.head.append(script);
  }));
  await attempt("cookie", () => document.cookie);
  return found;
}"""


async def attacks(frame: Frame, drydock: str, conversation_id: str) -> dict[str, Any]:
    found: dict[str, Any] = await frame.evaluate(ATTACKS, [drydock, conversation_id])
    return found


async def test_a_preview_is_shown_and_cannot_read_drydock(start_server: StartServer, visit: OpenPage) -> None:
    server = await start_server(DRYDOCK_SANDBOX_NETWORK="none", DRYDOCK_ALLOWED_HOSTS="drydock.example")
    conversation_id = await create(server)
    async with following(server, conversation_id) as follower:
        await follower.run(SERVE)
        await follower.until(lambda: follower.count(observation="run") == 1)
    seen = await visit(f"{server.url}/conversations/{conversation_id}")
    page = seen.page
    await page.get_by_test_id("header-menu").click()
    await page.get_by_test_id("header-ports").click()
    row = page.locator('[data-testid="port"][data-port="8765"]')
    await expect(row).to_contain_text("python3")
    await row.get_by_role("button", name="Show here").click()
    inside = page.frame_locator('[data-testid="ports-frame"]')
    await expect(inside.get_by_role("heading", name="hull")).to_be_visible()
    frame = next(frame for frame in page.frames if ".localhost" in frame.url)
    assert frame.url.endswith("/"), "the ticket is gone from the address"
    await frame.wait_for_function("document.title === '2'")
    found = await attacks(frame, server.url, conversation_id)
    assert found.pop("written") == "opaque"  # sent, and refused: see below
    assert all(str(value) == "" or str(value).startswith("refused") for value in found.values()), found
    # Where there is no name for it, the same document has no origin at all.
    async with server.client() as client:
        listed = await client.get(f"/api/conversations/{conversation_id}/ports", headers={"host": "drydock.example"})
    (under_a_path,) = [one["url"] for one in listed.json()["ports"] if one["port"] == 8765]
    plain = await page.context.new_page()
    await plain.goto(under_a_path.replace("http://drydock.example", server.url))
    await expect(plain.get_by_role("heading", name="hull")).to_be_visible()
    assert await plain.evaluate("window.origin") == "null"
    await plain.wait_for_function("document.title === '2'")
    found = await attacks(plain.main_frame, server.url, conversation_id)
    assert found.pop("embedding page") == "2"  # it is its own parent here
    assert found.pop("written") == "opaque"
    assert all(str(value) == "" or str(value).startswith("refused") for value in found.values()), found
    async with server.client() as client:
        events = (await client.get(f"/api/conversations/{conversation_id}/events?limit=100")).json()["events"]
    assert "planted" not in str(events)
    async with page.context.expect_page() as opening:
        await row.get_by_role("link", name="Open in a tab").click()
    tab = await opening.value
    await expect(tab.get_by_role("heading", name="hull")).to_be_visible()
    assert await tab.evaluate("window.opener === null")
    assert await tab.evaluate("document.cookie = 'own=1'; localStorage.own = 1; document.cookie") == "own=1"  # no pass
    stranger = await page.context.browser.new_context() if page.context.browser else page.context
    try:
        elsewhere = await stranger.new_page()
        refused = await elsewhere.goto(tab.url)
        assert refused is not None
        assert refused.status == 403
    finally:
        await stranger.close()
    assert seen.problems == []
