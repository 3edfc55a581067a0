"""Actions and observations: the open, typed vocabulary of the tools, and their JSON schemas.

Programs may add subclasses: each carries its class name as `kind`, by which it is read back. A stored value whose class
is gone becomes an `UnknownAction` or `UnknownObservation`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializeAsAny,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from agent_core.events.messages import Content, ImageContent, Kindred, Lean, TextContent
from agent_core.events.plain_text import first_line, one_line

NAMESAKES = 4
_OURS = "agent_core."


class Tagged(Kindred):
    """A frozen model whose `kind` is its class name; subclasses register themselves.

    A program may have classes that are called like ours, or like some of before: its own count first, the newest of
    them before the others, and then whichever the data fit.
    """

    # Ours are built when first used: all of them at once take long. Others are as soon as `kind` has its default, just
    # below, so that a field that cannot be is said where its class is made.
    model_config = ConfigDict(defer_build=True)

    kind: str = ""

    classes: ClassVar[dict[str, type[Tagged]]] = {}
    namesakes: ClassVar[dict[str, tuple[type[Tagged], ...]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.model_fields["kind"].default = cls.__name__
        if not cls.__module__.startswith(_OURS):
            cls.model_rebuild(force=True)
        known = [cls, *Tagged.namesakes.get(cls.__name__, ())]
        known.sort(key=lambda each: each.__module__.startswith(_OURS))
        Tagged.namesakes[cls.__name__] = tuple(known[:NAMESAKES])
        Tagged.classes[cls.__name__] = known[0]

    @classmethod
    def member(cls, kind: str) -> type[Tagged] | None:
        return Tagged.classes.get(kind)

    @classmethod
    def revive(cls, value: Any) -> Any:
        """For a validator: `value`, or one of the subclass that its data name; raises `ValueError` for others."""
        if not isinstance(value, dict):
            return value
        kind = value.get("kind")
        found = Tagged.classes.get(str(kind))
        if found is None or not issubclass(found, cls):
            known = sorted(name for name, one in Tagged.classes.items() if issubclass(one, cls) and one is not cls)
            raise ValueError(f"kind: {kind!r} is none of {known}")
        return found.model_validate(value)


class Family(Tagged):
    """Configuration whose abstract classes read the data of their subclasses, also where they are a field's type."""

    @model_validator(mode="wrap")
    @classmethod
    def _is_of_its_kind(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if inspect.isabstract(cls) and isinstance(data, dict):
            revived: Self = cls.revive(data)
            return revived
        return handler(data)


class Action(Tagged):
    """The typed arguments of one tool call. Field descriptions become those of the tool's parameters."""

    def __str__(self) -> str:
        """In one line what is asked for: the arguments that are not the usual ones."""
        given = [(name, getattr(self, name)) for name in self.__pydantic_fields__ if name != "kind"]
        usual = {name: field.get_default(call_default_factory=True) for name, field in self._optional_fields()}
        return one_line(", ".join(f"{name}={value!r}" for name, value in given if usual.get(name, given) != value))

    @classmethod
    def _optional_fields(cls) -> Iterator[tuple[str, FieldInfo]]:
        return ((name, field) for name, field in cls.model_fields.items() if not field.is_required())


ERROR_NOTE = TextContent(text="[An error occurred during execution.]")


class Observation(Lean, Tagged):
    """The typed result of a tool call: `content` is for the model, `is_error` says that it should notice a failure."""

    content: list[Content] = Field(default_factory=list)
    is_error: bool = False

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, TextContent))

    def __str__(self) -> str:
        """In one line what came of it: how its text begins, and whether it failed."""
        pictures = sum(len(part.image_urls) for part in self.content if isinstance(part, ImageContent))
        shown = f" [{pictures} image{'s' if pictures > 1 else ''}]" if pictures else ""
        return f"{'failed: ' if self.is_error else ''}{first_line(self.text)}{shown}"

    @classmethod
    def from_text(cls, text: str, *, is_error: bool = False, **fields: Any) -> Self:
        return cls(content=[TextContent(text=text)], is_error=is_error, **fields)

    @property
    def to_llm_content(self) -> Sequence[TextContent | ImageContent]:
        if not self.is_error:
            return list(self.content)
        return [ERROR_NOTE, *self.content]


class UnknownAction(Action):
    """An action read from a log whose class this process does not have."""

    original_kind: str
    data: dict[str, Any] = Field(default_factory=dict)


class UnknownObservation(Observation):
    """An observation read from a log whose class this process does not have."""

    original_kind: str
    data: dict[str, Any] = Field(default_factory=dict)


def _revive(value: Any, base: type[Tagged]) -> Any:
    if not isinstance(value, dict):
        return value
    kind = str(value.get("kind", ""))
    fitting = [found for found in Tagged.namesakes.get(kind, ()) if base in found.__mro__]
    for found in fitting[:-1]:
        with suppress(ValidationError):
            return found.__pydantic_validator__.validate_python(value)
    if fitting:
        return fitting[-1].__pydantic_validator__.validate_python(value)
    if base is Action:
        return UnknownAction(original_kind=kind, data={k: v for k, v in value.items() if k != "kind"})
    return UnknownObservation(
        original_kind=kind,
        content=value.get("content") or [],
        is_error=bool(value.get("is_error")),
        data={k: v for k, v in value.items() if k not in {"kind", "content", "is_error"}},
    )


AnyAction = Annotated[SerializeAsAny[Action], BeforeValidator(lambda value: _revive(value, Action))]
"""A field holding any `Action`, restored to its own class when read back."""

AnyObservation = Annotated[SerializeAsAny[Observation], BeforeValidator(lambda value: _revive(value, Observation))]
"""A field holding any `Observation`, restored to its own class when read back."""


@cache
def parameters_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model's fields, reduced to what models understand. Shared: copy it before changing it.

    ``$ref`` is resolved (a cycle becomes a plain object), ``anyOf`` reduced to its first alternative that is not null,
    and only ``type, description, properties, required, items, enum`` are kept, without ``kind``.
    """
    found = reduced(model.model_json_schema())
    found["properties"].pop("kind", None)
    return {**found, "required": [name for name in found["required"] if name != "kind"]}


def reduced(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object, which may be any JSON, reduced as `parameters_of` says."""
    definitions: dict[str, Any] = {}
    for key in ("definitions", "$defs"):
        definitions |= schema[key] if isinstance(schema.get(key), Mapping) else {}
    found = _reduce(schema, definitions, (), [MAX_NODES])
    return {"type": "object", "properties": found.get("properties", {}), "required": found.get("required", [])}


MAX_TYPE_DEPTH = 20


def types_of(schema: Any, root: Mapping[str, Any], depth: int = MAX_TYPE_DEPTH) -> frozenset[str]:
    """The types that a value may have by `schema`, a part of `root`; none where it does not say."""
    if not isinstance(schema, Mapping) or not depth:
        return frozenset()
    place = schema.get("$ref")
    if isinstance(place, str):
        family, _, name = place.removeprefix("#/").partition("/")
        known = root.get(family) if family in ("$defs", "definitions") else None
        return types_of(known.get(name), root, depth - 1) if isinstance(known, Mapping) else frozenset()
    options = [option for union in ("anyOf", "oneOf") for option in _listed(schema.get(union))]
    named = _listed(schema.get("type"))
    found = frozenset(name for name in named if isinstance(name, str))
    return found.union(*(types_of(option, root, depth - 1) for option in options))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


MAX_NODES = 10_000
_COPIED_KEYS = ("type", "description", "enum")


def _reduce(node: Any, definitions: Mapping[str, Any], seen: tuple[str, ...], left: list[int]) -> dict[str, Any]:
    """`left` counts the nodes that may still come: definitions that use one another may be endless when written out."""
    left[0] -= 1
    if not isinstance(node, Mapping) or left[0] < 0:
        return {}
    if isinstance(node.get("$ref"), str):
        name = node["$ref"].rsplit("/", 1)[-1]
        target = definitions.get(name)
        if name in seen or not isinstance(target, Mapping):
            return {"type": "object"}
        return _reduce({**target, **{k: v for k, v in node.items() if k != "$ref"}}, definitions, (*seen, name), left)
    for union in ("anyOf", "oneOf"):
        if isinstance(node.get(union), list):
            options = [option for option in node[union] if isinstance(option, Mapping) and option.get("type") != "null"]
            chosen = options[0] if options else {}
            return _reduce({**chosen, **{k: node[k] for k in ("description",) if k in node}}, definitions, seen, left)
    out: dict[str, Any] = {key: node[key] for key in _COPIED_KEYS if key in node}
    if isinstance(out.get("type"), list):
        out["type"] = next((kind for kind in out["type"] if kind != "null"), "string")
    if "const" in node:
        out["enum"] = [node["const"]]
    if isinstance(node.get("properties"), Mapping):
        shown = dict(node["properties"])
        own = shown.get("kind")
        if isinstance(own, Mapping) and "default" in own and own["default"] == node.get("title"):
            del shown["kind"]  # it says only which class of ours the object is
        out["properties"] = {k: _reduce(v, definitions, seen, left) for k, v in shown.items()}
        required = node.get("required", [])
        out["required"] = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    if out.get("type") == "array" or "items" in node:
        first = node.get("prefixItems")  # of a tuple; providers refuse a list that does not say of what it is
        of_what = first[0] if "items" not in node and isinstance(first, list) and first else node.get("items")
        out["items"] = _reduce(of_what, definitions, seen, left)
    return out


def problems_in(error: ValidationError, most: int | None = None) -> str:
    """The problems (at most `most`), each with its place. Values, which may be long or secret, are not repeated."""
    found = error.errors(include_url=False, include_input=False)[:most]
    reasons = (  # the usual text for a wrong tag repeats what was given
        f"Input should be one of {one['ctx']['expected_tags']}" if one["type"] == "union_tag_invalid" else one["msg"]
        for one in found
    )
    places = (".".join(map(str, one["loc"])) or "arguments" for one in found)
    return "; ".join(f"{place}: {reason}" for place, reason in zip(places, reasons, strict=True))
