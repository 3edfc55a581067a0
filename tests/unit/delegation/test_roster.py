"""Which sub-agents a log says there are, after going back and in a fork, too."""

from __future__ import annotations

from collections.abc import Sequence

from agent_core.controller.delegation import Roster
from agent_core.events.branches import Rewind
from agent_core.events.control import MetricsUpdated, SubAgentSpending
from agent_core.events.llm_events import ActionEvent, MetricsSnapshot, ObservationEvent, UsageTotals
from agent_core.events.schema import Action
from agent_core.events.serialization import AnyEvent
from agent_core.tools.context import SpawnedAgent
from agent_core.tools.delegate import DelegateAction, DelegateObservation, TaskAction


def acted(action: Action, response: str = "r") -> ActionEvent:
    return ActionEvent(action=action, tool_name="any", llm_response_id=response)


def spawned(cause: int, **names: str) -> ObservationEvent:
    made = {agent_id: SpawnedAgent(agent_type="bash", name=name) for agent_id, name in names.items()}
    result = DelegateObservation(command="spawn", spawned=made)
    return ObservationEvent(cause=cause, observation=result, tool_name="delegate")


def roster_of(events: Sequence[AnyEvent]) -> Roster:
    roster = Roster()
    for event_id, event in enumerate(events):
        roster.fold(event.stored_as(event_id))
    return roster


SPAWN = acted(DelegateAction(command="spawn", ids=["a"]))
LOG: list[AnyEvent] = [
    SPAWN,
    spawned(0, a="first"),
    acted(TaskAction(prompt="look", subagent_type="explore")),
    SPAWN,
    spawned(3, a="second", b="other"),
    acted(TaskAction(prompt="look again")),
]


def names(roster: Roster) -> dict[str, str]:
    return {agent_id: agent.name for agent_id, agent in roster.spawned.items()}


def test_a_spawn_replaces_those_whose_ids_it_uses() -> None:
    roster = roster_of(LOG)
    assert names(roster) == {"a": "second", "b": "other"}
    assert roster.tasks == {"task_00000001": "explore", "task_00000002": "general-purpose"}


def test_what_a_rewind_undid_is_not_there_and_no_number_is_given_twice() -> None:
    roster = roster_of([*LOG, Rewind(to=2), acted(TaskAction(prompt="other"))])
    assert names(roster) == {"a": "first"}
    assert roster.tasks == {"task_00000001": "explore", "task_00000003": "general-purpose"}


def test_a_rewind_that_is_taken_back_brings_them_back() -> None:
    roster = roster_of([*LOG, Rewind(to=2), Rewind(to=5)])
    assert names(roster) == {"a": "second", "b": "other"}


def test_a_fork_has_none_of_them_and_counts_on() -> None:
    spent = SubAgentSpending(name="task_00000001", spent=UsageTotals(accumulated_cost=1.0))
    cost = MetricsUpdated(metrics=MetricsSnapshot(), sub_agent=spent)
    roster = roster_of([*LOG, cost, Rewind(to=6, forked_from="c"), acted(TaskAction(prompt="other"))])
    assert (names(roster), roster.spent) == ({}, {})
    assert roster.tasks == {"task_00000003": "general-purpose"}
    assert roster_of([*LOG, cost]).spent["task_00000001"].accumulated_cost == 1.0


def test_the_calls_that_put_sub_agents_to_work_are_numbered_in_each_answer() -> None:
    work = DelegateAction(command="delegate", tasks={"a": "do it"})
    roster = roster_of([SPAWN, acted(work), acted(TaskAction(prompt="x")), acted(work, "s"), acted(work, "s")])
    assert [roster.places.get(action_id, 1) for action_id in (3, 4)] == [1, 2]


def test_an_event_that_was_taken_into_account_is_passed_over() -> None:
    roster = roster_of(LOG)
    for event_id, event in enumerate(LOG):
        roster.fold(event.stored_as(event_id))
    assert len(roster.tasks) == 2
