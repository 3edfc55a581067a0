"""`GET /metrics`: what the server counts, for whoever shows the token."""

from __future__ import annotations

import logging

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import fail
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer

TOKEN = "a-token-of-24-characters-or-more"


async def test_it_wants_the_token(make_server: MakeServer) -> None:
    async with make_server(token=TOKEN) as server:
        assert (await server.get("/metrics")).status_code == 401
        shown = await server.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert shown.status_code == 200
        assert shown.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_a_model_that_refuses_is_counted_and_said_once(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="server.metrics")
    async with ModelServer(lambda request: fail(401)) as model, make_server(generate_titles=False) as server:
        settings = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "key"}
        await server.post("/api/settings", json=settings)
        conversation = await server.create(initial_user_msg="hi")

        async def is_counted() -> bool:
            return 'code="LLMAuthenticationError"} 1.0' in (await server.get("/metrics")).text

        await server.until(is_counted, seconds=MODEL_SECONDS)
        (line,) = [record.getMessage() for record in caplog.records if record.name == "server.metrics"]
    assert line.startswith(f"conversation {conversation}: ")
    assert "key" in line


async def test_what_the_server_holds_is_shown(make_server: MakeServer) -> None:
    async with make_server() as server:
        await server.until_running(await server.create())
        text = (await server.get("/metrics")).text
    shown = dict(line.split(" ") for line in text.splitlines() if not line.startswith("#"))
    assert float(shown["drydock_sessions"]) == float(shown["drydock_loaded_conversations"]) == 1
    assert float(shown["drydock_connections"]) == float(shown["drydock_waiting_bytes"]) == 0
    assert float(shown["drydock_tasks"]) > 5
    assert float(shown["drydock_threads"]) >= 1
