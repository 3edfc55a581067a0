"""Shapes of JSON as the protocol's tables write them: exact names, types, and what may be null."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Or:
    """One of several shapes."""

    shapes: tuple[Any, ...]

    def __init__(self, *shapes: Any) -> None:
        object.__setattr__(self, "shapes", shapes)


@dataclass(frozen=True)
class Text:
    """A text of this form."""

    pattern: str


@dataclass(frozen=True)
class Map:
    """An object with any names."""

    values: Any


@dataclass(frozen=True)
class AtLeast:
    """An object that has these fields, and perhaps more."""

    fields: dict[str, Any]


def differences(value: Any, shape: Any, place: str = "body") -> list[str]:
    """Where a value has another shape, in words. Shapes: types, lists of one shape, the classes above, values."""
    match shape:
        case Or(shapes=shapes):
            found = [differences(value, one, place) for one in shapes]
            return [] if [] in found else [f"{place}: {value!r} is none of {shapes}"]
        case Text(pattern=pattern):
            fits = isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL)
            return [] if fits else [f"{place}: {value!r} is not like {pattern}"]
        case Map(values=values) if isinstance(value, dict):
            return [one for name, part in value.items() for one in differences(part, values, f"{place}.{name}")]
        case AtLeast(fields=fields) if isinstance(value, dict):
            known = {name: part for name, part in value.items() if name in fields}
            return differences(known, fields, place)
        case dict() if isinstance(value, dict):
            problems = [f"{place}.{name} is missing" for name in shape.keys() - value.keys()]
            problems += [f"{place}.{name} is not of the protocol" for name in value.keys() - shape.keys()]
            for name in shape.keys() & value.keys():
                problems += differences(value[name], shape[name], f"{place}.{name}")
            return problems
        case [of_each] if isinstance(value, list):
            return [one for n, part in enumerate(value) for one in differences(part, of_each, f"{place}[{n}]")]
        case type():
            is_it = type(value) is shape or (shape is float and type(value) is int)
            return [] if is_it else [f"{place}: {value!r} is no {shape.__name__}"]
        case _:
            is_it = type(value) is type(shape) and value == shape
            return [] if is_it else [f"{place}: {value!r} is not {shape!r}"]
