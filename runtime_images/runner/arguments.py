"""Checks of what a request carries; each error names the field, what is wrong with it and what would be right.

An argument that is null counts as absent.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from . import names
from .browser import BrowserOrder
from .cell import CellOrder
from .command import Order
from .editor import Edit
from .ranges import Ranges, Span
from .shell_state import VARIABLE
from .whole_files import LINES_LIMIT, WholeFileArguments, WholeFiles

_SESSION_NAME_LIMIT = 100
_COMMAND_LIMIT = 8 * 1024 * 1024
_OUTPUT_LIMIT = 4 * 1024 * 1024
_CALLS_LIMIT = 100
_CODE_LIMIT = 8 * 1024 * 1024
_CELL_OUTPUT_LIMIT = 64 * 1024
_LONGEST_SECONDS = 7 * 24 * 3600.0


class BadRequestError(Exception):
    """The request cannot be served as it is."""

    code = "bad_request"


def shell_order(arguments: Dict[str, Any]) -> Order:
    """Check the arguments of ``shell.run``.

    Raises:
        BadRequestError: one is missing, of the wrong type or out of its range, or two contradict each other.
    """
    command = text(arguments, "command")
    soft = seconds(arguments, "soft_timeout")
    order = Order(
        command=command,
        is_input=flag(arguments, "is_input"),
        timeout=seconds(arguments, "timeout"),
        soft_timeout=10.0 if soft is None else soft,
        reset=flag(arguments, "reset"),
        max_output=integer(arguments, "max_output", 30000, 0, _OUTPUT_LIMIT),
        at_once=flag(arguments, "at_once"),
        env=variables(arguments, "env"),
    )
    if "\0" in command:
        raise BadRequestError("command holds a NUL character, which no shell can take: leave it out or write it as \\0")
    try:
        size = len(command.encode("utf-8"))
    except UnicodeEncodeError:
        raise BadRequestError("command holds a lone surrogate, which is not a character: send valid Unicode") from None
    if size > _COMMAND_LIMIT:
        raise BadRequestError(f"command has {size} bytes, the limit is {_COMMAND_LIMIT}: write a file and run that")
    if order.reset and order.is_input:
        raise BadRequestError("reset and is_input contradict each other: a new terminal runs nothing to give input to")
    return order


def browser_order(arguments: Dict[str, Any]) -> BrowserOrder:
    """Check the arguments of ``browser.run``; what the calls mean is the browser's to judge.

    Raises:
        BadRequestError: one is missing, of the wrong type or out of its range.
    """
    calls = arguments.get("calls")
    if not isinstance(calls, list) or not 0 < len(calls) <= _CALLS_LIMIT or not all(map(_is_call, calls)):
        raise BadRequestError(f"calls must be a list of 1 to {_CALLS_LIMIT} objects with name and, if needed, args")
    look = arguments.get("look") or {}
    if not isinstance(look, dict) or not all(isinstance(value, bool) for value in look.values()):
        raise BadRequestError("look must be an object of true and false")
    domains = arguments.get("allowed_domains")
    return BrowserOrder(
        calls=calls,
        look=look,
        timeout=_seconds_or(arguments, "timeout", 300.0),
        start_seconds=_seconds_or(arguments, "start_seconds", 30.0),
        navigation_seconds=_seconds_or(arguments, "navigation_seconds", 30.0),
        idle_seconds=_seconds_or(arguments, "idle_seconds", 1800.0),
        allowed_domains=[] if domains is None else texts(arguments, "allowed_domains"),
    )


def cell_order(arguments: Dict[str, Any]) -> CellOrder:
    """Check the arguments of ``kernel.run``; what is wrong with the code is the kernel's to say.

    Raises:
        BadRequestError: one is missing, of the wrong type or out of its range.
    """
    return CellOrder(
        code=characters(arguments, "code", _CODE_LIMIT),
        timeout=_seconds_or(arguments, "timeout", 120.0),
        max_output=integer(arguments, "max_output", 30000, 0, _CELL_OUTPUT_LIMIT),
        env=variables(arguments, "env"),
        init_code=_text_or_none(arguments, "init_code") or "",
    )


def edit(arguments: Dict[str, Any], directory: str) -> Edit:
    """Check the types of the arguments of ``file.edit``; what their values mean is the editor's to judge.

    Raises:
        BadRequestError: one is of the wrong type, or the path can be none.
    """
    where = text(arguments, "path")
    if "\0" in where or not is_unicode(where):
        raise BadRequestError("path must not hold NUL or half characters")
    given_range = arguments.get("view_range")
    if given_range is not None and not isinstance(given_range, list):
        raise BadRequestError("view_range must be a list of two whole numbers")
    line = arguments.get("insert_line")
    if line is not None and (isinstance(line, bool) or not isinstance(line, int)):
        raise BadRequestError("insert_line must be a whole number")
    return Edit(
        text(arguments, "command"),
        where,
        text(arguments, "cwd", directory),
        _text_or_none(arguments, "file_text"),
        _text_or_none(arguments, "old_str"),
        _text_or_none(arguments, "new_str"),
        line,
        given_range,
        texts(arguments, "only") if arguments.get("only") is not None else None,
        _text_or_none(arguments, "blank"),
    )


def whole_file(arguments: Dict[str, Any], directory: str) -> WholeFileArguments:
    """Check the arguments of ``file.whole``; a relative path is one below the directory, or with ``~/`` the home.

    Raises:
        BadRequestError: one is of the wrong type, or there is no such command.
    """
    command = text(arguments, "command")
    if command not in WholeFiles.commands:
        raise BadRequestError(f"command must be one of {', '.join(WholeFiles.commands)}")
    where = text(arguments, "path")
    if not where or "\0" in where or not is_unicode(where):
        raise BadRequestError("path must be a path without NUL or half characters")
    return WholeFileArguments(
        command,
        names.below(directory, where),
        text(arguments, "content", ""),
        text(arguments, "old", ""),
        text(arguments, "new", ""),
        integer(arguments, "expected", 1, 1, 1000000),
        integer(arguments, "offset", 0, 0, 2**31),
        integer(arguments, "limit", LINES_LIMIT, 1, LINES_LIMIT),
        flag(arguments, "recursive"),
    )


def span(arguments: Dict[str, Any], directory: str) -> Span:
    """Check the arguments of ``file.range`` and ``code.lint``.

    Raises:
        BadRequestError: one is of the wrong type, or there is no such command.
    """
    command = text(arguments, "command")
    if command not in Ranges.commands:
        raise BadRequestError(f"command must be one of {', '.join(Ranges.commands)}")
    where = text(arguments, "path")
    if "\0" in where or not is_unicode(where):
        raise BadRequestError("path must not hold NUL or half characters")
    return Span(
        command,
        where,
        text(arguments, "cwd", directory),
        integer(arguments, "first", 1, -(2**31), 2**31),
        integer(arguments, "last", -1, -(2**31), 2**31),
        text(arguments, "draft", ""),
        _unicode(arguments, "text"),
        text(arguments, "version", ""),
        text(arguments, "problems", ""),
    )


def path(arguments: Dict[str, Any]) -> str:
    """Return the absolute path that an operation on a file needs."""
    value = text(arguments, "path")
    if not os.path.isabs(value) or "\0" in value or not is_unicode(value):
        raise BadRequestError("path must be an absolute path without NUL")
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


def characters(arguments: Dict[str, Any], name: str, limit: int) -> str:
    """Return a string argument of whole characters, at most ``limit`` of them."""
    value = text(arguments, name)
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


def _seconds_or(arguments: Dict[str, Any], name: str, default: float) -> float:
    given = seconds(arguments, name)
    return default if given is None else given


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("args", {}), dict)


def _text_or_none(arguments: Dict[str, Any], name: str) -> Optional[str]:
    return None if arguments.get(name) is None else text(arguments, name)


def _unicode(arguments: Dict[str, Any], name: str) -> str:
    value = text(arguments, name, "")
    if not is_unicode(value):
        raise BadRequestError(f"{name} must not hold half characters")
    return value


def is_unicode(content: str) -> bool:
    """Return whether a text holds whole characters only."""
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
