"""Requests about git: views and clones, each in a process of its own, a few at a time."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from typing import Any, Dict, Optional

from ..core import arguments
from ..core.connection import Operation, Request
from ..core.helper_processes import SideProcesses
from ..core.loop import Loop
from ..core.workers import Workers
from ..files.confined_folder import ConfinedFolder
from . import BASE, CLONE_SECONDS, COMMITS, LAST_COMMIT, LOOK_SECONDS, MARK, scratch_of

_TEXT_LIMIT = 800
"""Keeps an order with a password short enough for a pipe, so that it is held nowhere else."""
_MOST = 2**53 - 1


class GitRequests:
    """Checks requests about git and has them carried out."""

    def __init__(self, loop: Loop, workers: Workers, workspace: str) -> None:
        self._workspace = workspace
        self._workers = workers
        self._beneath = ConfinedFolder(workspace)
        self._processes = SideProcesses(loop, "git", at_once=4)
        self.operations: Dict[str, Operation] = {
            "git.clone": self._clone,
            "git.diff": lambda request, args, _: self._look("diff", request, args),
            "git.identity": self._identity,
            "git.instructions": self._instructions,
            "git.log": lambda request, args, _: self._look("log", request, args),
            "git.status": lambda request, args, _: self._look("status", request, args),
        }

    def close(self) -> None:
        self._processes.close()

    def _look(self, what: str, request: Request, args: Dict[str, Any]) -> None:
        folder = self._beneath.parts(arguments.text(args, "directory", ""))
        since = arguments.text(args, "since", LAST_COMMIT)
        if since not in (LAST_COMMIT, BASE):
            raise arguments.BadRequestError(f"since must be {LAST_COMMIT} or {BASE}")
        start = arguments.text(args, "start", "")
        if re.fullmatch("([0-9a-f]{40,64})?", start) is None:
            raise arguments.BadRequestError("start must be the hash of a commit")
        order = {
            "what": what,
            "start": start,
            "since": since,
            "workspace": self._workspace,
            "directory": os.path.join(self._workspace, *folder),
            "path": arguments.text(args, "path", ""),
            "limit": arguments.integer(args, "limit", 50, 1, COMMITS),
            "skip": arguments.integer(args, "skip", 0, 0, 2**31),
        }
        overdue = f"git took longer than {LOOK_SECONDS:g} s in this workspace and was stopped"
        self._processes.start(request, order, LOOK_SECONDS, overdue)

    def _identity(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        order = {"what": "identity", **{name: arguments.text(args, name, "") for name in ("name", "email")}}
        if any("\0" in order[name] for name in order):
            raise arguments.BadRequestError("name and email must not hold NUL")
        self._processes.start(request, order, LOOK_SECONDS, "git took too long")

    def _instructions(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        """Markdown files of another repository: it is cloned beside the workspace, read, and removed."""
        order = _source(args)
        folder = os.path.join(self._workspace, f".instructions-{secrets.token_hex(8)}")
        folders = arguments.texts(args, "folders")
        order.update(what="instructions", folder=folder, folders=[self._beneath.parts(one) for one in folders])
        self._in_scratch(request, args, order)

    def _clone(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        order = _source(args)
        order["what"] = "clone"
        parts = self._beneath.parts(arguments.text(args, "folder"))
        if len(parts) != 1:
            raise arguments.BadRequestError("folder must be the name of one folder in the workspace")
        order["folder"] = folder = os.path.join(self._workspace, *parts)
        order["mark"] = arguments.integer(args, "mark", 0, 0, _MOST) if args.get("mark") is not None else None
        if os.path.lexists(folder):
            mark = _mark_of(folder)
            request.finish({"cloned": False} if mark is None else {"cloned": False, "mark": mark})
            return
        order["depth"] = arguments.integer(args, "depth", 0, 0, 2**31 - 1)
        self._in_scratch(request, args, order)

    def _in_scratch(self, request: Request, args: Dict[str, Any], order: Dict[str, Any]) -> None:
        scratch = scratch_of(order["folder"])
        order["seconds"] = seconds = arguments.seconds_or(args, "timeout", CLONE_SECONDS)
        self._processes.start(request, order, seconds + LOOK_SECONDS, "git took too long and was stopped")
        end = request.cancel

        def cancel() -> bool:
            is_ended = end()
            if is_ended:
                self._workers.start(scratch, lambda: shutil.rmtree(scratch, ignore_errors=True))
            return is_ended

        request.cancel = cancel


def _mark_of(folder: str) -> Optional[int]:
    try:
        # Whatever the sandbox's programs have put there: nothing is waited for.
        file = os.open(os.path.join(folder, MARK), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            text = os.read(file, 20)
        finally:
            os.close(file)
    except OSError:
        return None
    return min(int(text), _MOST) if re.fullmatch(rb"[0-9]+", text) else None


def _source(args: Dict[str, Any]) -> Dict[str, Any]:
    order: Dict[str, Any] = {}
    for name in ("url", "branch", "username", "password"):
        order[name] = arguments.text(args, name, None if name == "url" else "")
        if len(order[name]) > _TEXT_LIMIT:
            raise arguments.BadRequestError(f"{name} has more than {_TEXT_LIMIT} characters")
        if any(ord(one) < 32 or ord(one) == 127 for one in order[name]):
            raise arguments.BadRequestError(f"{name} must not hold control characters")
    if re.match(r"https?://[^/@]+/", order["url"]) is None:
        raise arguments.BadRequestError("url must be a http or https address without a user's name")
    if order["branch"].startswith("-"):
        raise arguments.BadRequestError("branch can be no branch's name")
    return order
