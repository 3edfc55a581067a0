"""The fifteen functions of the `browser` tool, and how a few lines of them are read.

The lines look like Python, and only look so: they are parsed, never run. Each is one call of a known function with
constants for arguments.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError, validate_call

from agent_core.tools.browser.actions import BrowserCall

MOST_CALLS: Final = 50
MOST_CHARACTERS: Final = 200_000
_LONGEST_WAIT_MS: Final = 60_000

Bid = str | int
Button = Literal["left", "middle", "right"]
Modifier = Literal["Alt", "Control", "ControlOrMeta", "Meta", "Shift"]
Pixels = Annotated[float, Field(ge=-1_000_000, le=1_000_000)]


def parse(code: str) -> list[BrowserCall]:
    """The calls that the lines stand for.

    Raises:
        ValueError: a line is no call of a known function with constants; the message names the line and the fix.
    """
    if len(code) > MOST_CHARACTERS:
        raise ValueError(f"code has {len(code)} characters, the limit is {MOST_CHARACTERS}")
    try:
        module = ast.parse(code.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        place = f"line {line} of " if line else ""
        raise ValueError(f"{place}code cannot be read: {getattr(error, 'msg', None) or error}") from None
    if not module.body:
        raise ValueError(f"code has no call; the functions are {', '.join(FUNCTIONS)}")
    if len(module.body) > MOST_CALLS:
        raise ValueError(f"code has {len(module.body)} calls, the limit is {MOST_CALLS}")
    return [_read(statement) for statement in module.body]


def _read(statement: ast.stmt) -> BrowserCall:
    where = f"line {statement.lineno} of code"
    called = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(called, ast.Call) or not isinstance(called.func, ast.Name):
        raise ValueError(f"{where} is not a call such as click('12'); nothing else is supported")
    function = FUNCTIONS.get(called.func.id)
    if function is None:
        raise ValueError(f"{where} calls {called.func.id!r}; the functions are {', '.join(FUNCTIONS)}")
    try:
        positional = [ast.literal_eval(argument) for argument in called.args]
        named = {keyword.arg or "**": ast.literal_eval(keyword.value) for keyword in called.keywords}
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
        raise ValueError(f"{where}: the arguments of {called.func.id} must be constants") from None
    try:
        return function(*positional, **named)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        names = list(inspect.signature(function).parameters)
        place = first["loc"][0] if first["loc"] else ""
        name = names[place] if isinstance(place, int) and place < len(names) else place
        raise ValueError(f"{where}: {called.func.id}: {name}: {first['msg']}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _number(bid: Bid) -> int:
    text = str(bid).strip().strip("[]")
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise ValueError(f"bid {text[:40]!r} is no element's; take the number in brackets from the tree")
    return int(text)


@validate_call
def _goto(url: Annotated[str, Field(min_length=1)]) -> BrowserCall:
    return BrowserCall("navigate", {"url": url})


@validate_call
def _go_back() -> BrowserCall:
    return BrowserCall("back", {})


@validate_call
def _go_forward() -> BrowserCall:
    return BrowserCall("forward", {})


@validate_call
def _noop(wait_ms: Annotated[float, Field(ge=0, le=_LONGEST_WAIT_MS)] = 1000) -> BrowserCall:
    return BrowserCall("wait", {"ms": wait_ms})


@validate_call
def _scroll(delta_x: Pixels, delta_y: Pixels) -> BrowserCall:
    return BrowserCall("wheel", {"x": delta_x, "y": delta_y})


@validate_call
def _fill(bid: Bid, value: str) -> BrowserCall:
    return BrowserCall("fill", {"id": _number(bid), "text": value})


@validate_call
def _select_option(bid: Bid, options: str | list[str]) -> BrowserCall:
    return BrowserCall("select", {"id": _number(bid), "options": [options] if isinstance(options, str) else options})


@validate_call
def _click(bid: Bid, button: Button = "left", modifiers: list[Modifier] = []) -> BrowserCall:  # noqa: B006 - never changed
    return BrowserCall("click", {"id": _number(bid), "button": button, "modifiers": modifiers})


@validate_call
def _dblclick(bid: Bid, button: Button = "left", modifiers: list[Modifier] = []) -> BrowserCall:  # noqa: B006 - likewise
    return BrowserCall("click", {"id": _number(bid), "button": button, "modifiers": modifiers, "times": 2})


@validate_call
def _hover(bid: Bid) -> BrowserCall:
    return BrowserCall("hover", {"id": _number(bid)})


@validate_call
def _press(bid: Bid, key_comb: Annotated[str, Field(min_length=1, max_length=100)]) -> BrowserCall:
    return BrowserCall("press", {"id": _number(bid), "keys": key_comb})


@validate_call
def _focus(bid: Bid) -> BrowserCall:
    return BrowserCall("focus", {"id": _number(bid)})


@validate_call
def _clear(bid: Bid) -> BrowserCall:
    return BrowserCall("clear", {"id": _number(bid)})


@validate_call
def _drag_and_drop(from_bid: Bid, to_bid: Bid) -> BrowserCall:
    return BrowserCall("drag", {"from": _number(from_bid), "to": _number(to_bid)})


@validate_call
def _upload_file(bid: Bid, file: str | list[str]) -> BrowserCall:
    return BrowserCall("upload", {"id": _number(bid), "files": [file] if isinstance(file, str) else file})


FUNCTIONS: Final[dict[str, Callable[..., BrowserCall]]] = {
    "goto": _goto,
    "go_back": _go_back,
    "go_forward": _go_forward,
    "noop": _noop,
    "scroll": _scroll,
    "fill": _fill,
    "select_option": _select_option,
    "click": _click,
    "dblclick": _dblclick,
    "hover": _hover,
    "press": _press,
    "focus": _focus,
    "clear": _clear,
    "drag_and_drop": _drag_and_drop,
    "upload_file": _upload_file,
}
"""By name, in the order in which they are described."""
