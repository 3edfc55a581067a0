"""A request in the form of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_core.llm.render import WireMessage, hoist_images
from agent_core.llm.transport.exchange import CompletionRequest

REASONING = "reasoning"
"""Type of the items that hold a model's reasoning; they are kept among a message's thinking blocks."""

_OPTIONS = (
    ("max_output_tokens", "max_tokens"),
    ("max_output_tokens", "max_completion_tokens"),
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("prompt_cache_retention", "prompt_cache_retention"),
)


def responses_body(request: CompletionRequest, model: str) -> dict[str, Any]:
    """The body, apart from streaming.

    Nothing is stored at the provider: each request carries the whole conversation.
    """
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
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _choice(parameters.get("tool_choice", "auto"))
    if given_form := parameters.get("response_format"):
        body["text"] = {"format": {"type": given_form["type"], **given_form.get("json_schema", {})}}
    if parameters.get("encrypted_reasoning"):
        body["include"] = ["reasoning.encrypted_content"]
    reasoning = {"effort": parameters.get("reasoning_effort"), "summary": parameters.get("reasoning_summary")}
    if given := {key: value for key, value in reasoning.items() if value is not None}:
        body["reasoning"] = given
    for name, ours in _OPTIONS:
        if parameters.get(ours) is not None:
            body[name] = parameters[ours]
    if request.context.prompt_cache_key:
        body["prompt_cache_key"] = request.context.prompt_cache_key
    return body


def _choice(choice: Any) -> Any:
    """Which tool is to be called: the other API says it one level deeper."""
    return {"type": "function", "name": choice["function"]["name"]} if isinstance(choice, dict) else choice


def _items(message: WireMessage) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": _text(message)}
    elif message["role"] == "assistant":
        yield from _assistant_items(message)
    else:
        yield {"type": "message", "role": "user", "content": list(_parts(message))}


def _assistant_items(message: WireMessage) -> Iterator[dict[str, Any]]:
    """What the model said: its reasoning, where it can be read again, its text, its calls."""
    for block in message.get("thinking_blocks") or ():
        if block.get("type") == REASONING and block.get("encrypted_content"):
            yield block
    text = _text(message)
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        yield {"type": "message", "role": "assistant", "content": [part]}
    for call in message.get("tool_calls") or ():
        function = call["function"]
        item = {"type": "function_call", "call_id": call["id"], **function}
        yield {**item, "id": call["item_id"]} if call.get("item_id") else item


def _parts(message: WireMessage) -> Iterator[dict[str, Any]]:
    content = message.get("content") or ""
    if isinstance(content, str):
        yield {"type": "input_text", "text": content}
        return
    for item in content:
        if item.get("type") == "image_url":
            yield {"type": "input_image", "image_url": item["image_url"]["url"], "detail": "auto"}
        else:
            yield {"type": "input_text", "text": item["text"]}


def _text(message: WireMessage) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(item["text"] for item in content if item.get("type") == "text")


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "strict": False, **tool["function"]}
