"""Arguments of a remote tool against the schema that its server gave, before the server is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agent_core.mcp.expansion import is_reference

MAX_SCHEMA_CHARS = 200_000
MAX_PROBLEMS = 5
_MAX_SHOWN_CHARS = 200
_ABOUT_THE_TEXT = frozenset({"pattern", "format", "minLength", "maxLength", "enum", "const"})


def parameters_from(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments as it is offered to a model: as its server gave it, and certainly an object.

    Raises:
        ValueError: it is no usable JSON schema of an object; the message says why.
    """
    if schema.get("type", "object") != "object":
        raise ValueError(f"its inputSchema describes a value of type {schema['type']!r}, not an object")
    if len(text := json.dumps(dict(schema))) > MAX_SCHEMA_CHARS:
        raise ValueError(f"its inputSchema has {len(text)} characters; at most {MAX_SCHEMA_CHARS} are taken")
    properties = schema.get("properties") or {}
    if not isinstance(properties, Mapping):
        raise ValueError("the properties in its inputSchema are no object")
    whole: dict[str, Any] = {**schema, "type": "object", "properties": dict(properties)}
    _validator(json.dumps(whole, sort_keys=True))
    return whole


def problems_of(parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """What is wrong with `arguments`, each with its place; values are not repeated, they may be long, or secret.

    Of a text that refers to a secret only its type is judged: the rest is known when the call is made. What cannot be
    judged here (a pattern in another dialect, a definition that is elsewhere) is left to the server.
    """
    # Lazy: its specifications take time to load, and only conversations with such servers need them.
    from referencing.exceptions import Unresolvable

    validator = _validator(json.dumps(parameters, sort_keys=True))
    found: list[str] = []
    try:
        for error in validator.iter_errors(dict(arguments)):
            if error.validator in _ABOUT_THE_TEXT and isinstance(error.instance, str) and is_reference(error.instance):
                continue
            found.append(_in_words(error))
            if len(found) == MAX_PROBLEMS:
                break
    except (re.error, Unresolvable, RecursionError):
        return found
    return found


def _in_words(error: Any) -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "arguments"
    wanted = json.dumps(error.validator_value, ensure_ascii=False, default=str)
    shown = wanted if len(wanted) <= _MAX_SHOWN_CHARS else f"{wanted[:_MAX_SHOWN_CHARS]}…"
    match error.validator:
        case "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            return f"{place}: {missing} must be given"
        case "additionalProperties" | "unevaluatedProperties":
            known = sorted(error.schema.get("properties", {}))
            return f"{place}: there is an argument that the tool does not know; it knows {known}"
        case "type":
            return f"{place}: must be of type {shown}"
        case "enum":
            return f"{place}: must be one of {shown}"
        case _:
            return f"{place}: does not fit {error.validator} {shown}"


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> Any:
    # Lazy for the reason given above.
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    schema = json.loads(schema_text)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema, format_checker=None)  # patterns may be in another dialect than Python's
    except SchemaError as error:
        place = ".".join(str(part) for part in error.absolute_path) or "its root"
        raise ValueError(f"its inputSchema is no valid JSON schema: at {place}: {error.message[:200]}") from None
    except RecursionError:
        raise ValueError("its inputSchema is nested too deeply") from None
    return kind(schema, registry=Registry())  # an empty registry: nothing is ever fetched
