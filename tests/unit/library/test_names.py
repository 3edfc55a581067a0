"""The public names: all there, and importing the package costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import agent_core
from agent_core import llm, tools
from agent_core.events.control import CondensationRequest
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    SystemPromptEvent,
    UserRejectObservation,
)
from agent_core.events.messages import ImageContent, Message, MessageToolCall, TextContent
from agent_core.events.schema import Action, Observation


@pytest.mark.parametrize("module", [agent_core, llm, tools])
def test_every_public_name_can_be_had(module: object) -> None:
    names = getattr(module, "__all__", [])
    assert names == sorted(set(names), key=names.index)
    assert all(getattr(module, name) is not None for name in names)
    with pytest.raises(AttributeError, match="nonesuch"):
        getattr(module, "nonesuch")  # noqa: B009 - a name that mypy must not look for


def test_the_presets_of_agents_are_found_beside_those_of_tools() -> None:
    assert tools.get_default_agent is agent_core.get_default_agent
    assert tools.get_planning_agent is agent_core.get_planning_agent


def test_what_programs_need_beside_the_agent_is_found_by_the_names_they_know() -> None:
    assert llm.content_to_str is agent_core.content_to_str
    assert llm.ProfileStore is agent_core.ProfileStore
    assert agent_core.CondenserBase is agent_core.Condenser
    assert agent_core.get_default_tools is tools.get_default_tools
    assert {"View", "Metrics", "ConversationStats", "ConversationState", "AgentState", "LLMResponse"} <= {
        *agent_core.__all__,
        *dir(agent_core),
    }


def test_other_names_of_the_same_are_known_but_not_listed() -> None:
    pairs = {
        "BaseConversation": agent_core.Conversation,
        "ConversationExecutionStatus": agent_core.ExecutionStatus,
        "LLMCallContext": agent_core.CallContext,
        "NoCondensationAvailable": agent_core.NoCondensationError,
        "SecurityAnalyzerBase": agent_core.SecurityAnalyzer,
        "StreamingDeltaEvent": agent_core.TextDelta,
    }
    for name, meant in pairs.items():
        assert getattr(agent_core, name) is meant
        assert name in dir(agent_core)
        assert name not in agent_core.__all__
    assert (tools.Action, tools.Observation) == (agent_core.Action, agent_core.Observation)


def test_views_and_answers_are_read_by_the_names_that_programs_know() -> None:
    call = ActionEvent(
        id=1, tool_name="t", tool_call_id="c", tool_call=MessageToolCall(id="c", name="t", arguments="{}")
    )
    refused = UserRejectObservation(id=2, cause=1, tool_name="t", tool_call_id="c")
    assert refused.action_id == 1
    assert ObservationEvent(cause=7, tool_name="t", observation=Observation.from_text("x")).action_id == 7
    view = agent_core.View.from_events([call, refused, CondensationRequest(id=3)])
    assert (len(view), view.unhandled_condensation_request) == (2, True)


def test_a_piece_of_text_says_what_it_is_a_piece_of() -> None:
    said, thought = agent_core.TextDelta("r", "x"), agent_core.TextDelta("r", "x", "reasoning")
    assert (said.content, said.reasoning_content) == ("x", None)
    assert (thought.content, thought.reasoning_content) == (None, "x")


def test_calls_without_an_answer_are_found_in_their_order() -> None:
    calls = [ActionEvent(id=n, tool_name="t", tool_call_id=f"c{n}", action=Action()) for n in range(1, 6)]
    invalid = ActionEvent(id=6, tool_name="t", tool_call_id="c6", llm_response_id="r")
    answers = [
        ObservationEvent(id=7, cause=1, tool_name="t", observation=Observation.from_text("x")),
        UserRejectObservation(id=8, cause=2, tool_name="t"),
        AgentErrorEvent(id=9, cause=3, error="e", tool_call_id="c4"),
        AgentErrorEvent(id=10, error="e", tool_call_id="c5"),
        AgentErrorEvent(id=11, error="e", tool_call_id="c9"),
    ]
    found = agent_core.get_unmatched_actions([*calls, invalid, *answers])
    assert [call.id for call in found] == [4]
    assert agent_core.ConversationState.get_unmatched_actions(calls) == calls


def test_importing_the_package_loads_nothing_else() -> None:
    named = "agent_core, agent_core.llm, agent_core.tools"
    code = f"import sys, {named}; print('pydantic' in sys.modules, len(sys.modules) < 150)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "True"], done.stderr


BUILT_IN = """
from agent_core import Agent, LLM, Tool
from agent_core.tools import resolve_tool
names = ("TerminalTool", "file_editor", "GrepTool", "bash")
print([tool.name for name in names for tool in resolve_tool(Tool(name=name))])
agent = Agent(llm=LLM(model="openai/x"), tools=[Tool(name="TerminalTool")], include_default_tools=["TaskTrackerTool"])
print(list(agent.initialize()))
"""
OWN = """
from agent_core.tools import Tool, register_tool, resolve_tool
from agent_core import Action, Observation, ToolDefinition
own = ToolDefinition(name="grep", description="Mine.", action_type=Action, executor=lambda action, conversation: None)
register_tool("grep", own)
resolve_tool(Tool(name="glob"))
print(resolve_tool(Tool(name="grep"))[0].description)
"""


@pytest.mark.parametrize(
    ("program", "prints"),
    [
        (BUILT_IN, "['terminal', 'file_editor', 'grep', 'terminal']\n['terminal', 'task_tracker']\n"),
        (OWN, "Mine.\n"),
    ],
    ids=["they are there", "a program's own come first"],
)
def test_built_in_tools_are_known_by_name_without_importing_them(program: str, prints: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == (prints, "")


def test_each_convertible_event_stands_for_one_message() -> None:
    call = MessageToolCall(id="1", name="terminal", arguments="{}")
    action = ActionEvent(tool_name="terminal", tool_call=call, thought=[TextContent(text="I look.")])
    prompt = SystemPromptEvent(system_prompt=TextContent(text="Be good."))
    listed = Observation.from_text("a.txt")
    result = ObservationEvent(cause=1, tool_call_id="1", tool_name="terminal", observation=listed)
    said = MessageEvent(source="user", llm_message=Message.user("Hello"))
    for event in (action, prompt, said, result):
        assert isinstance(event, agent_core.LLMConvertibleEvent)
    assert action.to_llm_message().tool_calls == [call]
    assert action.to_llm_message().text == "I look."
    shown = result.to_llm_message()
    assert (shown.role, shown.tool_call_id, shown.text) == ("tool", "1", "a.txt")
    assert (prompt.to_llm_message().role, said.to_llm_message().role) == ("system", "user")
    assert not isinstance(agent_core.Event(), agent_core.LLMConvertibleEvent)


def test_content_is_put_in_words_for_people() -> None:
    parts: list[TextContent | ImageContent] = [TextContent(text="a"), ImageContent(image_urls=["data:,x", "data:,y"])]
    assert agent_core.content_to_str(parts) == ["a", "[Image: 2 URLs]"]


def test_the_content_of_a_message_may_be_a_text_or_nothing() -> None:
    assert Message.model_validate({"role": "user", "content": "Hello"}) == Message.user("Hello")
    assert Message.model_validate({"role": "assistant", "content": None}).content == []


def test_a_logger_is_the_programs_own() -> None:
    assert agent_core.get_logger("mine").name == "mine"
