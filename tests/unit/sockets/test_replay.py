"""Any history, replayed: everything once and in order, one state, and open questions after the state that asks them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState, RecallAction
from agent_core.events.llm_events import ActionDecision, ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import InMemoryEventStore
from agent_core.events.stream import PAGE, EventStream
from agent_core.tools.terminal import TerminalAction, TerminalObservation
from server.sockets.feed import MAX_BUFFERED, HistoryReplay, state_before
from server.wire.envelope import to_wire

ASKING = "awaiting_user_confirmation"


@st.composite
def histories(draw: st.DrawFn) -> list[AnyEvent]:
    """Logs in which actions await confirmation, are decided on and answered, or not."""
    events: list[AnyEvent] = []
    open_actions: list[ActionEvent] = []
    for event_id in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(["said", "state", "wish", "recall", "ask", "decide", "answer"]))
        made: AnyEvent
        if kind == "state":
            made = AgentStateChanged(id=event_id, agent_state=draw(st.sampled_from(AgentState)))
        elif kind == "wish":
            made = ChangeAgentState(id=event_id, agent_state=AgentState.RUNNING)
        elif kind == "recall":
            made = RecallAction(id=event_id, recall_type="knowledge")
        elif kind == "ask":
            made = asking(event_id)
            open_actions.append(made)
        elif kind == "decide" and open_actions:
            action = open_actions[-1]
            made = ActionDecision(id=event_id, cause=action.id, decision="confirmed", action=action)
        elif kind == "answer" and open_actions:
            cause = open_actions.pop().id
            made = ObservationEvent(id=event_id, cause=cause, observation=TerminalObservation(), tool_name="terminal")
        else:
            made = MessageEvent(id=event_id, source="user", llm_message=Message.user("hi"))
        events.append(made)
    return events


def replayed(events: list[AnyEvent], earlier: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    replay = HistoryReplay()
    frames = [frame for event in events for frame in replay.take(event)]
    return frames + replay.finish(None if replay.has_state else earlier)


def is_state(frame: dict[str, Any]) -> bool:
    return frame.get("observation") == "agent_state_changed"


@given(events=histories())
def test_any_history_is_sent_whole_with_its_last_state(events: list[AnyEvent]) -> None:
    frames = replayed(events)
    others = [frame for frame in frames if not is_state(frame)]
    shown = [to_wire(event, live=False) for event in events]
    assert others == [frame for frame in shown if frame is not None and not is_state(frame)]
    states = [event.agent_state for event in events if isinstance(event, AgentStateChanged)]
    sent = [frame for frame in frames if is_state(frame)]
    assert [frame["extras"]["agent_state"] for frame in sent] == states[-1:]
    for frame in sent:
        assert frame.get("id", 10**6) > max((other["id"] for other in others), default=-1)


@given(events=histories())
def test_the_state_is_last_unless_it_asks_a_question(events: list[AnyEvent]) -> None:
    frames = replayed(events)
    states = [frame for frame in frames if is_state(frame)]
    if not states:
        return
    after = frames[frames.index(states[0]) + 1 :]
    if states[0]["extras"]["agent_state"] != ASKING:
        assert after == []
        return
    decided = {event.cause for event in events if isinstance(event, ActionDecision | ObservationEvent)}
    asked = {event.id for event in events if isinstance(event, ActionEvent)}
    assert asked - decided <= {frame["id"] for frame in after}


def asking(event_id: int) -> ActionEvent:
    action = TerminalAction(command="ls")
    return ActionEvent(id=event_id, action=action, tool_name="terminal", awaits_confirmation=True)


def test_only_what_is_still_asked_comes_behind_the_state_that_asks() -> None:
    first = asking(0)
    events: list[AnyEvent] = [
        first,
        ActionDecision(id=1, cause=0, decision="confirmed", action=first),
        ObservationEvent(id=2, cause=0, observation=TerminalObservation(), tool_name="terminal"),
        AgentStateChanged(id=3, agent_state=AgentState.AWAITING_USER_CONFIRMATION),
        asking(4),
    ]
    assert [frame.get("id") for frame in replayed(events)] == [0, 1, 2, None, 4]


def test_a_question_that_nobody_answers_does_not_hold_a_history_back() -> None:
    events: list[AnyEvent] = [
        asking(0),
        *(MessageEvent(id=i, source="user", llm_message=Message.user("hi")) for i in range(1, 3 * MAX_BUFFERED)),
    ]
    replay = HistoryReplay()
    counts = [len(replay.take(event)) for event in events]
    assert counts == [0] * (MAX_BUFFERED - 1) + [MAX_BUFFERED] + [1] * (2 * MAX_BUFFERED)


def test_an_earlier_state_is_said_without_its_id() -> None:
    earlier = to_wire(AgentStateChanged(id=3, agent_state=AgentState.PAUSED), live=False)
    assert earlier is not None
    [frame] = replayed([], earlier)
    assert frame == {key: value for key, value in earlier.items() if key != "id"}


async def test_the_state_before_a_place_is_found_however_far_back() -> None:
    stream = await EventStream.open("c1", InMemoryEventStore())
    await stream.add_events([AgentStateChanged(agent_state=AgentState.LOADING)])
    await stream.add_events([AgentStateChanged(agent_state=AgentState.PAUSED)])
    await stream.add_events([MessageEvent(source="user", llm_message=Message.user("hi")) for _ in range(450)])
    for place in (452, 2 * PAGE + 2, PAGE + 2, 2):  # also where a page of the log ends at it
        frame = await state_before(stream, place)
        assert frame is not None
        assert (frame["id"], frame["extras"]["agent_state"]) == (1, "paused")
    assert await state_before(stream, 0) is None
    assert (await state_before(stream, 1) or {})["id"] == 0
