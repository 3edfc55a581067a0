"""``git.status``, ``git.diff`` and ``git.log``: looks at repositories, each in a process of its own."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional

from . import arguments
from .beneath import Beneath
from .git_limits import COMMITS, LOOK_SECONDS
from .loop import Loop
from .request import Request
from .side_process import SideProcesses

_AT_ONCE = 4

Operation = Callable[[Request, Dict[str, Any], Optional[bytes]], None]


class GitRequests:
    """Checks what is asked of git and has it done, a few at a time."""

    def __init__(self, loop: Loop, workspace: str) -> None:
        self._workspace = workspace
        self._beneath = Beneath(workspace)
        self._processes = SideProcesses(loop, "git", _AT_ONCE)
        self.operations: Dict[str, Operation] = {
            "git.diff": lambda request, given, _: self._look("diff", request, given),
            "git.log": lambda request, given, _: self._look("log", request, given),
            "git.status": lambda request, given, _: self._look("status", request, given),
        }

    def close(self) -> None:
        """Kill what is under way."""
        self._processes.close()

    def _look(self, what: str, request: Request, given: Dict[str, Any]) -> None:
        folder = self._beneath.parts(arguments.text(given, "directory", ""))
        order = {
            "what": what,
            "workspace": self._workspace,
            "directory": os.path.join(self._workspace, *folder),
            "path": arguments.text(given, "path", ""),
            "limit": arguments.integer(given, "limit", 50, 1, COMMITS),
            "skip": arguments.integer(given, "skip", 0, 0, 2**31),
        }
        overdue = f"git took longer than {LOOK_SECONDS:g} s in this workspace and was stopped"
        request.cancel = self._processes.start(order, LOOK_SECONDS, overdue, request)
