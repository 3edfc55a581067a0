from __future__ import annotations

from pydantic import SecretStr

from agent_core.testing.fake_sandbox import SLOW, FakeAnswer, FakeProvider, FakeRequest
from server.db.repositories.user_settings import StoredSettings
from tests.contract.rest.conftest import MakeServer, Server, facts, kill, shell
from tests.unit.db.conftest import save_settings

BOATS = """---
name: boats
triggers: [boat, ship]
---
Boats float."""


async def facts_with_skills(call: FakeRequest) -> FakeAnswer:
    files = [
        {"path": "/workspace/.openhands/microagents/boats.md", "content": BOATS},
        {"path": "/workspace/.openhands/microagents/repo.md", "content": "Build with make."},
    ]
    plain = await facts(call)
    assert isinstance(plain, dict)
    return {**plain, "skills": files}


async def test_the_skills_of_a_workspace_are_told_before_anything_was_said(make_server: MakeServer) -> None:
    provider = FakeProvider(handlers={"shell.run": shell, "workspace.facts": facts_with_skills, "shell.kill": kill})
    async with make_server(provider) as server:
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        response = await server.get(f"/api/conversations/{conversation_id}/microagents")
        found = {one["name"]: one for one in response.json()["microagents"]}
        assert found["boats"] == {
            "name": "boats",
            "type": "knowledge",
            "content": "Boats float.",
            "triggers": ["boat", "ship"],
            "inputs": [],
            "tools": [],
        }
        repo = next(one for one in found.values() if one["content"] == "Build with make.")
        assert (repo["type"], repo["triggers"]) == ("repo", [])


async def test_while_the_conversation_starts_its_memory_is_not_there_yet(make_server: MakeServer) -> None:
    async with make_server(FakeProvider(behaviour=SLOW)) as server:
        conversation_id = await server.create()
        response = await server.get(f"/api/conversations/{conversation_id}/microagents")
        assert response.status_code == 404
        assert response.json() == {"error": "Memory is not yet initialized for this conversation"}


async def test_what_to_remember_is_no_fault_of_the_servers_where_the_models_address_is_none(server: Server) -> None:
    settings = StoredSettings(llm_model="openai/x", llm_base_url="nowhere", llm_api_key=SecretStr("k"))
    await save_settings(server.app.services.database, settings)  # as an earlier version took it
    conversation_id = await server.create()
    response = await server.get(f"/api/conversations/{conversation_id}/remember-prompt?event_id=0")
    assert (response.status_code, response.json()["status"]) == (400, "error")
    assert "The base URL 'nowhere' is not an address like http" in response.json()["message"]
