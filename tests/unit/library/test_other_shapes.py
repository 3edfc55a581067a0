"""Programs that were written for other libraries of this form find what they use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

import agent_core
from agent_core import (
    LLM,
    ActionEvent,
    Agent,
    AlwaysConfirm,
    Conversation,
    DockerWorkspace,
    ExecutionStatus,
    FinishTool,
    HookConfig,
    HookEvent,
    LLMRegistry,
    LocalWorkspace,
    ProfileStore,
    RemoteWorkspace,
    TextDelta,
    Tool,
    get_agent_final_response,
    load_skills_from_dir,
    register_agent_if_absent,
    register_tool,
    tools,
)
from agent_core.library.workspace import workspace_of
from agent_core.skills.agent_catalog import is_registered, unregister_agent
from agent_core.tools import registry
from tests.unit.library.playing import DONE, Sandbox, Script, agent, conversation, model


class Fact(BaseModel):
    text: str
    line: int = 0


class Facts(BaseModel):
    summary: str = Field(description="in one paragraph")
    facts: list[Fact]


@pytest.mark.parametrize(
    "finish",
    [
        {"name": "finish", "response_schema": Facts},
        {"name": "FinishTool", "params": {"response_schema": Facts}},
        {"name": "FinishTool", "response_schema": Facts.model_json_schema()},
    ],
)
def test_the_form_of_an_answer_may_be_a_model_and_stand_among_the_parameters(
    finish: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry.registered_tools()))  # the next test finds it as it was
    register_tool("FinishTool", FinishTool)
    said = {"summary": "small", "facts": [{"text": "it is red", "line": 3}]}
    script = Script(("", [("finish", json.dumps(said))]))
    tool = Tool.model_validate(finish)
    assert tool == Tool.model_validate_json(tool.model_dump_json())
    who = Agent(llm=model(script), tools=[tool])
    with conversation(who) as one:
        one.send_message("What is it?")
        one.run()
        assert one.state.execution_status is ExecutionStatus.FINISHED
        assert Facts.model_validate_json(get_agent_final_response(one.state.events)) == Facts.model_validate(said)
        assert [event.tool_name for event in one.state.events if isinstance(event, ActionEvent)] == ["finish"]
    offered = next(one for one in script.requests[0].tools if one["function"]["name"] == "finish")
    assert {"summary", "facts"} <= offered["function"]["parameters"]["properties"].keys()


def test_what_an_agent_told_last_is_its_finish_or_else_its_words() -> None:
    script = Script(("", [("finish", '{"message": "It is done."}')]), ("You are welcome.", []))
    with conversation(agent(script)) as one:
        assert get_agent_final_response(one.state.events) == ""
        answers = []
        for text in ("Go.", "Thanks."):
            one.send_message(text)
            one.run()
            answers.append(get_agent_final_response(one.state.events))
    assert answers == ["It is done.", "You are welcome."]


def test_a_fork_may_have_a_title_and_tags_of_its_own() -> None:
    with conversation(agent(Script(DONE)), tags={"team": "a", "purpose": "work"}) as one:
        one.send_message("Go.")
        one.run()
        with one.fork(workspace=Sandbox(), copy_files=False, title="Follow-up", tags={"purpose": "try"}) as fork:
            assert dict(fork.state.tags) == {"team": "a", "purpose": "try", "title": "Follow-up"}
            assert len(fork.state.events) == len(one.state.events)
        assert dict(one.state.tags) == {"team": "a", "purpose": "work"}
        with pytest.raises(ValueError, match="tag 'No'"):
            one.fork(workspace=Sandbox(), tags={"No": "x"})


def test_whether_the_policy_asks_is_told_apart_from_the_mode_that_needs_an_analyzer() -> None:
    with conversation(agent(Script())) as one:
        before = one.confirmation_policy_active
        one.set_confirmation_policy(AlwaysConfirm())
        assert (before, one.confirmation_policy_active, one.is_confirmation_mode_active) == (False, True, False)


def test_pieces_of_text_are_found_in_the_choices_of_a_chunk() -> None:
    heard: list[tuple[str | None, str | None]] = []

    def on_token(chunk: TextDelta) -> None:
        heard.extend((choice.delta.content, choice.delta.reasoning_content) for choice in chunk.choices)

    with conversation(agent(Script(("Hello", []))), token_callbacks=[on_token]) as one:
        one.send_message("Hi.")
        one.run()
    assert heard == [("Hello", None)]


def test_hooks_are_made_of_data_and_of_matchers() -> None:
    command = agent_core.CommandHook(command="check", timeout=10)
    data = {"hooks": {"PreToolUse": [{"matcher": "terminal", "hooks": [{"command": "check", "timeout": 10}]}]}}
    typed: dict[str, Any] = {"pre_tool_use": [agent_core.HookMatcher(matcher="terminal", hooks=(command,))]}
    assert HookConfig.from_dict(data) == HookConfig(**typed)
    assert HookConfig.from_dict(data).for_event(HookEvent.PRE_TOOL_USE, "terminal") == (command,)
    with pytest.raises(ValueError, match="hooks must be an object, not list"):
        HookConfig.from_dict([])


def test_models_and_their_figures_are_found_by_their_ids(tmp_path: Path) -> None:
    models = LLMRegistry()
    models.add(LLM(model="openai/a", usage_id="fast"))
    assert models.list_usage_ids() == ["fast"]
    store = ProfileStore(base_dir=tmp_path)
    store.save("fast", models.get("fast"))
    assert store.list() == ["fast"]
    one: Conversation
    with conversation(agent(Script(DONE))) as one:
        one.send_message("Go.")
        one.run()
        assert one.state.stats.get_metrics_for_usage("agent").accumulated_cost > 0
        with pytest.raises(KeyError, match="there are those of"):
            one.state.stats.get_metrics_for_usage("other")


def test_a_kind_of_sub_agent_may_be_registered_where_there_is_none() -> None:
    try:
        made = [register_agent_if_absent("poet", lambda llm: Agent(llm=llm), "writes") for _ in range(2)]
        assert (made, is_registered("poet")) == ([True, False], True)
    finally:
        unregister_agent("poet")


def test_the_skills_of_a_folder_come_in_three_parts(tmp_path: Path) -> None:
    (tmp_path / "always.md").write_text("Be kind.")
    (tmp_path / "door.md").write_text("---\ntriggers: [door]\n---\nKnock.")
    (tmp_path / "paint").mkdir()
    (tmp_path / "paint" / "SKILL.md").write_text("---\nname: paint\ndescription: how to paint\n---\nUse a brush.")
    assert [list(part) for part in load_skills_from_dir(tmp_path)] == [["always"], ["door"], ["paint"]]


def test_a_folder_may_be_named_as_the_working_directory(tmp_path: Path) -> None:
    assert LocalWorkspace(working_dir=tmp_path) == LocalWorkspace(tmp_path)
    with pytest.raises(TypeError, match="folder is missing"):
        LocalWorkspace()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HookDefinition", agent_core.CommandHook),
        ("HookEventType", agent_core.HookEvent),
        ("LLMProfileStore", agent_core.ProfileStore),
        ("LLMServiceUnavailableError", agent_core.LLMUnavailableError),
        ("LLMStreamChunk", agent_core.TextDelta),
        ("ModelResponseStream", agent_core.TextDelta),
    ],
)
def test_the_same_is_found_by_other_names(name: str, meant: type) -> None:
    assert getattr(agent_core, name) is meant


def test_actions_of_the_terminal_have_their_older_names_too() -> None:
    older: Any = tools
    assert older.ExecuteBashAction is tools.TerminalAction
    assert older.ExecuteBashObservation is tools.TerminalObservation


def test_a_text_names_a_folder_an_image_or_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRYDOCK_API_KEY", "key")
    assert workspace_of(str(tmp_path)) == LocalWorkspace(str(tmp_path))
    assert workspace_of("./docker:folder") == LocalWorkspace("./docker:folder")
    assert workspace_of("docker:") == DockerWorkspace()
    assert workspace_of("docker:host.example:5000/own:3") == DockerWorkspace("host.example:5000/own:3")
    assert workspace_of("https://ship.example") == RemoteWorkspace("https://ship.example", "key")
