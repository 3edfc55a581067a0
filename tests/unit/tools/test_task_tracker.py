"""The task tracker: its list, what is said of it, and where it is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.agent.codeact import CodeActAgent
from agent_core.agent.presets import get_default_agent
from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.risk import SecurityRisk
from agent_core.llm.llm import LLM
from agent_core.security.shell_rules import ShellRuleAnalyzer
from agent_core.tools.presets import get_default_tools
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool
from agent_core.tools.task_tracker import (
    MAX_TASKS,
    TaskItem,
    TaskTrackerAction,
    TaskTrackerExecutor,
    TaskTrackerObservation,
    TaskTrackerTool,
)
from tests.unit.controller.stage import REPLIES, Reply
from tests.unit.controller.test_answers import until
from tests.unit.controller.test_confirmation_flow import FINISHED, staged

MODEL = LLM(model="openai/x")


def plan(*tasks: dict[str, Any]) -> TaskTrackerAction:
    return TaskTrackerAction.model_validate({"command": "plan", "task_list": list(tasks)})


def test_a_new_list_is_empty_and_says_how_to_begin() -> None:
    shown = TaskTrackerExecutor()(TaskTrackerAction())
    assert (shown.command, shown.task_list, shown.is_error) == ("view", [], False)
    assert 'Use the "plan" command' in shown.text


def test_plan_replaces_the_whole_list_and_says_how_many_there_are() -> None:
    tracker = TaskTrackerExecutor()
    tracker(plan({"title": "old"}, {"title": "older"}))
    result = tracker(plan({"title": "one", "status": "done"}, {"title": "two"}, {"title": "three"}))
    assert result.text == "The task list was updated: it has 3 items (1 done, 2 to do)."
    assert [task.title for task in result.task_list] == ["one", "two", "three"]
    assert tracker(plan({"title": "one"})).text == "The task list was updated: it has 1 item (1 to do)."
    nulls = tracker(plan({"id": None, "title": "one", "notes": None, "status": None}))
    assert nulls.task_list == [TaskItem(title="one")]
    assert tracker(plan()).text == "The task list was cleared: it has 0 items."
    assert "no task list" in tracker(TaskTrackerAction()).text


def test_view_numbers_the_tasks_with_their_status_and_indents_the_notes() -> None:
    tracker = TaskTrackerExecutor()
    tracker(
        plan(
            {"title": "look", "status": "done", "notes": "two files\nboth small"},
            {"title": "write", "status": "in_progress"},
            {"title": "test"},
        )
    )
    assert tracker(TaskTrackerAction(command="view")).text == (
        "# Task List\n\n1. ✅ look\n   two files\n   both small\n2. 🔄 write\n3. ⏳ test"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"command": "plan"}, "task_list is missing"),
        ({"command": "plan", "task_list": [{"notes": "x"}]}, "task_list.0.title"),
        ({"command": "plan", "task_list": [{"title": ""}]}, "task_list.0.title"),
        ({"command": "plan", "task_list": [{"title": "x", "status": "later"}]}, "task_list.0.status"),
        ({"command": "plan", "task_list": [{"title": "x", "priority": 1}]}, "task_list.0.priority"),
        ({"command": "plan", "task_list": [{"title": "x"}] * (MAX_TASKS + 1)}, "at most 200"),
        ({"command": "clear"}, "command"),
    ],
)
def test_what_is_no_task_list_is_refused_by_the_name_of_the_field(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TaskTrackerTool.create()[0].action_from_arguments(arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(("given", "kept"), [(7, "7"), ("seven", "seven"), (None, "")])
def test_a_number_is_a_name_of_a_task_like_any_other(given: Any, kept: str) -> None:
    assert TaskItem.model_validate({"title": "t", "id": given}).id == kept


@pytest.mark.parametrize("given", [True, 1.5, ["a"], "x" * 101])
def test_what_is_no_name_of_a_task_is_refused(given: Any) -> None:
    with pytest.raises(ValidationError, match="id"):
        TaskItem.model_validate({"title": "t", "id": given})


def test_ids_of_older_agents_are_kept() -> None:
    assert [task.id for task in plan({"title": "a", "id": 7}, {"title": "b", "id": "x"}).task_list or []] == ["7", "x"]


def test_it_is_in_the_default_tools_but_not_read_only() -> None:
    assert [tool.name for tool in get_default_tools(enable_browser=False)] == [
        "terminal",
        "file_editor",
        "task_tracker",
    ]
    assert "task_tracker" in [tool.name for tool in get_default_agent(MODEL, cli_mode=True).tools]
    (tool,) = resolve_tool(Tool(name="TaskTrackerTool"))
    assert tool.annotations.readOnlyHint is False
    schema = tool.to_openai_tool()["function"]["parameters"]
    assert schema["properties"]["task_list"]["items"]["required"] == ["title"]


def test_plan_mode_brings_the_tool_and_a_prompt_that_says_how_to_use_it() -> None:
    with_plans, without = CodeActAgent(llm=MODEL), CodeActAgent(llm=MODEL, enable_plan_mode=False)
    assert with_plans.resolved_system_prompt_filename == "system_prompt_long_horizon.j2"
    assert without.resolved_system_prompt_filename == "system_prompt.j2"
    assert with_plans.static_system_message.startswith(without.static_system_message)
    assert "task_tracker" in with_plans.static_system_message
    assert "task_tracker" not in without.static_system_message
    assert "task_tracker" not in without.initialize()
    no_tool = CodeActAgent(llm=MODEL, tools=[Tool(name="terminal")])
    assert no_tool.static_system_message == without.static_system_message
    own = CodeActAgent(llm=MODEL, system_prompt_filename="security_policy.j2")
    assert own.resolved_system_prompt_filename == "security_policy.j2"


def test_the_rules_know_that_a_list_of_tasks_is_harmless() -> None:
    action = ActionEvent(action=plan({"title": "rm -rf /"}), tool_name="task_tracker")
    assert ShellRuleAnalyzer().security_risk(action) is SecurityRisk.LOW


def tracking(*calls: dict[str, Any]) -> Reply:
    return "", [("task_tracker", json.dumps(arguments)) for arguments in calls]


async def test_the_list_lives_in_the_log_and_is_there_after_a_crash() -> None:
    tasks = [{"title": "first", "status": "done"}, {"title": "second"}]
    async with staged() as stage:
        await stage.say()
        replies = [tracking({"command": "plan", "task_list": tasks}, {"command": "view"}), REPLIES["finish"]]
        await until(stage, FINISHED, replies)
        await stage.crash()
        await stage.begin()
        await stage.say()
        broken = tracking({"command": "plan"}, {"command": "view"})
        events = await until(
            stage, lambda events: len(_lists(events)) == 3 and FINISHED(events), [broken, REPLIES["finish"]]
        )
    assert [[task.title for task in found.task_list] for found in _lists(events)] == [["first", "second"]] * 3
    assert "1. ✅ first\n2. ⏳ second" in _lists(events)[2].text


async def test_a_list_that_the_user_makes_is_the_agents_list() -> None:
    async with staged() as stage:
        await stage.session.send(
            ActionEvent(source="user", action=plan({"title": "by hand"}), tool_name="task_tracker")
        )
        await until(stage, lambda events: len(_lists(events)) == 1)
        await stage.say()
        replies = [tracking({"command": "view"}), REPLIES["finish"]]
        events = await until(stage, lambda events: len(_lists(events)) == 2 and FINISHED(events), replies)
    assert "1. ⏳ by hand" in _lists(events)[1].text


async def test_going_back_takes_the_list_back_too() -> None:
    def planned(title: str) -> Reply:
        return tracking({"command": "plan", "task_list": [{"title": title}]})

    async with staged() as stage:
        await stage.say()
        events = await until(stage, FINISHED, [planned("kept"), REPLIES["finish"]])
        place = events[-1].id
        await stage.say()
        more = [planned("undone"), tracking({"command": "view"}), REPLIES["finish"]]
        await until(stage, lambda events: len(_lists(events)) == 3 and FINISHED(events), more)
        await stage.session.rewinder.rewind(place)
        await stage.say()
        viewed = [tracking({"command": "view"}, {"command": "view"}), REPLIES["finish"]]
        events = await until(stage, lambda events: len(_lists(events)) == 5 and FINISHED(events), viewed)
    titles = [[task.title for task in found.task_list] for found in _lists(events)]
    assert titles == [["kept"], ["undone"], ["undone"], ["kept"], ["kept"]]


def _lists(events: list[Any]) -> list[TaskTrackerObservation]:
    results = [event.observation for event in events if isinstance(event, ObservationEvent)]
    return [found for found in results if isinstance(found, TaskTrackerObservation)]


def test_an_item_says_what_it_is() -> None:
    assert TaskItem(title="x").model_dump() == {"title": "x", "notes": "", "status": "todo", "id": ""}
