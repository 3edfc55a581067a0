"""What waits for its user with `confirmation_mode`: everything, or what the chosen analyzer finds risky."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest, command_result
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server, facts, kill

CLAIMED_LOW = call("terminal", {"command": "echo hello > note", "security_risk": "LOW"}, text="I write a note.")
MISSING = object()


class Sandboxes(FakeProvider):
    """They note every command that they get."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        super().__init__(handlers={"shell.run": self._shell, "workspace.facts": facts, "shell.kill": kill})

    async def _shell(self, call: FakeRequest) -> FakeAnswer:
        self.ran.append(str(call.args.get("command")))
        return command_result("done\n")


@pytest.fixture
def sandboxes() -> Sandboxes:
    return Sandboxes()


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer([CLAIMED_LOW, finish("Done.")]) as running:
        yield running


async def state(server: Server, conversation_id: str) -> str:
    events = await server.events(conversation_id)
    changes = [event["extras"] for event in events if event.get("observation") == "agent_state_changed"]
    return str(changes[-1]["agent_state"]) if changes else ""


async def at_rest(server: Server, model: ModelServer, **settings: Any) -> tuple[str, str]:
    """A conversation that was told to do something, and the state in which its agent stopped."""
    reach = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "k"}
    stored = await server.post("/api/settings", json=reach | settings)
    assert stored.status_code == 200, stored.text
    conversation_id = await server.create(initial_user_msg="Write a note.")
    found = ""

    async def rests() -> bool:
        nonlocal found
        found = await state(server, conversation_id)
        return found in ("awaiting_user_confirmation", "finished")

    await server.until(rests, seconds=MODEL_SECONDS)
    return conversation_id, found


@pytest.mark.parametrize("analyzer", [MISSING, None, "", "none", "invariant", "LLM"])
async def test_without_a_known_analyzer_a_command_waits_whatever_the_model_says_of_it(
    make_server: MakeServer, sandboxes: Sandboxes, model: ModelServer, analyzer: Any
) -> None:
    chosen = {} if analyzer is MISSING else {"security_analyzer": analyzer}
    async with make_server(sandboxes, generate_titles=False) as server:
        conversation_id, found = await at_rest(server, model, confirmation_mode=True, **chosen)
        assert (found, sandboxes.ran) == ("awaiting_user_confirmation", [])
        accepted = {"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}}
        assert (await server.post(f"/api/conversations/{conversation_id}/events", json=accepted)).status_code == 200

        async def is_done() -> bool:
            return await state(server, conversation_id) == "finished"

        await server.until(is_done, seconds=MODEL_SECONDS)
        assert sandboxes.ran == ["echo hello > note"], "thoughts and the finish are nothing to ask about"


async def test_an_analyzer_that_is_taken_back_decides_nothing_any_more(
    make_server: MakeServer, sandboxes: Sandboxes, model: ModelServer
) -> None:
    async with make_server(sandboxes, generate_titles=False) as server:
        for change in ({"confirmation_mode": True, "security_analyzer": "llm"}, {"security_analyzer": None}):
            assert (await server.post("/api/settings", json=change)).status_code == 200
        _, found = await at_rest(server, model)
    assert (found, sandboxes.ran) == ("awaiting_user_confirmation", [])


async def test_a_server_that_asks_for_its_users_asks_about_every_command(
    make_server: MakeServer, sandboxes: Sandboxes, model: ModelServer
) -> None:
    async with make_server(sandboxes, generate_titles=False, confirmation_mode=True) as server:
        _, found = await at_rest(server, model)
    assert (found, sandboxes.ran) == ("awaiting_user_confirmation", [])


@pytest.mark.parametrize(
    ("settings", "ran"),
    [
        ({"confirmation_mode": True, "security_analyzer": "llm"}, ["echo hello > note"]),
        ({"confirmation_mode": True, "security_analyzer": "rules"}, ["echo hello > note"]),
        ({"confirmation_mode": True, "security_analyzer": "rules+llm"}, ["echo hello > note"]),
        ({"confirmation_mode": False}, ["echo hello > note"]),
        ({}, ["echo hello > note"]),
    ],
)
async def test_with_an_analyzer_what_it_calls_harmless_runs_at_once(
    make_server: MakeServer, sandboxes: Sandboxes, model: ModelServer, settings: dict[str, Any], ran: list[str]
) -> None:
    async with make_server(sandboxes, generate_titles=False) as server:
        _, found = await at_rest(server, model, **settings)
    assert (found, sandboxes.ran) == ("finished", ran)


@pytest.mark.parametrize(
    ("own", "server_has", "end"),
    [
        ({}, "llm", "finished"),
        ({"security_analyzer": None}, "rules", "finished"),
        ({"security_analyzer": ""}, "llm", "awaiting_user_confirmation"),
        ({"security_analyzer": "invariant"}, "llm", "awaiting_user_confirmation"),
    ],
)
async def test_the_servers_analyzer_counts_for_users_who_chose_none(
    make_server: MakeServer,
    sandboxes: Sandboxes,
    model: ModelServer,
    own: dict[str, Any],
    server_has: str,
    end: str,
) -> None:
    asks = {"confirmation_mode": True, "security_analyzer": server_has}
    async with make_server(sandboxes, generate_titles=False, **asks) as server:
        _, found = await at_rest(server, model, **own)
    assert found == end


async def test_with_both_analyzers_the_greater_risk_counts(make_server: MakeServer, sandboxes: Sandboxes) -> None:
    fears = call("terminal", {"command": "echo hello > note", "security_risk": "HIGH"})
    async with ModelServer([fears]) as model, make_server(sandboxes, generate_titles=False) as server:
        _, found = await at_rest(server, model, confirmation_mode=True, security_analyzer="rules+llm")
    assert (found, sandboxes.ran) == ("awaiting_user_confirmation", [])


async def test_a_users_own_command_is_not_asked_about(
    make_server: MakeServer, sandboxes: Sandboxes, model: ModelServer
) -> None:
    async with make_server(sandboxes, generate_titles=False) as server:
        conversation_id, _ = await at_rest(server, model, confirmation_mode=True)
        typed = {"action": "run", "args": {"command": "ls"}}
        assert (await server.post(f"/api/conversations/{conversation_id}/events", json=typed)).status_code == 200

        async def has_run() -> bool:
            return "ls" in sandboxes.ran

        await server.until(has_run)
        assert await state(server, conversation_id) == "awaiting_user_confirmation"
    assert sandboxes.ran == ["ls"]
