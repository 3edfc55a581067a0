"""MCP servers of an agent in `Conversation`: tools in each run, one connection for all of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent_core import Agent, Conversation, Tool
from agent_core.events.control import ToolServerFailed
from agent_core.events.llm_events import ObservationEvent
from agent_core.mcp.tool import MCPToolAction
from agent_core.testing.model_turns import call, finish
from tests.integration.library.conftest import StartModel, model
from tests.unit.mcp.conftest import fake, is_running
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.bubblewrap


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine programs take long to start; what is tested here is what they do then."""
    monkeypatch.setattr("agent_core.mcp.servers.FIRST_STEP_SECONDS", 60.0)


def test_servers_stay_connected_from_run_to_run_and_end_with_the_conversation(
    start_model: StartModel, project: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    server = start_model(
        [call("echo", {"text": "$WORD"}), finish("One."), call("grow", {}), finish("Two."), finish("Three.")]
    )
    config = {"mcpServers": {"mine": fake("echo", "grow", pids=str(pids)), "broken": fake(exit=1)}}
    agent = Agent(llm=model(server), tools=[Tool(name="TerminalTool")], mcp_config=config)
    with Conversation(agent=agent, workspace=project, secrets={"WORD": "a-secret-word"}) as conversation:
        for message in ("First.", "Second.", "Third."):
            conversation.send_message(message)
            conversation.run()
        assert "huge" in [tool["function"]["name"] for tool in server.requests[-1].json["tools"]]
        started = [int(pid) for pid in pids.read_text().split()]
        assert len(started) == 2, "one program with its child, for all runs"
        assert all(map(is_running, started))
        seen = [event.observation for event in conversation.state.events if isinstance(event, ObservationEvent)]
        assert seen[0].text.endswith("<secret_hidden>"), "the server got the secret, the log did not"
        (failed,) = [event for event in conversation.state.events if isinstance(event, ToolServerFailed)]
        assert failed.server == "broken"
        said = conversation.execute_tool("echo", MCPToolAction(data={"text": "directly"}))
        assert said.text.endswith("directly")
    end = time.monotonic() + LIMIT_SECONDS
    while any(map(is_running, started)):  # a killed process takes a moment to be gone
        assert time.monotonic() < end
        time.sleep(0.01)
