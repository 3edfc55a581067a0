"""What a log tells beside the state of its agent: which skills were told, and what hooks have stopped (8.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_core.events.control import Condensation, HookExecutionEvent, RecallObservation
from agent_core.events.llm_events import MessageEvent, ObservationEvent, UserRejectObservation
from agent_core.events.serialization import AnyEvent
from agent_core.tools.invoke_skill import InvokeSkillObservation


@dataclass(slots=True)
class LogFacts:
    """A fold over a log; names of skills are forgotten with the events that told them.

    Attributes:
        last_user_message_id: id of the user's newest message; None before there is one.
        recalled: skills that a message brought up, by the event that told them; `path_rules` and `invoked` likewise.
        blocked_actions: why a hook refused an action, by the id of the action; `blocked_messages` likewise.
    """

    last_user_message_id: int | None = None
    recalled: dict[str, int] = field(default_factory=dict)
    path_rules: dict[str, int] = field(default_factory=dict)
    invoked: dict[str, int] = field(default_factory=dict)
    blocked_actions: dict[int, str] = field(default_factory=dict)
    blocked_messages: dict[int, str] = field(default_factory=dict)

    def fold(self, event: AnyEvent) -> None:
        """Take the next event into account."""
        match event:
            case MessageEvent(source="user"):
                self.last_user_message_id = event.id
            case RecallObservation():
                self.recalled.update((known.name, event.id) for known in event.microagent_knowledge)
            case ObservationEvent():
                self.path_rules.update((name, event.id) for name in event.activated_skills)
                if isinstance(event.observation, InvokeSkillObservation) and event.observation.skill_name:
                    self.invoked[event.observation.skill_name] = event.id
            case UserRejectObservation(rejection_source="hook"):
                self.blocked_actions[event.cause] = event.rejection_reason
            case HookExecutionEvent(blocked=True) if event.message_id is not None:
                self.blocked_messages[event.message_id] = event.reason
            case Condensation():
                gone = set(event.forgotten_event_ids)
                for told in (self.recalled, self.path_rules, self.invoked):
                    for name in [name for name, place in told.items() if place in gone]:
                        del told[name]
