"""What a log tells of skills and of hooks beside the state of its agent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent_core.events.control import Condensation, HookExecutionEvent, RecalledKnowledge, RecallObservation
from agent_core.events.llm_events import MessageEvent, ObservationEvent, UserRejectObservation
from agent_core.events.messages import Message
from agent_core.events.schema import Observation
from agent_core.events.serialization import AnyEvent
from agent_core.library.conversation_log import LogFacts
from agent_core.tools.invoke_skill import InvokeSkillObservation

KNOWN = RecalledKnowledge(name="git", trigger="git", content="no force")
READ = InvokeSkillObservation.from_text("ship it", skill_name="deploy")
LOG: list[AnyEvent] = [
    MessageEvent(id=0, source="user", llm_message=Message.user("git?")),
    RecallObservation(id=1, cause=0, recall_type="knowledge", microagent_knowledge=[KNOWN]),
    ObservationEvent(
        id=2, cause=0, tool_name="file_editor", observation=Observation.from_text("x"), activated_skills=["py"]
    ),
    ObservationEvent(id=3, cause=0, tool_name="invoke_skill", observation=READ),
]


def facts(events: Sequence[AnyEvent]) -> LogFacts:
    found = LogFacts()
    for event in events:
        found.fold(event)
    return found


@pytest.mark.parametrize(
    ("forgotten", "left"),
    [
        ([0], [["git"], ["py"], ["deploy"]]),
        ([1], [[], ["py"], ["deploy"]]),
        ([2], [["git"], [], ["deploy"]]),
        ([3], [["git"], ["py"], []]),
        ([0, 1, 2, 3], [[], [], []]),
    ],
)
def test_a_skill_counts_as_told_until_what_told_it_is_forgotten(forgotten: list[int], left: list[list[str]]) -> None:
    known = facts([*LOG, Condensation(id=4, forgotten_event_ids=forgotten)])
    assert [list(names) for names in (known.recalled, known.path_rules, known.invoked)] == left


def test_what_hooks_have_refused_is_told_apart_from_what_the_user_has() -> None:
    refusals: list[AnyEvent] = [
        UserRejectObservation(id=5, cause=4, tool_name="terminal", rejection_reason="by the user"),
        UserRejectObservation(
            id=7, cause=6, tool_name="terminal", rejection_reason="by a rule", rejection_source="hook"
        ),
        HookExecutionEvent(id=9, hook_event_type="UserPromptSubmit", hook_command="x", success=True, message_id=8),
        HookExecutionEvent(
            id=11,
            hook_event_type="UserPromptSubmit",
            hook_command="x",
            success=True,
            message_id=10,
            blocked=True,
            reason="rude",
        ),
    ]
    known = facts(refusals)
    assert (known.blocked_actions, known.blocked_messages) == ({6: "by a rule"}, {10: "rude"})
