"""Turns of a scripted model, and the bytes of an OpenAI-compatible answer that say them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

Fault = Literal["cut", "hang", "invalid_json", "no_choices", "reset"]
"""How a turn goes wrong after what it said; ``reset`` comes before a single byte of it."""

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a turn. `arguments` as text is sent as it is; `id` None makes a fresh one, "" sends none."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Turn:
    """One scripted answer: reasoning, then text, then calls.

    `delay` (before the first byte) and `token_delay` (between chunks) are seconds; with a `status` other than 200
    `text` is the message of an error object; `body` is sent whole as `content_type`; `chunks` are sent in place of
    those made from text and calls; `usage` "auto" invents plausible counts; `finish_reason` None derives it.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    delay: float = 0.0
    token_delay: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | bytes | None = None
    content_type: str = "application/json"
    chunks: tuple[Mapping[str, Any] | str, ...] | None = None
    fault: Fault | None = None
    usage: Mapping[str, Any] | Literal["auto"] | None = "auto"
    finish_reason: str | None = None
    argument_pieces: int = 4096

    def then(self, fault: Fault) -> Turn:
        return replace(self, fault=fault)


def say(text: str, **options: Any) -> Turn:
    """A turn of text only."""
    return Turn(text=text, **options)


def call(name: str, arguments: Mapping[str, Any] | str | None = None, *, text: str = "", **options: Any) -> Turn:
    """A turn with one tool call, after `text` if any."""
    return Turn(text=text, calls=(Call(name, arguments if arguments is not None else {}),), **options)


def calls(*several: Call, text: str = "", **options: Any) -> Turn:
    """A turn with several tool calls at once."""
    return Turn(text=text, calls=several, **options)


def finish(message: str, **options: Any) -> Turn:
    """A turn that calls the tool ``finish``."""
    return call("finish", {"message": message}, **options)


def fail(status: int, message: str = "", **options: Any) -> Turn:
    """An HTTP error with an OpenAI error object."""
    return Turn(status=status, text=message or f"the scripted model answers {status}", **options)


def raw(*chunks: Mapping[str, Any] | str, **options: Any) -> Turn:
    """A stream of exactly these chunks (objects become ``data:`` lines, text goes out as it is)."""
    return Turn(chunks=chunks, usage=None, **options)


def error_body(turn: Turn) -> bytes:
    """The body of a turn that is not a stream."""
    if turn.body is not None:
        return turn.body.encode() if isinstance(turn.body, str) else turn.body
    error = {"message": turn.text, "type": "scripted_error", "param": None, "code": turn.status}
    return json.dumps({"error": error}).encode()


def stream_parts(turn: Turn, model: str) -> Iterator[bytes]:
    """The server-sent events of a turn, one piece per chunk, without the closing ``[DONE]``."""
    if turn.chunks is not None:
        for chunk in turn.chunks:
            yield chunk.encode() if isinstance(chunk, str) else _event(chunk)
        return
    base = {"id": f"chatcmpl-{next(_ids)}", "object": "chat.completion.chunk", "created": 1, "model": model}
    if turn.fault == "no_choices":
        yield _event({**base, "choices": []})
        return
    for delta in _deltas(turn):
        yield _event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    if turn.fault in ("cut", "hang"):
        return
    if turn.fault == "invalid_json":
        yield b'data: {"id": "chatcmpl-1", "choi\n\n'
    reason = turn.finish_reason or ("tool_calls" if turn.calls else "stop")
    yield _event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    usage = turn.usage
    if usage == "auto":
        characters = len(turn.text) + len(turn.reasoning) + sum(len(one.arguments_text) for one in turn.calls)
        completion = max(1, characters // 4)
        usage = {"prompt_tokens": 100, "completion_tokens": completion, "total_tokens": 100 + completion}
    if usage is not None:
        yield _event({**base, "choices": [], "usage": usage})


def response_events(turn: Turn, model: str) -> Iterator[bytes]:
    """The server-sent events of a turn in the form of the Responses API; raw chunks are sent as they are."""
    if turn.chunks is not None:
        for chunk in turn.chunks:
            yield chunk.encode() if isinstance(chunk, str) else _typed_event(chunk)
        return
    response: dict[str, Any] = {"id": f"resp_{next(_ids)}", "object": "response", "model": model, "output": []}
    yield _typed_event({"type": "response.created", "response": {**response, "status": "in_progress"}})
    output: list[dict[str, Any]] = []
    if turn.reasoning:
        number = next(_ids)
        summary = [{"type": "summary_text", "text": turn.reasoning}]
        delta = {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": turn.reasoning}
        yield _typed_event(delta)
        item = {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": f"sealed-{number}"}
        output.append(item)
        yield _typed_event({"type": "response.output_item.done", "output_index": 0, "item": item})
    if turn.text:
        index = len(output)
        for position, word in enumerate(turn.text.split(" ")):
            piece = f" {word}" if position else word
            yield _typed_event({"type": "response.output_text.delta", "output_index": index, "delta": piece})
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        output.append({"type": "message", "id": f"msg_{next(_ids)}", "role": "assistant", "content": content})
        yield _typed_event({"type": "response.output_item.done", "output_index": index, "item": output[-1]})
    for one in turn.calls:
        index, number = len(output), next(_ids)
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": one.id or f"call_{number}", "name": one.name}
        yield _typed_event(
            {"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}}
        )
        for start in range(0, len(one.arguments_text), turn.argument_pieces):
            piece = one.arguments_text[start : start + turn.argument_pieces]
            delta = {"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece}
            yield _typed_event(delta)
        output.append({**item, "arguments": one.arguments_text})
        yield _typed_event({"type": "response.output_item.done", "output_index": index, "item": output[-1]})
    if turn.fault in ("cut", "hang"):
        return
    usage = turn.usage
    if usage == "auto":
        usage = {"input_tokens": 100, "output_tokens": max(1, len(turn.text) // 4)}
    if turn.finish_reason == "length":
        reason = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        yield _typed_event(
            {"type": "response.incomplete", "response": {**response, **reason, "output": output, "usage": usage}}
        )
        return
    done = {**response, "status": "completed", "output": output, "usage": usage}
    yield _typed_event({"type": "response.completed", "response": done})


def _deltas(turn: Turn) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in _words(turn.reasoning):
        yield {"reasoning_content": piece}
    for piece in _words(turn.text):
        yield {"content": piece}
    for index, one in enumerate(turn.calls):
        call_id = f"call_{next(_ids)}" if one.id is None else one.id
        head = {"index": index, "type": "function", "function": {"name": one.name, "arguments": ""}}
        arguments = one.arguments_text
        if len(arguments) <= turn.argument_pieces:
            head["function"] = {"name": one.name, "arguments": arguments}
            arguments = ""
        yield {"tool_calls": [{**head, "id": call_id} if call_id else head]}
        for start in range(0, len(arguments), turn.argument_pieces):
            piece = arguments[start : start + turn.argument_pieces]
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _words(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find(" ", start + 1)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end


def _event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _typed_event(value: Mapping[str, Any]) -> bytes:
    return b"event: " + str(value.get("type")).encode() + b"\n" + _event(value)
