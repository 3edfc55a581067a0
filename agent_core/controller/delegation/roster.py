"""Which sub-agents a conversation has, folded from its log."""

from __future__ import annotations

from agent_core.events.branches import Branches, Rewind
from agent_core.events.control import MetricsUpdated
from agent_core.events.llm_events import ActionEvent, ObservationEvent, UsageFigures
from agent_core.events.serialization import AnyEvent
from agent_core.tools.agent_delegate import AgentDelegateAction
from agent_core.tools.delegate import DelegateAction, DelegateObservation
from agent_core.tools.subagents import SpawnedAgent
from agent_core.tools.task import TaskAction


class Roster:
    """The sub-agents by id, the tasks by number, and what each has cost; takes the events in the order of their ids.

    A fork has none of those of the conversation that it comes from.

    Attributes:
        position: id of the last event that was taken into account.
        task_ids: the task's id of each action that began one, by the action's id; no id is ever given again.
        spent: what each sub-agent has cost, by the name of its conversation, as far as the log counts it.
    """

    def __init__(self) -> None:
        self.position = -1
        self.task_ids: dict[int, str] = {}
        self.spent: dict[str, UsageFigures] = {}
        self._branches = Branches()
        self._spawns: list[tuple[int, dict[str, SpawnedAgent]]] = []
        self._kinds: dict[int, str] = {}
        self._response_id = ""
        self._places: dict[int, int] = {}

    def fold(self, event: AnyEvent) -> None:
        """Take the next event into account; one that came before is passed over."""
        if event.id <= self.position:
            return
        self.position = event.id
        self._branches.fold(event)
        match event:
            case ActionEvent():
                self._action(event)
            case ObservationEvent(observation=DelegateObservation() as made) if made.command == "spawn":
                self._spawns.append((event.cause, made.spawned))
            case Rewind() if event.forked_from:  # the sub-agents, and what they know, stay where they are
                self._spawns, self._kinds, self.spent = [], {}, {}
            case MetricsUpdated() if event.sub_agent is not None:
                self.spent[event.sub_agent.name] = event.sub_agent.spent

    @property
    def spawned(self) -> dict[str, SpawnedAgent]:
        """The sub-agents that wait for tasks, by their ids; those that a rewind has undone are not among them."""
        found: dict[str, SpawnedAgent] = {}
        for action_id, made in self._spawns:
            if self._branches.has(action_id):
                found.update(made)
        return found

    @property
    def tasks(self) -> dict[str, str]:
        """The kind of sub-agent of each task, by the task's id; those that a rewind has undone are not among them."""
        return {
            self.task_ids[action_id]: kind for action_id, kind in self._kinds.items() if self._branches.has(action_id)
        }

    def place_in_answer(self, action_id: int) -> int:
        """Which of the calls of its answer that put sub-agents to work this action is, from 1; 1 for a user's own."""
        return self._places.get(action_id, 1)

    def _action(self, event: ActionEvent) -> None:
        if event.llm_response_id != self._response_id or not event.llm_response_id:
            self._response_id, self._places = event.llm_response_id, {}
        action = event.action
        if isinstance(action, TaskAction) and not action.resume:
            self.task_ids[event.id] = f"task_{len(self.task_ids) + 1:08x}"
            self._kinds[event.id] = action.subagent_type
        if isinstance(action, TaskAction | AgentDelegateAction) or (
            isinstance(action, DelegateAction) and action.command == "delegate"
        ):
            self._places[event.id] = len(self._places) + 1
