"""Branches of a log: which events count after any rewinds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.events.branches import Branches, FilesRestored, Rewind, active_branch, read_branch
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import InMemoryEventStore
from agent_core.events.stream import EventStream


def said(event_id: int, cause: int | None = None) -> AnyEvent:
    return MessageEvent(id=event_id, cause=cause, source="user", llm_message=Message.user(f"{event_id}"))


def ids(events: list[AnyEvent]) -> list[int]:
    return [event.id for event in events]


def test_a_rewind_undoes_what_came_after_the_event_that_it_names() -> None:
    log = [said(0), said(1), said(2), Rewind(id=3, to=0), said(4)]
    assert ids(active_branch(log)) == [0, 3, 4]


def test_a_rewind_can_go_before_the_first_event() -> None:
    assert ids(active_branch([said(0), said(1), Rewind(id=2, to=-1), said(3)])) == [2, 3]


def test_a_rewind_can_be_taken_back() -> None:
    log = [said(0), said(1), said(2), Rewind(id=3, to=0), said(4), Rewind(id=5, to=2), said(6)]
    assert ids(active_branch(log)) == [0, 1, 2, 5, 6]


def test_a_late_answer_to_what_was_undone_does_not_count() -> None:
    log = [said(0), said(1), Rewind(id=2, to=0), said(3, cause=1), said(4, cause=0)]
    assert ids(active_branch(log)) == [0, 2, 4]
    branches = Branches()
    assert [branches.fold(event) for event in log] == [True, True, True, False, True]


@pytest.mark.parametrize(
    ("then", "is_open"),
    [
        ([], True),
        ([said(3)], True),
        ([FilesRestored(id=3, source="agent", cause=2)], False),
        ([ActionEvent(id=3, tool_name="terminal")], False),
        ([Rewind(id=3, to=1)], False),
    ],
    ids=["nothing", "a message", "files are back", "the agent does something", "another rewind, without files"],
)
def test_files_are_brought_back_once_and_not_over_what_was_done_since(then: list[AnyEvent], is_open: bool) -> None:
    branches = Branches()
    for event in [said(0), said(1), Rewind(id=2, to=0, restores=True), *then]:
        branches.fold(event)
    assert (branches.unrestored is not None) is is_open


def test_a_log_without_rewinds_counts_as_it_is() -> None:
    log = [said(5, cause=2), said(1)]
    assert active_branch(log) == log


@st.composite
def logs(draw: st.DrawFn) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for event_id in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from(["said", "said", "answer", "rewind"]))
        if kind == "rewind":
            events.append(Rewind(id=event_id, to=draw(st.integers(-1, event_id - 1))))
        elif kind == "answer" and event_id:
            events.append(AgentErrorEvent(id=event_id, cause=draw(st.integers(0, event_id - 1)), error="e"))
        else:
            events.append(said(event_id))
    return events


def by_parents(log: list[AnyEvent], leaf: int) -> list[int]:
    """The path to `leaf` by the definition: from each event to its parent, without answers to what is not on it."""
    parents: dict[int, int] = {}
    for event in log:
        parents[event.id] = event.to if isinstance(event, Rewind) else event.id - 1
    path: list[int] = []
    while leaf >= 0:
        path.append(leaf)
        leaf = parents[leaf]
    causes = {event.id: event.cause for event in log}
    return [one for one in reversed(path) if causes[one] is None or causes[one] in path]


@given(logs())
def test_the_active_branch_is_the_path_from_the_root_to_the_newest_event(log: list[AnyEvent]) -> None:
    wanted = by_parents(log, len(log) - 1)
    rewound = any(isinstance(event, Rewind) for event in log)
    assert ids(active_branch(log)) == (wanted if rewound else ids(log))
    branches = Branches()
    for position, event in enumerate(log):
        counts = branches.fold(event)
        assert counts == (event.id in by_parents(log, position))
    on_path = {one for stretch in branches.path() for one in stretch}
    assert all(branches.has(event.id) == (event.id in on_path) for event in log)


@given(logs(), st.data())
async def test_a_branch_is_read_from_a_stream_like_from_a_list(log: list[AnyEvent], data: st.DataObject) -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    branches = Branches()
    for event in log:
        (stored,) = await stream.add_events([event.model_copy(update={"id": -1})])
        branches.fold(stored)
    leaf = data.draw(st.integers(-1, len(log) - 1))
    read: list[Event] = [event async for event in read_branch(stream, branches, leaf)]
    assert [event.id for event in read] == by_parents(log, leaf)
