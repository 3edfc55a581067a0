"""A user's own skills: the routes, and what agents are told of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import call, finish
from server.db.repositories.user_skills import MAX_SKILLS, StoredSkill
from tests.contract.rest.conftest import MakeServer, Server
from tests.contract.rest.test_agent_context import restart, say, store, talking, workspace
from tests.unit.mcp.conftest import fake

BOATS = "---\ntriggers: [boat, ship]\ndescription: What floats.\n---\nBoats float."


async def put(server: Server, name: str, content: str, **more: Any) -> tuple[int, dict[str, Any]]:
    response = await server.client.put(f"/api/skills/{name}", json={"content": content, **more})
    return response.status_code, response.json()


async def listed(server: Server) -> list[dict[str, Any]]:
    response = await server.get("/api/skills")
    assert response.status_code == 200
    found: list[dict[str, Any]] = response.json()["skills"]
    return found


async def test_a_skill_is_stored_listed_read_replaced_switched_and_deleted(server: Server) -> None:
    assert await listed(server) == []
    status, stored = await put(server, "boats", BOATS)
    boats = {
        "name": "boats",
        "enabled": True,
        "type": "knowledge",
        "description": "What floats.",
        "triggers": ["boat", "ship"],
        "mcp_servers": [],
        "problem": None,
        "warnings": [],
        "content": None,
    }
    assert (status, stored) == (201, {**boats, "content": BOATS})
    assert (await put(server, "a-rule", "Use tabs.", enabled=False))[0] == 201
    assert await listed(server) == [
        {**boats, "name": "a-rule", "enabled": False, "type": "repo", "description": "Use tabs.", "triggers": []},
        boats,
    ]
    assert (await put(server, "boats", "Boats sink."))[0] == 200
    read = await server.get("/api/skills/boats")
    assert (read.status_code, read.json()["content"], read.json()["type"]) == (200, "Boats sink.", "repo")
    misspelled = await put(server, "boats", "---\ntrigers: [boat]\nauthor: ann\n---\nBoats sink.")
    assert misspelled[1]["warnings"] == ["trigers is not known and was ignored; did you mean 'triggers'?"]
    switched = await server.client.patch("/api/skills/boats", json={"enabled": False})
    assert switched.status_code == 200
    assert [one["enabled"] for one in await listed(server)] == [False, False]
    assert (await server.client.delete("/api/skills/boats")).status_code == 200
    assert [one["name"] for one in await listed(server)] == ["a-rule"]


async def test_pages_of_them_are_linked(server: Server) -> None:
    for name in ("c", "a", "b"):
        await put(server, name, "Text.")
    first = await server.get("/api/skills?limit=2")
    assert [one["name"] for one in first.json()["skills"]] == ["a", "b"]
    rest = await server.get(first.links["next"]["url"])
    assert [one["name"] for one in rest.json()["skills"]] == ["c"]


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_one_that_is_not_there_is_a_404_that_names_it(server: Server, method: str) -> None:
    response = await server.client.request(method, "/api/skills/none", json={"enabled": True})
    assert response.status_code == 404
    assert "there is no skill 'none'" in response.text


@pytest.mark.parametrize(
    ("content", "problem", "line"),
    [
        ("---\nname: boats\ntriggers: {a: b}\n---\nx", "boats.md, line 3: triggers: must be a list", 3),
        ("---\nname: boats\nversion: @\n---\nx", "boats.md, line 3: its header is no valid YAML", 3),
        ("---\ntype: magic\n---\nx", "boats.md, line 2: type: 'magic' is none of", 2),
        ("---\nname: ships\n---\nx", "boats.md, line 2: name: 'ships' must be 'boats', or be left out", 2),
        ("---\nmcp_tools: {mcpServers: {x: {}}}\n---\nx", "boats.md, line 2: mcp_tools: x: give either command", 2),
        ("", "it says nothing", None),
        ("---\ntriggers: [boat]\n---\n \n", "it says nothing", None),
    ],
)
async def test_what_no_skill_can_be_made_of_is_refused_with_its_line_and_nothing_is_lost(
    server: Server, content: str, problem: str, line: int | None
) -> None:
    await put(server, "boats", BOATS)
    status, told = await put(server, "boats", content)
    assert (status, told["line"]) == (422, line)
    assert problem in told["error"]
    assert (await server.get("/api/skills/boats")).json()["content"] == BOATS


@pytest.mark.parametrize("name", ["a b", "%C3%A4", "-a", ".hidden", "a" * 101])
async def test_a_name_that_can_be_none_is_refused_with_what_it_may_be(server: Server, name: str) -> None:
    status, told = await put(server, name, "Text.")
    assert status == 422
    assert "name" in str(told)


async def test_a_skill_cannot_be_called_as_the_file_of_a_folder_that_is_one(server: Server) -> None:
    assert await put(server, "skill", "Text.") == (
        422,
        {"error": "name: a skill cannot be called 'skill'; choose a name that says what it is about", "line": None},
    )


async def test_a_text_that_is_too_long_and_one_skill_too_many_are_refused(server: Server) -> None:
    assert (await put(server, "long", "x" * (64 * 1024 + 1)))[0] == 422
    for number in range(MAX_SKILLS):
        await server.app.services.database.user_skills.put(StoredSkill(f"s{number}", "Text.", enabled=True))
    status, told = await put(server, "more", "Text.")
    assert (status, told["error"]) == (
        400,
        f"there are {MAX_SKILLS} skills already, as many as one may have; delete one first",
    )
    assert (await put(server, "s7", "Another text."))[0] == 200, "what is there can be replaced"


async def test_of_many_who_store_at_once_none_is_lost_and_no_more_are_there_than_may_be(server: Server) -> None:
    stored = await asyncio.gather(*(put(server, f"s{number}", "Text.") for number in range(MAX_SKILLS + 20)))
    statuses = [status for status, _ in stored]
    assert (statuses.count(201), statuses.count(400)) == (MAX_SKILLS, 20)
    assert len(await listed(server)) == MAX_SKILLS


async def test_agents_are_told_of_their_users_skills_from_the_next_start_on(make_server: MakeServer) -> None:
    async with talking(make_server, 5) as (server, model):
        await put(server, "rule", "Always use tabs.")
        await put(server, "boats", BOATS)
        await put(server, "off", "Never told.", enabled=False)
        conversation_id = await server.create()
        await say(server, conversation_id, "My SHIP leaks.")
        first = json.dumps(model.last_request.json)
        assert "Always use tabs." in first
        assert "Boats float." in first
        assert "Never told." not in first
        await put(server, "later", "Speak softly.")
        await say(server, conversation_id, "Go on.")
        assert "Speak softly." not in json.dumps(model.last_request.json), "a loop that runs keeps what it knows"
        await restart(server, conversation_id)
        await say(server, conversation_id, "Go on.")
        assert "Speak softly." in json.dumps(model.last_request.json)
        names = (await server.get(f"/api/conversations/{conversation_id}/microagents")).json()["microagents"]
        assert [one["name"] for one in names] == ["boats", "later", "rule"]
        await server.client.delete("/api/skills/boats")
        await say(server, await server.create(), "My boat leaks.")
        assert "Boats float." not in json.dumps(model.last_request.json)


async def test_another_users_skills_are_neither_shown_nor_told(make_server: MakeServer) -> None:
    async with talking(make_server, 1) as (server, model):
        other = StoredSkill("theirs", "Not for you.", enabled=True)
        await server.app.services.database.user_skills.put(other, user_id="another")
        assert await listed(server) == []
        assert (await server.get("/api/skills/theirs")).status_code == 404
        assert (await server.client.delete("/api/skills/theirs")).status_code == 404
        await say(server, await server.create(), "Begin.")
        assert "Not for you." not in json.dumps(model.last_request.json)
        assert await server.app.services.database.user_skills.all("another") == [other]


async def test_of_two_with_one_name_that_of_the_workspace_is_told(make_server: MakeServer) -> None:
    texts = {"boats": "---\ntriggers: [boat]\n---\nBoats of this project."}
    async with talking(make_server, 1, workspace(**texts)) as (server, model):
        await put(server, "boats", BOATS)
        await say(server, await server.create(), "My boat leaks.")
        told = json.dumps(model.last_request.json)
        assert ("Boats of this project." in told, "Boats float." in told) == (True, False)


async def test_one_that_this_version_cannot_read_is_told_in_the_conversation_and_shown_with_its_problem(
    make_server: MakeServer,
) -> None:
    async with talking(make_server, 1) as (server, _model):
        old = StoredSkill("old", "---\ntype: magic\n---\nAs it was once.", enabled=True)
        await server.app.services.database.user_skills.put(old)
        (shown,) = await listed(server)
        assert shown["problem"].startswith("old.md, line 2: type: 'magic' is none of")
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        errors = [one for one in await server.events(conversation_id) if one.get("observation") == "error"]
        assert [(one["extras"]["path"], one["extras"]["line"]) for one in errors] == [("old.md", 2)]


def with_server(trigger: str = "harbour") -> str:
    """A skill that brings a server of tools, a real program, when its word is said."""
    header = {"triggers": [trigger], "mcp_tools": {"mcpServers": {"harbour": fake("echo")}}}
    return f"---\n{json.dumps(header)}\n---\nAsk the harbour."


def offered(request: ModelRequest) -> set[str]:
    return {tool["function"]["name"] for tool in request.json["tools"]}


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine programs take long to start; what is tested here is what they do then."""
    monkeypatch.setattr("agent_core.mcp.servers.FIRST_STEP_SECONDS", 60.0)


@pytest.mark.usefixtures("_patient")
async def test_the_server_of_a_skill_starts_when_its_word_is_said_and_is_there_after_a_restart(
    make_server: MakeServer,
) -> None:
    turns = [finish("No."), call("echo", {"text": "from the harbour"}), finish("Yes."), finish("Again.")]
    async with ModelServer(turns) as model, make_server(generate_titles=False) as server:
        await store(server, llm_model="openai/x", llm_base_url=model.url, llm_api_key="key")
        await put(server, "harbour", with_server())
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        assert "echo" not in offered(model.requests[0])
        await say(server, conversation_id, "Ask the harbour.")
        assert "echo" in offered(model.requests[1]), "in the very step that follows the word"
        (result,) = [one for one in await server.events(conversation_id) if one.get("observation") == "mcp"]
        assert "from the harbour" in result["content"]
        await restart(server, conversation_id)
        await say(server, conversation_id, "Go on.")
        assert "echo" in offered(model.last_request)
        assert not [one for one in await server.events(conversation_id) if one.get("observation") == "error"]


@pytest.mark.usefixtures("_patient")
async def test_where_users_may_have_no_programs_a_skill_brings_none_and_says_so(make_server: MakeServer) -> None:
    async with talking(make_server, 1, mcp_programs="never") as (server, model):
        await put(server, "harbour", with_server())
        conversation_id = await server.create()
        await say(server, conversation_id, "Ask the harbour.")
        assert "echo" not in offered(model.last_request)
        (error,) = [one for one in await server.events(conversation_id) if one.get("observation") == "error"]
        assert "this server starts no programs for its users" in error["content"]


async def test_a_skill_of_the_workspace_brings_no_server_whatever_is_said(make_server: MakeServer) -> None:
    async with talking(make_server, 1, workspace(harbour=with_server())) as (server, model):
        conversation_id = await server.create()
        await say(server, conversation_id, "Ask the harbour.")
        assert "echo" not in offered(model.last_request)
        assert "Ask the harbour." in json.dumps(model.last_request.json)
        (error,) = [one for one in await server.events(conversation_id) if one.get("observation") == "error"]
        assert "may not start programs or open connections outside of the sandbox" in error["content"]
