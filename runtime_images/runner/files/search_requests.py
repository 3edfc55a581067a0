"""``search.grep`` and ``search.glob``: each search in a process of its own (see ``search``)."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ..core import arguments
from ..core.connection import Request
from ..core.helper_processes import SideProcesses
from ..core.loop import Loop

LIMIT_SECONDS = 30.0
_AT_ONCE = 8
_PATTERN_LIMIT = 10000
_MATCHES_LIMIT = 1000

Operation = Callable[[Request, Dict[str, Any], Optional[bytes]], None]


def order(kind: str, given: Dict[str, Any], workspace: str) -> Dict[str, Any]:
    """Check the arguments of a search; a relative path is one below the workspace, or with ``~/`` below the home.

    Raises:
        BadRequestError: one is missing, too long, or of the wrong type.
    """
    pattern = arguments.characters(given, "pattern", _PATTERN_LIMIT)
    if not pattern:
        raise arguments.BadRequestError("pattern is empty: say what to look for")
    include = arguments.characters(given, "include", _PATTERN_LIMIT) if given.get("include") is not None else None
    path = arguments.characters(given, "path", _PATTERN_LIMIT) if given.get("path") is not None else ""
    if "\0" in path or "\0" in (include or ""):
        raise arguments.BadRequestError("path and include must not hold NUL")
    return {
        "kind": kind,
        "pattern": pattern,
        "path": arguments.resolve(workspace, path),
        "include": include or None,
        "limit": arguments.integer(given, "limit", 100, 1, _MATCHES_LIMIT),
        "ripgrep": True,
    }


class Searches:
    """Starts searches, a few at a time."""

    def __init__(self, loop: Loop, workspace: str) -> None:
        self._workspace = workspace
        self._processes = SideProcesses(loop, "search", _AT_ONCE)
        self.operations: Dict[str, Operation] = {
            "search.glob": lambda request, given, _: self._start("glob", request, given),
            "search.grep": lambda request, given, _: self._start("grep", request, given),
        }

    def close(self) -> None:
        """Kill what is under way."""
        self._processes.close()

    def _start(self, kind: str, request: Request, given: Dict[str, Any]) -> None:
        checked = order(kind, given, self._workspace)
        asked = arguments.seconds(given, "timeout")
        limit = LIMIT_SECONDS if asked is None else asked
        text = f"The search took longer than {limit:g} s and was stopped"
        advice = "simplify the pattern, or search a folder further down"
        request.cancel = self._processes.start(checked, limit, f"{text}: {advice}.", request)
