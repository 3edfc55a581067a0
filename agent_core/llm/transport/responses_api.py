"""OpenAI's Responses API: requests in its form, and its events as chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_core.llm.render import WireMessage, hoist_images
from agent_core.llm.transport.exchange import CallDelta, Chunk, CompletionRequest, Endpoint
from agent_core.llm.transport.sse import error_of

REASONING = "reasoning"
"""Type of the items that hold a model's reasoning, kept among a message's thinking blocks."""

_OPTIONS = (
    ("max_output_tokens", "max_tokens"),
    ("max_output_tokens", "max_completion_tokens"),
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("prompt_cache_retention", "prompt_cache_retention"),
)


def responses_body(request: CompletionRequest, model: str) -> dict[str, Any]:
    """The body, apart from streaming. Nothing is stored at the provider: each request has the whole conversation."""
    messages = hoist_images(request.messages)
    instructions = "\n\n".join(_text(message) for message in messages if message["role"] == "system")
    parameters = request.parameters
    body: dict[str, Any] = {
        "model": model,
        "input": [item for message in messages if message["role"] != "system" for item in _items(message)],
        "store": False,
    }
    if instructions:
        body["instructions"] = instructions
    if request.tools:
        body["tools"] = [{"type": "function", "strict": False, **tool["function"]} for tool in request.tools]
        choice = parameters.get("tool_choice", "auto")
        if isinstance(choice, dict):
            choice = {"type": "function", "name": choice["function"]["name"]}  # here without the level between
        body["tool_choice"] = choice
    if form := parameters.get("response_format"):
        body["text"] = {"format": {"type": form["type"], **form.get("json_schema", {})}}
    if parameters.get("encrypted_reasoning"):
        body["include"] = ["reasoning.encrypted_content"]
    reasoning = {"effort": parameters.get("reasoning_effort"), "summary": parameters.get("reasoning_summary")}
    if reasoning := {key: value for key, value in reasoning.items() if value is not None}:
        body["reasoning"] = reasoning
    for name, ours in _OPTIONS:
        if parameters.get(ours) is not None:
            body[name] = parameters[ours]
    if request.context.prompt_cache_key:
        body["prompt_cache_key"] = request.context.prompt_cache_key
    return body


def _items(message: WireMessage) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": _text(message)}
    elif message["role"] == "assistant":
        for block in message.get("thinking_blocks") or ():
            if block.get("type") == REASONING and block.get("encrypted_content"):
                yield block
        if text := _text(message):
            part = {"type": "output_text", "text": text, "annotations": []}
            yield {"type": "message", "role": "assistant", "content": [part]}
        for call in message.get("tool_calls") or ():
            item = {"type": "function_call", "call_id": call["id"], **call["function"]}
            yield {**item, "id": call["item_id"]} if call.get("item_id") else item
    else:
        content = message.get("content") or ""
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        parts = [
            {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}
            if part.get("type") == "image_url"
            else {"type": "input_text", "text": part["text"]}
            for part in content
        ]
        yield {"type": "message", "role": "user", "content": parts}


def _text(message: WireMessage) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(item["text"] for item in content if item.get("type") == "text")


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
        """What an event (`part` "delta") or a whole response ("message") says; raises the `LLMError` it tells of."""
        if part == "message":
            return self._end(value)
        kind = value.get("type")
        place = value.get("output_index")
        index = place if isinstance(place, int) else 0
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
        if index in self._done:
            return Chunk()
        self._done.add(index)
        if item.get("type") == REASONING:
            return Chunk(thinking_blocks=(dict(item),), has_choice=True)
        if item.get("type") == "message":
            parts = item.get("content")
            texts = [_object(part) for part in parts] if isinstance(parts, list) else []
            joined = "".join(_word(part.get("text")) or _word(part.get("refusal")) for part in texts)
            return Chunk(text="" if index in self._with_text else joined, has_choice=True)
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


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
