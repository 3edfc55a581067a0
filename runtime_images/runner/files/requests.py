"""Requests about files: edits in worker threads, one at a time for each file; searches in processes of their own."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional

from ..core import arguments, facts
from ..core.arguments import BadRequestError
from ..core.connection import Operation, Request
from ..core.helper_processes import SideProcesses
from ..core.loop import Loop
from ..core.workers import Reply, Workers
from ..wire import MAX_BLOB
from . import disk, line_ranges
from .editor import Editor, edit_of
from .edits import EditHistory
from .line_ranges import span_of
from .patcher import Patcher
from .text_file import readable
from .whole_files import WholeFiles, whole_file

_SIDE_SECONDS = 30.0
_PATTERN_LIMIT = 10000


class FileRequests:
    """Serves ``file.…``, ``patch.apply``, ``search.…``, ``code.lint`` and ``workspace.facts``."""

    def __init__(self, loop: Loop, workers: Workers, workspace: str, history_directory: str) -> None:
        history = EditHistory(history_directory)
        self._workers = workers
        self._workspace = workspace
        self.current_directory: Callable[[], str] = lambda: workspace
        self._patcher = Patcher(workspace, history)
        self._searches = SideProcesses(loop, "search", 8)
        self._lints = SideProcesses(loop, "lint", 4)
        self.operations: Dict[str, Operation] = {
            "code.lint": self._lint,
            "file.edit": self._editing(edit_of, Editor(history).run),
            "file.range": self._editing(span_of, lambda span: line_ranges.run(span, history)),
            "file.read": self._read,
            "file.whole": self._editing(whole_file, WholeFiles(history).run),
            "file.write": self._write,
            "patch.apply": self._patch,
            "search.glob": lambda request, args, _: self._search("glob", request, args),
            "search.grep": lambda request, args, _: self._search("grep", request, args),
            "workspace.facts": self._facts,
        }

    def close(self) -> None:
        self._searches.close()
        self._lints.close()

    def _read(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        if arguments.flag(args, "in_shell"):
            path = os.path.join(self.current_directory(), arguments.edited_path(args))
        else:
            path = arguments.path(args)
        offset = arguments.integer(args, "offset", 0, 0, 2**62)
        limit = MAX_BLOB + 1 if args.get("limit") is None else arguments.integer(args, "limit", 0, 1, 2**26)

        def work() -> Reply:
            content = disk.read(path, limit, offset)
            if len(content.data) > MAX_BLOB:
                raise disk.FileError(
                    "too_large", f"{path} has {content.size} bytes, the limit is {MAX_BLOB}: read it in parts"
                )
            is_end = offset + len(content.data) >= content.size
            found = {"path": path, "size": content.size, "offset": offset, "eof": is_end, "mode": content.mode}
            return Reply(found, content.data)

        self._workers.serve(request, path, work)

    def _write(self, request: Request, args: Dict[str, Any], blob: Optional[bytes]) -> None:
        path = arguments.path(args)
        if blob is None:
            raise BadRequestError("file.write needs the file's content as the frame's attachment (key blob)")
        data = blob
        mode = arguments.integer(args, "mode", 0, 0, 0o7777) if args.get("mode") is not None else None

        def work() -> Reply:
            return Reply({"path": path, "created": disk.replace(path, data, mode), "size": len(data)})

        self._workers.serve(request, path, work)

    def _editing(
        self, checked: Callable[[Dict[str, Any], str], Any], run: Callable[[Any], Dict[str, Any]]
    ) -> Operation:
        """The operation that checks its arguments, then edits the file that they name."""

        def operation(request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
            edit = checked(args, self._workspace)
            self._workers.serve(request, edit.path, lambda: _reply(run(edit)))

        return operation

    def _patch(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        patch = arguments.characters(args, "patch", 1024 * 1024)
        self._workers.serve(request, "patch.apply", lambda: _reply(self._patcher.run(patch)))  # one patch at a time

    def _facts(self, request: Request, _args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        self._workers.serve(request, self._workspace, lambda: Reply(facts.workspace(self._workspace)))

    def _lint(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        span = span_of({**args, "command": "replace"}, self._workspace)
        order = {"path": span.path, "first": span.first, "last": span.last, "text": span.text}
        overdue = f"Looking for errors took longer than {_SIDE_SECONDS:g} s and was stopped."
        self._lints.start(request, order, _SIDE_SECONDS, overdue)

    def _search(self, kind: str, request: Request, args: Dict[str, Any]) -> None:
        pattern = arguments.characters(args, "pattern", _PATTERN_LIMIT)
        if not pattern:
            raise BadRequestError("pattern is empty: say what to look for")
        include = arguments.characters(args, "include", _PATTERN_LIMIT, "")
        path = arguments.characters(args, "path", _PATTERN_LIMIT, "")
        if "\0" in path or "\0" in include:
            raise BadRequestError("path and include must not hold NUL")
        order = {
            "kind": kind,
            "pattern": pattern,
            "path": arguments.resolve(self._workspace, path),
            "include": include,
            "limit": arguments.integer(args, "limit", 100, 1, 1000),
            "ripgrep": True,
        }
        limit = arguments.seconds_or(args, "timeout", _SIDE_SECONDS)
        advice = "simplify the pattern, or search a folder further down"
        self._searches.start(
            request, order, limit, f"The search took longer than {limit:g} s and was stopped: {advice}."
        )


def _reply(result: Dict[str, Any]) -> Reply:
    return Reply({name: readable(value) if isinstance(value, str) else value for name, value in result.items()})
