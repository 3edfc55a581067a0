"""Settings that change in the middle of a conversation: a loop that runs keeps its own."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import call, finish
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server

FIRST_KEY, SECOND_KEY = "key-of-the-first", "key-of-the-second"


async def store(server: Server, **body: Any) -> None:
    assert (await server.post("/api/settings", json=body)).status_code == 200


async def say(server: Server, conversation_id: str, text: str) -> None:
    event = {"action": "message", "args": {"content": text}}
    assert (await server.post(f"/api/conversations/{conversation_id}/events", json=event)).status_code == 200


async def finished(server: Server, conversation_id: str, times: int) -> list[dict[str, Any]]:
    """The events, once the agent has finished so many times."""
    found: list[dict[str, Any]] = []

    async def is_so() -> bool:
        found[:] = await server.events(conversation_id)
        return sum(event.get("action") == "finish" for event in found) == times and not is_at_work(found)

    await server.until(is_so, seconds=MODEL_SECONDS)
    return found


def is_at_work(events: list[dict[str, Any]]) -> bool:
    states = [event["extras"]["agent_state"] for event in events if event.get("observation") == "agent_state_changed"]
    return not states or states[-1] in ("loading", "running")


async def restart(server: Server, conversation_id: str) -> None:
    assert (await server.post(f"/api/conversations/{conversation_id}/stop")).status_code == 200
    assert (await server.post(f"/api/conversations/{conversation_id}/start", json={})).status_code == 200
    await server.until_running(conversation_id)


def said(request: ModelRequest) -> list[str]:
    """Who says what, in short."""
    return [
        "call" if message.get("tool_calls") else str(message["role"])
        for message in request.json["messages"]
        if message["role"] != "system"
    ]


def offered(request: ModelRequest) -> set[str]:
    return {tool["function"]["name"] for tool in request.json["tools"]}


@pytest.fixture(autouse=True)
def _no_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


async def test_a_loop_that_runs_keeps_its_model_and_the_next_start_goes_on_with_the_new_one(
    make_server: MakeServer,
) -> None:
    async with (
        ModelServer([call("terminal", {"command": "ls"}), finish("One."), finish("Two.")]) as first,
        ModelServer([call("terminal", {"command": "pwd"}), finish("Three.")]) as second,
        make_server(generate_titles=False) as server,
    ):
        await store(server, llm_model="openai/first", llm_base_url=first.url, llm_api_key=FIRST_KEY)
        conversation_id = await server.create(initial_user_msg="Begin.")
        await finished(server, conversation_id, 1)
        await store(server, llm_model="openai/second", llm_base_url=second.url, llm_api_key=SECOND_KEY)
        await say(server, conversation_id, f"Go on, and keep {SECOND_KEY}.")
        assert "keep <secret_hidden>" in str(await finished(server, conversation_id, 2)), "new keys are hidden at once"
        assert (first.request_count, second.request_count) == (3, 0), "a loop that runs keeps its model"
        assert first.last_request.json["model"] == "first"
        await restart(server, conversation_id)
        await say(server, conversation_id, f"Go on once more; do not tell {FIRST_KEY} or {SECOND_KEY}.")
        events = await finished(server, conversation_id, 3)
        assert (first.request_count, second.request_count) == (3, 2)
        request = second.requests[0]
        assert request.json["model"] == "second"
        assert request.headers["authorization"] == f"Bearer {SECOND_KEY}"
        # It is told all that was said and done with the first one.
        assert said(request)[0] == "user"
        assert said(request).count("call") >= 1
        assert {"user", "call", "tool"} <= set(said(request))
        assert "ran ls" in str(request.json["messages"])
        assert "do not tell" in str(request.json["messages"])
        assert SECOND_KEY not in str(events)
        record = await server.app.services.database.conversations.get(conversation_id)
        assert record is not None
        assert record.llm_model == "openai/second"


async def test_a_loop_that_runs_keeps_its_tools_and_the_next_start_has_the_new_ones(make_server: MakeServer) -> None:
    turns = [call("think", {"thought": "Hm."}), finish("One."), finish("Two."), finish("Three."), finish("Four.")]
    async with ModelServer(turns) as model, make_server(generate_titles=False) as server:
        await store(server, llm_model="openai/x", llm_base_url=model.url, llm_api_key=FIRST_KEY)
        conversation_id = await server.create(initial_user_msg="Begin.")
        await finished(server, conversation_id, 1)
        begun_with = offered(model.requests[0])
        assert {"think", "terminal"} <= begun_with
        await store(server, agent_options={"enable_think": False, "enable_llm_editor": True})
        await say(server, conversation_id, "Go on.")
        await finished(server, conversation_id, 2)
        assert offered(model.last_request) == begun_with, "a loop that runs keeps its tools"
        await restart(server, conversation_id)
        await say(server, conversation_id, "Go on.")
        await finished(server, conversation_id, 3)
        now = offered(model.last_request)
        assert "think" not in now
        assert "edit_file" in now
        assert "Hm." in str(model.last_request.json["messages"]), "what a tool did that is gone is still known"
        await store(server, agent_options=None)
        await restart(server, conversation_id)
        await say(server, conversation_id, "Go on.")
        await finished(server, conversation_id, 4)
        assert offered(model.last_request) == begun_with


async def test_a_loop_that_runs_keeps_its_limits_and_confirmation_and_the_next_start_has_the_new_ones(
    make_server: MakeServer,
) -> None:
    risky = {"command": "rm -rf /workspace/x", "security_risk": "HIGH"}
    turns = [finish("One."), call("terminal", risky), finish("Two."), call("terminal", risky)]
    async with ModelServer(turns) as model, make_server(generate_titles=False) as server:
        await store(server, llm_model="openai/x", llm_base_url=model.url, llm_api_key=FIRST_KEY)
        conversation_id = await server.create(initial_user_msg="Begin.")
        await finished(server, conversation_id, 1)
        await store(server, confirmation_mode=True)
        await say(server, conversation_id, "Go on.")
        await finished(server, conversation_id, 2)
        await restart(server, conversation_id)
        await say(server, conversation_id, "Go on.")

        async def asks() -> bool:
            events = await server.events(conversation_id)
            states = [
                event["extras"]["agent_state"] for event in events if event.get("observation") == "agent_state_changed"
            ]
            return bool(states[-1] == "awaiting_user_confirmation")

        await server.until(asks, seconds=MODEL_SECONDS)
        assert model.request_count == 4
