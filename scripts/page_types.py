"""Writes the page's types of the protocol from its promised form: the snapshots of the API and of the events.

python scripts/page_types.py            writes frontend_stub/src/protocol/generated
python scripts/page_types.py --check    says what is stale, and fails then
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SNAPSHOTS: Final = ROOT / "tests" / "contract" / "snapshots"
TARGET: Final = ROOT / "frontend_stub" / "src" / "protocol" / "generated"
HEADER: Final = "/** {} Made by `make page-types` from the promised form of the protocol; not edited by hand. */\n"
SIMPLE: Final = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
WORTH_A_NAME: Final = 3
"""Fields from which on an object that occurs several times gets a name."""

Schema = Mapping[str, Any]


def generated() -> dict[str, str]:
    """The files by their names."""
    api = json.loads((SNAPSHOTS / "openapi.json").read_text())
    events = json.loads((SNAPSHOTS / "events.json").read_text())
    return {"rest.ts": rest_types(api), "events.ts": event_types(events)}


def rest_types(api: Schema) -> str:
    """What the routes take and answer: each schema under its name, and `Routes`."""
    writer = Writer({})
    parts = [HEADER.format("What the REST routes take and answer.")]
    parts += [writer.declared(name_of(name), schema) for name, schema in sorted(api["components"]["schemas"].items())]
    routes = []
    for path, methods in sorted(api["paths"].items()):
        for method, operation in sorted(methods.items()):
            body = _content(operation.get("requestBody", {}))
            replies = [_content(reply) for status, reply in operation["responses"].items() if status.startswith("2")]
            kinds = sorted({writer.written(reply, "  ") for reply in replies if reply is not None})
            facts = f"readonly body: {'undefined' if body is None else writer.written(body, '  ')}; "
            facts += f"readonly reply: {' | '.join(kinds) or 'unknown'}"
            routes.append(f"  readonly {json.dumps(f'{method.upper()} {path}')}: {{ {facts} }};\n")
    return "\n".join([*parts, f"export interface Routes {{\n{''.join(routes)}}}\n"])


def event_types(events: Schema) -> str:
    """What goes over the socket: each type under its name, and unions of those that are of one kind."""
    sent = {name: _event_name(name) for name in sorted(events["sent"])}
    taken = {name: f"Send{name_of(name.removeprefix('action '))}" for name in sorted(events["taken"])}
    writer = Writer(_repeated([*events["sent"].values(), *events["taken"].values()]))
    parts = [HEADER.format("What goes over the socket.")]
    parts += [writer.shared(name, schema) for name, schema in writer.names()]
    parts += [writer.declared(name, events["sent"][key]) for key, name in sent.items()]
    parts += [writer.declared(name, events["taken"][key]) for key, name in taken.items()]
    parts += [
        _union("AnyAction", [name for key, name in sent.items() if key.startswith("oh_event action ")]),
        _union("AnyObservation", [name for key, name in sent.items() if key.startswith("oh_event observation ")]),
        _union("AnyDelta", [name for key, name in sent.items() if key.startswith("oh_delta ")]),
        _union("AnySend", list(taken.values())),
    ]
    return "\n".join(parts)


class Writer:
    """Schemas as TypeScript. Objects whose JSON is among those with a name are written by it."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def names(self) -> Iterator[tuple[str, Schema]]:
        """The names, with what they stand for."""
        for text, name in sorted(self._names.items(), key=lambda item: item[1]):
            yield name, json.loads(text)

    def shared(self, name: str, schema: Schema) -> str:
        """The declaration of a name."""
        return f"export interface {name} {self._object(schema, '')}\n"

    def declared(self, name: str, schema: Schema) -> str:
        """A declaration, with the first paragraph of what is said about it."""
        words = " ".join(str(schema.get("description", "")).split("\n\n")[0].split())
        comment = f"/** {words} */\n" if words and "*/" not in words else ""
        form = self.written(schema)
        return f"{comment}export {f'interface {name} {form}' if form.startswith('{') else f'type {name} = {form};'}\n"

    def written(self, schema: Schema, indent: str = "") -> str:
        """The type."""
        if "$ref" in schema:
            return name_of(schema["$ref"].rpartition("/")[2])
        if "const" in schema:
            return json.dumps(schema["const"])
        if "enum" in schema:
            return " | ".join(json.dumps(value) for value in schema["enum"])
        for several in ("anyOf", "oneOf"):
            if several in schema and "properties" not in schema:
                return " | ".join(dict.fromkeys(self.written(one, indent) for one in schema[several]))
        kind = schema.get("type")
        if kind == "array":
            items = self.written(schema.get("items", {}), indent)
            return f"readonly ({items})[]" if " " in items else f"readonly {items}[]"
        if kind == "object":
            return self._names.get(_text(schema)) or self._object(schema, indent)
        return SIMPLE.get(str(kind), "unknown")

    def _object(self, schema: Schema, indent: str) -> str:
        properties: Schema = schema.get("properties", {})
        if not properties:
            others = schema.get("additionalProperties", True)
            values = self.written(others, indent) if isinstance(others, dict) and others else "unknown"
            return f"Readonly<Record<string, {values if others else 'never'}>>"
        deeper = f"{indent}  "
        lines = []
        for key, value in properties.items():
            mark = "" if key in schema.get("required", ()) else "?"
            lines.append(f"{deeper}readonly {key}{mark}: {self.written(value, deeper)};\n")
        return f"{{\n{''.join(lines)}{indent}}}"


def name_of(text: str) -> str:
    """A name for a type: each word of the text with a capital letter."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", text))


def _event_name(name: str) -> str:
    event, _, kind = name.partition(" ")
    match kind.split(" "):
        case ["action", action]:
            return f"{name_of(action)}Action"
        case ["observation", observation]:
            return f"{name_of(observation)}Observation"
    return name_of(f"{event.removeprefix('oh_')} {kind}")


def _union(name: str, members: Sequence[str]) -> str:
    lines = "".join(f"\n  | {member}" for member in members)
    return f"export type {name} ={lines};\n"


def _repeated(schemas: Sequence[Schema]) -> dict[str, str]:
    """The objects that occur several times under the same field, by their JSON, with the field's name."""
    found: Counter[tuple[str, str]] = Counter()

    def look(schema: Any, field: str) -> None:
        if isinstance(schema, list):
            for one in schema:
                look(one, field)
        elif isinstance(schema, dict):
            if field and schema.get("type") == "object" and len(schema.get("properties", {})) >= WORTH_A_NAME:
                found[_text(schema), field] += 1
            for key, value in schema.get("properties", {}).items():
                look(value, key)
            for key in ("anyOf", "oneOf", "items"):
                look(schema.get(key), field)

    look(list(schemas), "")
    forms = Counter(field for (_, field), times in found.items() if times > 1)
    return {text: name_of(field) for (text, field), times in found.items() if times > 1 and forms[field] == 1}


def _content(described: Schema) -> Schema | None:
    content: Schema | None = described.get("content", {}).get("application/json", {}).get("schema")
    return content


def _text(schema: Schema) -> str:
    return json.dumps(schema, sort_keys=True)


def stale() -> list[str]:
    """The names of the files that are not what they should be."""
    return [name for name, text in generated().items() if not _is(TARGET / name, text)]


def main(arguments: Sequence[str]) -> int:
    """Write the files, or say which are stale."""
    wrong = stale()
    if "--check" in arguments:
        for name in wrong:
            print(f"{name} is stale; type: make page-types", file=sys.stderr)
        return 1 if wrong else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    files = generated()
    for name in wrong:
        (TARGET / name).write_text(files[name])
    return 0


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
