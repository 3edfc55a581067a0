"""Stuck agents: each pattern is found at its number, and nothing before it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest

from agent_core.controller.stuck import USUAL_THRESHOLDS, Pattern, StuckDetectionThresholds, StuckDetector
from agent_core.events.control import Condensation, CondensationRequest
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import ImageContent, Message, TextContent
from agent_core.events.schema import Observation
from agent_core.events.serialization import AnyEvent
from agent_core.tools.ipython import IPythonAction, IPythonObservation
from agent_core.tools.terminal import TerminalAction, TerminalObservation

Round = Callable[[int], list[AnyEvent]]


def does(command: str, output: str = "", *, thought: str = "", code: int = 0, pid: int = -1) -> Round:
    def make(at: int) -> list[AnyEvent]:
        action = ActionEvent(
            id=at,
            action=TerminalAction(command=command),
            tool_name="terminal",
            tool_call_id=f"call_{at}",
            thought=[TextContent(text=thought)] if thought else [],
        )
        seen = TerminalObservation(content=[TextContent(text=output)], command=command, exit_code=code, pid=pid)
        return [action, ObservationEvent(id=at + 1, cause=at, observation=seen, tool_name="terminal")]

    return make


def fails(error: str = "no", *, thought: str = "") -> Round:
    def make(at: int) -> list[AnyEvent]:
        action = ActionEvent(id=at, tool_name="terminal", thought=[TextContent(text=thought)] if thought else [])
        return [action, AgentErrorEvent(id=at + 1, cause=at, error=error, tool_name="terminal")]

    return make


def cell(number: int, problem: str, *, code: str = "print('hi", line: int = 1) -> Round:
    """A cell with a traceback as IPython shows it, in which each cell has a number of its own."""
    where = "[Jupyter current working directory: /workspace]\n[Jupyter Python interpreter: /usr/bin/python3]"
    text = f"  Cell In[{number}], line {line}\n    {code}\n    ^\n{problem}\n{where}"

    def make(at: int) -> list[AnyEvent]:
        action = ActionEvent(id=at, action=IPythonAction(code=code), tool_name="execute_ipython_cell")
        seen = IPythonObservation.from_text(text, code=code)
        return [action, ObservationEvent(id=at + 1, cause=at, observation=seen, tool_name=action.tool_name)]

    return make


def says(text: str, source: str = "agent") -> Round:
    def make(at: int) -> list[AnyEvent]:
        message = Message.assistant(text) if source == "agent" else Message.user(text)
        return [MessageEvent(id=at, source=source, llm_message=message)]

    return make


def condenses(at: int) -> list[AnyEvent]:
    return [CondensationRequest(id=at), Condensation(id=at + 1, forgotten_event_ids=[])]


def after(*rounds: Round | Iterable[Round], thresholds: StuckDetectionThresholds = USUAL_THRESHOLDS) -> StuckDetector:
    detector = StuckDetector(thresholds)
    flat = itertools.chain.from_iterable(one if isinstance(one, Iterable) else [one] for one in rounds)
    for number, make in enumerate(flat):
        for event in make(number * 10):
            detector.fold(event)
    return detector


@pytest.mark.parametrize(
    ("rounds", "enough", "pattern"),
    [
        ([does("ls", "a")], 4, Pattern.SAME_RESULT),
        ([fails("one")], 4, Pattern.SAME_RESULT),
        ([says("hm")], 3, Pattern.MONOLOGUE),
        ([condenses], 10, Pattern.CONDENSATIONS),
    ],
)
def test_a_repetition_is_a_loop_at_its_number_and_not_before(
    rounds: list[Round], enough: int, pattern: Pattern
) -> None:
    assert after(rounds * (enough - 1)).pattern() is None
    assert after(rounds * enough).pattern() is pattern


def test_the_same_action_failing_differently_is_warned_of_once_and_then_a_loop() -> None:
    tries = [fails(str(number)) for number in range(4)]
    assert after(tries[:2]).to_nudge() is None
    third = after(tries[:3])
    assert (third.pattern(), third.to_nudge()) == (None, 21)
    warning = MessageEvent(id=25, source="environment", cause=21, llm_message=Message.user("stop that"))
    third.fold(warning)
    assert third.to_nudge() is None
    assert after(tries).pattern() is Pattern.SAME_ERROR


@pytest.mark.parametrize(
    ("problem", "is_loop"),
    [
        ("SyntaxError: unterminated string literal (detected at line 1)", True),
        ("SyntaxError: invalid syntax. Perhaps you forgot a comma?", True),
        ("SyntaxError: invalid syntax", True),
        ("SyntaxError: incomplete input", True),
        ("NameError: name 'x' is not defined", False),
    ],
)
def test_the_same_cell_with_the_same_error_of_its_syntax_is_a_loop_the_third_time(problem: str, is_loop: bool) -> None:
    detector = after(cell(4, problem), cell(5, problem))
    assert detector.pattern() is None
    detector = after(does("ls"), *(cell(number, problem) for number in (4, 5, 6)))
    assert detector.pattern() is (Pattern.SAME_ERROR if is_loop else None)
    if is_loop:
        assert detector.start_of(Pattern.SAME_ERROR) == 10


def test_cells_that_differ_in_what_they_say_or_in_what_is_wrong_are_no_loop() -> None:
    one, other = "SyntaxError: incomplete input", "SyntaxError: invalid syntax"
    assert after(cell(1, one), cell(2, other), cell(3, one)).pattern() is None
    assert after(cell(1, one), cell(2, one, code="print('ho"), cell(3, one)).pattern() is None


def test_alternating_between_two_actions_is_a_loop_after_three_rounds() -> None:
    two = [does("a", "1"), does("b", "2")]
    assert after(two, two, two[:1]).pattern() is None
    assert after(two, two, two).pattern() is Pattern.ALTERNATING


@pytest.mark.parametrize(
    "other",
    [does("ls", "b"), does("ls", "a", code=1), does("ls ", "a"), does("ls", "a", thought="once more"), fails()],
    ids=["output", "exit code", "command", "thought", "error"],
)
def test_anything_new_is_progress(other: Round) -> None:
    same = does("ls", "a")
    assert after(same, same, same, other).pattern() is None


def test_different_actions_may_fail_in_a_row() -> None:
    tries = [fails(str(number), thought=str(number)) for number in range(5)]
    for number in range(6):
        detector = after(tries[:number])
        assert (detector.pattern(), detector.to_nudge()) == (None, None)


def test_ids_and_processes_do_not_make_a_difference() -> None:
    assert after([does("ls", "a", pid=number) for number in range(4)]).pattern() is Pattern.SAME_RESULT


class CountingObservation(Observation):
    """Has its result in a field of its own, and puts it in words for the model."""

    count: int = 0

    @property
    def to_llm_content(self) -> list[TextContent | ImageContent]:
        return [TextContent(text=f"{self.count} boats")]


@pytest.mark.parametrize(("counts", "is_loop"), [((1, 2, 3, 4), False), ((4, 4, 4, 4), True)])
def test_results_are_compared_by_what_the_model_is_told(counts: tuple[int, ...], is_loop: bool) -> None:
    def counted(count: int) -> Round:
        def make(at: int) -> list[AnyEvent]:
            action = ActionEvent(id=at, action=TerminalAction(command="count"), tool_name="count")
            seen = CountingObservation(count=count)
            return [action, ObservationEvent(id=at + 1, cause=at, observation=seen, tool_name="count")]

        return make

    assert (after(map(counted, counts)).pattern() is Pattern.SAME_RESULT) == is_loop


def test_a_message_of_the_user_begins_a_new_count() -> None:
    same = does("ls", "a")
    detector = after([same] * 4, says("go on", "user"), [same] * 3)
    assert detector.pattern() is None
    for event in same(900):
        detector.fold(event)
    assert detector.pattern() is Pattern.SAME_RESULT


@pytest.mark.parametrize(
    ("same", "times", "between", "is_loop"),
    [
        (says("hm"), 3, says("go on", "user"), False),
        (says("hm"), 3, does("ls"), False),
        (condenses, 10, says("go on", "user"), False),
        (condenses, 10, says("hm"), False),
        (condenses, 10, does("ls"), False),
        (condenses, 10, says("mind the limit", "environment"), True),
    ],
)
def test_only_what_is_done_in_a_row_counts(same: Round, times: int, between: Round, is_loop: bool) -> None:
    assert (after([same] * (times - 1), between, same).pattern() is not None) == is_loop


def test_replies_without_words_are_no_monologue() -> None:
    assert after([says("  \n")] * 9).pattern() is None


def test_results_of_parallel_calls_are_matched_to_their_calls() -> None:
    detector = StuckDetector()
    for base in range(0, 40, 10):
        (one, first), (two, second) = does("a", "1")(base), does("b", "2")(base + 2)
        for event in (one, two, second, first):
            detector.fold(event)
    assert detector.pattern() is Pattern.ALTERNATING


def test_in_whatever_order_results_come_each_is_its_own_calls() -> None:
    detector = StuckDetector()
    for base in range(0, 40, 10):
        (one, first), (two, second) = does("a", "1")(base), does("b", "2")(base + 2)
        for event in (one, two, *((second, first) if base % 20 else (first, second))):
            detector.fold(event)
    assert detector.pattern() is Pattern.ALTERNATING


def test_calls_without_a_result_yet_are_no_repetition_of_it() -> None:
    detector = StuckDetector()
    for at in range(0, 50, 10):
        detector.fold(does("ls", "a")(at)[0])
    assert detector.pattern() is None
    for at in range(0, 40, 10):
        assert detector.pattern() is None
        detector.fold(does("ls", "a")(at)[1])
    assert detector.pattern() is Pattern.SAME_RESULT, "whether or not another one is under way"


def test_an_old_loop_is_out_of_sight_once_the_agent_has_gone_on() -> None:
    assert after([does("ls", "a")] * 4, [does(str(number)) for number in range(4)]).pattern() is None


@pytest.mark.parametrize(
    ("before", "loop", "first"),
    [
        ([does("cd", "a")], [does("ls", "a")] * 4, 1),
        ([does("cd", "a"), does("ls", "other")], [does("ls", "a")] * 6, 2),
        ([does("cd", "a")], [fails("one"), fails("two"), fails("three"), fails("four")], 1),
        ([does("ls", "a")], [says("hm")] * 3, 1),
        ([does("ls", "a")], [condenses] * 10, 1),
        ([does("ls", "a")], [does("a", "1"), does("b", "2")] * 3, 1),
        ([does("b", "2")], [does("a", "1"), does("b", "2")] * 3, 0),
    ],
)
def test_a_loop_begins_with_the_first_thing_that_was_repeated(
    before: list[Round], loop: list[Round], first: int
) -> None:
    detector = after(before, loop)
    pattern = detector.pattern()
    assert pattern is not None
    start = detector.start_of(pattern)
    assert start // 10 == first


@pytest.mark.parametrize(
    ("thresholds", "rounds", "enough", "pattern"),
    [
        ({"action_observation": 2}, [does("ls", "a")], 2, Pattern.SAME_RESULT),
        ({"action_observation": 15, "alternating_pattern": 30}, [does("ls", "a")], 15, Pattern.SAME_RESULT),
        ({"monologue": 5}, [says("hm")], 5, Pattern.MONOLOGUE),
        ({"alternating_pattern": 4}, [does("a", "1"), does("b", "2")], 2, Pattern.ALTERNATING),
        ({"action_error": 2}, [cell(1, "SyntaxError: invalid syntax")], 2, Pattern.SAME_ERROR),
    ],
)
def test_a_repetition_is_a_loop_at_the_number_that_was_chosen(
    thresholds: dict[str, int], rounds: list[Round], enough: int, pattern: Pattern
) -> None:
    chosen = StuckDetectionThresholds(**thresholds)
    assert after(rounds * (enough - 1), thresholds=chosen).pattern() is None
    detector = after([does("cd", "a")], rounds * enough, thresholds=chosen)
    assert detector.pattern() is pattern
    assert detector.start_of(pattern) // 10 == 1


def test_an_agent_is_warned_at_the_chosen_number_of_errors_and_stopped_with_one_more() -> None:
    once = StuckDetectionThresholds(action_error=1)
    assert after([fails("one")], thresholds=once).to_nudge() == 1
    assert after([fails("one")], thresholds=once).pattern() is None
    assert after([fails("one"), fails("two")], thresholds=once).pattern() is Pattern.SAME_ERROR
