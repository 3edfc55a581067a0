"""A prompt with tools and tool calls as one without: all of it in text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_core.events.schema import reduced
from agent_core.llm.render import WireMessage
from agent_core.llm.text_protocol.syntax import written

_FORMAT = """\
To call a function, end your reply with a call in exactly this form:

<function=NAME>
<parameter=FIRST>value</parameter>
<parameter=SECOND>
a value
of several lines
</parameter>
</function>

Rules:
- Write the name of the function and of each parameter exactly as they are listed above.
- Give every required parameter. Write values as they are, without quotes; arrays and objects as JSON.
- At most one call in a reply. You may explain yourself before the call, but write nothing after it.
- The result comes as the next message. If you need no function, answer without a call."""

EXAMPLE_START = "Here is an example of how a task is done with these functions.\n\n--- START OF EXAMPLE ---\n"
EXAMPLE_END = "\n--- END OF EXAMPLE ---\n\nDo not repeat the example. The task begins here:\n\n"


def system_suffix(tools: Sequence[Mapping[str, Any]]) -> str:
    """The list of functions and the rules, to stand at the end of the system prompt."""
    described = "\n\n".join(_described(number, tool["function"]) for number, tool in enumerate(tools, start=1))
    return f"\n\nYou can call these functions:\n\n{described}\n\n{_FORMAT}"


def _described(number: int, function: Mapping[str, Any]) -> str:
    lines = [f"Function {number}: {function['name']}", f"Description: {function.get('description', '')}".rstrip()]
    schema = reduced(function.get("parameters") or {})
    properties: Mapping[str, Any] = schema["properties"]
    if not properties:
        return "\n".join([*lines, "It takes no parameters."])
    required = set(schema["required"])
    lines.append("Parameters:")
    for position, (name, about) in enumerate(properties.items(), start=1):
        need = "required" if name in required else "optional"
        lines.append(f"  ({position}) {name} ({_type(about)}, {need}){_about(about)}")
        lines += _nested(about, "      ")
    return "\n".join(lines)


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type") or "string"
    items = schema.get("items")
    if kind == "array" and isinstance(items, Mapping) and items.get("type"):
        return f"array of {items['type']}"
    return str(kind)


def _about(schema: Mapping[str, Any]) -> str:
    said = f": {schema['description']}" if schema.get("description") else ""
    allowed = schema.get("enum")
    return f"{said} Allowed values: {', '.join(f'`{value}`' for value in allowed)}." if allowed else said


def _nested(schema: Mapping[str, Any], indent: str) -> Iterator[str]:
    """The members of an object, or of the objects in an array."""
    inner = schema.get("items") if schema.get("type") == "array" else schema
    if not isinstance(inner, Mapping) or not inner.get("properties"):
        return
    required = set(inner.get("required") or ())
    for name, about in inner["properties"].items():
        yield f"{indent}- {name} ({_type(about)}, {'required' if name in required else 'optional'}){_about(about)}"
        yield from _nested(about, f"{indent}  ")


def worked_example(tools: Sequence[Mapping[str, Any]]) -> str:
    """A short task done with the tools at hand; empty when none of them is one that everybody has."""
    names = {tool["function"]["name"] for tool in tools}
    turns: list[str] = []
    if "file_editor" in names:
        create = (
            '{"command": "create", "path": "/workspace/hello.py", "file_text": "print(\\"hello\\")\\nprint(1 + 1)"}'
        )
        turns += [_turn("I write the program.", "file_editor", create, "File created successfully.")]
    if "terminal" in names:
        run = '{"command": "python3 /workspace/hello.py"}' if turns else '{"command": "ls /workspace"}'
        turns += [_turn("I run the command.", "terminal", run, "hello\n2" if turns else "hello.py")]
    if not turns:
        return ""
    if "finish" in names:
        turns += ["ASSISTANT:\nThat was it.\n" + written("finish", '{"message": "Done: it works."}')]
    task = "Write a program that says hello and counts" if "file_editor" in names else "See what there is"
    return f"USER: {task}, please.\n\n" + "\n\n".join(turns)


def _turn(said: str, name: str, arguments: str, result: str) -> str:
    return f"ASSISTANT:\n{said}\n{written(name, arguments)}\n\nUSER: EXECUTION RESULT of [{name}]:\n{result}"


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
