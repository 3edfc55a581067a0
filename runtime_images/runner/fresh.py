"""A command in a shell of its own, which ends with it (``is_static``)."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional

from . import arguments, notices
from .arguments import BadRequestError
from .command import Asker, Result

_UNFINISHED = ("soft_timeout", "hard_timeout")


def directory(given: Dict[str, Any], workspace: str) -> Optional[str]:
    """Return where a shell of its own, for this one command, is to begin; None when it is for a shell that is kept.

    Raises:
        BadRequestError: there is no such directory, or the arguments contradict each other.
    """
    where = arguments.text(given, "cwd", "")
    if not arguments.flag(given, "fresh"):
        if where:
            raise BadRequestError("cwd is for a fresh shell only: leave it out, and put `cd` into the command")
        return None
    if arguments.flag(given, "is_input") or given.get("session") is not None:
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
        """Take the result."""
        self._end()
        if result["status"] in _UNFINISHED:
            said = result["notice"].split(". ", 1)[0]
            result = {**result, "running": False, "notice": f"{said}. {notices.FRESH_ENDED}"}
        elif result.get("shell_ended"):  # it ends with the command anyway
            result = {**result, "shell_ended": False, "notice": ""}
        self._asker.finish(result)

    def fail(self, code: str, message: str) -> None:
        """Take an error instead of a result."""
        self._end()
        self._asker.fail(code, message)

    def live(self, output: str) -> bool:
        """Take output while the command runs."""
        return self._asker.live(output)
