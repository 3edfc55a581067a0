"""Agents as configuration: frozen, stored, made again, compared."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from agent_core.agent.agent import Agent
from agent_core.agent.base import AgentBase, AnyAgent, llms_in
from agent_core.agent.codeact import CodeActAgent
from agent_core.agent.presets import get_default_agent
from agent_core.agent.system_prompt import PROMPT_DIR
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, MessageEvent, SystemPromptEvent
from agent_core.events.messages import Message, TextContent
from agent_core.llm.llm import LLM
from agent_core.security.secrets import SecretRegistry
from agent_core.skills.context import AgentContext
from agent_core.tools.plugins import AgentSkillsRequirement, JupyterRequirement
from agent_core.tools.spec import Tool

MODEL = LLM(model="openai/x")


class Holder(BaseModel):
    agent: AnyAgent


class SubLLM(LLM):
    """Not exactly an LLM."""

    inner: LLM | None = None


def agent(**fields: Any) -> Agent:
    return Agent(llm=MODEL, **fields)


def user(text: str) -> MessageEvent:
    return MessageEvent(source="user", llm_message=Message.user(text))


@pytest.mark.parametrize(
    "one",
    [
        agent(),
        agent(tools=[Tool(name="terminal")], include_default_tools=[], system_prompt="Hi", filter_tools_regex="t"),
        agent(security_policy_filename=None, system_prompt_kwargs={"agent_name": "A"}),
        agent(agent_context=AgentContext(system_message_suffix="Mind the gap.", current_datetime=None)),
        CodeActAgent(llm=MODEL, enable_think=False, enable_cmd=False),
        get_default_agent(MODEL, cli_mode=True),
    ],
    ids=lambda one: one.name,
)
def test_an_agent_is_made_again_from_its_data(one: AgentBase) -> None:
    data = one.model_dump(mode="json")
    assert data["kind"] == type(one).__name__ == one.name
    again = AgentBase.revive(data)
    assert type(again) is type(one)
    assert again == one == AgentBase.model_validate(data) == AgentBase.model_validate_json(one.model_dump_json())
    assert Holder.model_validate_json(Holder(agent=one).model_dump_json()).agent == one
    assert again.initialize().keys() == one.initialize().keys()


def test_tools_that_are_made_change_neither_the_data_nor_equality_and_a_copy_makes_its_own() -> None:
    made, other = agent(), agent()
    made.initialize()
    assert made == other
    assert made.model_dump() == other.model_dump()
    with pytest.raises(RuntimeError, match="no tools yet"):
        _ = made.model_copy(update={"include_default_tools": []}).tools_map


def test_an_agent_is_frozen_and_takes_no_unknown_fields() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        agent().llm = MODEL  # type: ignore[misc] # that is the point
    with pytest.raises(ValidationError, match="toolz"):
        agent(toolz=[])
    with pytest.raises(ValidationError, match="this is a Agent"):
        agent(kind="CodeActAgent")
    with pytest.raises(ValueError, match="NoSuchAgent"):
        AgentBase.revive({"kind": "NoSuchAgent"})
    with pytest.raises(ValidationError, match="NoSuchAgent"):
        AgentBase.model_validate({"kind": "NoSuchAgent"})
    with pytest.raises(ValueError, match="ThinkAction"):
        AgentBase.revive({"kind": "ThinkAction", "thought": "I am no agent"})


def test_the_tools_are_there_once_they_are_made_and_only_then() -> None:
    one = agent(tools=[Tool(name="TerminalTool")])
    with pytest.raises(RuntimeError, match="no tools yet"):
        _ = one.tools_map
    assert list(one.initialize()) == ["terminal", "finish", "think"]
    assert one.initialize()["terminal"] is one.tools_map["terminal"]
    one.tools_map.clear()
    assert len(one.tools_map) == 3


def test_default_tools_are_chosen_by_class_name_and_no_filter_touches_them() -> None:
    one = agent(tools=[Tool(name="terminal"), Tool(name="file_editor")], filter_tools_regex="file")
    assert list(one.initialize()) == ["file_editor", "finish", "think"]
    inside = agent(tools=[Tool(name="terminal"), Tool(name="file_editor")], filter_tools_regex="editor|term")
    assert list(inside.initialize()) == ["terminal", "finish", "think"], "it is matched from the name's beginning"
    assert list(agent(include_default_tools=["ThinkTool"]).initialize()) == ["think"]
    assert not agent(include_default_tools=[]).initialize()
    with pytest.raises(ValidationError, match=r"NoTool.*FinishTool"):
        agent(include_default_tools=["NoTool"])
    with pytest.raises(ValidationError, match="no regular expression"):
        agent(filter_tools_regex="(")
    with pytest.raises(ValueError, match=r"\['finish'\] are given twice"):
        agent(tools=[Tool(name="finish")]).initialize()


def test_tools_that_come_later_are_filtered_too_and_never_replace_others() -> None:
    one = agent(filter_tools_regex="term")
    terminal = agent(tools=[Tool(name="terminal"), Tool(name="file_editor")]).initialize()
    with pytest.raises(RuntimeError):
        one.add_runtime_tools([terminal["terminal"]])
    one.initialize()
    one.add_runtime_tools([terminal["terminal"], terminal["file_editor"]])
    assert list(one.tools_map) == ["finish", "think", "terminal"]
    with pytest.raises(ValueError, match="two tools are named 'terminal'"):
        one.add_runtime_tools([terminal["terminal"]])


def test_tools_of_a_client_replace_those_that_it_brought_before() -> None:
    one = agent()
    before = set(one.initialize())
    terminal = agent(tools=[Tool(name="terminal"), Tool(name="file_editor")]).initialize()
    one.add_runtime_tools([terminal["terminal"]], client="mcp:a")
    one.add_runtime_tools([terminal["file_editor"]], client="mcp:a")
    assert set(one.tools_map) - before == one.tools_brought_by("mcp:a") == {"file_editor"}


def test_an_inline_prompt_is_taken_word_for_word_and_excludes_a_template() -> None:
    assert agent(system_prompt="{{ not a template }}").static_system_message == "{{ not a template }}"
    with pytest.raises(ValidationError, match="exclude each other"):
        agent(system_prompt="x", system_prompt_filename="other.j2")


def test_templates_lie_beside_the_class_or_anywhere_by_absolute_path(tmp_path: Path) -> None:
    assert agent().prompt_dir == PROMPT_DIR
    (tmp_path / "p.j2").write_text("I am {{ who }} on {{ model_name }}.\n{{ security_policy }}")
    (tmp_path / "policy.j2").write_text("Never lie.")
    one = agent(
        system_prompt_filename=str(tmp_path / "p.j2"),
        security_policy_filename=str(tmp_path / "policy.j2"),
        system_prompt_kwargs={"who": "Ada"},
    )
    assert one.static_system_message == "I am Ada on openai/x.\nNever lie."


def test_a_class_has_its_templates_in_the_folder_beside_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "system_prompt.j2").write_text("I am {{ agent_name }}, and nobody else.")
    (tmp_path / "prompts" / "security_policy.j2").write_text("Be kind.")
    (tmp_path / "own_agent_module.py").write_text(
        "from agent_core import Agent\n\n\nclass OwnAgent(Agent):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    one = import_module("own_agent_module").OwnAgent(llm=MODEL)
    assert one.prompt_dir == tmp_path / "prompts"
    assert one.static_system_message == "I am Drydock, and nobody else."


def test_sections_of_the_prompt_come_and_go_by_configuration() -> None:
    assert "<SECURITY>" in agent().static_system_message
    assert agent(security_policy_filename=None).security_policy_filename == ""
    assert "<SECURITY>" not in agent(security_policy_filename=None).static_system_message
    assert "<RISK>" in agent().static_system_message
    assert "<RISK>" not in agent(system_prompt_kwargs={"llm_security_analyzer": False}).static_system_message
    in_sandbox = agent(system_prompt_kwargs={"cli_mode": False}).static_system_message
    assert "inside the sandbox" in in_sandbox
    assert "inside the sandbox" not in agent().static_system_message


def test_the_static_message_is_the_same_for_every_conversation_and_the_rest_stands_apart() -> None:
    one = agent(agent_context=AgentContext(system_message_suffix="Mind the gap.", current_datetime="2026-01-02"))
    assert one.static_system_message == agent().static_system_message
    event = one.system_prompt_event([])
    assert event.system_prompt.text == one.static_system_message
    assert event.dynamic_context is not None
    assert "Mind the gap." in event.dynamic_context.text
    assert agent().dynamic_context is None
    assert agent().system_prompt_event([]).dynamic_context is None


def test_the_old_one_part_message_still_works_and_says_that_it_is_old() -> None:
    with pytest.warns(DeprecationWarning, match="static_system_message"):
        text = agent(agent_context=AgentContext(system_message_suffix="Mind the gap.")).system_message
    assert text.startswith(agent().static_system_message)
    assert "Mind the gap." in text


def test_a_succinct_dump_has_no_none() -> None:
    assert "condenser" in agent().model_dump()
    assert None not in agent().model_dump_succint().values()
    assert "api_key" not in agent().model_dump_succint()["llm"]


PROMPT = SystemPromptEvent(system_prompt=TextContent(text="x"))
LOADING = AgentStateChanged(agent_state=AgentState.LOADING)


def test_the_system_prompt_is_given_once_and_before_any_message_of_the_user() -> None:
    assert agent().missing_prompt([], []) is not None
    assert agent().missing_prompt([LOADING], []) is not None
    assert agent().missing_prompt([LOADING, PROMPT, user("hi")], []) is None
    with pytest.raises(AssertionError, match="before the system prompt"):
        agent().missing_prompt([LOADING, user("hi"), PROMPT], [])
    with pytest.raises(AssertionError, match="before the system prompt"):
        agent().missing_prompt([LOADING, LOADING, user("hi")], [])
    assert agent().missing_prompt([LOADING, LOADING, LOADING, user("hi")], []) is not None, "three are looked at"


def test_an_agent_gets_ready_for_a_conversation_once() -> None:
    one, told = agent(tools=[TERMINAL]), list[Event]()
    one.init_state(SimpleNamespace(events=[LOADING]), told.append)
    (prompt,) = told
    assert isinstance(prompt, SystemPromptEvent)
    assert prompt.system_prompt.text == one.static_system_message
    assert [tool["function"]["name"] for tool in prompt.tools] == list(one.tools_map) == ["terminal", "finish", "think"]
    assert prompt.dynamic_context is None
    one.init_state(SimpleNamespace(events=[LOADING, prompt, user("hi")]), told.append)
    assert len(told) == 1
    with pytest.raises(AssertionError, match="before the system prompt"):
        one.init_state(SimpleNamespace(events=[user("hi"), prompt]), told.append)


def test_the_secrets_of_a_conversation_stand_in_its_prompt_even_where_the_agent_has_no_context() -> None:
    registry, told = SecretRegistry(lambda values: None), list[SystemPromptEvent]()
    registry.update({"SEED": "plum-4711"})
    agent().init_state(SimpleNamespace(events=[], secret_registry=registry), told.append)
    assert told[0].dynamic_context is not None
    assert "SEED" in told[0].dynamic_context.text
    assert "plum-4711" not in str(told[0].model_dump())


def test_every_model_of_the_configuration_is_found_once() -> None:
    one = get_default_agent(MODEL)
    assert [id(llm) for llm in one.get_all_llms()] == [id(MODEL), id(one.condenser.llm)]  # type: ignore[union-attr]
    inner = LLM(model="openai/inner")
    nested: dict[str, Any] = {"a": [MODEL, (MODEL, {"b": SubLLM(model="openai/sub", inner=inner)})]}
    nested["self"] = nested
    assert list(map(id, llms_in(nested))) == [id(MODEL), id(inner)]


def test_what_an_agent_can_is_asked_of_it_and_not_of_its_class() -> None:
    one = agent()
    can = (one.supports_openhands_tools, one.supports_openhands_mcp, one.supports_condenser)
    assert (one.agent_kind, *can) == ("Agent", True, True, True)


def test_agents_are_found_by_name() -> None:
    assert {"Agent", "CodeActAgent"} <= set(AgentBase.list_agents())
    assert AgentBase.get_cls("CodeActAgent") is CodeActAgent
    with pytest.raises(KeyError, match="CodeActAgent"):
        AgentBase.get_cls("NoSuchAgent")
    with pytest.raises(ValueError, match="registered already"):
        AgentBase.register("Agent", CodeActAgent)


def test_an_agent_can_be_registered_under_another_name() -> None:
    AgentBase.register("coder", CodeActAgent)
    try:
        assert AgentBase.get_cls("coder") is CodeActAgent
    finally:
        del AgentBase.agents["coder"]


TERMINAL, EDITOR = Tool(name="terminal"), Tool(name="file_editor")


def test_a_resumed_conversation_wants_the_same_class_and_exactly_the_same_tools() -> None:
    before = agent(tools=[TERMINAL])
    now = Agent(llm=LLM(model="openai/y"), tools=[Tool(name="TerminalTool")])
    assert now.verify(before) is now
    with pytest.raises(ValueError, match="belongs to a Agent and cannot go on with a CodeActAgent"):
        CodeActAgent(llm=MODEL).verify(before)
    with pytest.raises(ValueError, match=r"missing \['terminal'\], added \['file_editor'\]"):
        agent(tools=[EDITOR]).verify(before)
    with pytest.raises(ValueError, match=r"missing \['think'\]"):
        agent(tools=[TERMINAL], include_default_tools=["FinishTool"]).verify(before)


def test_added_tools_are_allowed_on_request_and_missing_ones_are_not() -> None:
    before, more = agent(tools=[TERMINAL]), agent(tools=[TERMINAL, EDITOR])
    with pytest.raises(ValueError, match=r"added \['file_editor'\]"):
        more.verify(before)
    assert more.verify(before, allow_added_tools=True) is more
    with pytest.raises(ValueError, match=r"missing \['file_editor'\]"):
        before.verify(more, allow_added_tools=True)


def test_on_request_only_tools_that_were_used_must_be_there() -> None:
    before, now = agent(tools=[TERMINAL, EDITOR]), agent(tools=[TERMINAL])
    used = [ActionEvent(tool_name="terminal"), ActionEvent(tool_name="TerminalTool")]
    assert now.verify(before, used, used_tools_only=True) is now
    with pytest.raises(ValueError, match=r"missing \['file_editor'\]"):
        now.verify(before, [ActionEvent(tool_name="file_editor")], used_tools_only=True)
    with pytest.raises(ValueError, match=r"missing \['file_editor'\]"):
        now.verify(before, used_tools_only=True)
    with pytest.raises(ValueError, match=r"missing \['file_editor'\]"):
        now.verify(before, used)


def test_flags_choose_the_tools_of_a_code_act_agent() -> None:
    assert [tool.name for tool in CodeActAgent(llm=MODEL).tools][:1] == ["terminal"]
    off = {"enable_finish": False, "enable_plan_mode": False, "enable_browsing": False, "enable_jupyter": False}
    bare = CodeActAgent(llm=MODEL, enable_cmd=False, **off)
    assert next(iter(bare.initialize())) == "think"
    assert "file_editor" in bare.initialize()
    assert "execute_ipython_cell" not in bare.initialize()
    python = CodeActAgent(llm=MODEL, enable_cmd=False, **{**off, "enable_jupyter": True})
    assert [name for name in python.initialize() if name in ("execute_ipython_cell", "file_editor")] == [
        "execute_ipython_cell",
        "file_editor",
    ]
    assert "browser" in CodeActAgent(llm=MODEL).initialize()
    blind = CodeActAgent(llm=MODEL, enable_som_visual_browsing=False)
    assert {tool.name: tool.params for tool in blind.tools}["browser"] == {"set_of_marks": False}
    assert {tool.name: tool.params for tool in CodeActAgent(llm=MODEL).tools}["browser"] == {}, "it sees by default"
    assert blind.initialize()["browser"].name == "browser"
    assert "file_editor" in CodeActAgent(llm=MODEL, tools=[EDITOR], enable_editor=False).initialize()
    assert CodeActAgent.VERSION == "2.2"


def test_the_plugins_of_an_agent_are_named_in_their_order() -> None:
    assert CodeActAgent.sandbox_plugins == (AgentSkillsRequirement(), JupyterRequirement())
    assert [plugin.name for plugin in CodeActAgent.sandbox_plugins] == ["agent_skills", "jupyter"]


def test_no_description_is_too_long_for_the_models_that_take_short_ones_only() -> None:
    assert all(len(tool.description) < 1024 for tool in CodeActAgent(llm=MODEL).initialize().values())


def test_the_default_agent_sums_up_with_a_model_counted_apart() -> None:
    one = get_default_agent(MODEL)
    data = one.model_dump()["condenser"]
    assert (data["max_size"], data["keep_first"], data["llm"]["usage_id"]) == (80, 4, "condenser")
