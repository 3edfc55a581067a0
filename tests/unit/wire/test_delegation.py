"""Calls of sub-agents in the public JSON: `delegate`, as action and as observation."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.events.control import MetricsUpdated, SubAgentSpending
from agent_core.events.llm_events import ActionEvent, MetricsSnapshot, ObservationEvent, UsageTotals
from agent_core.events.schema import Action, Observation
from agent_core.tools.delegate import (
    AgentDelegateAction,
    AgentDelegateObservation,
    DelegateAction,
    DelegateObservation,
    TaskAction,
    TaskObservation,
)
from server.wire.envelope import to_wire
from server.wire.fields import ACTIONS, OBSERVATIONS


def shown(action: Action) -> dict[str, Any]:
    wire = to_wire(ActionEvent(id=7, action=action, tool_name="any"), live=True)
    assert wire is not None
    assert wire["action"] == "delegate"
    ACTIONS["delegate"].model_validate(wire["args"])
    return wire


@pytest.mark.parametrize(
    ("action", "agent", "inputs"),
    [
        (DelegateAction(command="delegate", tasks={"a": "do a", "b": "do b"}), "a, b", {"a": "do a", "b": "do b"}),
        (
            DelegateAction(command="spawn", ids=["a"], agent_types=["bash"]),
            "a",
            {"command": "spawn", "ids": ["a"], "agent_types": ["bash"]},
        ),
        (TaskAction(prompt="look"), "general-purpose", {"task": "look"}),
        (
            TaskAction(prompt="more", subagent_type="explore", resume="task_00000001"),
            "explore",
            {"task": "more", "resume": "task_00000001"},
        ),
        (AgentDelegateAction(agent="BrowsingAgent", inputs={"task": "x"}), "BrowsingAgent", {"task": "x"}),
    ],
)
def test_each_call_names_whom_it_asks_and_what(action: Action, agent: str, inputs: dict[str, Any]) -> None:
    wire = shown(action)
    assert wire["message"] == f"I'm asking {agent} for help with this task."
    assert wire["args"] == {"agent": agent, "inputs": inputs, "thought": ""}


@pytest.mark.parametrize(
    ("result", "outputs"),
    [
        (DelegateObservation.from_text("x", outputs={"a": "done"}), {"a": "done"}),
        (
            TaskObservation.from_text("x", task_id="task_00000001", result="seen"),
            {"task_id": "task_00000001", "status": "completed", "result": "seen"},
        ),
        (TaskObservation.from_text("x", is_error=True, status="error"), {}),
        (AgentDelegateObservation.from_text("x", outputs={"result": "seen"}), {"result": "seen"}),
    ],
)
def test_each_result_has_its_text_as_content_and_its_outputs_beside(
    result: Observation, outputs: dict[str, Any]
) -> None:
    event = ObservationEvent(id=8, source="agent", cause=7, observation=result, tool_name="any")
    wire = to_wire(event, live=True)
    assert wire is not None
    assert (wire["observation"], wire["content"], wire["message"]) == ("delegate", "x", "")
    assert wire["extras"] == {"outputs": outputs}
    OBSERVATIONS["delegate"].model_validate(wire["extras"])


def test_what_a_sub_agent_has_cost_is_sent_with_the_agents_next_event_only() -> None:
    spent = SubAgentSpending(name="task_00000001", spent=UsageTotals())
    event = MetricsUpdated(id=9, cause=7, metrics=MetricsSnapshot(), sub_agent=spent)
    assert to_wire(event, live=True) is None
    assert to_wire(event, live=False) is None
