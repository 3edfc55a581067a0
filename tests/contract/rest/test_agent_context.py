"""What a server's agents are told beside their prompt: texts and skills of the server, its users, workspaces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_core.skills.context import AgentContext
from agent_core.testing.fake_sandbox import FakeAnswer, FakeHandler, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer, Script
from agent_core.testing.model_turns import Turn, finish
from server.git_providers.kinds import shared_repository
from server.session.user_settings import ELSEWHERE
from server.settings.git_hosts import Provider
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server, facts, kill, shell


@pytest.fixture(autouse=True)
def _no_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def workspace(**texts: str) -> FakeProvider:
    """Sandboxes whose workspace has these skills, by name."""

    async def told(call: FakeRequest) -> FakeAnswer:
        plain = await facts(call)
        assert isinstance(plain, dict)
        found = {f"/workspace/.openhands/skills/{name}.md": text for name, text in texts.items()}
        return {**plain, "skills": [{"path": path, "content": text} for path, text in found.items()]}

    handlers: dict[str, FakeHandler] = {"shell.run": shell, "workspace.facts": told, "shell.kill": kill}
    return FakeProvider(handlers=handlers)


@asynccontextmanager
async def talking(
    make_server: MakeServer, answers: int | Script | list[Turn], provider: FakeProvider | None = None, **values: Any
) -> AsyncIterator[tuple[Server, ModelServer]]:
    """A server whose users' model answers so many messages, or as the script says."""
    script = [finish(f"Answer {number}.") for number in range(answers)] if isinstance(answers, int) else answers
    async with (
        ModelServer(script) as model,
        make_server(provider, generate_titles=False, **values) as server,
    ):
        await store(server, llm_model="openai/x", llm_base_url=model.url, llm_api_key="key")
        yield server, model


async def store(server: Server, **body: Any) -> None:
    assert (await server.post("/api/settings", json=body)).status_code == 200


async def say(server: Server, conversation_id: str, text: str) -> None:
    """Say it, and wait until the agent has finished once more."""
    before = await finishes(server, conversation_id)
    event = {"action": "message", "args": {"content": text}}
    assert (await server.post(f"/api/conversations/{conversation_id}/events", json=event)).status_code == 200

    async def is_answered() -> bool:
        return await finishes(server, conversation_id) > before

    await server.until(is_answered, seconds=MODEL_SECONDS)


async def restart(server: Server, conversation_id: str) -> None:
    assert (await server.post(f"/api/conversations/{conversation_id}/stop")).status_code == 200
    assert (await server.post(f"/api/conversations/{conversation_id}/start", json={})).status_code == 200
    await server.until_running(conversation_id)


async def finishes(server: Server, conversation_id: str) -> int:
    return sum(event.get("action") == "finish" for event in await server.events(conversation_id))


def told(request: ModelRequest, role: str) -> str:
    """All that the model was told in this role."""
    return json.dumps([one for one in request.json["messages"] if one["role"] == role], ensure_ascii=False)


async def test_texts_of_the_server_and_then_of_the_user_end_the_system_message_and_follow_each_message(
    make_server: MakeServer,
) -> None:
    own: dict[str, Any] = {"system_message_suffix": "We sail.", "user_message_suffix": "Ahoy first."}
    async with talking(make_server, 2, **own) as (server, model):
        await store(server, system_message_suffix="  I row. ", user_message_suffix="Then row.")
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        await say(server, conversation_id, "Go on.")
        first, second = model.requests
        assert "We sail.\\n\\nI row." in told(first, "system")
        assert told(first, "user").count("Ahoy first.\\n\\nThen row.") == 1
        assert told(second, "user").count("Ahoy first.\\n\\nThen row.") == 2
        messages = [one for one in await server.events(conversation_id) if one.get("action") == "message"]
        assert "Ahoy" not in json.dumps(messages), "the user reads what the user has written"


async def test_of_skills_that_the_server_or_the_user_has_disabled_no_agent_is_told(make_server: MakeServer) -> None:
    texts = {name: f"About {name} there is much to say." for name in ("boats", "rafts", "canoes")}
    async with talking(make_server, 1, workspace(**texts), disabled_skills=("boats",)) as (server, model):
        await store(server, disabled_skills=["rafts"])
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        known = json.dumps(model.last_request.json)
        assert [name for name, text in texts.items() if text in known] == ["canoes"]
        listed = (await server.get(f"/api/conversations/{conversation_id}/microagents")).json()["microagents"]
        assert [one["name"] for one in listed] == ["canoes"]


async def test_a_broken_skill_of_the_workspace_is_told_in_the_conversation_by_file_and_line_once(
    make_server: MakeServer,
) -> None:
    texts = {"good": "Go on.", "broken": "---\nname: broken\ntriggers: {a: b}\n---\nNo."}
    async with talking(make_server, 2, workspace(**texts)) as (server, _model):
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        await say(server, conversation_id, "Go on.")
        errors = [one for one in await server.events(conversation_id) if one.get("observation") == "error"]
        assert [one["extras"] for one in errors] == [
            {"error_id": "", "path": "/workspace/.openhands/skills/broken.md", "line": 3}
        ]
        assert "skills/broken.md, line 3: triggers: must be a list" in errors[0]["content"]


def with_organization(asked: list[Mapping[str, Any]], answer: FakeAnswer) -> FakeProvider:
    """Sandboxes that clone, and find this where an organisation's skills are asked for."""

    async def instructions(call: FakeRequest) -> FakeAnswer:
        asked.append(call.args)
        return answer

    async def cloned(call: FakeRequest) -> FakeAnswer:
        return {"cloned": True}

    provider = workspace(boats="---\ntriggers: [boat]\n---\nBoats of this project.")
    provider.handlers.update({"git.clone": cloned, "git.instructions": instructions})
    return provider


ORGANIZATION: FakeAnswer = {
    "files": [
        {"path": "skills/boats.md", "content": "---\ntriggers: [boat]\n---\nBoats of all of us."},
        {"path": "microagents/rule.md", "content": "We all use tabs."},
        {"path": "microagents/rafts.md", "content": "---\ntriggers: [raft]\n---\nRafts of all of us."},
        {"path": "microagents/broken.md", "content": "---\ntype: magic\n---\nNo."},
        {"path": "other/elsewhere.md", "content": "Not a skill."},
    ]
}


async def test_the_skills_of_an_organisation_are_told_behind_those_of_the_workspace(make_server: MakeServer) -> None:
    asked: list[Mapping[str, Any]] = []
    provider = with_organization(asked, ORGANIZATION)
    async with talking(make_server, 1, provider, verify_git_tokens=False) as (server, model):
        tokens = {"provider_tokens": {"github": {"token": "tok-of-ann"}}}
        assert (await server.post("/api/add-git-providers", json=tokens)).status_code == 200
        conversation_id = await server.create(repository="ann/boat", git_provider="github")
        await say(server, conversation_id, "The boat and the raft leak.")
        known = json.dumps(model.last_request.json)
        told_of = ["Boats of this project.", "We all use tabs.", "Rafts of all of us."]
        texts = [*told_of, "Boats of all of us.", "Not a skill."]
        assert [text for text in texts if text in known] == told_of
        assert "ann/.openhands/microagents/rule.md" in known
        (args,) = asked
        assert (args["url"], args["password"]) == ("https://github.com/ann/.openhands.git", "tok-of-ann")
        errors = [one["extras"] for one in await server.events(conversation_id) if one.get("observation") == "error"]
        assert [(one["path"], one["line"]) for one in errors] == [("ann/.openhands/microagents/broken.md", 2)]


@pytest.mark.parametrize(
    ("answer", "problems"),
    [
        ({"error": "there is none", "code": "not_found"}, 0),
        ({"error": "who are you?", "code": "authentication"}, 0),
        ({"error": "it took longer than 20 s", "code": "too_slow"}, 1),
        ({}, 0),
    ],
)
async def test_an_organisation_without_skills_is_no_error_and_one_that_is_not_reached_is_told(
    make_server: MakeServer, answer: FakeAnswer, problems: int
) -> None:
    provider = with_organization([], answer)
    async with talking(make_server, 1, provider, verify_git_tokens=False) as (server, model):
        conversation_id = await server.create(repository="ann/boat", git_provider="github")
        await say(server, conversation_id, "The boat leaks.")
        assert "Boats of this project." in json.dumps(model.last_request.json)
        errors = [one for one in await server.events(conversation_id) if one.get("observation") == "error"]
        assert len(errors) == problems
        assert all("ann/.openhands: its skills cannot be fetched: it took longer" in one["content"] for one in errors)


@pytest.mark.parametrize("of_user", [None, True])
async def test_whether_an_organisations_skills_are_asked_for_is_the_servers_choice_and_then_the_users(
    make_server: MakeServer, of_user: bool | None
) -> None:
    asked: list[Mapping[str, Any]] = []
    provider = with_organization(asked, ORGANIZATION)
    settings: dict[str, Any] = {"verify_git_tokens": False, "load_org_skills": False}
    async with talking(make_server, 1, provider, **settings) as (server, model):
        await store(server, load_org_skills=of_user)
        await say(server, await server.create(repository="ann/boat", git_provider="github"), "Begin.")
        assert bool(asked) == ("We all use tabs." in json.dumps(model.last_request.json)) == bool(of_user)


async def test_public_skills_are_told_where_the_server_or_its_user_wants_them(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "public/skills").mkdir(parents=True)
    (tmp_path / "public/skills/sea.md").write_text("The sea is wide.")
    servers = "{mcpServers: {sea: {command: sh}}}"
    (tmp_path / "public/skills/brings.md").write_text(f"---\nmcp_tools: {servers}\n---\nIt brings.")
    (tmp_path / "public/skills/broken.md").write_text("---\ntype: magic\n---\nNo.")
    monkeypatch.setenv("EXTENSIONS_URL", str(tmp_path / "public"))
    async with talking(make_server, 2) as (server, model):
        await say(server, await server.create(), "Begin.")
        assert "The sea is wide." not in json.dumps(model.last_request.json)
        await store(server, load_public_skills=True)
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        assert "The sea is wide." in json.dumps(model.last_request.json)
        errors = [one for one in await server.events(conversation_id) if one.get("observation") == "error"]
        assert [one["extras"].get("line") for one in errors if "broken.md" in one["content"]] == [2]
        assert ["may not start programs" in one["content"] for one in errors].count(True) == 1


async def test_skills_of_registered_marketplaces_are_told_as_their_list_says(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("EXTENSIONS_URL", raising=False)
    (tmp_path / "ours").mkdir()
    for name in ("sea", "lake"):
        (tmp_path / f"ours/{name}.md").write_text(f"The {name} is wide.")
    (tmp_path / "list.json").write_text('{"plugins": [{"name": "sea", "source": "./ours/sea.md"}]}')
    own: dict[str, Any] = {
        "registered_marketplaces": (str(tmp_path),),
        "marketplace_path": "list.json",
        "load_public_skills": True,
    }
    async with talking(make_server, 1, **own) as (server, model):
        await say(server, await server.create(), "Begin.")
        known = json.dumps(model.last_request.json)
        assert ("The sea is wide." in known, "The lake is wide." in known) == (True, False)


@pytest.mark.parametrize(("of_server", "of_user"), [(True, False), (False, None), (False, True)])
async def test_skills_of_the_workspace_are_left_out_where_the_server_or_its_user_wants_that(
    make_server: MakeServer, of_server: bool, of_user: bool | None
) -> None:
    provider = workspace(boats="Boats float.")
    async with talking(make_server, 1, provider, load_project_skills=of_server) as (server, model):
        await store(server, load_project_skills=of_user)
        await say(server, await server.create(), "Begin.")
        wanted = of_server if of_user is None else of_user
        assert ("Boats float." in json.dumps(model.last_request.json)) is wanted


async def test_each_option_of_a_context_is_a_setting_of_users_or_is_refused_with_its_place(server: Server) -> None:
    await store(server, language="en")
    known = (await server.get("/api/settings")).json()
    for field in AgentContext.model_fields:
        response = await server.post("/api/settings", json={field: None})
        if field in known:
            assert response.status_code == 200, field
            continue
        assert response.status_code == 422, field
        problem = response.json()["detail"][0]
        assert (problem["loc"], problem["msg"]) == (["body", field], ELSEWHERE[field])


@pytest.mark.parametrize(
    ("provider", "repository", "shared"),
    [
        ("github", "ann/boat", "ann/.openhands"),
        ("gitlab", "ann/fleet/boat", "ann/openhands-config"),
        ("azure_devops", "ann/fleet/boat", "ann/openhands-config/openhands-config"),
        ("bitbucket", "ann/boat", "ann/.openhands"),
    ],
)
def test_each_provider_has_its_own_name_for_an_owners_common_repository(
    provider: Provider, repository: str, shared: str
) -> None:
    assert shared_repository(provider, repository) == shared


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("system_message_suffix", 7),
        ("system_message_suffix", "x" * 20_001),
        ("user_message_suffix", ["one"]),
        ("disabled_skills", "boats"),
        ("disabled_skills", [""]),
        ("disabled_skills", ["x"] * 501),
        ("load_org_skills", "perhaps"),
        ("load_public_skills", 1),
        ("load_project_skills", "no"),
    ],
)
async def test_what_is_no_text_or_too_long_is_refused_with_its_field(server: Server, field: str, wrong: Any) -> None:
    response = await server.post("/api/settings", json={field: wrong})
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"][:2] == ["body", field]
