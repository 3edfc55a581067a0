"""The bytes of a Responses API answer that say a scripted turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import orjson

from agent_core.testing.model_turns import Turn

_ids = itertools.count(1)


def response_events(turn: Turn, model: str) -> Iterator[bytes]:
    """The server-sent events of a turn: its reasoning, its text, its calls, each an item of the output.

    A turn's raw chunks are sent as they are. A reasoning item carries ``encrypted_content``.
    """
    if turn.chunks is not None:
        for chunk in turn.chunks:
            yield chunk.encode() if isinstance(chunk, str) else _event(dict(chunk))
        return
    response: dict[str, Any] = {"id": f"resp_{next(_ids)}", "object": "response", "model": model, "output": []}
    yield _event({"type": "response.created", "response": {**response, "status": "in_progress"}})
    output: list[dict[str, Any]] = []
    if turn.reasoning:
        number = next(_ids)
        summary = [{"type": "summary_text", "text": turn.reasoning}]
        delta = {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": turn.reasoning}
        yield _event(delta)
        item = {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": f"sealed-{number}"}
        output.append(item)
        yield _event({"type": "response.output_item.done", "output_index": 0, "item": item})
    if turn.text:
        index = len(output)
        for position, word in enumerate(turn.text.split(" ")):
            piece = f" {word}" if position else word
            yield _event({"type": "response.output_text.delta", "output_index": index, "delta": piece})
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        output.append({"type": "message", "id": f"msg_{next(_ids)}", "role": "assistant", "content": content})
        yield _event({"type": "response.output_item.done", "output_index": index, "item": output[-1]})
    for one in turn.calls:
        index, number = len(output), next(_ids)
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": one.id or f"call_{number}", "name": one.name}
        yield _event({"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}})
        for start in range(0, len(one.arguments_text), turn.argument_pieces):
            piece = one.arguments_text[start : start + turn.argument_pieces]
            delta = {"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece}
            yield _event(delta)
        output.append({**item, "arguments": one.arguments_text})
        yield _event({"type": "response.output_item.done", "output_index": index, "item": output[-1]})
    if turn.fault in ("cut", "hang"):
        return
    usage = turn.usage
    if usage == "auto":
        usage = {"input_tokens": 100, "output_tokens": max(1, len(turn.text) // 4)}
    if turn.finish_reason == "length":
        reason = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        yield _event(
            {"type": "response.incomplete", "response": {**response, **reason, "output": output, "usage": usage}}
        )
        return
    done = {**response, "status": "completed", "output": output, "usage": usage}
    yield _event({"type": "response.completed", "response": done})


def _event(value: dict[str, Any]) -> bytes:
    return b"event: " + str(value.get("type")).encode() + b"\ndata: " + orjson.dumps(value) + b"\n\n"
