"""What a reader that comes in the middle is told (see `Underway`): bounded, and only what is news."""

from __future__ import annotations

from agent_core.events.transient import OutputDelta, StatusNotice, TextDelta
from agent_core.events.underway import MAX_ACTIONS, MAX_STEPS, MAX_TEXT, Underway


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


def test_both_channels_of_one_answer_are_kept_and_no_older_answer() -> None:
    underway = Underway()
    for delta in (TextDelta("r1", "old"), TextDelta("r2", "hm", "reasoning"), TextDelta("r2", "Hello")):
        underway.note(delta)
    assert {(notice.response_id, notice.text) for notice in underway if isinstance(notice, TextDelta)} == {
        ("r2", "hm"),
        ("r2", "Hello"),
    }
