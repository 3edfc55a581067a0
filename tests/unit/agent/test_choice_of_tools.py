"""Which tools an agent has, in which order, and how its model is shown them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from agent_core.agent.base import AgentBase
from agent_core.agent.codeact import CodeActAgent
from agent_core.agent.presets import ReadOnlyAgent
from agent_core.events.schema import Action
from agent_core.llm.llm import LLM
from agent_core.session.factory import make_agent
from agent_core.session.settings import AgentOptions, SessionSettings
from agent_core.skills.context import AgentContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.presets import TOOL_PRESETS
from agent_core.tools.registry import list_registered_tools

MODEL = LLM(model="openai/x")
LISTED = (
    *("terminal", "think", "finish", "request_condensation", "browser", "execute_ipython_cell", "task_tracker"),
    *("edit_file", "file_editor"),
)


class Talkative(ToolDefinition):
    """A tool with much to say."""

    @classmethod
    def create(cls, *args: Any, **params: Any) -> Sequence[ToolDefinition]:
        return [cls(description="a" * 3000, action_type=Action)]


def names(**flags: Any) -> list[str]:
    return list(CodeActAgent(llm=MODEL, **flags).initialize())


def parameters(tool: str, model: str = "openai/x", kind: type[AgentBase] = CodeActAgent) -> dict[str, Any]:
    agent = kind(llm=LLM(model=model))
    shown: dict[str, Any] = agent.shown_tool(agent.initialize()[tool])["function"]["parameters"]
    return shown


def test_the_tools_stand_in_the_order_of_their_flags() -> None:
    every = names(enable_condensation_request=True)
    assert every == [name for name in LISTED if name in every]
    assert every[:4] == ["terminal", "think", "finish", "request_condensation"]
    assert "request_condensation" not in names()
    assert names(enable_cmd=False, enable_think=False)[0] == "finish"


@pytest.mark.parametrize(
    ("flag", "tool"),
    [
        ("enable_cmd", "terminal"),
        ("enable_think", "think"),
        ("enable_finish", "finish"),
        ("enable_browsing", "browser"),
        ("enable_jupyter", "execute_ipython_cell"),
        ("enable_plan_mode", "task_tracker"),
        ("enable_editor", "file_editor"),
    ],
)
def test_a_flag_that_is_off_leaves_out_its_tool_and_nothing_else(flag: str, tool: str) -> None:
    assert names(**{flag: False}) == [name for name in names() if name != tool]
    assert (tool in names()) is (tool in list_registered_tools())


@pytest.mark.parametrize("tool", ["terminal", "browser", "file_editor"])
def test_calls_that_may_do_harm_have_to_state_their_risk(tool: str) -> None:
    shown = parameters(tool)
    assert shown["properties"]["security_risk"]["enum"] == ["LOW", "MEDIUM", "HIGH"]
    assert "security_risk" in shown["required"]
    assert next(iter(shown["properties"])) == "security_risk"


def test_other_calls_need_not_state_it_and_reading_ones_cannot() -> None:
    tracker = parameters("task_tracker")
    assert "security_risk" not in tracker.get("required", [])
    assert tracker["properties"]["security_risk"]["enum"] == ["UNKNOWN", "LOW", "MEDIUM", "HIGH"]
    assert "security_risk" not in parameters("think")["properties"]
    assert "security_risk" not in parameters("grep", kind=ReadOnlyAgent)["properties"]


@pytest.mark.parametrize("model", ["openai/gpt-4o", "o1-mini", "azure/O3", "o4-mini"])
def test_models_that_take_short_descriptions_get_short_ones(model: str) -> None:
    tool = Talkative.create()[0]
    short = CodeActAgent(llm=LLM(model=model)).shown_tool(tool)["function"]["description"]
    assert len(short) < 1024
    assert short.endswith("…")
    assert len(CodeActAgent(llm=MODEL).shown_tool(tool)["function"]["description"]) == 3000


def test_microagents_can_be_left_out() -> None:
    agent = CodeActAgent(llm=MODEL, disabled_microagents=["b"], agent_context=AgentContext(disabled_skills=["a"]))
    assert agent.agent_context is not None
    assert agent.agent_context.disabled_skills == ["a", "b"]
    assert agent.skills_left_out == {"b"}
    assert AgentBase.revive(agent.model_dump(mode="json")) == agent


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"tools": ["terminal", "nope"]}, r"tools\n.*1: tool 'nope' is not registered; registered are"),
        (
            {"tools": [{"name": "terminal", "params": {"x": 1}}]},
            r"tools\n.*0: terminal cannot be made with",
        ),
        ({"tools": [{"name": "terminal", "params": {"executor": "x"}}]}, r"tools\n.*0: executor of terminal is a str"),
        ({"tools": ["terminal", "execute_bash"]}, r"tools\n.*1: \['terminal'\] is given twice"),
        ({"preset": "fancy"}, r"preset\n.*there is no preset 'fancy'; give one of default, gpt5"),
        ({"preset": "default", "tools": ["grep"]}, "preset and tools exclude each other"),
        ({"filter_tools_regex": "("}, r"filter_tools_regex\n.*no regular expression"),
        ({"filter_tools_regex": "(a|aa)+$"}, r"filter_tools_regex\n.*takes too long"),
        ({"filter_tools_regex": "(?R)"}, r"filter_tools_regex\n.*no regular expression"),
        ({"enable_cmd": "perhaps"}, "enable_cmd\n.*valid boolean"),
        ({"tool_concurrency_limit": 0}, "tool_concurrency_limit\n"),
        ({"enable_magic": True}, "enable_magic\n"),
    ],
)
def test_choices_that_cannot_be_used_are_refused_with_their_field(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        AgentOptions.model_validate(values)


@pytest.mark.parametrize(
    ("model", "editor", "others"),
    [
        ("openai/gpt-5-mini", "apply_patch", {"file_editor", "write_file"}),
        ("openrouter/openai/gpt-5.1-codex", "apply_patch", {"file_editor", "write_file"}),
        ("gemini/gemini-2.5-pro", "write_file", {"file_editor", "apply_patch"}),
        ("anthropic/claude-sonnet-4-5", "file_editor", {"apply_patch", "write_file"}),
        ("openai/gpt-4o", "file_editor", {"apply_patch", "write_file"}),
    ],
)
async def test_the_preset_auto_gives_each_model_the_editor_it_knows(model: str, editor: str, others: set[str]) -> None:
    options = AgentOptions(preset="auto")
    made = await make_agent(SessionSettings(llm=LLM(model=model), agent_options=options, enable_browsing=False))
    names = made.initialize().keys()
    assert {"terminal", "task_tracker", editor} <= names
    assert not names & others


def test_a_preset_that_is_none_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(ValidationError, match=r"no preset 'gpt6'; give one of default, gpt5.*or auto for the one"):
        AgentOptions(preset="gpt6")


@pytest.mark.parametrize("preset", TOOL_PRESETS)
def test_each_preset_makes_an_agent(preset: str) -> None:
    fields = AgentOptions(preset=preset).fields_for(CodeActAgent, browsing=False)
    made = CodeActAgent(llm=MODEL, **fields).initialize()
    assert {"think", "finish"} < made.keys()
    assert not any(name.startswith("browser") for name in made)


def test_the_nearer_choice_counts_and_the_rest_is_kept() -> None:
    far = AgentOptions(enable_cmd=False, preset="gpt5", filter_tools_regex="a")
    near = AgentOptions.model_validate({"tools": ["grep", "finish"], "enable_cmd": True})
    fields = near.over(far).fields_for(CodeActAgent)
    assert fields["enable_cmd"] is True
    assert fields["filter_tools_regex"] == "a"
    assert [tool.name for tool in fields["tools"]] == ["grep"]  # finish is there anyway
    assert AgentOptions().over(far) == far


def test_flags_that_an_agent_does_not_have_are_left_alone() -> None:
    options = AgentOptions(enable_cmd=False, tool_concurrency_limit=3)
    assert options.fields_for(ReadOnlyAgent, browsing=False) == {"tool_concurrency_limit": 3}


@pytest.mark.parametrize(
    ("own", "name", "key"),
    [
        (LLM(model="anthropic/big", api_key=SecretStr("k")), "anthropic/small", "k"),
        (LLM(model="gpt-x", api_key=SecretStr("k")), "openai/small", "k"),
        (LLM(model="openai/big", api_key=SecretStr("k"), base_url="http://h/v1"), "hosted_vllm/small", "k"),
        (LLM(model="anthropic/big", api_key=SecretStr("k")), "openai/small", None),
    ],
)
async def test_the_model_for_drafts_is_a_choice_and_gets_no_key_of_another_provider(
    own: LLM, name: str, key: str | None
) -> None:
    options = AgentOptions(enable_llm_editor=True, draft_editor_model=name)
    agent = await make_agent(SessionSettings(llm=own, agent_options=options))
    assert isinstance(agent, CodeActAgent)
    drafts = agent.draft_editor_llm
    assert drafts is not None
    assert (drafts.model, drafts.base_url) == (name, own.base_url)
    assert (drafts.api_key.get_secret_value() if drafts.api_key else None) == key
    assert (await make_agent(SessionSettings(llm=own, agent_options=options, agent_class="ReadOnlyAgent"))).llm == own
    assert AgentOptions(draft_editor_model=f" {name}\n").draft_editor_model == name
    for blank in ("", " \t"):
        with pytest.raises(ValidationError, match="draft_editor_model"):
            AgentOptions(draft_editor_model=blank)
