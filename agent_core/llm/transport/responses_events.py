"""The events of OpenAI's Responses API as chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_core.llm.transport.exchange import CallDelta, Chunk, Endpoint
from agent_core.llm.transport.responses_request import REASONING
from agent_core.llm.transport.wire_chunks import error_of

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THOUGHT = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesEvents:
    """Reads one answer, event by event or whole; forgives a server that leaves out the pieces and sends the items."""

    def __init__(self, endpoint: Endpoint, *, secret: str = "") -> None:
        self._endpoint = endpoint
        self._secret = secret
        self._begun: set[int] = set()
        self._with_text: set[int] = set()
        self._with_arguments: set[int] = set()
        self._done: set[int] = set()

    def chunk(self, value: Mapping[str, Any], part: str) -> Chunk:
        """What an event says (`part` "delta"), or a whole response ("message").

        Raises:
            LLMError: it tells of a failure.
        """
        if part == "message":
            return self._end(value)
        kind = value.get("type")
        index = _index(value)
        if kind in _TEXT:
            self._with_text.add(index)
            return Chunk(text=_word(value.get("delta")), has_choice=True)
        if kind in _THOUGHT:
            return Chunk(reasoning=_word(value.get("delta")), has_choice=True)
        if kind == "response.function_call_arguments.delta":
            self._with_arguments.add(index)
            return Chunk(calls=(CallDelta(index=index, arguments=_word(value.get("delta"))),), has_choice=True)
        if kind == "response.output_item.added":
            return Chunk(calls=tuple(self._head(index, _object(value.get("item")))), has_choice=True)
        if kind == "response.output_item.done":
            return self._item(index, _object(value.get("item")))
        if kind in _ENDS:
            return self._end(_object(value.get("response")))
        if kind == "error":
            raise error_of(self._endpoint, _object(value.get("error")) or dict(value), secret=self._secret)
        return Chunk()

    def _head(self, index: int, item: Mapping[str, Any]) -> Iterator[CallDelta]:
        """The beginning of a call, once."""
        if item.get("type") == "function_call" and index not in self._begun:
            self._begun.add(index)
            call_id = item.get("call_id") or item.get("id")
            yield CallDelta(
                index=index,
                id=str(call_id) if call_id else None,
                name=_word(item.get("name")) or None,
                item_id=_word(item.get("id")) or None,
            )

    def _item(self, index: int, item: Mapping[str, Any]) -> Chunk:
        """An item of the answer, complete: what its pieces did not say yet."""
        if index in self._done:
            return Chunk()
        self._done.add(index)
        if item.get("type") == REASONING:
            return Chunk(thinking_blocks=(dict(item),), has_choice=True)
        if item.get("type") == "message":
            parts = item.get("content")
            texts = [_object(part) for part in parts] if isinstance(parts, list) else []
            said = "".join(_word(part.get("text")) or _word(part.get("refusal")) for part in texts)
            return Chunk(text="" if index in self._with_text else said, has_choice=True)
        calls = list(self._head(index, item))
        if item.get("type") == "function_call" and index not in self._with_arguments:
            calls.append(CallDelta(index=index, arguments=_word(item.get("arguments"))))
        return Chunk(calls=tuple(calls), has_choice=bool(calls))

    def _end(self, response: Mapping[str, Any]) -> Chunk:
        if response.get("error") or response.get("status") == "failed":
            raise error_of(self._endpoint, response.get("error") or "the response failed", secret=self._secret)
        output = response.get("output")
        items = [
            self._item(index, _object(item)) for index, item in enumerate(output if isinstance(output, list) else ())
        ]
        why = _object(response.get("incomplete_details")).get("reason")
        usage = response.get("usage")
        reason = "tool_calls" if self._begun else "stop"
        if response.get("status") == "incomplete":
            reason = "content_filter" if why == "content_filter" else "length"
        return Chunk(
            text="".join(item.text for item in items),
            calls=tuple(call for item in items for call in item.calls),
            thinking_blocks=tuple(block for item in items for block in item.thinking_blocks),
            finish_reason=reason,
            has_choice=bool(self._done or self._begun or self._with_text),
            usage=usage if isinstance(usage, dict) else None,
        )


def _index(value: Mapping[str, Any]) -> int:
    index = value.get("output_index")
    return index if isinstance(index, int) else 0


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
