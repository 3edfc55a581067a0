"""What is asked of a conversation whose sandbox cannot be started is known never to have run."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.errors import DISK_FULL, SandboxError
from agent_core.testing.fake_sandbox import FakeAnswer, FakeBehaviour, FakeProvider, FakeRequest
from server.session import sandboxes
from tests.contract.rest.conftest import MakeServer, Server, facts, kill, shell

FULL = FakeBehaviour(error=SandboxError("No room.", code=DISK_FULL))


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_command_that_came_while_starts_failed_runs_once_unless_it_was_stopped(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """It was answered that the server had been restarted, and that nobody knew whether it had run."""
    monkeypatch.setattr(sandboxes, "_LONGEST", 0.04)
    ran: list[str] = []

    async def run(request: FakeRequest) -> FakeAnswer:
        ran.append(request.args["command"])
        return await shell(request)

    provider = FakeProvider({"shell.run": run, "workspace.facts": facts, "shell.kill": kill}, FULL)
    async with make_server(provider, generate_titles=False) as server:
        conversation_id = await server.create()
        place = f"/api/conversations/{conversation_id}"
        await server.until(lambda: _has(server, conversation_id, agent_state="error"))
        typed: dict[str, Any] = {"action": "run", "args": {"command": "ls"}}
        assert (await server.post(f"{place}/events", json=typed)).status_code == 200
        starts = provider.sandboxes.copy().popitem()[1].starts

        async def has_failed_again() -> bool:
            return provider.sandboxes.copy().popitem()[1].starts > starts + 1

        await server.until(has_failed_again)
        if stopped:
            assert (await server.post(f"{place}/events", json=_change("stopped"))).status_code == 200
        for sandbox in provider.sandboxes.values():
            sandbox.behaviour = FakeBehaviour()
        if stopped:
            assert (await server.post(f"{place}/start", json={})).status_code == 200
        await server.until(lambda: _has(server, conversation_id, cause=True))
        (answer,) = [one for one in await server.events(conversation_id) if one.get("cause") is not None]
        assert (answer["observation"], ran) == (("error", []) if stopped else ("run", ["ls"])), answer
        assert "restarted" not in answer["content"]


def _change(state: str) -> dict[str, Any]:
    return {"action": "change_agent_state", "args": {"agent_state": state}}


async def _has(server: Server, conversation_id: str, *, agent_state: str = "", cause: bool = False) -> bool:
    for event in await server.events(conversation_id):
        if cause and event.get("cause") is not None:
            return True
        if agent_state and event.get("extras", {}).get("agent_state") == agent_state:
            return True
    return False
