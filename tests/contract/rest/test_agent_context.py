"""What a server's agents are told beside their prompt: texts and skills of the server, its users, workspaces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_core.testing.fake_sandbox import FakeAnswer, FakeHandler, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import finish
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
    make_server: MakeServer, answers: int, provider: FakeProvider | None = None, **values: Any
) -> AsyncIterator[tuple[Server, ModelServer]]:
    """A server whose users' model answers so many messages."""
    async with (
        ModelServer([finish(f"Answer {number}.") for number in range(answers)]) as model,
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


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("system_message_suffix", 7),
        ("system_message_suffix", "x" * 20_001),
        ("user_message_suffix", ["one"]),
        ("disabled_skills", "boats"),
        ("disabled_skills", [""]),
        ("disabled_skills", ["x"] * 501),
    ],
)
async def test_what_is_no_text_or_too_long_is_refused_with_its_field(server: Server, field: str, wrong: Any) -> None:
    response = await server.post("/api/settings", json={field: wrong})
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"][:2] == ["body", field]
