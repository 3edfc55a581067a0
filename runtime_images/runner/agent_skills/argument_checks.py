"""Argument checks of helpers: a mistake is told in a sentence in place of a traceback."""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any, Callable, Dict, List, Optional, Tuple, Union, get_type_hints

_SEQUENCES = {"Sequence", "List", "list"}
_KINDS: Dict[Any, Tuple[Any, str]] = {str: ((str, os.PathLike), "a text"), int: (int, "a whole number")}


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments checked against its annotations; one value counts as a list of one.

    Errors are told as the function tells things: returned by one that returns text, else printed.
    """
    signature = inspect.signature(function)
    hints = get_type_hints(function)
    returns_text = hints.pop("return", None) is str

    @functools.wraps(function)
    def careful(*args: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*args, **options)
            for name in bound.arguments:
                if name in hints and hints[name] is not Any:
                    bound.arguments[name] = _taken(name, bound.arguments[name], hints[name])
        except TypeError as error:
            words = f"{function.__name__}: {str(error).rstrip('.')}."
            if returns_text:
                return f"ERROR:\n{words}"
            print(f"ERROR: {words}")
            return None
        return function(*bound.args, **bound.kwargs)

    return careful


def _taken(name: str, value: Any, hint: Any) -> Any:
    if getattr(hint, "__origin__", None) is Union:  # Optional
        if value is None:
            return None
        hint = hint.__args__[0]
    element = _element(hint)
    if element is None:
        return _one(name, value, hint)
    if isinstance(value, (set, frozenset, range)) or hasattr(value, "tolist"):
        value = list(value)
    elif not isinstance(value, (list, tuple)):
        value = [value]
    return [_one(f"each of {name}", one, element) for one in value]


def _one(name: str, value: Any, kind: Any) -> Any:
    classes, words = _KINDS[kind]
    if hasattr(value, "__index__") and not isinstance(value, bool) and kind is int:
        return int(value)  # numpy's, too
    if not isinstance(value, classes) or isinstance(value, bool):
        raise TypeError(f"{name} must be {words}, not {_shown(value)}")
    text = os.fsdecode(value) if kind is str else value
    if name.endswith("path") and "\0" in text:
        raise TypeError(f"{name} has a zero byte in it: {_shown(text)}")
    return text


def _element(hint: Any) -> Optional[Any]:
    origin = getattr(hint, "__origin__", None)
    name = getattr(origin, "__name__", "")
    parts: List[Any] = list(getattr(hint, "__args__", None) or ())
    return parts[0] if name in _SEQUENCES and parts else None


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - whatever it is, it is not what was wanted
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
