"""Checks of what a request carries; each `BadRequestError` names the field, what is wrong and what would be right.

An argument that is null counts as absent.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
"""A name that an environment variable can have."""

_LONGEST_SECONDS = 7 * 24 * 3600.0


class RequestError(Exception):
    """A request cannot be served; ``code`` is the error code of the response."""

    code = "internal"


class BadRequestError(RequestError):
    """The request cannot be served as it is."""

    code = "bad_request"


def path(arguments: Dict[str, Any]) -> str:
    """Return the absolute path that an operation on a file needs."""
    value = text(arguments, "path")
    if not os.path.isabs(value) or "\0" in value or not is_unicode(value):
        raise BadRequestError("path must be an absolute path without NUL")
    return value


def edited_path(arguments: Dict[str, Any]) -> str:
    """Return the path that an edit names; whether it is absolute is the edit's to judge."""
    value = text(arguments, "path")
    if "\0" in value or not is_unicode(value):
        raise BadRequestError("path must not hold NUL or half characters")
    return value


def texts(arguments: Dict[str, Any], name: str) -> List[str]:
    """Return an argument that is a list of strings."""
    value = arguments.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequestError(f"{name} must be a list of strings")
    return value


def text(arguments: Dict[str, Any], name: str, default: Optional[str] = None) -> str:
    """Return a string argument."""
    value = arguments.get(name)
    value = default if value is None else value
    if not isinstance(value, str):
        raise BadRequestError(f"{name} must be a string" + (" (it is missing)" if name not in arguments else ""))
    return value


def characters(arguments: Dict[str, Any], name: str, limit: int, default: Optional[str] = None) -> str:
    """Return a string argument that is valid Unicode, at most ``limit`` characters long."""
    value = text(arguments, name, default)
    if len(value) > limit:
        raise BadRequestError(f"{name} has {len(value)} characters, the limit is {limit}")
    if not is_unicode(value):
        raise BadRequestError(f"{name} must not hold half characters")
    return value


def flag(arguments: Dict[str, Any], name: str) -> bool:
    """Return a true-or-false argument, false by default."""
    value = arguments.get(name)
    value = False if value is None else value
    if not isinstance(value, bool):
        raise BadRequestError(f"{name} must be true or false")
    return value


def seconds(arguments: Dict[str, Any], name: str) -> Optional[float]:
    """Return a duration argument, None when absent or null."""
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LONGEST_SECONDS:
        raise BadRequestError(f"{name} must be a number of seconds from 0 to {_LONGEST_SECONDS:.0f}")
    return float(value)


def integer(arguments: Dict[str, Any], name: str, default: int, lowest: int, highest: int) -> int:
    """Return a whole-number argument."""
    value = arguments.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise BadRequestError(f"{name} must be a whole number from {lowest} to {highest}")
    return value


def variables(arguments: Dict[str, Any], name: str) -> Dict[str, str]:
    """Return an argument that maps names of environment variables to values."""
    value = arguments.get(name) or {}
    if not isinstance(value, dict):
        raise BadRequestError(f"{name} must be an object of names and values")
    for variable, content in value.items():
        if not VARIABLE.match(variable):
            raise BadRequestError(f"{name} holds a name that no variable can have; use letters, digits and _")
        if not isinstance(content, str) or "\0" in content or not is_unicode(content):
            raise BadRequestError(f"{name}.{variable} must be a string without NUL, in valid Unicode")
    return value


def seconds_or(arguments: Dict[str, Any], name: str, default: float) -> float:
    """Return a duration argument, the default when absent or null."""
    value = seconds(arguments, name)
    return default if value is None else value


def text_or_none(arguments: Dict[str, Any], name: str) -> Optional[str]:
    """Return a string argument, None when absent or null."""
    return None if arguments.get(name) is None else text(arguments, name)


def is_unicode(content: str) -> bool:
    """Return whether a text holds whole characters only."""
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def resolve(folder: str, path: str) -> str:
    """Return an absolute path: relative ones are below the folder, those with ``~/`` below the home."""
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    return os.path.normpath(os.path.join(folder, path))
