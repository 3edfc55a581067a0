"""Agents with few tools."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from agent_core.agent.agent import Agent
from agent_core.agent.base import AgentBase, AnyAgent
from agent_core.agent.presets import BrowsingAgent, LocAgent, ReadOnlyAgent, VisualBrowsingAgent
from agent_core.llm.llm import LLM
from agent_core.tools.browser_code import BrowserCodeExecutor
from agent_core.tools.spec import ToolMakerState, WorkspacePlace

MODEL = LLM(model="openai/x")
PLACE = ToolMakerState("c", WorkspacePlace("/workspace"))


def test_an_agent_that_only_reads_has_no_tool_that_could_change_anything() -> None:
    agent = ReadOnlyAgent(llm=MODEL)
    tools = agent.initialize(PLACE)
    assert set(tools) == {"grep", "glob", "read_file", "list_directory", "finish", "think"}
    assert all(tool.annotations.readOnlyHint for tool in tools.values())
    assert not agent.supports_openhands_mcp


def test_an_agent_that_finds_places_in_code_has_the_tools_for_that_only() -> None:
    agent = LocAgent(llm=MODEL)
    tools = agent.initialize(PLACE)
    locating = {"search_code_snippets", "get_entity_contents", "explore_tree_structure"}
    assert set(tools) == {*locating, "finish", "think"}
    assert all(tool.annotations.readOnlyHint for tool in tools.values())
    assert not agent.supports_openhands_mcp
    assert all(name in agent.static_system_message for name in locating)


@pytest.mark.parametrize(("kind", "sees_marks"), [(BrowsingAgent, False), (VisualBrowsingAgent, True)])
def test_a_browsing_agent_has_a_browser_and_nothing_else(kind: type[Agent], sees_marks: bool) -> None:
    tools = kind(llm=MODEL).initialize(PLACE)
    assert set(tools) == {"browser", "finish", "think"}
    executor = tools["browser"].executor
    assert isinstance(executor, BrowserCodeExecutor)
    assert executor.look.marks is sees_marks


@pytest.mark.parametrize("kind", [ReadOnlyAgent, LocAgent, BrowsingAgent, VisualBrowsingAgent])
def test_they_are_found_by_name_and_made_again_from_their_data(kind: type[Agent]) -> None:
    agent = AgentBase.get_cls(kind.__name__)(llm=MODEL)
    assert TypeAdapter(AnyAgent).validate_python(agent.model_dump(mode="json")) == agent
    prompt = agent.static_system_message
    assert "<WORK>" in prompt
    assert "sandbox of this conversation's own" not in prompt
