"""``code.lint``: what an edit would break, found in a process of its own (see ``lint``)."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ..core.connection import Request
from ..core.helper_processes import SideProcesses
from ..core.loop import Loop
from .line_ranges import span_of

LIMIT_SECONDS = 30.0
_AT_ONCE = 4

Operation = Callable[[Request, Dict[str, Any], Optional[bytes]], None]


class Lints:
    """Looks for new errors in files as edits would leave them, a few at a time."""

    def __init__(self, loop: Loop, workspace: str) -> None:
        self._workspace = workspace
        self._processes = SideProcesses(loop, "lint", _AT_ONCE)
        self.operations: Dict[str, Operation] = {"code.lint": self._start}

    def close(self) -> None:
        """Kill what is under way."""
        self._processes.close()

    def _start(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        span = span_of({**given, "command": "replace"}, self._workspace)
        order = {"path": span.path, "first": span.first, "last": span.last, "text": span.text}
        overdue = f"Looking for errors took longer than {LIMIT_SECONDS:g} s and was stopped."
        request.cancel = self._processes.start(order, LIMIT_SECONDS, overdue, request)
