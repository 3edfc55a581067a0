"""A prompt with tools and tool calls as one without: all of it in text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_core.llm.render import WireMessage
from agent_core.llm.text_protocol.instructions import EXAMPLE_END, EXAMPLE_START, system_suffix, worked_example
from agent_core.llm.text_protocol.syntax import written

_OWN_ID = re.compile(r"toolu_(\d+)\Z")


def as_text(messages: Sequence[WireMessage], tools: Sequence[Mapping[str, Any]], *, example: bool) -> list[WireMessage]:
    """The messages without tools and calls; those given stay as they are.

    The system prompt says which functions there are and how they are called; with `example`, a worked example stands
    before the first message of the user. Replies with several calls become one reply with its result per call.

    Raises:
        FunctionCallConversionError: the arguments of a call are no JSON object.
    """
    shown = worked_example(tools) if example else ""
    suffix = system_suffix(tools) if tools else ""
    converted: list[WireMessage] = []
    for message in split_batches(messages):
        role = message["role"]
        if role == "system" and suffix:
            converted.append(_with_suffix(message, suffix))
            suffix = ""
        elif role == "user" and shown:
            converted.append(_with_prefix(message, f"{EXAMPLE_START}{shown}{EXAMPLE_END}"))
            shown = ""
        elif role == "assistant" and message.get("tool_calls"):
            converted.append(_call_as_text(message))
        elif role == "tool":
            converted.append(_result_as_text(message))
        else:
            converted.append(message)
    if suffix:
        converted.insert(0, {"role": "system", "content": suffix.strip()})
    return converted


def split_batches(messages: Sequence[WireMessage]) -> Iterator[WireMessage]:
    """The messages with each reply of several calls as several replies of one, each followed by its result."""
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
        if len(calls) < 2:
            yield message
            continue
        results: dict[str, list[WireMessage]] = {}
        while position < len(messages) and messages[position]["role"] == "tool":
            results.setdefault(messages[position].get("tool_call_id", ""), []).append(messages[position])
            position += 1
        for call in calls:
            yield {**(message if call is calls[0] else {"role": "assistant"}), "tool_calls": [call]}
            yield from results.pop(call["id"], [])[:1]


def next_number(messages: Sequence[WireMessage]) -> int:
    """The number of the next call: calls are counted from 1, and no id of the history comes again."""
    ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    own = [int(match.group(1)) for call_id in ids if (match := _OWN_ID.match(call_id))]
    return max([len(ids), *own]) + 1


def _call_as_text(message: WireMessage) -> WireMessage:
    function = message["tool_calls"][0]["function"]
    call = written(function["name"], function["arguments"])
    wire = {key: value for key, value in message.items() if key != "tool_calls"}
    content = wire.get("content")
    if isinstance(content, list):
        return {**wire, "content": [*content, {"type": "text", "text": call}]}
    return {**wire, "content": f"{content.rstrip()}\n\n{call}" if content and content.strip() else call}


def _result_as_text(message: WireMessage) -> WireMessage:
    head = f"EXECUTION RESULT of [{message.get('name') or 'function'}]:\n"
    content = message.get("content")
    if not isinstance(content, list):
        content = f"{head}{content or ''}"
        if "cache_control" not in message:
            return {"role": "user", "content": content}
        return {
            "role": "user",
            "content": [{"type": "text", "text": content, "cache_control": message["cache_control"]}],
        }
    wire = _with_prefix({"role": "user", "content": content}, head)
    if "cache_control" in message:
        wire["content"][-1] = {**wire["content"][-1], "cache_control": message["cache_control"]}
    return wire


def _with_prefix(message: WireMessage, prefix: str) -> WireMessage:
    content = message.get("content")
    if not isinstance(content, list):
        return {**message, "content": f"{prefix}{content or ''}"}
    if content and content[0].get("type") == "text":
        first = {**content[0], "text": prefix + content[0]["text"]}
        return {**message, "content": [first, *content[1:]]}
    return {**message, "content": [{"type": "text", "text": prefix}, *content]}


def _with_suffix(message: WireMessage, suffix: str) -> WireMessage:
    """The functions belong to the first block: it is the one that is the same in every conversation."""
    content = message.get("content")
    if not isinstance(content, list):
        return {**message, "content": f"{content or ''}{suffix}"}
    if content and content[0].get("type") == "text":
        first = {**content[0], "text": content[0]["text"] + suffix}
        return {**message, "content": [first, *content[1:]]}
    return {**message, "content": [{"type": "text", "text": suffix.strip()}, *content]}
