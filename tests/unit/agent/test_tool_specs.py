"""What may be given as an agent's tools."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agent_core.agent.agent import Agent
from agent_core.agent.base import AgentBase
from agent_core.llm.llm import LLM
from agent_core.tools import BashTool, FileEditorTool, get_default_tools
from agent_core.tools.builtin import ThinkTool
from agent_core.tools.execution import ToolExecutor
from agent_core.tools.spec import Tool
from agent_core.tools.terminal import TerminalExecutor, TerminalTool

MODEL = LLM(model="openai/x")


def test_definitions_as_they_are_made_stand_for_their_names() -> None:
    one = Agent(llm=MODEL, tools=[BashTool.create(), FileEditorTool.create()])
    assert one.tools == [Tool(name="terminal"), Tool(name="file_editor")]
    assert AgentBase.revive(one.model_dump()) == one
    flat = Agent(llm=MODEL, tools=[*BashTool.create(), Tool(name="grep")])
    assert list(flat.initialize()) == ["terminal", "grep", "finish", "think"]
    assert Agent(llm=MODEL, tools=get_default_tools()).tools[0] == Tool(name="terminal")


def test_definitions_that_a_name_would_not_stand_for_are_refused_with_the_way_out() -> None:
    class Own(ToolExecutor):
        def __call__(self, action: object, conversation: object = None) -> None:
            raise AssertionError

    for odd in (
        TerminalTool.create(soft_timeout=3)[0],
        TerminalTool.create(executor=TerminalExecutor(session="other"))[0],
        ThinkTool.create()[0].set_executor(Own()),
        ThinkTool.create()[0].model_copy(update={"name": "ponder"}),
        ThinkTool.create()[0].model_copy(update={"description": "Think twice."}),
    ):
        with pytest.raises(ValidationError, match="Register it with register_tool"):
            Agent(llm=MODEL, tools=[odd])
    with pytest.raises(ValidationError):
        Agent(llm=MODEL, tools=["terminal"])
