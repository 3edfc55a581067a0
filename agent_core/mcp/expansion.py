"""References to values in texts: ``$NAME``, ``${NAME}`` and ``${NAME:-default}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")


def is_reference(text: str) -> bool:
    """Whether something in it is to be looked up."""
    return _REFERENCE.search(text) is not None


def names_in(value: Any) -> set[str]:
    """The names that the texts in `value` refer to, at any depth."""
    if isinstance(value, str):
        return {match[1] or match[3] for match in _REFERENCE.finditer(value)}
    if isinstance(value, Mapping):
        return names_in(list(value.values()))
    if isinstance(value, list | tuple):
        return {name for item in value for name in names_in(item)}
    return set()


def expanded(value: Any, values: Mapping[str, str]) -> Any:
    """`value` with the references in its texts replaced; one that is not in `values` and has no default stays.

    What is put in is not looked at again. Keys of objects are left alone.
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _replacement(match, values), value)
    if isinstance(value, Mapping):
        return {key: expanded(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [expanded(item, values) for item in value]
    return value


def _replacement(match: re.Match[str], values: Mapping[str, str]) -> str:
    found = values.get(match[1] or match[3])
    if found:
        return found
    return match[2] if match[2] is not None else (match[0] if found is None else found)
