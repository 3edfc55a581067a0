"""Condensations: whatever one forgets and wherever its summary stands, the view stays whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.events.branches import Rewind, active_branch
from agent_core.events.control import Condensation, CondensationRequest, ConversationError
from agent_core.events.llm_events import ActionEvent, CondensationSummaryEvent
from agent_core.events.serialization import AnyEvent
from agent_core.memory.transcript import PromptCache
from agent_core.memory.view import View
from tests.unit.memory.test_view import agent, call, check, logs, result, roles, user, wire


def forget(event_id: int, *ids: int, summary: str | None = None, offset: int | None = None) -> Condensation:
    return Condensation(id=event_id, forgotten_event_ids=list(ids), summary=summary, summary_offset=offset)


def ids(view: View) -> list[int]:
    return [event.id for event in view.events]


def test_the_summary_stands_where_the_offset_says_after_the_removal() -> None:
    view = View.from_log(
        [user(0, "a"), user(1, "b"), user(2, "c"), user(3, "d"), forget(4, 1, 2, summary="b c", offset=1)]
    )
    assert ids(view) == [0, 4, 3]
    assert isinstance(view.events[1], CondensationSummaryEvent)
    assert "b c" in view.messages()[0].text


def test_without_summary_or_offset_nothing_is_put_in() -> None:
    log: list[AnyEvent] = [user(0, "a"), user(1, "b")]
    assert ids(View.from_log([*log, forget(2, 1, summary="b")])) == [0]
    assert ids(View.from_log([*log, forget(2, 1, offset=0)])) == [0]


def test_a_summary_is_forgotten_under_the_id_of_its_condensation() -> None:
    view = View.from_log(
        [user(0, "a"), user(1, "b"), forget(2, 0, summary="one", offset=0), forget(3, 2, 1, summary="two", offset=0)]
    )
    assert ids(view) == [3]


def test_a_request_stands_until_a_condensation() -> None:
    view = View.from_log([user(0, "a"), CondensationRequest(id=1)])
    assert view.wants_condensation
    view.add(forget(2))
    assert not view.wants_condensation


def test_a_request_that_was_found_to_be_in_vain_stands_no_more() -> None:
    in_vain = ConversationError(id=5, code="NoCondensationError", detail="too short")
    other = ConversationError(id=5, code="LLMError", detail="no answer")
    view = View.from_log([user(0, "a"), CondensationRequest(id=4)])
    assert view.is_too_long
    view.add(other)
    assert (view.wants_condensation, view.is_too_long) == (True, True)
    view.add(in_vain)
    assert (view.wants_condensation, view.is_too_long) == (False, False)


@pytest.mark.parametrize("fields", [{"source": "user"}, {"cause": 3}], ids=str)
def test_a_wish_of_the_user_or_by_a_tool_says_nothing_of_the_models_limits(fields: dict[str, Any]) -> None:
    view = View.from_log([user(0, "a"), CondensationRequest(id=4, **fields)])
    assert (view.wants_condensation, view.is_too_long) == (True, False)
    view.add(CondensationRequest(id=5))
    view.add(CondensationRequest(id=6, **fields))
    assert view.is_too_long, "which of the requests is the newest makes no difference"


def test_forgetting_a_part_of_a_batch_forgets_all_of_it() -> None:
    log: list[AnyEvent] = [
        user(0, "go"),
        call(1, "r", of=2),
        call(2, "r", of=2),
        result(3, 1),
        result(4, 2),
        agent(5, "ok"),
    ]
    for one in (1, 2, 3, 4):
        assert ids(View.from_log([*log, forget(6, one)])) == [0, 5]


def test_forgetting_a_part_of_a_thinking_loop_forgets_all_of_it() -> None:
    log: list[AnyEvent] = [
        user(0, "go"),
        call(1, "r1", thinks=True),
        result(2, 1),
        call(3, "r2"),
        result(4, 3),
        call(5, "r3", thinks=True),
        result(6, 5),
    ]
    assert ids(View.from_log([*log, forget(7, 4)])) == [0, 5, 6]


def test_a_view_is_not_cut_inside_a_batch_a_loop_or_while_a_call_is_open() -> None:
    log: list[AnyEvent] = [
        user(0, "go"),
        call(1, "r1", of=2, thinks=True),
        call(2, "r1", of=2),
        result(3, 2),
        result(4, 1),
        call(5, "r2"),
        result(6, 5),
        user(7, "and"),
        call(8, "r3"),
    ]
    assert list(View.from_log(log).cut_positions()) == [0, 1, 7, 8]


def test_the_next_cut_position_is_the_first_that_is_not_smaller() -> None:
    cuts = View.from_log([user(0, "go"), call(1, "r"), result(2, 1)]).cut_positions()
    assert [cuts.find_next(n) for n in (0, 1, 2, 3)] == [0, 1, 3, 3]
    with pytest.raises(ValueError, match="no cut position"):
        cuts.find_next(4)


def test_a_summary_is_never_put_between_a_call_and_its_result() -> None:
    log: list[AnyEvent] = [user(0, "go"), call(1, "r"), result(2, 1), user(3, "x"), forget(4, 0, summary="s", offset=1)]
    view = View.from_log(log)
    assert ids(view) == [1, 2, 4, 3]


def test_a_condensation_while_a_call_is_open_does_not_lose_its_result() -> None:
    view = View.from_log([user(0, "a"), user(1, "b"), call(2, "r"), forget(3, 0, summary="s", offset=9)])
    assert roles(view.messages()) == ["user"]
    view.add(result(4, 2))
    assert roles(view.messages()) == ["user", "assistant", "tool"]


@st.composite
def condensed_logs(draw: st.DrawFn) -> list[AnyEvent]:
    """Logs with condensations anywhere that forget anything."""
    out: list[AnyEvent] = []
    for event in draw(logs()):
        out.append(event)
        if draw(st.integers(0, 5)) == 0:
            forgotten = draw(st.lists(st.integers(0, 30), max_size=10))
            summary, offset = draw(st.sampled_from(["s", None])), draw(st.sampled_from([None, 0, 1, 3, 99]))
            out.append(forget(1000 + len(out), *forgotten, summary=summary, offset=offset))
    return out


@given(condensed_logs())
def test_every_prefix_with_any_condensation_gives_a_valid_conversation(events: list[AnyEvent]) -> None:
    view = View()
    for event in events:
        view.add(event)
        check([wire(message) for message in view.messages()])


@given(condensed_logs(), st.data())
def test_the_kept_rendering_equals_a_fresh_one_across_condensations(
    events: list[AnyEvent], data: st.DataObject
) -> None:
    view = View()
    cache = PromptCache(wire)
    for event in events:
        view.add(event)
        if data.draw(st.booleans()):
            assert cache.prompt(view.transcript) == [wire(message) for message in view.messages()]


@given(condensed_logs(), st.data())
def test_what_lies_between_two_cut_positions_can_go_without_taking_anything_else_along(
    events: list[AnyEvent], data: st.DataObject
) -> None:
    view = View.from_log(events)
    before = ids(view)
    first, last = sorted(data.draw(st.tuples(*[st.sampled_from(list(view.cut_positions()))] * 2)))
    again = View.from_log([*events, forget(5000, *before[first:last])])
    assert ids(again) == before[:first] + before[last:]


@given(condensed_logs())
def test_batches_are_whole_after_any_condensation(events: list[AnyEvent]) -> None:
    view = View.from_log(events)
    shown = [event for event in view.events if isinstance(event, ActionEvent)]
    messages = [message for message in view.messages() if message.tool_calls]
    assert sum(len(message.tool_calls or []) for message in messages) <= len(shown)
    for message in messages:
        calls = message.tool_calls or []
        first = next(event for event in shown if event.tool_call == calls[0])
        assert first.calls_in_response in (0, len(calls))


@st.composite
def branching_logs(draw: st.DrawFn) -> list[AnyEvent]:
    """Logs with crashes, condensations and rewinds, with ids as a stream gives them."""
    events: list[AnyEvent] = []
    while len(events) < 2 or (len(events) < 120 and draw(st.booleans())):
        for event in draw(condensed_logs()):
            first = max(len(events) - draw(st.integers(0, 30)), 0)
            cause = None if event.cause is None else min(first + event.cause, len(events))
            changes: dict[str, Any] = {"id": len(events), "cause": cause}
            if isinstance(event, Condensation):
                changes["forgotten_event_ids"] = [first + one for one in event.forgotten_event_ids]
            events.append(event.model_copy(update=changes))
        events.append(Rewind(id=len(events), to=draw(st.integers(-1, len(events) - 1))))
    return events


@settings(max_examples=40, deadline=None)
@given(branching_logs())
def test_after_any_rewinds_the_view_is_that_of_the_branch_and_whole(events: list[AnyEvent]) -> None:
    view = View()
    for event in active_branch(events):
        view.add(event)
        check([wire(message) for message in view.messages()])
    assert View.from_log(events).messages() == view.messages()
    undone = {event.id for event in events} - {event.id for event in active_branch(events)}
    assert undone.isdisjoint(ids(view))


def test_a_condensation_that_is_undone_gives_back_what_it_had_forgotten() -> None:
    log: list[AnyEvent] = [user(0, "a"), user(1, "b"), forget(2, 0, 1, summary="both", offset=0), user(3, "c")]
    assert ids(View.from_log(log)) == [2, 3]
    assert ids(View.from_log([*log, Rewind(id=4, to=1), user(5, "d")])) == [0, 1, 5]
    assert ids(View.from_log([*log, Rewind(id=4, to=2), user(5, "d")])) == [2, 5]
