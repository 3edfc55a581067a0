"""Recorded conversations of the protocol's own servers: imported, shown, gone on with, replayed, exported again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_core.events.serialization import from_payload
from agent_core.memory.view import View
from server.wire.json_data import STEPS_PER_TURN
from server.wire.trajectory import read_trajectory
from tests.contract.rest.conftest import MakeServer, Server

TRAJECTORY = Path(__file__).parent / "first_generation.json"
IMPORT = "/api/conversations/import"


def recording() -> list[dict[str, Any]]:
    """What a first-generation server exported: gaps where hidden events were, local times, whole model responses."""
    found: list[dict[str, Any]] = json.loads(TRAJECTORY.read_text("utf-8"))
    return found


async def imported(server: Server, body: Any) -> str:
    response = await server.post(IMPORT, json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert {key: answer[key] for key in ("status", "message", "conversation_status")} == {
        "status": "ok",
        "message": None,
        "conversation_status": "STOPPED",
    }
    return str(answer["conversation_id"])


async def exported(server: Server, conversation_id: str) -> list[dict[str, Any]]:
    response = await server.get(f"/api/conversations/{conversation_id}/trajectory")
    assert response.status_code == 200
    found: list[dict[str, Any]] = response.json()["trajectory"]
    return found


def zoned(event: dict[str, Any]) -> dict[str, Any]:
    """The event as it is shown here: times are in UTC and say so."""
    return {**event, "timestamp": event["timestamp"] + "Z"}


async def test_a_recording_is_shown_as_it_was_under_its_own_ids(server: Server) -> None:
    conversation_id = await imported(server, recording())
    assert await exported(server, conversation_id) == [zoned(event) for event in recording()]
    info = await server.info(conversation_id)
    assert info["status"] == "STOPPED"
    assert info["title"] == "Count the lines of notes.txt"
    listed = (await server.get("/api/conversations")).json()["results"]
    assert [one["conversation_id"] for one in listed] == [conversation_id]


async def test_an_export_can_be_imported_as_it_is_and_is_the_same_then(server: Server) -> None:
    first = await imported(server, {"trajectory": recording(), "title": "  An old one  "})
    assert (await server.info(first))["title"] == "An old one"
    answer = (await server.get(f"/api/conversations/{first}/trajectory")).json()
    second = await imported(server, answer)
    assert await exported(server, second) == answer["trajectory"]


async def test_an_export_of_our_own_conversation_is_the_same_after_an_import(server: Server) -> None:
    conversation_id = await server.create()
    for command in ("ls", "pwd"):
        action = {"action": "run", "args": {"command": command, "thought": "look"}}
        assert (await server.post(f"/api/conversations/{conversation_id}/events", json=action)).status_code == 200

    async def at_rest() -> bool:
        events = await server.events(conversation_id)
        return [event.get("observation") for event in events].count("run") == 2

    await server.until(at_rest)
    before = await exported(server, conversation_id)
    assert {"system", "run"} <= {event.get("action") for event in before}
    assert await exported(server, await imported(server, before)) == before


async def test_events_of_unknown_types_and_unknown_fields_are_kept(server: Server) -> None:
    strange: list[dict[str, Any]] = [
        {"source": "user", "action": "message", "args": {"content": "hi", "mood": "good"}, "weather": {"sun": True}},
        {"source": "agent", "action": "dance", "args": {"steps": [1, 2]}, "message": "I dance"},
        {"source": "agent", "observation": "dance", "content": "done", "extras": {"applause": 3}, "cause": 1},
    ]
    found = await exported(server, await imported(server, strange))
    for event, given in zip(found, strange, strict=True):
        assert {key: event[key] for key in given if key != "args"} == {k: v for k, v in given.items() if k != "args"}
    assert found[0]["args"] == {
        "content": "hi",
        "file_urls": None,
        "image_urls": None,
        "wait_for_response": False,
        "security_risk": -1,
        "mood": "good",
    }
    assert found[1]["args"] == {"steps": [1, 2]}
    assert [event["id"] for event in found] == [0, 1, 2]


async def test_what_clients_need_to_draw_an_event_is_filled_in(server: Server) -> None:
    old: list[dict[str, Any]] = [
        {"source": "user", "action": "message", "args": {"content": "hi", "images_urls": ["data:,x"]}},
        {"source": "agent", "action": "run", "args": {"command": "ls", "is_confirmed": "confirmed"}},
        {
            "source": "agent",
            "observation": "run",
            "content": "a",
            "extras": {"command": "ls", "exit_code": 2},
            "cause": 1,
        },
    ]
    old[2]["extras"] = {"command": "ls", "exit_code": 2}
    message, action, result = await exported(server, await imported(server, old))
    assert message["args"]["image_urls"] == ["data:,x"]
    assert action["message"] == "Running command: ls"
    assert action["args"]["confirmation_state"] == "confirmed"
    assert result["extras"]["metadata"] == {"exit_code": 2}
    assert result["success"] is False
    assert result["message"] == "Command `ls` executed with exit code 2."


async def test_nulls_and_numbers_that_other_versions_let_be_do_not_keep_a_recording_out(server: Server) -> None:
    task = {"id": 1, "title": "Look", "status": "blocked", "notes": None}
    odd: list[dict[str, Any]] = [
        {"source": "user", "action": "message", "args": {"content": "hi", "wait_for_response": None}},
        {"source": "agent", "action": "task_tracking", "args": {"command": "plan", "task_list": [task, task]}},
        {"source": "agent", "action": "call_tool_mcp", "args": {"name": "fetch", "arguments": None}},
        {"source": "agent", "observation": "browse", "content": "a page", "extras": {"url": "http://x", "error": None}},
        {
            "source": "agent",
            "observation": "run",
            "content": "a",
            "extras": {"command": "ls", "metadata": {"exit_code": 0, "prefix": None}},
            "llm_metrics": {"accumulated_cost": None, "costs": []},
        },
    ]
    found = await exported(server, await imported(server, odd))
    message, tasks, call, page, result = found
    assert message["args"]["wait_for_response"] is False
    assert tasks["args"]["task_list"] == [{"id": "1", "title": "Look", "status": "blocked"}] * 2
    assert call["args"]["arguments"] == {}
    assert (page["extras"]["trigger_by_action"], page["extras"]["error"]) == ("browse", False)
    assert result["extras"]["metadata"] == {"exit_code": 0}
    assert result["llm_metrics"] == {"costs": []}
    assert await exported(server, await imported(server, found)) == found


async def test_entries_that_are_left_out_of_a_list_confuse_none_of_the_others(server: Server) -> None:
    tasks = [None, {"id": 1, "title": "Look"}, None, {"id": 2, "title": "Act", "status": "blocked"}]
    plan = {"source": "agent", "action": "task_tracking", "args": {"command": "plan", "task_list": tasks}}
    (found,) = await exported(server, await imported(server, [plan]))
    assert found["args"]["task_list"] == [
        {"id": "1", "title": "Look"},
        {"id": "2", "title": "Act", "status": "blocked"},
    ]


async def test_an_imported_conversation_goes_on_with_what_was_said_and_done(make_server: MakeServer) -> None:
    async with make_server() as server:
        conversation_id = await imported(server, recording())
        response = await server.post(f"/api/conversations/{conversation_id}/message", json={"message": "And now?"})
        assert response.status_code == 200, response.text

        async def at_work() -> bool:
            events = await server.events(conversation_id, start_id=len(recording()) + 1)
            return any(event.get("extras", {}).get("agent_state") == "running" for event in events)

        await server.until(at_work)
        events = await server.events(conversation_id)
        assert [event["id"] for event in events] == list(range(len(events)))
        # Opened once more, it is not told its instructions again.
        await server.post(f"/api/conversations/{conversation_id}/stop")
        await server.post(f"/api/conversations/{conversation_id}/start", json={})
        await server.until_running(conversation_id)
        everything = [event async for event in _all(server, conversation_id)]
        assert [event["source"] for event in everything if event.get("action") == "system"] == ["agent", "agent"]


@pytest.mark.parametrize("way", ["rewind", "fork"])
async def test_an_imported_conversation_can_be_taken_back_and_forked_within_what_was_imported(
    server: Server, way: str
) -> None:
    conversation_id = await imported(server, recording())
    answer = await server.post(f"/api/conversations/{conversation_id}/{way}", json={"event_id": 7})
    assert answer.status_code == 200, answer.text
    branch = answer.json()["conversation_id"]
    for _ in range(2):  # also when it is opened once more
        await server.post(f"/api/conversations/{branch}/message", json={"message": "And now?"})

        async def at_work() -> bool:
            events = await server.events(branch, start_id=8)
            return any(event.get("extras", {}).get("agent_state") == "running" for event in events)

        await server.until(at_work)
        await server.post(f"/api/conversations/{branch}/stop")
    everything = [event async for event in _all(server, branch)]
    assert not [event for event in everything if event.get("extras", {}).get("agent_state") == "error"]
    log = await server.app.services.database.events.read(branch, limit=1000)
    messages = View.from_log([from_payload(one.payload, one.id) for one in log]).messages()
    assert [message.role for message in messages[:4]] == ["system", "user", "assistant", "tool"]
    assert sum(message.role == "system" for message in messages) == 1
    assert "It has 3 lines." not in str(messages)


async def _all(server: Server, conversation_id: str) -> AsyncIterator[dict[str, Any]]:
    start = 0
    while events := await server.events(conversation_id, start_id=start):
        for event in events:
            yield event
        start = events[-1]["id"] + 1


async def test_a_recording_is_done_again_where_that_is_asked(server: Server) -> None:
    response = await server.post("/api/conversations", json={"replay_json": json.dumps(recording())})
    assert response.status_code == 200, response.text
    conversation_id = response.json()["conversation_id"]

    async def done() -> bool:
        return any(e.get("observation") == "run" for e in await server.events(conversation_id))

    await server.until(done)
    ran = [e for e in await server.events(conversation_id) if e.get("observation") == "run"]
    assert ran[0]["content"].startswith("ran wc -l notes.txt")


async def test_secrets_of_its_user_are_masked_in_what_is_imported(server: Server) -> None:
    await server.post("/api/settings", json={"llm_api_key": "sk-very-secret-key"})
    events = [
        {"source": "user", "action": "message", "args": {"content": "my key is sk-very-secret-key"}},
        {"source": "agent", "action": "x", "args": {"deep": [["sk-very-secret-key"]]}},
    ]
    conversation_id = await imported(server, events)
    text = (await server.get(f"/api/conversations/{conversation_id}/trajectory")).text
    assert "sk-very-secret-key" not in text
    assert text.count("<secret_hidden>") == 3


GOOD = {"id": 0, "source": "user", "action": "message", "args": {"content": "hi"}}
RUN = {"source": "agent", "action": "run", "args": {"command": "ls"}}
DEEP: Any = "x"
for _ in range(80):
    DEEP = [DEEP]


GARBAGE: list[tuple[Any, str]] = [
    (5, "is a number, not a list of events"),
    ({}, "is null, not a list of events"),
    ({"trajectory": "[]"}, "is a text, not a list of events"),
    ([], "has no events"),
    ({"trajectory": [GOOD], "titel": "x"}, "'titel' stands beside it"),
    ({"trajectory": [GOOD], "title": 5}, "title is a number"),
    ({"trajectory": [GOOD], "title": " "}, "title has 0 characters"),
    ([GOOD, "x"], "event 1 is a text; each event is an object"),
    ([GOOD, {}], "event 1: source: is null; it is one of agent, user, environment"),
    ([GOOD, {"source": "agent"}], "event 1: action, observation: an event has one of them"),
    ([GOOD, {"source": "agent", "action": "a", "observation": "b"}], "event 1: action, observation"),
    ([GOOD, {"source": "agent", "action": 5}], "event 1: action: is a number; it is the name"),
    ([GOOD, {"source": "agent", "action": ""}], "event 1: action: is ''; it is the name"),
    ([GOOD, {**RUN, "args": []}], "event 1: args is a list; it is an object"),
    ([GOOD, {**RUN, "args": {}}], "event 1: args.command is missing; 'run' needs it"),
    ([GOOD, {**RUN, "args": {"command": 5}}], "event 1: args.command: "),
    ([GOOD, {**RUN, "id": "1"}], "event 1: id is a text; it is an integer"),
    ([GOOD, {**RUN, "id": True}], "event 1: id is a boolean"),
    ([{**GOOD, "id": 4}, {**RUN, "id": 4}], "event 1: id: 4 is not greater than that of the event before it"),
    ([{**GOOD, "id": -1}], "event 0: id: -1 is not greater"),
    ([{**GOOD, "id": 100_000}], "event 0: id: 100000 is too large; at most 100000 events"),
    ([GOOD, {**RUN, "cause": 1}], "event 1: cause: 1 is not the id of an event before this one"),
    ([GOOD, {**RUN, "cause": "0"}], "event 1: cause is a text"),
    ([GOOD, {"source": "user", "action": "rewind", "args": {"to": 1}}], "event 1: args.to: 1 is not the id of an"),
    ([GOOD, {"source": "user", "action": "rewind", "args": {"to": -1}}], "event 1: args.to: "),
    ([GOOD, {**RUN, "timestamp": "yesterday"}], "event 1: timestamp: is 'yesterday'; it is a time"),
    ([GOOD, {**RUN, "timestamp": 5}], "event 1: timestamp: is a number"),
    ([GOOD, {**RUN, "message": 5}], "event 1: message is a number"),
    ([GOOD, {**RUN, "llm_metrics": 5}], "event 1: llm_metrics is a number"),
    ([GOOD, {**RUN, "llm_metrics": {"accumulated_cost": "much"}}], "event 1: llm_metrics.accumulated_cost: "),
    ([GOOD, {"source": "agent", "observation": "run", "content": 5}], "event 1: content is a number"),
    (
        [GOOD, {"source": "agent", "observation": "run", "content": "", "extras": {"command": "x", "metadata": 5}}],
        "event 1: extras.metadata: ",
    ),
    (
        [
            {
                "source": "agent",
                "action": "task_tracking",
                "args": {"task_list": [{"id": "1", "title": "x", "status": 5}]},
            }
        ],
        "event 0: args.task_list.0.status: ",
    ),
    (
        [
            {
                "source": "user",
                "action": "client_tool_result",
                "args": {"call_id": 1, "content": [{"type": "text", "text": "x", "size": 1}]},
            }
        ],
        "event 0: args.content.",
    ),
]


async def test_garbage_is_refused_with_its_place_and_field_and_makes_nothing(server: Server) -> None:
    for body, problem in GARBAGE:
        response = await server.post(IMPORT, json=body)
        assert response.status_code == 400, response.text
        assert response.json()["message"].startswith(f"trajectory: {problem}"), response.text
    assert (await server.get("/api/conversations")).json()["results"] == []


UNSTORABLE: list[tuple[Any, str]] = [
    (json.dumps([{**GOOD, "args": {"content": "a\0b"}}]), "0.args.content contains a NUL character"),
    (json.dumps([GOOD, {**RUN, "x": DEEP}]), "lies deeper than 64 levels"),
    (json.dumps([{**GOOD, "x": 2**60}]), "0.x is an integer beyond 2^53"),
    ("[" + ",".join(["0"] * 1_000_001) + "]", "holds more than 1000000 values"),
    ('[{"source": "user"', "JSON"),
    ("[NaN]", "0 is not a finite number"),
]


async def test_what_no_store_could_carry_is_refused_with_its_place(server: Server) -> None:
    for raw, place in UNSTORABLE:
        response = await server.post(IMPORT, content=raw, headers={"content-type": "application/json"})
        assert response.status_code == 422
        assert place in response.text
    assert (await server.get("/api/conversations")).json()["results"] == []


async def test_the_same_import_twice_under_one_key_makes_one_conversation(server: Server) -> None:
    answers = [
        (await server.post(IMPORT, json=recording(), headers={"idempotency-key": "once"})).json() for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert len((await server.get("/api/conversations")).json()["results"]) == 1


async def test_others_have_their_turn_while_a_long_recording_is_read() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other(), name="other")
    try:
        assert len(await read_trajectory(json.dumps([GOOD, *[RUN] * 1000]))) == 1001
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert turns >= 2 * 1000 // STEPS_PER_TURN, "while it is checked, and while it is taken in"


async def test_what_old_versions_wrote_is_done_again_as_far_as_it_is_known() -> None:
    task = {"id": 1, "title": "Look", "status": "todo", "notes": None}
    old: list[dict[str, Any]] = [
        {"source": "user", "action": "initialize", "args": {"agent": "x"}},
        {
            "source": "user",
            "action": "message",
            "args": {"content": "hi", "images_urls": ["data:image/png;base64,eA=="]},
        },
        {"source": "agent", "action": "message", "args": {"content": "", "image_urls": None}},
        {"source": "agent", "action": "run", "args": {"command": "ls", "background": False, "is_input": None}},
        {"source": "agent", "action": "add_task", "args": {"parent": "0", "goal": "x"}},
        {"source": "agent", "action": "task_tracking", "args": {"command": "plan", "task_list": [task]}},
    ]
    user, *agent = await read_trajectory(json.dumps(old))
    assert user.text == "hi"
    assert len(user.content) == 2, "with its picture"
    calls = [call for message in agent for call in message.tool_calls or []]
    assert [(call.name, json.loads(call.arguments)["command"]) for call in calls] == [
        ("terminal", "ls"),
        ("task_tracker", "plan"),
    ]


NEVER_REPLAYED: list[tuple[Any, str]] = [
    ("5", "replay_json: is a number, not a list of events"),
    ("[]", "replay_json: has no events"),
    ("[", "replay_json: is no valid JSON"),
    ('["x"]', "replay_json: event 0 is a text"),
    (json.dumps([GOOD, {**RUN, "args": {}}]), "replay_json: event 1: args.command is missing"),
    (json.dumps([GOOD, {**RUN, "args": {"command": "a\0"}}]), "replay_json: event 1: args.command contains a NUL"),
    (json.dumps([RUN]), "replay_json: does not begin with a message of the user"),
    (json.dumps([GOOD, {"source": "agent", "action": "dance"}]), "replay_json: event 1: action 'dance' is unknown"),
    (json.dumps([GOOD, {"source": "agent", "action": ["run"]}]), "replay_json: event 1: action is a list"),
    (
        json.dumps([GOOD, {**RUN, "args": {"command": "ls", "confirmation_state": {}}}]),
        "replay_json: event 1: args.confirmation_state: ",
    ),
]


async def test_garbage_to_be_done_again_is_refused_with_its_place(server: Server) -> None:
    for replay, problem in NEVER_REPLAYED:
        response = await server.post("/api/conversations", json={"replay_json": replay})
        assert response.status_code == 400, response.text
        assert response.json()["message"].startswith(problem), response.text
    assert (await server.get("/api/conversations")).json()["results"] == []
