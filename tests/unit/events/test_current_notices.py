"""What a reader that comes in the middle is told (see `CurrentNotices`): bounded, and only what is news."""

from __future__ import annotations

from agent_core.events.llm_events import AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.schema import Observation
from agent_core.events.transient import (
    MAX_ACTIONS,
    MAX_STEPS,
    MAX_TEXT,
    CurrentNotices,
    OutputDelta,
    StatusNotice,
    TextDelta,
)


def test_texts_and_steps_and_actions_are_bounded_and_the_newest_stay() -> None:
    current = CurrentNotices()
    for number in range(100):
        current.note(StatusNotice("STATUS$STARTING_RUNTIME", str(number)))
        current.note(OutputDelta(number, "x"))
    current.note(OutputDelta(99, "y" * MAX_TEXT))
    current.note(TextDelta("r", "a" * MAX_TEXT))
    current.note(TextDelta("r", "b"))
    notices = list(current)
    outputs = [notice for notice in notices if isinstance(notice, OutputDelta)]
    assert [output.cause for output in outputs] == list(range(100 - MAX_ACTIONS, 100))
    assert outputs[-1].text == "y" * MAX_TEXT
    assert sum(isinstance(notice, StatusNotice) for notice in notices) == MAX_STEPS
    assert [notice.text[-2:] for notice in notices if isinstance(notice, TextDelta)] == ["ab"]


def test_the_steps_of_a_start_that_failed_are_forgotten_for_the_log_tells_it() -> None:
    current = CurrentNotices()
    current.note(StatusNotice("STATUS$STARTING_RUNTIME", ""))
    current.note(StatusNotice("STATUS$ERROR", "No water.", "error"))
    current.note(StatusNotice("STATUS$LLM_RETRY", "once more"))
    assert list(current) == []


def test_a_text_is_news_until_the_agents_own_event_with_it_is_in_the_log() -> None:
    current = CurrentNotices()
    delta = TextDelta("r", "Hel")
    current.note(delta)
    current.settle(MessageEvent(source="user", llm_message=Message.user("and?")))
    assert list(current) == [delta]
    current.settle(MessageEvent(source="agent", llm_message=Message.assistant("Hello")))
    assert list(current) == []


def test_what_a_command_has_printed_is_news_until_its_result_is_in_the_log() -> None:
    current = CurrentNotices()
    outputs = [OutputDelta(cause, "x") for cause in (1, 2, 3)]
    for output in outputs:
        current.note(output)
    current.settle(AgentErrorEvent(cause=1, error="e"))
    current.settle(ObservationEvent(cause=3, observation=Observation(), tool_name="terminal"))
    assert list(current) == [outputs[1]]


def test_both_channels_of_one_answer_are_kept_and_no_older_answer() -> None:
    current = CurrentNotices()
    for delta in (TextDelta("r1", "old"), TextDelta("r2", "hm", "reasoning"), TextDelta("r2", "Hello")):
        current.note(delta)
    assert {(notice.response_id, notice.text) for notice in current if isinstance(notice, TextDelta)} == {
        ("r2", "hm"),
        ("r2", "Hello"),
    }


def test_a_warning_about_the_network_is_news_for_as_long_as_the_sandbox_runs() -> None:
    current = CurrentNotices()
    warning = StatusNotice("STATUS$NETWORK_WARNING", "no network")
    current.note(StatusNotice("STATUS$STARTING_RUNTIME", ""))
    current.note(warning)
    current.note(StatusNotice("STATUS$READY", ""))
    current.note(StatusNotice("STATUS$ERROR", "The model is tired.", "error"))
    assert list(current) == [warning]
    current.note(StatusNotice("STATUS$STARTING_RUNTIME", "again"))
    assert list(current) == []
