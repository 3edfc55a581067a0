from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import LLMBadRequestError, LLMInternalError, LLMRateLimitError
from agent_core.llm.answer import Assembly
from agent_core.llm.transport import sse
from agent_core.llm.transport.exchange import Endpoint
from agent_core.llm.transport.sse import AnswerReader, error_of
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
    assert read(b"data:" + chunk + b"\r\n\r\ndata:[DONE]\r\n\r\n").message.text == "hi"


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
    assert read(b"".join(stream_parts(say("done"), "m"))).message.text == "done"


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


def test_an_event_of_many_lines_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[bytes] = []
    loaded = sse._loaded

    def read_once(data: bytes) -> object:
        readings.append(data)
        return loaded(data)

    monkeypatch.setattr(sse, "_loaded", read_once)
    text = json.dumps(
        {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "more": ["x"] * 50}, indent=1
    )
    lines = b"".join(b"data: " + line.encode() + b"\n" for line in text.splitlines())
    assert read(lines + b"\n").message.text == "hi"
    assert len(readings) == 2, "the first line alone, and the whole"
    with pytest.raises(LLMInternalError, match="not JSON"):
        read(b'data: "a",\n' * 1000 + b"\n")
    assert len(readings) == 4


def test_lines_that_never_become_an_event_are_not_kept_without_end() -> None:
    reader = AnswerReader(ENDPOINT)
    line = b"data: " + b"[" * 1000 + b"\n"
    kept = sse.MAX_SPLIT_EVENT_BYTES // 1000
    assert [reader.feed(line) for _ in range(kept)] == [[]] * kept
    with pytest.raises(LLMInternalError, match="not JSON"):
        reader.feed(line)


@pytest.mark.parametrize("reason", [None, "null"])
def test_a_reason_to_finish_that_is_none_finishes_nothing(reason: str | None) -> None:
    chunk = {"choices": [{"delta": {"content": "half"}, "finish_reason": reason}]}
    with pytest.raises(LLMInternalError, match="cut its answer off"):
        read(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def test_a_whole_message_in_a_stream_is_read_where_nothing_else_says_it() -> None:
    whole = {"role": "assistant", "content": "all of it"}
    for choice, text in (({"message": whole}, "all of it"), ({"delta": {}, "message": whole}, "")):
        chunk = {"choices": [{**choice, "finish_reason": "stop"}]}
        assert read(b"data: " + json.dumps(chunk).encode() + b"\n\n").message.text == text


def test_numbers_of_calls_that_come_as_text_count() -> None:
    pieces = [("0", "a", '{"x'), ("1", "b", '{"y'), ("0", None, '": 1}'), ("1", None, '": 2}')]
    deltas = [
        {"tool_calls": [{"index": index, "id": name, "function": {"name": name, "arguments": arguments}}]}
        for index, name, arguments in pieces
    ]
    data = b"".join(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n" for delta in deltas)
    made = read(data + b"data: [DONE]\n\n").message.tool_calls or []
    assert [(one.name, one.arguments) for one in made] == [("a", '{"x": 1}'), ("b", '{"y": 2}')]
