"""What a program sends of its own home when a server is to carry its conversation out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_core import LLM, Agent
from agent_core.library.remote.program import program_of
from agent_core.session.settings import SessionSettings
from agent_core.tools.spec import ToolMakerState, WorkspacePlace


async def test_who_the_agent_is_and_the_kinds_of_sub_agents_in_the_home_go_along_as_far_as_a_server_can_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / ".openhands" / "agents"
    folder.mkdir(parents=True)
    (folder.parent / "SOUL.md").write_text("You are Nemo.")
    (folder / "diver.md").write_text("---\nname: diver\ndescription: Dives.\n---\nDive.")
    (folder / "rich.md").write_text("---\nname: rich\nmodel: gold\n---\nBuy.")
    monkeypatch.setenv("HOME", str(tmp_path))
    agent = Agent(llm=LLM(), tools=[])
    state = ToolMakerState("c", WorkspacePlace("/workspace"))
    agent.initialize(state)
    data = (await program_of(agent, SessionSettings(llm=agent.llm), state)).data
    assert data["agent"]["system_prompt_kwargs"]["identity"] == "You are Nemo."
    (kind,) = [one for one in data["agent_definitions"] if one["level"] == "user"]
    assert (kind["name"], kind["instructions"]) == ("diver", "Dive.")
    assert "the sub-agent 'rich' is left out: a server has no stored model 'gold'" in caplog.text
    own = agent.model_copy(update={"system_prompt_kwargs": {"identity": "You are Ned."}})
    own.initialize(state)
    data = (await program_of(own, SessionSettings(llm=own.llm), state)).data
    assert data["agent"]["system_prompt_kwargs"]["identity"] == "You are Ned."
