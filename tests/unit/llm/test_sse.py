from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import LLMBadRequestError, LLMInternalError, LLMRateLimitError
from agent_core.llm.assembly import Assembly
from agent_core.llm.exchange import Endpoint
from agent_core.llm.sse import AnswerReader
from agent_core.llm.wire_chunks import error_of
from agent_core.testing.model_turns import Call, call, calls, say, stream_parts

ENDPOINT = Endpoint("openai/x", "http://localhost/v1")


def read(data: bytes, *cuts: int) -> Assembly:
    reader = AnswerReader(ENDPOINT)
    assembly = Assembly()
    bounds = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(bounds):
        for chunk in reader.feed(data[start:end]):
            assembly.add(chunk)
    if not reader.is_done:
        for chunk in reader.end():
            assembly.add(chunk)
    return assembly


STREAM = b"".join(
    stream_parts(
        calls(Call("terminal", {"command": "echo ü€😀"}, id="a"), Call("think", id="b"), text="Grüße, schöne Welt"), "m"
    )
)


@given(st.sets(st.integers(0, len(STREAM)), max_size=12), st.booleans())
def test_however_the_bytes_are_cut_the_answer_is_the_same(cuts: set[int], is_done: bool) -> None:
    data = STREAM + (b"data: [DONE]\n\n" if is_done else b"")
    assembly = read(data, *cuts)
    assert assembly.message == read(data).message
    assert assembly.message.text == "Grüße, schöne Welt"
    assert [one.id for one in assembly.message.tool_calls or ()] == ["a", "b"]
    assert assembly.finish_reason == "tool_calls"


def test_data_lines_may_come_without_a_space_and_with_carriage_returns() -> None:
    chunk = json.dumps({"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
    assert read(b"data:" + chunk + b"\r\n\r\ndata:[DONE]\r\n\r\n").text == "hi"


def test_content_in_parts_and_arguments_as_an_object_are_understood() -> None:
    delta = {
        "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}],
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}],
        "reasoning": "hm",
    }
    message = read(b"data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": "stop"}]}).encode()).message
    assert message.text == "one two"
    assert message.reasoning_content == "hm"
    assert (message.tool_calls or [])[0].arguments == '{"x":1}'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "sent an empty answer"),
        (b": only a comment\n\n", "sent an empty answer"),
        (b'data: {"choices": [{"delta": {"content": "ha', "not JSON"),
        (b'data: {"choices": [{"delta": {"content": "half"}}]}\n\n', "cut its answer off"),
        (b"data: [1, 2]\n\n", "not an object"),
        (b"plain words", "not JSON"),
    ],
)
def test_a_broken_answer_says_how_it_is_broken(data: bytes, words: str) -> None:
    with pytest.raises(LLMInternalError, match=words):
        read(data)


def test_a_page_is_no_answer() -> None:
    with pytest.raises(LLMBadRequestError, match="a web page, 'Sign in'"):
        read(b"<!DOCTYPE html><html><title>Sign in</title></html>")


def test_a_finished_stream_needs_no_end_mark() -> None:
    assert read(b"".join(stream_parts(say("done"), "m"))).text == "done"


def test_error_objects_of_all_shapes_are_errors() -> None:
    assert isinstance(error_of(ENDPOINT, {"message": "slow", "type": "rate_limit_exceeded"}), LLMRateLimitError)
    assert isinstance(error_of(ENDPOINT, {"message": "slow", "code": "429"}), LLMRateLimitError)
    assert isinstance(error_of(ENDPOINT, "it broke"), LLMInternalError)
    assert isinstance(error_of(ENDPOINT, {"code": None}), LLMInternalError)
    assert isinstance(error_of(ENDPOINT, {"message": "odd", "code": 400}), LLMBadRequestError)


def test_arguments_that_come_in_one_piece_or_in_many_are_the_same() -> None:
    text = "x" * 5000
    for size in (1, 700, 100_000):
        data = b"".join(stream_parts(call("f", {"t": text}, argument_pieces=size), "m"))
        (made,) = read(data).message.tool_calls or []
        assert json.loads(made.arguments) == {"t": text}
