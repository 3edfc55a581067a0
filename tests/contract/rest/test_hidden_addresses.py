"""A password or key that stands in an address or an argument is shown to nobody, and what is shown can be sent back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.rest.conftest import Server, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOWN = "**********"
ADDRESS = "http://ann:do%2Bnot-tell@127.0.0.1:9/v1?page=2&api_key=do-not-tell-2"
HIDDEN = f"http://ann:{SHOWN}@127.0.0.1:9/v1?page=2&api_key={SHOWN}"
TOKEN = "http://do-not-tell-0123456789@127.0.0.1:9/mcp"
OPERATORS = {
    "shttp_servers": [{"url": "http://127.0.0.1:9/own?token=do-not-tell-3"}],
    "stdio_servers": [{"name": "own", "command": "x", "args": ["--api-key", "do-not-tell-4", "--port", "80"]}],
}
SERVERS: dict[str, list[dict[str, Any]]] = {
    "sse_servers": [{"url": TOKEN, "api_key": "do-not-tell-5"}],
    "shttp_servers": [{"url": ADDRESS}, {"url": "http://127.0.0.1:9/x?key=$KEY"}],
    "stdio_servers": [
        {
            "name": "p",
            "command": "x",
            "args": [
                *("--token=do-not-tell-6", "Authorization: Bearer do-not-tell-7", "A_KEY=do-not-tell-8"),
                *("--key-file", "/etc/key", "--password", "do-not-tell-9", ADDRESS, "--secret", "--verbose"),
            ],
        }
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with serving(tmp_path_factory.mktemp("hidden"), mcp_config=OPERATORS) as server:
        yield server


async def settings(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = (await server.get("/api/settings")).json()
    assert "do-not" not in json.dumps(found)
    assert "do%2Bnot" not in json.dumps(found)
    return found


async def test_settings_show_no_address_with_a_secret_and_take_back_what_they_show(server: Server) -> None:
    change = {"llm_base_url": ADDRESS, "mcp_config": SERVERS}
    assert (await server.post("/api/settings", json=change)).status_code == 200
    shown = await settings(server)
    assert shown["llm_base_url"] == HIDDEN
    urls = [one["url"] for one in shown["mcp_config"]["shttp_servers"]]
    assert urls == ["http://127.0.0.1:9/own?token=", HIDDEN, "http://127.0.0.1:9/x?key=$KEY"]
    own, program = shown["mcp_config"]["stdio_servers"]
    assert own["args"] == ["--api-key", "", "--port", "80"]
    assert program["args"] == [
        *(f"--token={SHOWN}", f"Authorization: Bearer {SHOWN}", f"A_KEY={SHOWN}"),
        *("--key-file", "/etc/key", "--password", SHOWN, HIDDEN, "--secret", "--verbose"),
    ]
    assert (await server.post("/api/settings", json=shown)).status_code == 200
    assert await settings(server) == shown
    stored = await server.app.services.database.settings.get()
    assert stored is not None
    assert stored.llm_base_url == ADDRESS
    assert stored.mcp_config is not None
    kept = {kind: [one["url"] for one in stored.mcp_config[kind]] for kind in ("sse_servers", "shttp_servers")}
    assert kept == {kind: [one["url"] for one in SERVERS[kind]] for kind in kept}
    assert stored.mcp_config["stdio_servers"][0]["args"] == SERVERS["stdio_servers"][0]["args"]


async def test_a_mask_that_stands_for_nothing_is_refused(server: Server) -> None:
    other = f"http://ann:{SHOWN}@127.0.0.1:8/v1"
    for change in ({"llm_base_url": other}, {"mcp_config": {"sse_servers": [f"http://127.0.0.1:8/?key={SHOWN}"]}}):
        response = await server.post("/api/settings", json=change)
        assert (response.status_code, SHOWN in response.text) == (422, True)
    body = {"url": f"https://hooks.example.com/?key={SHOWN}"}
    assert (await server.post("/api/webhooks", json=body)).status_code == 422
    profile = await server.client.put("/api/llm-profiles/masked", json={"model": "openai/x", "base_url": other})
    assert profile.status_code == 422


async def test_profiles_and_webhooks_do_the_same(server: Server) -> None:
    body = {"model": "openai/x", "base_url": ADDRESS}
    shown = (await server.client.put("/api/llm-profiles/mine", json=body)).json()["options"]
    assert shown["base_url"] == HIDDEN
    assert (await server.client.put("/api/llm-profiles/mine", json=shown)).status_code == 200
    url = "https://hooks.example.com/in?token=do-not-tell-10&room=5"
    made = (await server.post("/api/webhooks", json={"url": url})).json()
    assert made["url"] == f"https://hooks.example.com/in?token={SHOWN}&room=5"
    path = f"/api/webhooks/{made['id']}"
    changed = (await server.client.patch(path, json={"url": made["url"], "events": ["message"]})).json()
    assert (changed["url"], changed["events"]) == (made["url"], ["message"])
    refused = await server.client.patch(path, json={"url": f"https://other.example.com/in?token={SHOWN}"})
    assert refused.status_code == 422
    database = server.app.services.database
    stored, (webhook,) = await database.settings.get(), await database.webhooks.all()
    assert stored is not None
    assert (stored.llm_profiles or {})["mine"]["base_url"] == ADDRESS
    assert webhook.url == url
