"""What a model is told about calls as text: the functions, the format, a worked example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_core.events.schema import reduced
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
