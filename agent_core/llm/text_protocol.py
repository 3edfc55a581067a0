"""Tools and their calls in text, for models that take no tools.

A call is ``<function=NAME>``, a line ``<parameter=P>VALUE</parameter>`` per argument, ``</function>``. A value of
several lines is framed by a line break on each side. Text may stand before a call and not after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_core.errors import FunctionCallConversionError, FunctionCallNotExistsError, FunctionCallValidationError
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.events.schema import reduced
from agent_core.llm.render import WireMessage
from agent_core.llm.response import LLMResponse

CALL_START = "<function="
STOP_WORD = "</function"
_CALL = re.compile(r"<function=([^<>\n]*)>")
_PARAMETER = re.compile(r"<parameter=([^<>\n]*)>")
_UNCLOSED_NAME = re.compile(r"<parameter=([A-Za-z_][\w-]*)=([^<\n]*)</parameter>")
_VALUE_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>|\Z))")
_WRAPPERS = ("</think>", "<tool_call>", "<think>")
_MOST_WRAPPERS = 8

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
_OWN_ID = re.compile(r"toolu_(\d+)\Z")

_ALIASES = {
    "str_replace_editor": "file_editor",
    "str_replace": "file_editor",
    "bash": "terminal",
    "execute_bash": "terminal",
}

_RISK = "security_risk"
"""Never asked for, and never refused: models that saw it at some tools say it of all of them."""

_JSON_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "number": ((int, float), "a number"),
    "array": ((list,), "a JSON array"),
    "object": ((dict,), "a JSON object"),
}


class TextCalls:
    """A call with tools in text; raises `FunctionCallConversionError` where the history cannot be written so."""

    def __init__(self, messages: Sequence[WireMessage], tools: Sequence[Mapping[str, Any]], *, example: bool) -> None:
        self._tools = tools
        self._number = next_number(messages)
        self.prompt = as_text(messages, tools, example=example)

    def read(self, response: LLMResponse) -> LLMResponse:
        """The answer with its call as a tool call; raises `FunctionCallValidationError` with the answer as it was."""
        if not self._tools:
            return response
        is_cut = response.finish_reason in ("length", "max_tokens")
        try:
            message = with_call(response.message, self._tools, self._number, is_cut=is_cut)
        except FunctionCallValidationError as error:
            error.response = response
            raise
        return replace(response, message=message)


def as_text(messages: Sequence[WireMessage], tools: Sequence[Mapping[str, Any]], *, example: bool) -> list[WireMessage]:
    """The messages without tools and calls; those given stay as they are.

    The system prompt says which functions there are and how they are called; with `example`, a worked example stands
    before the user's first message. A reply with several calls becomes one reply with its result per call. Raises
    `FunctionCallConversionError` for arguments that are no JSON object.
    """
    shown = worked_example(tools) if example else ""
    suffix = system_suffix(tools) if tools else ""
    converted: list[WireMessage] = []
    for message in split_batches(messages):
        role = message["role"]
        if role == "system" and suffix:
            converted.append(_around(message, after=suffix))
            suffix = ""
        elif role == "user" and shown:
            converted.append(_around(message, before=f"{EXAMPLE_START}{shown}{EXAMPLE_END}"))
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
    wire = _around({"role": "user", "content": message.get("content")}, before=head)
    if "cache_control" in message:
        content = wire["content"]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        wire["content"] = [*parts[:-1], {**parts[-1], "cache_control": message["cache_control"]}]
    return wire


def _around(message: WireMessage, before: str = "", after: str = "") -> WireMessage:
    """The message with something before or after its first text: the rest may differ in every conversation."""
    content = message.get("content")
    if not isinstance(content, list):
        return {**message, "content": f"{before}{content or ''}{after}"}
    if content and content[0].get("type") == "text":
        first = {**content[0], "text": f"{before}{content[0]['text']}{after}"}
        return {**message, "content": [first, *content[1:]]}
    return {**message, "content": [{"type": "text", "text": before or after.strip()}, *content]}


def system_suffix(tools: Sequence[Mapping[str, Any]]) -> str:
    """The list of functions and the rules, to stand at the end of the system prompt."""
    lines = ["", "", "You can call these functions:"]
    for number, function in enumerate((tool["function"] for tool in tools), start=1):
        lines += ["", f"Function {number}: {function['name']}"]
        lines.append(f"Description: {function.get('description', '')}".rstrip())
        schema = reduced(function.get("parameters") or {})
        lines.append("Parameters:" if schema["properties"] else "It takes no parameters.")
        for position, (name, about) in enumerate(schema["properties"].items(), start=1):
            lines.append(f"  ({position}) {_parameter(name, about, schema['required'])}")
            lines += _nested(about, "      ")
    return "\n".join([*lines, "", _FORMAT])


def _parameter(name: str, about: Mapping[str, Any], required: Collection[str]) -> str:
    kind, items = about.get("type") or "string", about.get("items")
    if kind == "array" and isinstance(items, Mapping) and items.get("type"):
        kind = f"array of {items['type']}"
    need = "required" if name in required else "optional"
    description = f": {about['description']}" if about.get("description") else ""
    if allowed := about.get("enum"):
        description += f" Allowed values: {', '.join(f'`{value}`' for value in allowed)}."
    return f"{name} ({kind}, {need}){description}"


def _nested(schema: Mapping[str, Any], indent: str) -> Iterator[str]:
    inner = schema.get("items") if schema.get("type") == "array" else schema
    if not isinstance(inner, Mapping) or not inner.get("properties"):
        return
    for name, about in inner["properties"].items():
        yield f"{indent}- {_parameter(name, about, inner.get('required') or ())}"
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


def _turn(thought: str, name: str, arguments: str, result: str) -> str:
    return f"ASSISTANT:\n{thought}\n{written(name, arguments)}\n\nUSER: EXECUTION RESULT of [{name}]:\n{result}"


def with_call(message: Message, tools: Sequence[Mapping[str, Any]], number: int, *, is_cut: bool = False) -> Message:
    """The answer with the call in its last text as a tool call, numbered `number`; unchanged when it has none.

    `is_cut`: it ended at the output limit, so a call without its end is half a call. Raises
    `FunctionCallValidationError` for a tool or arguments that there are not.
    """
    if message.tool_calls or not message.content or not isinstance(message.content[-1], TextContent):
        return message
    text = message.content[-1].text
    if is_cut and CALL_START in text and not text.rstrip().endswith("</function>"):
        raise FunctionCallValidationError(
            "The call was cut off at the model's output limit, so nothing was run: do it in smaller parts."
        )
    call = _found(text)
    if call is None:
        return message
    before, written_name, values = call
    schemas = {str(tool["function"]["name"]): tool["function"].get("parameters") or {} for tool in tools}
    name = written_name if written_name in schemas else _ALIASES.get(written_name, written_name)
    if name not in schemas:
        raise FunctionCallNotExistsError(f"There is no function {written_name[:100]!r}. Available: {sorted(schemas)}.")
    arguments = json.dumps(_checked(name, values, reduced(schemas[name])), ensure_ascii=False)
    content = [*message.content[:-1], *([TextContent(text=before)] if before else [])]
    made = MessageToolCall(id=f"toolu_{number:02d}", name=name, arguments=arguments)
    return message.model_copy(update={"content": content, "tool_calls": [made]})


def _checked(name: str, texts: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if unknown := sorted(texts.keys() - properties.keys() - {_RISK}):
        raise FunctionCallValidationError(
            f"Function {name!r} has no parameter {unknown[0][:100]!r}. Its parameters: {sorted(properties)}."
        )
    missing = sorted(set(schema.get("required") or ()) - texts.keys() - {_RISK})
    if missing:
        raise FunctionCallValidationError(f"The call of {name!r} lacks the required parameters {missing}.")
    arguments: dict[str, Any] = {}
    for key, text in texts.items():
        about = properties.get(key) or {}
        allowed = about.get("enum")
        arguments[key] = _typed(name, key, text.strip() if allowed else text, about.get("type"))
        if allowed and arguments[key] not in allowed:
            raise FunctionCallValidationError(f"Parameter {key!r} of {name!r} must be one of {list(allowed)}.")
    return arguments


def _typed(name: str, key: str, text: str, json_type: object) -> Any:
    problem = f"Parameter {key!r} of {name!r} must be"
    if json_type == "integer":
        try:
            return int(text.strip())
        except ValueError:
            raise FunctionCallValidationError(f"{problem} an integer.") from None
    if json_type == "boolean":
        truth = text.strip().lower()
        if truth not in ("true", "false"):
            raise FunctionCallValidationError(f"{problem} true or false.")
        return truth == "true"
    if json_type not in _JSON_TYPES:
        return text
    kinds, what = _JSON_TYPES[str(json_type)]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise FunctionCallValidationError(f"{problem} {what}.")
    return value


def _found(text: str) -> tuple[str, str, dict[str, str]] | None:
    """The first complete call, its end put back: the text before it, its name, its arguments as they were written.

    Raises `FunctionCallValidationError` where a value has no end.
    """
    start = _CALL.search(text)
    if start is None:
        return None
    rest = text[start.end() :]
    if "</function>" not in rest:
        if text.count(CALL_START) != 1:
            return None
        rest = rest.rstrip()
        cut = next((one for one in ("</function", "</") if rest.endswith(one)), "")
        rest = f"{rest.removesuffix(cut)}</function>"
    # Without the tags that models open, or close, before a call: a few, as a longer row is no wrapping.
    before = text[: start.start()].rstrip()
    for _ in range(_MOST_WRAPPERS):
        tag = next((one for one in _WRAPPERS if before.endswith(one)), "")
        before = before.removesuffix(tag).rstrip()
    return before, start.group(1).strip(), _arguments(_UNCLOSED_NAME.sub(r"<parameter=\1>\2</parameter>", rest))


def _arguments(rest: str) -> dict[str, str]:
    arguments: dict[str, str] = {}
    position = 0
    end = rest.find("</function>")
    while True:
        start = _PARAMETER.search(rest, position)
        if 0 <= end < position:
            end = rest.find("</function>", position)
        if start is None or 0 <= end < start.start():
            return arguments
        name = start.group(1).strip()
        closed = _VALUE_END.search(rest, start.end())
        if closed is None:
            raise FunctionCallValidationError(
                f"The parameter {name!r} has no end: close each value with </parameter>, and the call with </function>."
            )
        value = rest[start.end() : closed.start()]
        value = value.removeprefix("\r\n") if value.startswith("\r\n") else value.removeprefix("\n")
        arguments[name] = value.removesuffix("\r\n") if value.endswith("\r\n") else value.removesuffix("\n")
        position = closed.end()


def written(name: str, arguments: str) -> str:
    """A call in text; raises `FunctionCallConversionError` for arguments that are no JSON object."""
    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise FunctionCallConversionError(
            f"The arguments of the call of {name!r} are not a JSON object, so it cannot be written as text."
        )
    lines = [f"<function={name}>"]
    for key, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        frame = "\n" if "\n" in text else ""
        lines.append(f"<parameter={key}>{frame}{text}{frame}</parameter>")
    return "\n".join([*lines, "</function>"])
