from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.events.messages import Message
from agent_core.llm.answer import MAX_ANSWER_CHARS, MAX_CALLS, Assembly
from agent_core.llm.response import ResponseKind, classify
from agent_core.llm.transport.exchange import CallDelta, Chunk


def assembled(*deltas: CallDelta) -> list[tuple[str, str, str]]:
    assembly = Assembly()
    for delta in deltas:
        assembly.add(Chunk(calls=(delta,), has_choice=True))
    return [(call.id, call.name, call.arguments) for call in assembly.message.tool_calls or ()]


def test_pieces_of_a_call_belong_together_by_index() -> None:
    assert assembled(
        CallDelta(0, "a", "terminal", '{"com'),
        CallDelta(1, "b", "think", '{"t'),
        CallDelta(0, None, None, 'mand": 1}'),
        CallDelta(1, None, None, '": 2}'),
    ) == [("a", "terminal", '{"command": 1}'), ("b", "think", '{"t": 2}')]


def test_calls_are_put_in_the_order_of_their_index() -> None:
    assert [call[0] for call in assembled(CallDelta(1, "b", "two"), CallDelta(0, "a", "one"))] == ["a", "b"]


def test_without_an_index_pieces_belong_together_by_id() -> None:
    assert assembled(
        CallDelta(None, "a", "one", "{"),
        CallDelta(None, "b", "two", "{"),
        CallDelta(None, "a", None, '"x": 1}'),
        CallDelta(None, "b", None, '"y": 2}'),
    ) == [("a", "one", '{"x": 1}'), ("b", "two", '{"y": 2}')]


def test_without_index_and_id_a_piece_belongs_to_the_last_call_and_a_name_begins_a_new_one() -> None:
    calls = assembled(
        CallDelta(name="one", arguments="{"),
        CallDelta(arguments="}"),
        CallDelta(name="two", arguments="{}"),
    )
    assert [(name, arguments) for _, name, arguments in calls] == [("one", "{}"), ("two", "{}")]


def test_missing_ids_are_made_and_repeated_ones_replaced() -> None:
    calls = assembled(CallDelta(0, None, "one", "{}"), CallDelta(1, "x", "two"), CallDelta(2, "x", "three"))
    ids = [call[0] for call in calls]
    assert all(ids)
    assert len(set(ids)) == 3
    assert ids[1] == "x"


def test_ids_with_half_a_character_can_be_stored() -> None:
    assembly = Assembly()
    assembly.add(Chunk(calls=(CallDelta(0, "a\ud83d", "one", "{}", "item\ud83d"),), has_choice=True))
    assert assembly.message.model_dump_json()


def test_two_calls_that_share_an_index_but_not_their_id_are_two_calls() -> None:
    assert assembled(CallDelta(0, "a", "one", "{}"), CallDelta(0, "b", "two", "{}")) == [
        ("a", "one", "{}"),
        ("b", "two", "{}"),
    ]


def test_without_an_index_an_id_that_comes_again_with_other_arguments_is_another_call() -> None:
    calls = assembled(
        CallDelta(None, "a", "one", '{"x": 1}'),
        CallDelta(None, "a", "one", '{"x": 2}'),
        CallDelta(None, "a", "two", "{}"),
    )
    assert [(name, arguments) for _, name, arguments in calls] == [
        ("one", '{"x": 1}'),
        ("one", '{"x": 2}'),
        ("two", "{}"),
    ]
    assert len({call_id for call_id, _, _ in calls}) == 3


def test_without_an_index_a_call_that_is_only_repeated_is_one() -> None:
    (call,) = assembled(CallDelta(None, "a", "one", '{"x": 1}'), CallDelta(None, "a", "one", '{"x": 1}'))
    assert call[:2] == ("a", "one")


def test_empty_arguments_only_hold_the_place_of_those_that_come() -> None:
    pieces = (CallDelta(0, "a", "one", "{}"), CallDelta(0, arguments='{"x"'), CallDelta(0, arguments=": 1}"))
    assert assembled(*pieces) == [("a", "one", '{"x": 1}')]
    assert assembled(pieces[0]) == [("a", "one", "{}")]


def test_a_name_that_is_repeated_with_every_piece_is_taken_once() -> None:
    pieces = (CallDelta(0, "a", "one", "{"), CallDelta(0, "a", "one", "}"))
    assert assembled(*pieces) == [("a", "one", "{}")]


def test_a_call_without_arguments_has_empty_ones() -> None:
    assert assembled(CallDelta(0, "a", "pwd")) == [("a", "pwd", "{}")]


def test_thinking_blocks_are_put_together_and_kept_unchanged() -> None:
    assembly = Assembly()
    for block in (
        {"type": "thinking", "thinking": "Let me "},
        {"type": "thinking", "thinking": "see."},
        {"type": "thinking", "thinking": "", "signature": "sig1"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "More.", "signature": "sig2"},
    ):
        assembly.add(Chunk(thinking_blocks=(block,)))
    assert assembly.message.thinking_blocks == [
        {"type": "thinking", "thinking": "Let me see.", "signature": "sig1"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "More.", "signature": "sig2"},
    ]


@given(st.lists(st.tuples(st.text(min_size=1, max_size=8), st.text(max_size=40)), min_size=1, max_size=5), st.data())
def test_however_the_pieces_are_cut_and_mixed_the_calls_come_out(
    calls: list[tuple[str, str]], data: st.DataObject
) -> None:
    queues: list[list[CallDelta]] = []
    for index, (name, arguments) in enumerate(calls):
        cuts = sorted(data.draw(st.sets(st.integers(0, len(arguments)), max_size=4)))
        bounds = [0, *cuts, len(arguments)]
        pieces = [arguments[start:end] for start, end in pairwise(bounds)]
        queues.append([CallDelta(index, f"id{index}", name), *(CallDelta(index, arguments=piece) for piece in pieces)])
    mixed: list[CallDelta] = []
    while any(queues):
        chosen = data.draw(st.sampled_from([queue for queue in queues if queue]))
        mixed.append(chosen.pop(0))
    expected = [(f"id{index}", name, arguments or "{}") for index, (name, arguments) in enumerate(calls)]
    assert assembled(*mixed) == expected


def test_an_answer_is_classified_by_what_weighs_most() -> None:
    assembly = Assembly()
    assert classify(assembly.message) is ResponseKind.EMPTY
    assembly.add(Chunk(text="  \n"))
    assert classify(assembly.message) is ResponseKind.EMPTY
    assembly.add(Chunk(reasoning="Hm."))
    assert classify(assembly.message) is ResponseKind.REASONING_ONLY
    assembly.add(Chunk(text="Yes"))
    assert classify(assembly.message) is ResponseKind.CONTENT
    assembly.add(Chunk(calls=(CallDelta(0, "a", "finish"),)))
    assert classify(assembly.message) is ResponseKind.TOOL_CALLS
    assert classify(Message(role="assistant", thinking_blocks=[{"type": "redacted_thinking"}])) is (
        ResponseKind.REASONING_ONLY
    )


@pytest.mark.parametrize(
    "chunk",
    [
        Chunk(thinking_blocks=({"type": "thinking", "thinking": "hm " * 30},)),
        Chunk(calls=(CallDelta(0, None, "one", '{"a": "}'),)),
        Chunk(calls=(CallDelta(None, "x", "one", '"}'),)),
    ],
)
def test_an_answer_in_very_many_pieces_takes_no_more_than_its_length(chunk: Chunk) -> None:
    began = time.process_time()
    assembly = Assembly()
    for _ in range(60_000):
        assembly.add(chunk)
    assert assembly.message.model_dump_json()
    assert time.process_time() - began < 8


def test_an_answer_without_measure_is_noticed() -> None:
    long, many = Assembly(), Assembly()
    long.add(Chunk(text="x" * MAX_ANSWER_CHARS))
    for number in range(MAX_CALLS):
        many.add(Chunk(calls=(CallDelta(number, f"call-{number}", "one", "{}"),)))
    assert (long.excess, many.excess) == ("", "")
    long.add(Chunk(reasoning="x"))
    many.add(Chunk(calls=(CallDelta(MAX_CALLS, "one too many", "one", "{}"),)))
    assert (long.excess, many.excess) == ("more than 8 million characters", "more than 10000 calls")
