"""Sub-agents in a program's conversation: kept with it, counted with it, and decided on by the program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_core import Agent, Tool
from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.security.confirmation import AlwaysConfirm
from agent_core.tools import get_delegating_tools
from tests.unit.library.playing import DONE, Said, Sandbox, Script, conversation, model, run

SEEN: Said = ("", [("finish", '{"message": "seen"}')])


def task(prompt: str, **fields: str) -> Said:
    given = ", ".join(f'"{name}": "{value}"' for name, value in {"prompt": prompt, **fields}.items())
    return "", [("task", f"{{{given}}}")]


def asking(script: Script) -> Agent:
    return Agent(llm=model(script), tools=[Tool(name="terminal"), *get_delegating_tools()])


def reports(one: Any) -> list[str]:
    return [event.observation.text for event in one.state.events if isinstance(event, ObservationEvent)]


def test_a_later_program_can_ask_a_sub_agent_again(tmp_path: Path) -> None:
    first = Script(task("look"), run("ls"), SEEN, DONE)
    with conversation(asking(first), persistence_dir=tmp_path, conversation_id="kept") as one:
        one.send_message("Go.")
        one.run()
        costs = {key: metrics.accumulated_cost for key, metrics in one.state.stats.usage_to_metrics.items()}
    assert (tmp_path / "kept/subagents/task_00000001/events.log").exists()
    assert list(costs) == ["agent", "task:task_00000001"]

    second = Script(task("again", resume="task_00000001"), SEEN, DONE)
    with conversation(asking(second), persistence_dir=tmp_path, conversation_id="kept") as one:
        one.send_message("Go on.")
        one.run()
        after = {key: metrics.accumulated_cost for key, metrics in one.state.stats.usage_to_metrics.items()}
        assert "Task ID: task_00000001" in reports(one)[-2]
    assert "ran ls" in second.prompt(1)  # it remembers what it did
    assert after["task:task_00000001"] == pytest.approx(costs["task:task_00000001"] * 3 / 2)


def test_callbacks_see_the_conversation_and_not_those_of_its_sub_agents() -> None:
    seen: list[Any] = []
    with conversation(asking(Script(task("look"), run("ls"), SEEN, DONE)), callbacks=[seen.append]) as one:
        one.send_message("Go.")
        one.run()
    assert [event.tool_name for event in seen if isinstance(event, ActionEvent)] == ["task", "finish"]


@pytest.mark.parametrize("agrees", [True, False])
def test_the_program_decides_what_sub_agents_may_do_where_its_user_would_be_asked(agrees: bool) -> None:
    asked: list[str] = []

    def decide(actions: Sequence[ActionEvent]) -> bool:
        asked.extend(action.tool_name for action in actions)
        return agrees

    sandbox = Sandbox()
    script = Script(task("clean"), run("rm x"), SEEN, DONE)
    with conversation(asking(script), workspace=sandbox, confirm_subagents=decide) as one:
        one.set_confirmation_policy(AlwaysConfirm())
        one.send_message("Go.")
        one.run()  # to the question whether a sub-agent may be asked
        one.run()
    assert asked == ["terminal"]
    assert sandbox.ran == (["rm x"] if agrees else [])
