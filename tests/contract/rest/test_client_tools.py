"""Tools that clients carry out: declared with the conversation, answered over REST (docs/protocol.md)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from agent_core.testing.sandbox_contract import eventually
from tests.contract.rest.conftest import MakeServer, Server

SCHEMA = {"type": "object", "properties": {"table": {"type": "string"}}, "required": ["table"]}
ASK_DB = {"name": "ask_db", "description": "Asks the client's database.", "parameters": SCHEMA}
PIXEL = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


MESSAGE = {"action": "message", "args": {"content": "Once more."}}


def offered_to(model: ModelServer, number: int) -> set[str]:
    return {tool["function"]["name"] for tool in model.requests[number].json["tools"]}


async def use(server: Server, model: ModelServer) -> None:
    settings = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "key-of-the-user"}
    assert (await server.post("/api/settings", json=settings)).status_code == 200


async def event_of(server: Server, conversation: str, key: str, name: str) -> dict[str, Any]:
    """The first event of this kind, once it is there; the library for models may load meanwhile."""
    async with asyncio.timeout(60):
        while True:
            if seen := [event for event in await server.events(conversation) if event.get(key) == name]:
                return seen[0]
            await asyncio.sleep(0.02)


async def answer(server: Server, conversation: str, call_id: object, **body: Any) -> tuple[int, dict[str, Any]]:
    response = await server.post(f"/api/conversations/{conversation}/tool-calls/{call_id}", json=body)
    return response.status_code, response.json()


async def test_a_declared_tool_is_offered_called_answered_and_the_answer_seen_by_the_model(
    make_server: MakeServer,
) -> None:
    turns = [call("ask_db", {"table": "users", "security_risk": "LOW"}), finish("Done.")]
    async with ModelServer(turns) as model, make_server(generate_titles=False) as server:
        await use(server, model)
        conversation = await server.create(initial_user_msg="Count.", client_tools=[ASK_DB])
        action = await event_of(server, conversation, "action", "call_tool_mcp")
        assert action["args"]["name"] == "ask_db"
        assert action["args"]["arguments"] == {"table": "users"}
        offered = {tool["function"]["name"]: tool["function"] for tool in model.requests[0].json["tools"]}
        assert offered["ask_db"]["parameters"]["required"] == ["table"]

        for wrong, problem in (
            ({}, "Field required"),
            ({"content": 7}, "valid string"),
            ({"content": [{"type": "sound"}]}, "sound"),
            ({"content": "x", "more": 1}, "there is no such field"),
            ({"content": "x", "is_error": "perhaps"}, "valid boolean"),
            ({"content": [{**PIXEL, "data": "no!"}]}, "content.0.data: is not base64"),
            ({"content": [{**PIXEL, "mimeType": "text/html"}]}, "content.0.mimeType: is none of"),
            ({"content": [PIXEL] * 11}, "more than 10 images"),
            ({"content": "x" * 1_000_001}, "1000001 characters"),
        ):
            status, body = await answer(server, conversation, action["id"], **wrong)
            assert (status, problem in json.dumps(body)) == (422, True), body
        assert (await answer(server, conversation, -1, content="x"))[0] == 422
        assert (await answer(server, conversation, 4000, content="x"))[0] == 404
        assert (await answer(server, "unknown", action["id"], content="x"))[0] == 404

        said = [{"type": "text", "text": "7 rows, and key-of-the-user"}, PIXEL]
        assert await answer(server, conversation, action["id"], content=said) == (200, {"success": True})
        assert await answer(server, conversation, action["id"], content=said) == (200, {"success": True})
        status, body = await answer(server, conversation, action["id"], content="8 rows")
        assert (status, body["code"]) == (409, "answered")
        seen = await event_of(server, conversation, "observation", "mcp")
        assert seen["cause"] == action["id"]
        assert json.loads(seen["content"]) == {
            "content": [{"type": "text", "text": "7 rows, and <secret_hidden>"}, PIXEL],
            "isError": False,
        }
        await event_of(server, conversation, "action", "finish")
        assert "7 rows" in json.dumps(model.requests[1].json["messages"])
        every = await server.events(conversation)
        assert "key-of-the-user" not in json.dumps(every)
        assert sum("7 rows" in json.dumps(event) for event in every) == 1, "the answer is shown once"


async def test_an_answer_may_also_be_an_event_and_is_refused_with_the_same_statuses(make_server: MakeServer) -> None:
    turns = [call("ask_db", {"table": "users"}), finish("Done.")]
    async with ModelServer(turns) as model, make_server(generate_titles=False) as server:
        await use(server, model)
        conversation = await server.create(initial_user_msg="Count.", client_tools=[{**ASK_DB, "timeout": 0.2}])
        path = f"/api/conversations/{conversation}/events"
        error = await event_of(server, conversation, "observation", "error")
        assert "no client is connected that could carry it out, and none has come within 0.2 s" in error["content"]
        late = {"action": "client_tool_result", "args": {"call_id": error["cause"], "content": "7"}}
        response = await server.post(path, json=late)
        assert (response.status_code, response.json()["code"]) == (409, "late")
        for args, problem in (
            ({"call_id": "x", "content": "7"}, "args.call_id"),
            ({"call_id": 1}, "args.content is missing"),
            ({"call_id": 1, "content": {"rows": 7}}, "args.content"),
        ):
            response = await server.post(path, json={"action": "client_tool_result", "args": args})
            assert response.status_code == 400
            assert problem in response.json()["error"]


@pytest.mark.parametrize(
    ("tools", "place", "problem"),
    [
        ([{**ASK_DB, "name": "a b"}], ["client_tools", 0, "name"], "pattern"),
        ([{**ASK_DB, "name": "terminal"}], ["client_tools", 0], "name: 'terminal' is one of the server's own tools"),
        ([{**ASK_DB, "name": "execute_bash"}], ["client_tools", 0], "one of the server's own tools"),
        ([ASK_DB, ASK_DB], ["client_tools"], "['ask_db'] is given twice"),
        ([{**ASK_DB, "description": ""}], ["client_tools", 0, "description"], "at least 1 character"),
        ([{**ASK_DB, "description": "  "}], ["client_tools", 0], "description: is blank"),
        ([{**ASK_DB, "parameters": {"type": "array"}}], ["client_tools", 0], "parameters: inputSchema describes"),
        ([{**ASK_DB, "parameters": {"type": "object", "properties": 7}}], ["client_tools", 0], "parameters: "),
        (
            [{**ASK_DB, "parameters": {"properties": {"x": {"type": "nonsense"}}}}],
            ["client_tools", 0],
            "parameters: inputSchema is no valid JSON schema: at properties.x.type",
        ),
        ([{**ASK_DB, "timeout": 0}], ["client_tools", 0, "timeout"], "greater than 0"),
        ([{**ASK_DB, "timeout": 1e9}], ["client_tools", 0, "timeout"], "less than or equal to 3600"),
        ([{**ASK_DB, "run": "rm"}], ["client_tools", 0, "run"], "there is no such field"),
        ([{**ASK_DB, "name": f"t{number}"} for number in range(51)], ["client_tools"], "at most 50"),
    ],
)
async def test_a_tool_that_cannot_be_is_refused_with_its_place(
    server: Server, tools: list[dict[str, Any]], place: list[object], problem: str
) -> None:
    response = await server.post("/api/conversations", json={"client_tools": tools})
    assert response.status_code == 422
    found = response.json()["detail"][0]
    assert found["loc"] == ["body", *place]
    assert problem in found["msg"]


async def test_a_tool_of_a_client_comes_before_one_of_an_mcp_server_and_passes_the_filter(server: Server) -> None:
    options = {"filter_tools_regex": "ask|term"}
    conversation = await server.create(client_tools=[ASK_DB, {**ASK_DB, "name": "other"}], agent_options=options)
    system = await event_of(server, conversation, "action", "system")
    assert [tool["function"]["name"] for tool in system["args"]["tools"]] == ["terminal", "think", "finish", "ask_db"]


async def test_the_tools_of_clients_are_replaced_while_a_call_is_under_way_and_for_the_time_after_a_restart(
    make_server: MakeServer,
) -> None:
    later = {**ASK_DB, "name": "ask_crew", "timeout": None}
    turns = [call("ask_db", {"table": "users", "security_risk": "LOW"}), finish("Done."), finish("Again.")]
    async with ModelServer(turns) as model, make_server(generate_titles=False) as server:
        await use(server, model)
        conversation = await server.create(initial_user_msg="Count.", client_tools=[ASK_DB])
        path = f"/api/conversations/{conversation}/client-tools"
        action = await event_of(server, conversation, "action", "call_tool_mcp")
        response = await server.client.put(path, json={"client_tools": [later]})
        assert response.status_code == 200, response.text
        assert [tool["name"] for tool in response.json()["client_tools"]] == ["ask_crew"]
        assert await answer(server, conversation, action["id"], content="7 rows") == (200, {"success": True})
        await event_of(server, conversation, "action", "finish")
        assert "7 rows" in json.dumps(model.requests[1].json["messages"])
        assert offered_to(model, 0) >= {"ask_db"}
        assert offered_to(model, 1) & {"ask_db", "ask_crew"} == {"ask_crew"}

        for wrong, status in (({"client_tools": [later, later]}, 422), ({}, 422), ({"client_tools": [], "x": 1}, 422)):
            assert (await server.client.put(path, json=wrong)).status_code == status
        unknown = await server.client.put("/api/conversations/unknown/client-tools", json={"client_tools": []})
        assert unknown.status_code == 404
        await server.post(f"/api/conversations/{conversation}/stop")
        assert (await server.client.get(path)).json()["client_tools"][0]["name"] == "ask_crew"
        assert (await server.client.put(path, json={"client_tools": [ASK_DB]})).status_code == 200
        await server.post(f"/api/conversations/{conversation}/events", json=MESSAGE)
        await eventually(lambda: len(model.requests) == 3, limit=60)
        assert offered_to(model, 2) & {"ask_db", "ask_crew"} == {"ask_db"}
