"""The status of a conversation as its log tells it, and whether a run has anything to do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent_core.events.branches import Rewind
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.library.conversation_log import LIMIT, STUCK, StatusFold


def asked() -> MessageEvent:
    return MessageEvent(source="user", llm_message=Message.user("do it"))


def answered() -> MessageEvent:
    return MessageEvent(source="agent", llm_message=Message.assistant("Done."), wait_for_response=True)


def entered(state: str, reason: str = "") -> AgentStateChanged:
    return AgentStateChanged(agent_state=AgentState(state), reason=reason)


def fold(log: Sequence[AnyEvent]) -> StatusFold:
    folded = StatusFold()
    for place, event in enumerate(log):
        folded.observe(event.stored_as(place))
    return folded


WAITING = "awaiting_user_confirmation"


@pytest.mark.parametrize(
    ("log", "status", "has_work"),
    [
        ([], "idle", False),
        ([asked()], "idle", True),
        ([asked(), entered("running")], "running", True),
        ([asked(), entered("running"), answered(), entered("awaiting_user_input")], "finished", False),
        ([asked(), entered("running"), answered(), entered("awaiting_user_input"), asked()], "idle", True),
        ([asked(), entered("finished")], "idle", True),
        ([asked(), entered("running"), entered("finished")], "finished", False),
        ([asked(), entered("running"), entered("finished"), asked()], "idle", True),
        ([asked(), entered("running"), entered("paused")], "paused", True),
        ([asked(), entered("running"), entered("stopped")], "paused", True),
        ([asked(), entered("error", "broken")], "error", True),
        ([asked(), entered("error", "broken"), asked()], "error", True),
        ([asked(), entered("error", STUCK)], "stuck", True),
        ([asked(), entered("error", STUCK), asked()], "idle", True),
        ([asked(), entered("running"), entered(WAITING)], "waiting_for_confirmation", True),
        ([asked(), entered("running"), entered("finished"), Rewind(to=0)], "finished", True),
    ],
)
def test_the_status_and_whether_a_run_has_anything_to_do(log: list[AnyEvent], status: str, has_work: bool) -> None:
    folded = fold(log)
    assert (folded.status.value, folded.wants_run) == (status, has_work)


def test_to_run_is_to_approve_unless_the_user_has_said_something_else() -> None:
    waiting: list[AnyEvent] = [asked(), entered("running"), entered(WAITING)]
    assert fold(waiting).awaits_approval
    assert not fold([*waiting, asked()]).awaits_approval
    assert not fold([*waiting, entered("user_confirmed")]).awaits_approval
    assert not fold([]).awaits_approval


@pytest.mark.parametrize(
    ("reason", "fails"), [("broken", True), ("", True), (STUCK, False), (f"{LIMIT} iteration", False)]
)
def test_a_run_fails_by_what_breaks_but_not_by_a_loop_or_a_limit(reason: str, fails: bool) -> None:
    assert fold([asked(), entered("error", reason)]).is_failure is fails
    assert not fold([asked(), entered("error", reason), entered("running")]).is_failure
