"""Requests for a terminal: the arguments of ``shell.run``, and a command in a shell of its own (``is_static``)."""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, NamedTuple, Optional

from ..core import arguments
from ..core.arguments import BadRequestError
from ..core.connection import Asker, Result
from . import notices

_COMMAND_LIMIT = 8 * 1024 * 1024
_OUTPUT_LIMIT = 4 * 1024 * 1024
_UNFINISHED = ("soft_timeout", "hard_timeout")
_LITERAL = re.compile(r"""\s*(?:\[\{|\["|\[\[(?=[^\s(])|\{")""")


class Order(NamedTuple):
    """The checked arguments of one ``shell.run``; times in seconds, ``max_output`` in characters.

    ``at_once``: a command does not wait for others' commands, nor input for what the command makes of it.
    """

    command: str
    is_input: bool = False
    timeout: Optional[float] = None
    soft_timeout: float = 10.0
    reset: bool = False
    max_output: int = 30000
    at_once: bool = False
    env: Dict[str, str] = {}  # noqa: RUF012 - a NamedTuple's default, never changed

    @property
    def is_typed(self) -> bool:
        return self.is_input and bool(self.command)

    @property
    def is_literal(self) -> bool:
        """True when the command is a Python or JSON value by mistake; no shell command begins so."""
        return not self.is_input and _LITERAL.match(self.command) is not None


def shell_order(args: Dict[str, Any]) -> Order:
    """Check the arguments of ``shell.run``; `BadRequestError` when one is wrong, or two contradict each other."""
    command = arguments.text(args, "command")
    soft = arguments.seconds(args, "soft_timeout")
    order = Order(
        command=command,
        is_input=arguments.flag(args, "is_input"),
        timeout=arguments.seconds(args, "timeout"),
        soft_timeout=10.0 if soft is None else soft,
        reset=arguments.flag(args, "reset"),
        max_output=arguments.integer(args, "max_output", 30000, 0, _OUTPUT_LIMIT),
        at_once=arguments.flag(args, "at_once"),
        env=arguments.variables(args, "env"),
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


def fresh_directory(args: Dict[str, Any], workspace: str) -> Optional[str]:
    """Return where a shell for this one command is to begin (`BadRequestError`: nowhere); None for one that is kept."""
    where = arguments.text(args, "cwd", "")
    if not arguments.flag(args, "fresh"):
        if where:
            raise BadRequestError("cwd is for a fresh shell only: leave it out, and put `cd` into the command")
        return None
    if arguments.flag(args, "is_input") or args.get("session") is not None:
        raise BadRequestError("a fresh shell has no session, and runs nothing to give input to")
    found = os.path.join(workspace, where)
    if "\0" in found or not arguments.is_unicode(found) or not os.path.isdir(found):
        raise BadRequestError(f"cwd {where!r} is no directory: give one that exists, or leave it out for the workspace")
    return found


class FreshAsker(Asker):
    """Hands the answer on, and ends the shell: nobody could ask a command any more that is not done yet."""

    def __init__(self, asker: Asker, end: Callable[[], object]) -> None:
        self._asker = asker
        self._end = end

    def finish(self, result: Result) -> None:
        self._end()
        if result["status"] in _UNFINISHED:
            said = result["notice"].split(". ", 1)[0]
            result = {**result, "running": False, "notice": f"{said}. {notices.FRESH_ENDED}"}
        elif result.get("shell_ended"):  # it ends with the command anyway
            result = {**result, "shell_ended": False, "notice": ""}
        self._asker.finish(result)

    def fail(self, code: str, message: str) -> None:
        self._end()
        self._asker.fail(code, message)

    def live(self, output: str) -> bool:
        return self._asker.live(output)
