"""Schemas of tools as their providers take them, and calls with the names that the tools themselves have."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import unquote

from agent_core.events.messages import Message, MessageToolCall

ToolDialect = Literal["usual", "gemini", "anthropic", "nova", "mistral"]
"""What a model's provider takes in the schema of a tool. ``usual``: what all of them, and servers that are not known,
agree on; the others take less, each as its documentation says.
"""

MAX_NODES = 10_000
"""How many parts one tool's schema may have when its references are written out; what follows is left open."""
MAX_DEPTH = 40

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_UNIONS = ("anyOf", "oneOf")
_SAYS = {"properties", "items", "enum", "const"}
_PART = ("items", "additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else")
_PARTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED_PARTS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_FORMATS = {"string": ("enum", "date-time"), "number": ("float", "double"), "integer": ("int32", "int64")}
_BOUNDS = {"array": ("minItems", "maxItems"), "number": ("minimum", "maximum"), "integer": ("minimum", "maximum")}

_Schema = dict[str, Any]


def safe_name(name: str) -> str:
    """A tool's name as every provider takes it: itself, or with a mark of what it was, so that no two become one."""
    return name if _NAME.fullmatch(name) else _marked(name, r"[^A-Za-z0-9_-]", 55)


def safe_key(key: str) -> str:
    """The name of an argument, likewise, as Anthropic takes it."""
    return key if _KEY.fullmatch(key) else _marked(key, r"[^A-Za-z0-9_.-]", 55)


def _marked(name: str, unusable: str, length: int) -> str:
    mark = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    plain = re.sub(unusable, "_", name)[:length]
    return f"{plain if _NAME.match(plain) else f'_{plain}'}_{mark}"


def sent_arguments(arguments: str, dialect: ToolDialect) -> str:
    """The arguments of an earlier call by the names that the provider knows."""
    if dialect != "anthropic":
        return arguments
    try:
        values = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(values, dict) or all(map(_KEY.fullmatch, values)):
        return arguments
    return _json({safe_key(key): value for key, value in values.items()})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class FittedTools:
    """The tools of a request in one dialect.

    `names` are the own names of those that are sent under another one, `keys` of their arguments, by the tool's own
    name.
    """

    schemas: list[_Schema]
    names: Mapping[str, str]
    keys: Mapping[str, Mapping[str, str]]

    def restored(self, message: Message) -> Message:
        """The model's answer, its calls as the tools themselves name things."""
        if not message.tool_calls or not (self.names or self.keys):
            return message
        return message.model_copy(update={"tool_calls": [self._restored(call) for call in message.tool_calls]})

    def _restored(self, call: MessageToolCall) -> MessageToolCall:
        name = self.names.get(call.name, call.name)
        keys, arguments = self.keys.get(name), call.arguments
        if keys:
            try:
                values = json.loads(arguments)
            except ValueError:
                values = None  # the agent is told what is wrong with them
            if isinstance(values, dict):
                arguments = _json({keys.get(key, key): value for key, value in values.items()})
        return call.model_copy(update={"name": name, "arguments": arguments})


def fitted(tools: Sequence[_Schema], dialect: ToolDialect) -> FittedTools:
    """These tools as a provider takes them; worked out once for each set of tools, none of which may be changed."""
    if not tools:
        return FittedTools([], {}, {})
    key = (dialect, *map(id, tools))
    known = _recent.get(key)
    if known is None:
        if len(_recent) >= _MOST_RECENT:
            _recent.clear()
        known = _recent[key] = tuple(tools), _fitted(json.dumps(list(tools)), dialect)
    return known[1]


_MOST_RECENT = 64
_recent: dict[tuple[object, ...], tuple[tuple[_Schema, ...], FittedTools]] = {}
"""By the tools themselves, which are kept so that nothing else can take their ids: writing them out takes a while."""


@lru_cache(maxsize=_MOST_RECENT)
def _fitted(tools: str, dialect: ToolDialect) -> FittedTools:
    schemas: list[_Schema] = []
    names: dict[str, str] = {}
    keys: dict[str, dict[str, str]] = {}
    for tool in json.loads(tools):
        function = tool.get("function")
        if not isinstance(function, dict):
            schemas.append(tool)  # of a kind that the provider alone knows
            continue
        own = str(function.get("name", ""))
        name = safe_name(own)
        if name != own:
            names[name] = own
        parameters = fitted_parameters(function.get("parameters"), dialect)
        if dialect == "anthropic":
            renamed = {safe_key(key): key for key in parameters["properties"] if not _KEY.fullmatch(key)}
            if renamed:
                keys[own] = renamed
                parameters = _with_safe_keys(parameters)
        fitting = {**function, "name": name}
        if not fitting.get("description"):
            fitting.pop("description", None)  # Bedrock takes none that is empty
        if parameters.get("properties") or dialect != "gemini":
            fitting["parameters"] = parameters
        else:
            fitting.pop("parameters", None)  # an object has properties there, or is left out
        schemas.append({**tool, "function": fitting})
    return FittedTools(schemas, names, keys)


def fitted_parameters(schema: Any, dialect: ToolDialect) -> _Schema:
    """The schema of a tool's arguments as a provider takes it: an object with properties, without unions around them.

    It may say less than it did, never anything else: the arguments of a call are checked by the tool's own schema.
    """
    root: _Schema = schema if isinstance(schema, dict) else {}
    if dialect in ("gemini", "nova", "mistral") or "$ref" in root:
        root = _inlined(root, root, (), [MAX_NODES])
    flat = _flat(root)
    match dialect:
        case "gemini":
            return {"type": "object", "properties": {}, **_gemini(flat)}
        case "mistral":
            change = _for_mistral
        case "nova":
            flat = _only(flat, "type", "properties", "required")
            change = _with_items
        case "anthropic":
            change = _of_2020
        case _:
            change = _with_items
    found: _Schema = _changed(flat, change)
    return found


def _flat(root: _Schema) -> _Schema:
    """The schema as that of one object: what its alternatives have is joined, and no longer has to be given."""
    parts = _joined_all(root)
    alternatives = [one for union in _UNIONS for one in _schemas(parts.get(union))]
    properties = dict(_mapping(parts.get("properties")))
    for one in map(_joined_all, alternatives):
        for key, value in _mapping(one.get("properties")).items():
            properties.setdefault(key, value)
    left_out = {*_UNIONS, "allOf", "not", "enum", "const", "if", "then", "else", "nullable", "properties", "required"}
    flat = {key: value for key, value in parts.items() if key not in left_out}
    required = [name for name in _names(parts.get("required")) if name in properties]
    every = [set(_names(_joined_all(one).get("required"))) for one in alternatives]
    if every:
        required += [name for name in properties if name not in required and all(name in one for one in every)]
    return {**flat, "type": "object", "properties": properties, **({"required": required} if required else {})}


def _joined_all(node: _Schema) -> _Schema:
    """The schema with those that have to hold as well (`allOf`) in it; where both say something, the first counts."""
    joined = {key: value for key, value in node.items() if key != "allOf"}
    for part in map(_joined_all, _schemas(node.get("allOf"))):
        properties = {**_mapping(part.get("properties")), **_mapping(joined.get("properties"))}
        required = list(dict.fromkeys([*_names(joined.get("required")), *_names(part.get("required"))]))
        joined = {**part, **joined}
        if properties:
            joined["properties"] = properties
        if required:
            joined["required"] = required
    return joined


def _schemas(value: Any) -> list[_Schema]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _changed(node: Any, change: Callable[[_Schema], _Schema], depth: int = MAX_DEPTH) -> Any:
    """The schema with each of its parts, itself at last, changed; what is nested deeper stays as it is."""
    if not isinstance(node, dict) or not depth:
        return node
    return change(_with_parts(node, lambda part: _changed(part, change, depth - 1)))


def _with_parts(node: _Schema, change: Callable[[Any], Any]) -> _Schema:
    found = dict(node)
    for key in node.keys() & {*_PART, *_PARTS, *_NAMED_PARTS}:
        value = node[key]
        if key in _NAMED_PARTS and isinstance(value, dict):
            found[key] = {name: change(part) for name, part in value.items()}
        elif isinstance(value, list):
            found[key] = [change(part) for part in value]
        elif key in _PART and isinstance(value, dict):
            found[key] = change(value)
    return found


def _inlined(node: Any, root: _Schema, seen: tuple[str, ...], left: list[int]) -> Any:
    """The schema with what it refers to in place of the references; one that leads back becomes any object."""
    left[0] -= 1
    if not isinstance(node, dict):
        return node
    if left[0] < 0 or len(seen) > MAX_DEPTH:
        return {"type": "object"}
    reference = node.get("$ref")
    if isinstance(reference, str):
        rest = {key: value for key, value in node.items() if key != "$ref"}
        target = None if reference in seen else _target(root, reference)
        if target is None:
            return {**_only(rest, "description"), "type": "object"}
        return _inlined({**target, **rest}, root, (*seen, reference), left)
    plain = {key: value for key, value in node.items() if key not in ("$defs", "definitions")}
    return _with_parts(plain, lambda part: _inlined(part, root, (*seen, ""), left))


def _target(root: _Schema, reference: str) -> _Schema | None:
    place: Any = root
    for step in unquote(reference).removeprefix("#").split("/")[1:]:
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
    return place if isinstance(place, dict) and reference.startswith("#") else None


def _only(node: Mapping[str, Any], *keys: str) -> _Schema:
    return {key: node[key] for key in keys if key in node}


def _with_items(node: _Schema) -> _Schema:
    """An array says of what it is: OpenAI refuses one that does not."""
    is_array = node.get("type") == "array" or (isinstance(node.get("type"), list) and "array" in node["type"])
    return {**node, "items": {}} if is_array and "items" not in node else node


def _for_mistral(node: _Schema) -> _Schema:
    """Without the keywords at which its grammar fails."""
    closed = node.get("additionalProperties") is False
    left_out = {"$id", "$schema", *(("additionalProperties",) if closed else ())}
    return _with_items({key: value for key, value in node.items() if key not in left_out})


def _of_2020(node: _Schema) -> _Schema:
    """What earlier drafts of JSON schema wrote otherwise, as draft 2020-12 has it, which Anthropic checks."""
    found = {key: value for key, value in node.items() if key != "$schema"}
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(found.get(exclusive), bool) and found.pop(exclusive) and bound in found:
            found[exclusive] = found.pop(bound)
    if isinstance(found.get("items"), list):
        found["prefixItems"] = found.pop("items")
        if "additionalItems" in found:
            found["items"] = found.pop("additionalItems")
    if isinstance(found.get("required"), bool):
        del found["required"]  # draft 3 said it beside the property
    return _with_items(found)


def _with_safe_keys(parameters: _Schema) -> _Schema:
    properties = {safe_key(key): value for key, value in parameters["properties"].items()}
    required = [safe_key(key) for key in _names(parameters.get("required"))]
    return {**parameters, "properties": properties, **({"required": required} if required else {})}


def _gemini(node: Any, depth: int = MAX_DEPTH) -> _Schema:
    """The schema in the part of OpenAPI 3.0 that Google takes.

    One type for each value; null is ``nullable``; an ``anyOf`` stands alone; ``enum`` is for texts that are not empty,
    and other values are named in the description; an array says of what it is; nothing is required that is no property.
    """
    if not isinstance(node, dict) or not depth:
        return {"type": "string" if depth else "object"}
    node = _joined_all(node)
    alternatives, is_nullable = _alternatives(node)
    if len(alternatives) > 1:
        described = _only(node, "description")
        options = [_gemini({**described, **one}, depth - 1) for one in alternatives]
        if len(unlike := [one for place, one in enumerate(options) if one not in options[:place]]) > 1:
            return {"anyOf": [{**one, "nullable": True} if is_nullable else one for one in unlike]}
        node = options[0]
    elif alternatives:
        node = {**alternatives[0], **_only(node, "description")}
        if any(union in node for union in _UNIONS):
            found = _gemini(node, depth - 1)
            return {**found, "nullable": True} if is_nullable and "anyOf" not in found else found
    return _gemini_value(node, depth, is_nullable=is_nullable)


def _alternatives(node: _Schema) -> tuple[list[_Schema], bool]:
    """What the value may be instead, each with what holds for all, and whether it may be null."""
    kinds = node.get("type")
    types = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind in _TYPES or kind == "null"]
    own = {key: value for key, value in node.items() if key not in (*_UNIONS, "type", "nullable")}
    is_nullable = "null" in types or node.get("nullable") is True
    types = [kind for kind in types if kind != "null"]
    options = [one for union in _UNIONS for one in _schemas(node.get(union))]
    plain = [one for one in options if one.get("type") != "null" and not _is_null(one)]
    is_nullable = is_nullable or len(plain) < len(options)
    says_more = any(one.keys() & {*_SAYS, *_UNIONS, "type", "allOf"} for one in plain)
    if says_more and not own.keys() & _SAYS:
        given = {"type": types[0]} if len(types) == 1 else {}
        return [{**own, **given, **one} for one in plain], is_nullable
    if len(types) > 1:
        return [{**own, "type": kind} for kind in types], is_nullable
    return [{**own, **({"type": types[0]} if types else {})}], is_nullable


def _is_null(node: _Schema) -> bool:
    return node.get("enum") == [None] or ("const" in node and node["const"] is None)


def _gemini_value(node: _Schema, depth: int, *, is_nullable: bool) -> _Schema:
    values = list(node["enum"]) if isinstance(node.get("enum"), list) else [node["const"]] if "const" in node else []
    is_nullable = is_nullable or node.get("nullable") is True or None in values
    values = [value for value in values if value is not None]
    kind = next((one for one in _TYPES if one == node.get("type")), None) or next(_kinds(node, values), "string")
    found: _Schema = {"type": kind, **({"nullable": True} if is_nullable else {})}
    words = [node["description"]] if isinstance(node.get("description"), str) and node["description"] else []
    if values and kind == "string" and all(isinstance(value, str) and value for value in values):
        found["enum"] = list(dict.fromkeys(values))
    elif values:
        words.append(f"One of: {', '.join(_json(value) for value in values)}.")
    if words:
        found["description"] = " ".join(words)
    found |= _only(node, *_BOUNDS.get(kind, ()))
    if node.get("format") in _FORMATS.get(kind, ()):
        found["format"] = node["format"]
    if kind == "array":
        first = _schemas(node.get("prefixItems")) or _schemas(node.get("items"))
        found["items"] = _gemini(first[0] if first else node.get("items"), depth - 1)
    if kind == "object" and (properties := _mapping(node.get("properties"))):
        found["properties"] = {key: _gemini(value, depth - 1) for key, value in properties.items()}
        if required := [name for name in dict.fromkeys(_names(node.get("required"))) if name in properties]:
            found["required"] = required
    return found


def _kinds(node: _Schema, values: Sequence[Any]) -> Iterator[str]:
    if node.keys() & {"properties", "additionalProperties", "required"}:
        yield "object"
    if node.keys() & {"items", "prefixItems"}:
        yield "array"
    kinds = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    yield from (kinds[type(value)] for value in values if type(value) in kinds)
