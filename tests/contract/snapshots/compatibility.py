"""Whether a new JSON schema would break a client that was written for an old one.

Two directions, because a promise reads differently from either end:

- ``sent``: what the server sends. A client relies on what it reads being there and being of a type that it knows. A new
  field is an addition; a field that is gone, may be left out, or may now be of another type (null, say) is a break.
- ``taken``: what a client sends. It relies on being understood. A new optional field is an addition; a field that is
  gone, was optional, was of a type or within a bound that is no longer taken is a break.

`breaks` compares two schemas, each within its own document (where its ``$ref`` lead to). What a schema does not say
anything about (descriptions, titles, examples) is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import gt, lt
from typing import Any, Final, Literal

Way = Literal["sent", "taken"]
Schema = Mapping[str, Any]

ANY_TYPE: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
MAX_DEPTH: Final = 60
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


@dataclass(frozen=True, slots=True)
class Document:
    """A schema's surroundings: where a ``$ref`` such as ``#/$defs/Task`` leads to."""

    root: Mapping[str, Any]

    def resolve(self, schema: Any) -> Schema:
        """The schema itself, whatever refers to it, with the parts of an ``allOf`` put together."""
        if schema is True or schema is None:
            return {}
        if schema is False:
            return {"enum": []}
        for _ in range(MAX_DEPTH):
            if "$ref" not in schema:
                break
            found: Any = self.root
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part.replace("~1", "/").replace("~0", "~")]
            schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
        if "allOf" not in schema:
            return dict(schema)
        whole: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            one = self.resolve(part)
            whole["properties"] = {**whole.get("properties", {}), **one.get("properties", {})}
            whole["required"] = [*whole.get("required", []), *one.get("required", [])]
            whole = {**one, **whole}
        return whole

    def alternatives(self, schema: Any) -> list[Schema]:
        """The schema as a list of schemas of one type each; an empty schema, which takes anything, stands alone."""
        whole = self.resolve(schema)
        choices = whole.get("anyOf") or whole.get("oneOf")
        if choices:
            rest = {key: value for key, value in whole.items() if key not in ("anyOf", "oneOf")}
            return [one for choice in choices for one in self.alternatives({**rest, **self.resolve(choice)})]
        types = whole.get("type")
        if isinstance(types, list):
            return [one for name in types for one in self.alternatives({**whole, "type": name})]
        if types is None and "const" in whole:
            return [{**whole, "type": _type_of(whole["const"])}]
        if types is None and "enum" in whole:
            kinds = dict.fromkeys(_type_of(value) for value in whole["enum"])
            return [
                {**whole, "type": kind, "enum": [value for value in whole["enum"] if _type_of(value) == kind]}
                for kind in kinds
            ]
        if types is None and "properties" in whole:
            return [{**whole, "type": "object"}]
        return [whole]


def breaks(
    old: Schema, new: Schema, way: Way, *, place: str = "", roots: tuple[Schema, Schema] | None = None
) -> list[str]:
    """What a client written for `old` could stumble over in `new`, a line each; empty: nothing.

    `roots` are the documents in which each schema's references lead somewhere; by default the schemas themselves.
    """
    before, after = roots or (old, new)
    compared = _Comparison(Document(before), Document(after), way)
    return list(compared.differences(old, new, place, 0))


@dataclass(slots=True)
class _Comparison:
    before: Document
    after: Document
    way: Way
    _open: set[tuple[str, str]] = field(default_factory=set)

    def differences(self, old: Any, new: Any, place: str, depth: int) -> Iterator[str]:
        refers = (_reference(old), _reference(new))
        # A schema that refers to itself: what there is has been compared on the way here.
        if depth > MAX_DEPTH or refers in self._open:
            return
        if refers != ("", ""):
            self._open.add(refers)
        yield from self._alternatives(old, new, place, depth)
        self._open.discard(refers)

    def _alternatives(self, old: Any, new: Any, place: str, depth: int) -> Iterator[str]:
        olds, news = self.before.alternatives(old), self.after.alternatives(new)
        # Who relies on something is asked whether each thing that may come fits one of the things it knows.
        coming, known = (news, olds) if self.way == "sent" else (olds, news)
        for one in coming:
            fitting = [other for other in known if _fits(one, other)]
            if not fitting:
                may = "may now be" if self.way == "sent" else "may no longer be"
                yield f"{place or 'it'} {may} {_words(one)}"
                continue
            problems = [
                list(self._same_type(*((other, one) if self.way == "sent" else (one, other)), place, depth))
                for other in fitting
            ]
            yield from min(problems, key=len)

    def _same_type(self, old: Schema, new: Schema, place: str, depth: int) -> Iterator[str]:
        yield from self._values(old, new, place)
        if self.way == "taken":
            yield from _bounds(old, new, place)
        if "items" in old or "items" in new:
            yield from self.differences(old.get("items", {}), new.get("items", {}), f"{place}[]", depth + 1)
        yield from self._properties(old, new, place, depth)

    def _values(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        first, second = _listed(old), _listed(new)
        narrow, wide = (first, second) if self.way == "sent" else (second, first)
        if narrow is None:
            return
        if wide is None:
            yield f"{place or 'it'} {'was' if self.way == 'sent' else 'is now'} one of a list of values"
            return
        for value in wide:
            if value not in narrow:
                yield f"{place or 'it'} {'may now be' if self.way == 'sent' else 'may no longer be'} {value!r}"

    def _properties(self, old: Schema, new: Schema, place: str, depth: int) -> Iterator[str]:
        olds, news = old.get("properties", {}), new.get("properties", {})
        had_to, have_to = set(old.get("required", ())), set(new.get("required", ()))
        for name, schema in olds.items():
            where = f"{place}.{name}" if place else name
            if name not in news:
                yield f"{where} is gone"
                continue
            if self.way == "sent" and name in had_to - have_to:
                yield f"{where} may now be left out"
            if self.way == "taken" and name in have_to - had_to:
                yield f"{where} may no longer be left out"
            if self.way == "taken" and schema.get("default") != news[name].get("default") and name not in had_to:
                yield f"{where} has another default"
            yield from self.differences(schema, news[name], where, depth + 1)
        if self.way == "taken":
            for name in sorted(have_to - set(olds)):
                yield f"{place}.{name} is new and has to be sent".removeprefix(".")
        yield from self._other_properties(old, new, place, depth)

    def _other_properties(self, old: Schema, new: Schema, place: str, depth: int) -> Iterator[str]:
        """Names that are not listed: the values of a map, or fields that are ignored."""
        olds, news = old.get("additionalProperties", True), new.get("additionalProperties", True)
        if self.way == "taken" and olds is not False and news is False:
            yield f"{place or 'it'} takes no other fields any more"
        elif isinstance(olds, Mapping) and isinstance(news, Mapping):
            yield from self.differences(olds, news, f"{place}.*", depth + 1)
        elif self.way == "sent" and isinstance(olds, Mapping) and news is True:
            yield f"{place}.* may now be anything"
        elif self.way == "taken" and olds is True and isinstance(news, Mapping) and _listed_names(old) == set():
            yield f"{place}.* may no longer be anything"


def _fits(one: Schema, other: Schema) -> bool:
    """Whether a value of `one`'s type is of a type that `other` has."""
    coming, known = one.get("type"), other.get("type")
    return known is None or coming == known or (coming == "integer" and known == "number")


def _bounds(old: Schema, new: Schema, place: str) -> Iterator[str]:
    for names, is_tighter in ((_LOWER, gt), (_UPPER, lt)):
        for name in names:
            if name in new and (name not in old or is_tighter(new[name], old[name])):
                yield f"{place or 'it'} has a tighter bound: {name} {new[name]}"
    for name in ("pattern", "format"):
        if name in new and new[name] != old.get(name):
            yield f"{place or 'it'} has to be of the {name} {new[name]}"


def _listed(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return None if found is None else list(found)


def _reference(schema: Any) -> str:
    return str(schema.get("$ref", "")) if isinstance(schema, Mapping) else ""


def _listed_names(schema: Schema) -> set[str]:
    return set(schema.get("properties", {}))


def _words(schema: Schema) -> str:
    return str(schema.get("type", "anything"))


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
