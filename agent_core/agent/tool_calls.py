"""Tool calls of a model made into actions: repair, checks, and errors that the model can act on."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from agent_core.errors import ToolError
from agent_core.events.messages import MessageToolCall
from agent_core.events.risk import SecurityRisk
from agent_core.events.schema import Action, problems_in, types_of
from agent_core.tools.definition import ToolDefinition

TERMINAL_ALIASES = frozenset({"bash", "command", "execute", "execute_bash", "git", "reset"})
EDITOR_ALIASES = frozenset({"str_replace", "str_replace_editor"})
BARE_COMMANDS = frozenset({"find", "git", "ls", "pwd"})
EXTRAS = ("security_risk", "summary")
"""Arguments that a model may add to any call."""
MISSPELLED_RISK = ("security_rort", "securtiy_risk", "security_riks")
RISKS: Mapping[str, SecurityRisk] = {risk.value: risk for risk in SecurityRisk}
MAX_ERROR_CHARS = 2_000
MAX_DEPTH = 100
"""How deeply arguments may be nested: what comes after (the log, tools, clients) reads no further."""
MALFORMED = "_openhands_malformed_tool_call"
"""Stands in place of arguments that are no JSON; other programs know it by this name."""
_TOO_DEEP = "they are nested too deeply"


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One checked call of the model: exactly one of `action` and `error` is set; `call.arguments` is valid JSON."""

    call: MessageToolCall
    tool_name: str
    action: Action | None = None
    error: str = ""
    security_risk: SecurityRisk = SecurityRisk.UNKNOWN
    summary: str = ""


def parse_call(call: MessageToolCall, tools: Mapping[str, ToolDefinition], *, predicts_risk: bool = True) -> ParsedCall:
    """Check one call against the tools at hand; never raises for anything that a model may send.

    Without `predicts_risk` what the model says of risks is ignored.
    """
    try:
        arguments = _arguments_of(call.arguments)
    except ValueError as error:
        return _refused(call, call.name, f"its arguments are not a JSON object ({error})", keys=None)
    try:
        name, arguments = _normalised(call.name, arguments, tools)
    except ValueError as error:
        return _refused(call, call.name, str(error), keys=sorted(arguments))
    definition = tools.get(name)
    if definition is None:
        text = f"Tool {call.name[:100]!r} not found. Available: {sorted(tools)}"
        shown = _sendable(call.name)
        return ParsedCall(_stored(call, shown, arguments), shown, error=text)
    try:
        risk, summary, own = _without_extras(definition, arguments, predicts_risk=predicts_risk)
        action, own = _action_of(own, definition)
    except ValidationError as error:
        return _refused(call, name, problems_in(error), keys=sorted(arguments))
    except ValueError as error:
        return _refused(call, name, str(error), keys=sorted(arguments))
    except Exception as error:  # noqa: BLE001 - a tool's own validators raise what they like
        return _refused(call, name, f"the tool cannot read them ({type(error).__name__})", keys=sorted(arguments))
    return ParsedCall(
        _stored(call, name, {**arguments, **own}),
        name,
        action=action,
        security_risk=risk,
        summary=summary or f"{name}: {_ENCODER.encode(own)}"[:200],
    )


def _arguments_of(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    value = _first_value(text)
    if not isinstance(value, dict):
        return {}
    for wrong in MISSPELLED_RISK:
        if wrong in value:
            value.setdefault("security_risk", value.pop(wrong))
    return {key: item for key, item in value.items() if item is not None}


def _first_value(text: str) -> Any:
    """The JSON value that the text begins with; garbage behind it is cut. Raises `ValueError`."""
    try:
        value, _ = _DECODER.raw_decode(text.strip())
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    return _storable(value, MAX_DEPTH)


def _storable(value: Any, depth: int) -> Any:
    """Half characters, which UTF-8 cannot express, replaced. Raises `ValueError` for what is nested more deeply."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if not isinstance(value, list | dict):
        return value
    if not depth:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, list):
        return [_storable(item, depth - 1) for item in value]
    return {_storable(key, 1): _storable(item, depth - 1) for key, item in value.items()}


def _finite(digits: str) -> float | None:
    """A number that is too large for Python becomes infinite, which could not be written as JSON again."""
    return number if math.isfinite(number := float(digits)) else None


# strict=False takes raw control characters inside strings, which many models send. NaN and Infinity are no JSON, though
# Python reads them; as null the field counts as not given.
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda name: None, parse_float=_finite)
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def _normalised(
    name: str, arguments: dict[str, Any], tools: Mapping[str, ToolDefinition]
) -> tuple[str, dict[str, Any]]:
    if name in tools:
        return name, arguments
    match = re.match(r"\s*([A-Za-z_][\w-]*)", name)
    short = match.group(1) if match else name
    if short in tools:
        return short, arguments
    if "terminal" in tools and short in TERMINAL_ALIASES:
        command = arguments.get("command", "")
        if short in {"git", "reset"} and isinstance(command, str) and command.split()[:1] != [short]:
            return "terminal", {**arguments, "command": f"{short} {command}".strip()}
        return "terminal", arguments
    extras = {key: arguments[key] for key in EXTRAS if key in arguments}
    if "terminal" in tools and short == "grep" and isinstance(arguments.get("pattern"), str):
        only = [f"--include={arguments['include']}"] if arguments.get("include") else []
        path = str(arguments.get("path") or ".")
        command = shlex.join(["grep", "-rnE", *only, "--", str(arguments["pattern"]), path])
        return "terminal", {"command": command, **extras}
    if "terminal" in tools and short in BARE_COMMANDS and arguments == extras:
        return "terminal", {"command": short, **extras}
    if "file_editor" in tools and short in EDITOR_ALIASES:
        return "file_editor", _with_editor_command(short, arguments)
    return name, arguments


def _with_editor_command(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if "command" in arguments:
        return arguments
    if name == "str_replace" or "old_str" in arguments:
        command = "str_replace"
    elif "insert_line" in arguments:
        command = "insert"
    elif "file_text" in arguments:
        command = "create"
    elif arguments.keys() <= {"path", "view_range", *EXTRAS}:
        command = "view"
    else:
        raise ToolError("command is missing, and the other arguments do not say which one is meant")
    return {"command": command, **arguments}


def _without_extras(
    definition: ToolDefinition, arguments: dict[str, Any], *, predicts_risk: bool
) -> tuple[SecurityRisk, str, dict[str, Any]]:
    own = dict(arguments)
    declared = definition.parameters["properties"]  # a remote tool may have arguments of these names itself
    declared_risk = "" if "security_risk" in declared else str(own.pop("security_risk", "")).strip().upper()
    counts = declared_risk and predicts_risk and not definition.annotations.readOnlyHint
    risk = RISKS.get(declared_risk) if counts else SecurityRisk.UNKNOWN
    if risk is None:
        raise ToolError(f"security_risk must be one of {sorted(RISKS)}")
    summary = own.get("summary", "") if "summary" in declared else own.pop("summary", "")
    return risk, str(summary), own


def _action_of(arguments: dict[str, Any], definition: ToolDefinition) -> tuple[Action, dict[str, Any]]:
    """The action for the arguments, and these as they were understood."""
    try:
        return definition.action_from_arguments(arguments), arguments
    except ValueError:
        if (repaired := _repaired(arguments, definition)) == arguments:
            raise
    return definition.action_from_arguments(repaired), repaired


def _repaired(arguments: dict[str, Any], definition: ToolDefinition) -> dict[str, Any]:
    """Lists given for a text are joined; JSON text given for a list or object is read."""
    schema = definition.parameters
    out = dict(arguments)
    for key, value in arguments.items():
        types = types_of(schema["properties"].get(key), schema)
        if isinstance(value, list):
            if "string" in types and all(isinstance(item, str) for item in value):
                out[key] = "\n".join(value)
        elif not isinstance(value, str):
            continue
        elif types & {"array", "object"}:
            with contextlib.suppress(ValueError):
                out[key] = _first_value(value)
        elif types & {"boolean", "integer", "number"}:
            out[key] = value.strip().lower() if "boolean" in types else value.strip()
    return out


def _refused(call: MessageToolCall, name: str, cause: str, *, keys: list[str] | None) -> ParsedCall:
    described = "The arguments could not be parsed." if keys is None else f"Parameters provided: {keys}"
    if keys == [] and call.arguments.strip()[:1] not in ("", "{"):
        described = "The arguments are no JSON object, so nothing of them counts."
    text = f"Error validating the call of tool {name[:100]!r}: {cause}. {described}"[:MAX_ERROR_CHARS]
    if keys is None:
        placeholder = json.dumps({MALFORMED: True, "error": cause[:500]})
        shown = _sendable(name)
        return ParsedCall(call.model_copy(update={"name": shown, "arguments": placeholder}), shown, error=text)
    return ParsedCall(_stored(call, name, _arguments_of(call.arguments)), name, error=text)


def _sendable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:64] or "unnamed_tool"


def _stored(call: MessageToolCall, name: str, arguments: dict[str, Any]) -> MessageToolCall:
    return call.model_copy(update={"name": name, "arguments": _ENCODER.encode(arguments)})
