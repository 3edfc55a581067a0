"""Going back and forking over REST and sockets: additions to the protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_core.agent.base import AgentBase
from agent_core.agent.codeact import CodeActAgent
from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest
from server.wire.trajectory import read_trajectory
from tests.contract.rest.conftest import MakeServer, Server, facts, kill, shell

BARE = {"copy_files": False}


@pytest.fixture(autouse=True)
def _demo_in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for waited in ("TURN_SECONDS", "WORD_SECONDS", "CALL_SECONDS"):
        monkeypatch.setattr(f"agent_core.llm.demo.{waited}", 0.001)


async def finished(server: Server, conversation_id: str) -> list[dict[str, Any]]:
    """Wait until the demo agent is done; its log."""

    async def at_rest() -> bool:
        states = [event for event in await server.events(conversation_id) if "agent_state" in event.get("extras", {})]
        return bool(states) and states[-1]["extras"]["agent_state"] in ("finished", "awaiting_user_input")

    await server.until(at_rest)
    return await server.events(conversation_id)


async def worked(server: Server) -> tuple[str, list[dict[str, Any]]]:
    conversation_id = await server.create(initial_user_msg="Build me a boat")

    async def answered() -> bool:
        return any(event.get("observation") == "run" for event in await server.events(conversation_id))

    await server.until(answered)
    return conversation_id, await finished(server, conversation_id)


def message_id(events: list[dict[str, Any]]) -> int:
    return next(int(event["id"]) for event in events if event.get("action") == "message")


async def test_a_conversation_is_taken_back_and_the_log_says_so(server: Server) -> None:
    conversation_id, before = await worked(server)
    place = message_id(before)
    response = await server.post(f"/api/conversations/{conversation_id}/rewind", json={"event_id": place})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["status"], answer["event_id"]) == ("ok", place)
    after = await server.events(conversation_id, start_id=answer["id"])
    assert after[0]["action"] == "rewind"
    assert after[0]["args"]["to"] == place
    assert after[0]["message"].startswith(f"The conversation was taken back to an earlier point (event {place}).")
    assert after[-1]["extras"]["agent_state"] == "awaiting_user_input"
    assert (await server.events(conversation_id))[: len(before)] == before


async def test_what_became_of_the_files_is_told_behind_it(make_server: MakeServer) -> None:
    async def kept(call: FakeRequest) -> FakeAnswer:
        return {}

    async def restored(call: FakeRequest) -> FakeAnswer:
        return {"restored": call.args["names"][0]}

    handlers = {"shell.run": shell, "workspace.facts": facts, "shell.kill": kill}
    provider = FakeProvider(handlers={**handlers, "workspace.snapshot": kept, "workspace.restore": restored})
    async with make_server(provider) as server:
        conversation_id, before = await worked(server)
        place = message_id(before)
        response = await server.post(f"/api/conversations/{conversation_id}/rewind", json={"event_id": place})
        answer = response.json()
        assert (answer["files_of"], answer["note"]) == (place, "")
        after = await server.events(conversation_id, start_id=answer["id"])
        (told,) = [event for event in after if event.get("cause") == answer["id"]]
        assert (told["observation"], told["extras"], told["content"]) == ("rewind", {"files_of": place}, "")


async def test_a_conversation_that_does_not_run_can_be_taken_back_before_its_beginning(make_server: MakeServer) -> None:
    async with make_server() as server:
        conversation_id, _ = await worked(server)
    async with make_server() as server:
        response = await server.post(f"/api/conversations/{conversation_id}/rewind", json={"event_id": None})
        assert response.status_code == 200, response.text
        after = await server.events(conversation_id, start_id=response.json()["id"])
        assert [event.get("action") for event in after[:2]] == ["rewind", "system"]
        assert after[0]["args"]["to"] is None


@pytest.mark.parametrize(
    "body", [{"event_id": -1}, {"event_id": "1"}, {"event_id": True}, {"event_id": 1.0}, {"event_id": 1, "more": 2}]
)
async def test_a_wish_that_cannot_be_read_is_refused(server: Server, body: dict[str, Any]) -> None:
    conversation_id = await server.create()
    for what in ("rewind", "fork"):
        assert (await server.post(f"/api/conversations/{conversation_id}/{what}", json=body)).status_code == 422
    assert (await server.post(f"/api/conversations/{conversation_id}/rewind", json={})).status_code == 422
    assert len((await server.get("/api/conversations")).json()["results"]) == 1


async def test_an_event_that_there_is_not_is_named(server: Server) -> None:
    conversation_id = await server.create()
    for what in ("rewind", "fork"):
        response = await server.post(f"/api/conversations/{conversation_id}/{what}", json={"event_id": 9999})
        assert response.status_code == 400
        assert "there is no event 9999" in response.json()["detail"]
    assert len((await server.get("/api/conversations")).json()["results"]) == 1
    for what in ("rewind", "fork"):
        assert (await server.post(f"/api/conversations/none/{what}", json={"event_id": 1})).status_code == 404


async def test_a_fork_begins_like_its_source_and_goes_on_by_itself(server: Server) -> None:
    conversation_id, before = await worked(server)
    place = message_id(before)
    response = await server.post(f"/api/conversations/{conversation_id}/fork", json={"event_id": place, **BARE})
    assert response.status_code == 200, response.text
    fork_id = response.json()["conversation_id"]
    assert response.json()["forked_from"] == conversation_id
    events = await server.events(fork_id)
    assert events[: place + 1] == before[: place + 1]
    assert (events[place + 1]["action"], events[place + 1]["args"]["to"]) == ("rewind", place)
    info = await server.info(fork_id)
    assert info["status"] == "STOPPED"
    assert info["title"].endswith("(fork)")
    sent = await server.post(f"/api/conversations/{fork_id}/message", json={"message": "And a mast"})
    assert sent.status_code == 200

    async def answered() -> bool:
        return any(event.get("observation") == "run" for event in await server.events(fork_id))

    await server.until(answered)
    assert await server.events(conversation_id) == before


def packing(parts: list[bytes], received: list[FakeRequest]) -> FakeProvider:
    """Sandboxes whose files come in these parts, and that note what they are given."""

    async def pack(call: FakeRequest) -> FakeAnswer:
        received.append(call)
        place = sum(map(len, parts[: len([one for one in received if one.op == "workspace.pack"]) - 1]))
        assert call.args["offset"] == place
        number = len([one for one in received if one.op == "workspace.pack"])
        return {"packed": None, "eof": number == len(parts)}, parts[number - 1]

    async def unpack(call: FakeRequest) -> FakeAnswer:
        received.append(call)
        return {"entries": 1}

    handlers = {"shell.run": shell, "workspace.facts": facts, "shell.kill": kill}
    return FakeProvider(handlers={**handlers, "workspace.pack": pack, "workspace.unpack": unpack})


async def test_a_fork_gets_the_files_at_its_first_start(make_server: MakeServer, tmp_path: Path) -> None:
    received: list[FakeRequest] = []
    async with make_server(packing([b"one", b"two"], received)) as server:
        conversation_id, before = await worked(server)
        place = message_id(before)
        response = await server.post(f"/api/conversations/{conversation_id}/fork", json={"event_id": place})
        assert response.status_code == 200, response.text
        fork_id = response.json()["conversation_id"]
        assert received[0].args["names"][0] == f"{conversation_id}:{place}"
        assert not [call for call in received if call.op == "workspace.unpack"]
        for _ in range(2):
            await server.post(f"/api/conversations/{fork_id}/start", json={})
            await server.until_running(fork_id)
            await server.post(f"/api/conversations/{fork_id}/stop")
        given = [(call.args["offset"], call.blob) for call in received if call.op == "workspace.unpack"]
        assert given == [(0, b"onetwo"), (6, b"")]
        assert list((tmp_path / "data" / "forks").iterdir()) == []


async def test_a_fork_is_seen_by_nobody_before_it_is_whole(make_server: MakeServer) -> None:
    received: list[FakeRequest] = []
    known: list[set[str]] = []
    provider = packing([b"one"], received)
    pack = provider.handlers["workspace.pack"]

    async def looking(call: FakeRequest) -> FakeAnswer:
        known.append(await server.app.services.database.conversations.ids())
        return await pack(call)

    provider.handlers["workspace.pack"] = looking
    async with make_server(provider) as server:
        conversation_id, before = await worked(server)
        response = await server.post(
            f"/api/conversations/{conversation_id}/fork", json={"event_id": message_id(before)}
        )
        assert response.status_code == 200, response.text
        assert known == [{conversation_id}]
        assert await server.app.services.database.conversations.ids() == {
            conversation_id,
            response.json()["conversation_id"],
        }


async def test_where_the_files_cannot_be_had_there_is_no_fork(server: Server) -> None:
    conversation_id, _ = await worked(server)
    response = await server.post(f"/api/conversations/{conversation_id}/fork")
    assert response.status_code == 500
    assert "could not be forked" in response.json()["detail"]
    assert len((await server.get("/api/conversations")).json()["results"]) == 1


async def test_without_a_place_the_whole_log_is_taken(server: Server) -> None:
    conversation_id, before = await worked(server)
    fork_id = (await server.post(f"/api/conversations/{conversation_id}/fork", json=BARE)).json()["conversation_id"]
    assert (await server.events(fork_id))[: len(before)] == before


async def test_a_client_may_send_a_rewind_as_an_event(server: Server) -> None:
    conversation_id, before = await worked(server)
    wish = {"action": "rewind", "args": {"to": message_id(before)}}
    response = await server.post(f"/api/conversations/{conversation_id}/events", json=wish)
    assert response.json() == {"success": True}
    assert any(event.get("action") == "rewind" for event in await server.events(conversation_id))


async def test_a_recovery_is_refused_where_there_is_no_loop(server: Server) -> None:
    conversation_id, before = await worked(server)
    wish = {"action": "loop_recovery", "args": {"option": 1}}
    response = await server.post(f"/api/conversations/{conversation_id}/events", json=wish)
    assert response.json()["success"] is False
    assert "not found in a loop" in response.json()["error"]
    assert await server.events(conversation_id) == before


async def test_an_exported_trajectory_is_done_again(server: Server) -> None:
    source_id, before = await worked(server)
    exported = (await server.get(f"/api/conversations/{source_id}/trajectory")).json()["trajectory"]
    response = await server.post("/api/conversations", json={"replay_json": json.dumps(exported)})
    assert response.status_code == 200, response.text
    again_id = response.json()["conversation_id"]
    commands = [event["args"]["command"] for event in before if event.get("action") == "run"]

    async def repeated() -> bool:
        ran = [event for event in await server.events(again_id) if event.get("observation") == "run"]
        return len(ran) >= len(commands)

    await server.until(repeated)
    again = await finished(server, again_id)
    assert [event["args"]["command"] for event in again if event.get("action") == "run"] == commands
    said = [event["args"]["content"] for event in again if event.get("action") == "message"]
    assert said[0] == "Build me a boat"


RECORDED = [
    {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}},
    {"id": 1, "source": "agent", "action": "run", "args": {"command": "echo one", "thought": "hm"}},
    {"id": 2, "source": "agent", "observation": "run", "content": "one", "cause": 1, "extras": {}},
    {"id": 3, "source": "agent", "action": "run", "args": {"command": "undone"}},
    {"id": 4, "source": "user", "action": "rewind", "args": {"to": 2}},
    {"id": 5, "source": "agent", "action": "run", "args": {"command": "no", "confirmation_state": "rejected"}},
    {
        "id": 6,
        "source": "agent",
        "action": "call_tool_mcp",
        "tool_call_metadata": {
            "tool_call_id": "x",
            "total_calls_in_response": 1,
            "model_response": {
                "id": "r",
                "choices": [
                    {"message": {"tool_calls": [{"id": "x", "function": {"name": "think", "arguments": "{}"}}]}}
                ],
            },
        },
        "args": {"name": "other"},
    },
    {"id": 7, "source": "agent", "action": "finish", "args": {"final_thought": "Done."}},
]


async def test_a_trajectory_of_the_protocol_becomes_turns() -> None:
    turns = await read_trajectory(json.dumps({"trajectory": RECORDED}))
    called = [(call.name, json.loads(call.arguments)) for turn in turns for call in turn.tool_calls or []]
    assert [turn.text for turn in turns[:2]] == ["go", "hm"]
    assert [name for name, _ in called] == ["terminal", "think", "finish"]
    assert called[0][1]["command"] == "echo one"
    assert called[2][1] == {"message": "Done."}


@pytest.mark.parametrize(
    ("replay", "problem"),
    [
        ("[]", "has no events"),
        ("{", "no valid JSON"),
        ("5", "not a list of events"),
        (json.dumps(RECORDED[1:]), "does not begin with a message"),
        (json.dumps([RECORDED[0], {"source": "agent", "action": "reject", "args": {}}]), "event 1: action"),
        (json.dumps([{"source": "user", "action": "message", "args": {"content": 5}}]), "event 0: args.content"),
    ],
)
async def test_a_trajectory_that_cannot_be_done_again_is_refused_in_words(
    server: Server, replay: str, problem: str
) -> None:
    response = await server.post("/api/conversations", json={"replay_json": replay})
    assert response.status_code == 400
    assert problem in response.json()["detail"]
    both = await server.post("/api/conversations", json={"replay_json": "[]", "initial_user_msg": "go"})
    assert both.status_code == 400


class Diver(CodeActAgent):
    """An agent of another class."""


async def agents(server: Server, conversation_id: str) -> list[str]:
    events = await server.events(conversation_id)
    return [event["args"]["agent_class"] for event in events if event.get("action") == "system"]


async def test_a_conversation_goes_on_with_the_agent_that_it_was_begun_with(make_server: MakeServer) -> None:
    async with make_server(agent_class="Diver") as server:
        conversation_id, _ = await worked(server)
        assert await agents(server, conversation_id) == ["Diver"]
    async with make_server() as server:
        assert (await server.post(f"/api/conversations/{conversation_id}/rewind", json={"event_id": None})).is_success
        assert await agents(server, conversation_id) == ["Diver", "Diver"]


async def test_where_there_is_no_such_agent_any_more_that_is_said(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_server(agent_class="Diver") as server:
        conversation_id, _ = await worked(server)
    monkeypatch.delitem(AgentBase.agents, "Diver")
    async with make_server() as server:
        response = await server.post(f"/api/conversations/{conversation_id}/message", json={"message": "go on"})
        assert response.status_code == 500
        assert "belongs to an agent 'Diver'" in response.json()["error"]
