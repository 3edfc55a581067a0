"""What a reader that comes in the middle is told (see `Underway`): bounded, and only what is news."""

from __future__ import annotations

from agent_core.events.llm_events import AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.schema import Observation
from agent_core.events.transient import MAX_ACTIONS, MAX_STEPS, MAX_TEXT, OutputDelta, StatusNotice, TextDelta, Underway


def test_texts_and_steps_and_actions_are_bounded_and_the_newest_stay() -> None:
    underway = Underway()
    for number in range(100):
        underway.note(StatusNotice("STATUS$STARTING_RUNTIME", str(number)))
        underway.note(OutputDelta(number, "x"))
    underway.note(OutputDelta(99, "y" * MAX_TEXT))
    underway.note(TextDelta("r", "a" * MAX_TEXT))
    underway.note(TextDelta("r", "b"))
    notices = list(underway)
    outputs = [notice for notice in notices if isinstance(notice, OutputDelta)]
    assert [output.cause for output in outputs] == list(range(100 - MAX_ACTIONS, 100))
    assert outputs[-1].text == "y" * MAX_TEXT
    assert sum(isinstance(notice, StatusNotice) for notice in notices) == MAX_STEPS
    assert [notice.text[-2:] for notice in notices if isinstance(notice, TextDelta)] == ["ab"]


def test_the_steps_of_a_start_that_failed_are_forgotten_for_the_log_tells_it() -> None:
    underway = Underway()
    underway.note(StatusNotice("STATUS$STARTING_RUNTIME", ""))
    underway.note(StatusNotice("STATUS$ERROR", "No water.", "error"))
    underway.note(StatusNotice("STATUS$LLM_RETRY", "once more"))
    assert list(underway) == []


def test_a_text_is_news_until_the_agents_own_event_with_it_is_in_the_log() -> None:
    underway = Underway()
    delta = TextDelta("r", "Hel")
    underway.note(delta)
    underway.settle(MessageEvent(source="user", llm_message=Message.user("and?")))
    assert list(underway) == [delta]
    underway.settle(MessageEvent(source="agent", llm_message=Message.assistant("Hello")))
    assert list(underway) == []


def test_what_a_command_has_printed_is_news_until_its_result_is_in_the_log() -> None:
    underway = Underway()
    outputs = [OutputDelta(cause, "x") for cause in (1, 2, 3)]
    for output in outputs:
        underway.note(output)
    underway.settle(AgentErrorEvent(cause=1, error="e"))
    underway.settle(ObservationEvent(cause=3, observation=Observation(), tool_name="terminal"))
    assert list(underway) == [outputs[1]]


def test_both_channels_of_one_answer_are_kept_and_no_older_answer() -> None:
    underway = Underway()
    for delta in (TextDelta("r1", "old"), TextDelta("r2", "hm", "reasoning"), TextDelta("r2", "Hello")):
        underway.note(delta)
    assert {(notice.response_id, notice.text) for notice in underway if isinstance(notice, TextDelta)} == {
        ("r2", "hm"),
        ("r2", "Hello"),
    }


def test_a_warning_about_the_network_is_news_for_as_long_as_the_sandbox_runs() -> None:
    underway = Underway()
    warning = StatusNotice("STATUS$NETWORK_WARNING", "no network")
    underway.note(StatusNotice("STATUS$STARTING_RUNTIME", ""))
    underway.note(warning)
    underway.note(StatusNotice("STATUS$READY", ""))
    underway.note(StatusNotice("STATUS$ERROR", "The model is tired.", "error"))
    assert list(underway) == [warning]
    underway.note(StatusNotice("STATUS$STARTING_RUNTIME", "again"))
    assert list(underway) == []
