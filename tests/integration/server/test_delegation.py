"""Sub-agents on a real server: killed in the middle, seen by clients, and gone with their conversation."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from tests.integration.server.conftest import MakeProcess, ServerProcess, create, following, stored_events

pytestmark = pytest.mark.bubblewrap


def lasting(name: str) -> Turn:
    return call("terminal", {"command": f"echo {name} >> ran; sleep 3; echo {name} is through"})


LINES = {
    "Go.": [
        call("delegate", {"command": "spawn", "ids": ["a", "b"], "agent_types": ["bash"]}),
        call("delegate", {"command": "delegate", "tasks": {"b": "do b", "a": "do a"}}),
        call("terminal", {"command": "sort ran; pwd"}),
        finish("all"),
    ],
    "do a": [lasting("a"), finish("a is done")],
    "do b": [lasting("b"), finish("b is done")],
}


def answer(request: ModelRequest) -> Turn:
    if not request.json.get("tools"):
        return Turn(text="A title")
    asked = next(message["content"] for message in request.messages if message["role"] == "user")
    text = asked if isinstance(asked, str) else asked[0]["text"]
    lines = LINES[str(text).strip().partition("\n")[0]]
    turn: Turn = lines[sum(message["role"] == "assistant" for message in request.messages)]
    return turn


def logs(server: ServerProcess) -> dict[str, int]:
    """How many events each log has."""
    with closing(sqlite3.connect(f"file:{server.data_dir / 'drydock.db'}?mode=ro", uri=True)) as database:
        return dict(
            database.execute("SELECT conversation_id, count(*) FROM events GROUP BY conversation_id").fetchall()
        )


def has_ended(frame: dict[str, Any]) -> bool:
    return bool(frame.get("extras", {}).get("agent_state") == "finished")


async def test_sub_agents_outlive_a_kill_and_belong_to_their_conversation(make_process: MakeProcess) -> None:
    async with ModelServer(answer) as model:
        environment = {
            "LLM_MODEL": "openai/scripted",
            "LLM_BASE_URL": model.url,
            "LLM_API_KEY": "key-123456",
            "DRYDOCK_ENABLE_SUB_AGENTS": "true",
        }
        server = await make_process("--sandbox", "local", environment=environment)
        conversation_id = await create(server, initial_user_msg="Go.")
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: model.request_count >= 4 and follower.count(action="delegate") == 2)
            await follower.until(lambda: len(logs(server)) == 3)
        await server.kill()
        await server.start()
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: any(has_ended(frame) for frame in follower.frames))
        stored = await stored_events(server, conversation_id)
        delegated = [event for event in stored if event.get("action") == "delegate"]
        reported = [event for event in stored if event.get("observation") == "delegate"]
        assert [event["args"]["agent"] for event in delegated] == ["a, b", "b, a"]
        assert [event["cause"] for event in reported] == [event["id"] for event in delegated]
        assert reported[1]["content"] == "Completed delegation of 2 tasks\n1. Agent b: b is done\n2. Agent a: a is done"
        assert reported[1]["extras"] == {"outputs": {"b": "b is done", "a": "a is done"}}
        (ran,) = [event["content"] for event in stored if event.get("observation") == "run"]
        assert ran.startswith("a\nb\n/")
        async with server.client() as client:
            listed = (await client.get("/api/conversations")).json()["results"]
            assert [info["conversation_id"] for info in listed] == [conversation_id]
            children = [log for log in logs(server) if log != conversation_id]
            assert [log.startswith(f"{conversation_id}~") for log in children] == [True, True]
            for child in children:
                assert (await client.get(f"/api/conversations/{child}")).json() is None
            assert (await client.delete(f"/api/conversations/{conversation_id}")).json() is True
        assert logs(server) == {}
