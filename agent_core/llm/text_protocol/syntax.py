"""How a call is written as text, and found again in text.

A call is ``<function=NAME>``, a line ``<parameter=P>VALUE</parameter>`` per argument, ``</function>``. A value of
several lines is framed by a line break on each side. Text may stand before a call and not after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_core.errors import FunctionCallConversionError, FunctionCallValidationError

CALL_START = "<function="
STOP_WORD = "</function"

_CALL = re.compile(r"<function=([^<>\n]*)>")
_PARAMETER = re.compile(r"<parameter=([^<>\n]*)>")
_UNCLOSED_NAME = re.compile(r"<parameter=([A-Za-z_][\w-]*)=([^<\n]*)</parameter>")
_VALUE_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>|\Z))")
_WRAPPERS = ("</think>", "<tool_call>", "<think>")
_MOST_WRAPPERS = 8


@dataclass(frozen=True, slots=True)
class TextCall:
    """A call as it was written: the text before it, its name, its arguments as texts."""

    before: str
    name: str
    arguments: Mapping[str, str]


def written(name: str, arguments: str) -> str:
    """A call in text, from its name and its arguments as a JSON object.

    Raises:
        FunctionCallConversionError: the arguments are no JSON object.
    """
    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise FunctionCallConversionError(
            f"The arguments of the call of {name!r} are not a JSON object, so it cannot be written as text."
        )
    lines = [f"<parameter={key}>{_framed(value)}</parameter>" for key, value in values.items()]
    return "\n".join([f"<function={name}>", *lines, "</function>"])


def _framed(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"\n{text}\n" if "\n" in text else text


def found(text: str) -> TextCall | None:
    """The first call in the text; None when there is none that is complete.

    The end that a stop word cut off is put back, where there is exactly one call.

    Raises:
        FunctionCallValidationError: the value of a parameter has no end.
    """
    start = _CALL.search(text)
    if start is None:
        return None
    rest = _with_end(text[start.end() :]) if text.count(CALL_START) == 1 else text[start.end() :]
    if "</function>" not in rest:
        return None
    rest = _UNCLOSED_NAME.sub(r"<parameter=\1>\2</parameter>", rest)
    return TextCall(_unwrapped(text[: start.start()]), start.group(1).strip(), _arguments(rest))


def _unwrapped(text: str) -> str:
    """The text without the tags that models open, or close, before a call: a few, as a longer row is no wrapping."""
    text = text.rstrip()
    for _ in range(_MOST_WRAPPERS):
        tag = next((one for one in _WRAPPERS if text.endswith(one)), None)
        if tag is None:
            break
        text = text.removesuffix(tag).rstrip()
    return text


def _with_end(rest: str) -> str:
    if "</function>" in rest:
        return rest
    stripped = rest.rstrip()
    for cut in ("</function", "</"):
        if stripped.endswith(cut):
            stripped = stripped.removesuffix(cut)
            break
    return f"{stripped}</function>"


def _arguments(rest: str) -> dict[str, str]:
    """The parameters up to the end of the call; what stands between them is left out."""
    arguments: dict[str, str] = {}
    position = 0
    end = rest.find("</function>")
    while True:
        start = _PARAMETER.search(rest, position)
        if 0 <= end < position:
            end = rest.find("</function>", position)
        if start is None or 0 <= end < start.start():
            return arguments
        name = start.group(1).strip()
        closed = _VALUE_END.search(rest, start.end())
        if closed is None:
            raise FunctionCallValidationError(
                f"The parameter {name!r} has no end: close each value with </parameter>, and the call with </function>."
            )
        arguments[name] = _unframed(rest[start.end() : closed.start()])
        position = closed.end()


def _unframed(value: str) -> str:
    value = value.removeprefix("\r\n") if value.startswith("\r\n") else value.removeprefix("\n")
    return value.removesuffix("\r\n") if value.endswith("\r\n") else value.removesuffix("\n")
