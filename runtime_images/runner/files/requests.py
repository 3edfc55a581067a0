"""Requests about files: checked, and done one after the other for each file, in a worker thread."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ..core import arguments, facts
from ..core.arguments import BadRequestError
from ..core.connection import Request
from .disk import FileError
from .editor import edit_of
from .line_ranges import span_of
from .operations import Files, HandlerReply
from .whole_files import whole_file

_PATCH_LIMIT = 1024 * 1024

Operation = Callable[[Request, Dict[str, Any], Optional[bytes]], None]


class FileRequests:
    """Serves ``file.…``, ``patch.apply`` and ``workspace.facts``."""

    def __init__(self, files: Files, workspace: str) -> None:
        self._files = files
        self._workspace = workspace
        self.operations: Dict[str, Operation] = {
            "file.edit": self._edit,
            "file.range": self._range,
            "file.read": self._read,
            "file.whole": self._whole,
            "file.write": self._write,
            "patch.apply": self._patch,
            "workspace.facts": self._facts,
        }

    def _read(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        path = arguments.path(given)
        offset = arguments.integer(given, "offset", 0, 0, 2**62)
        limit = arguments.integer(given, "limit", 0, 1, 2**26) if given.get("limit") is not None else None
        self.work(request, path, self._files.read(path, offset, limit))

    def _write(self, request: Request, given: Dict[str, Any], blob: Optional[bytes]) -> None:
        path = arguments.path(given)
        if blob is None:
            raise BadRequestError("file.write needs the file's content as the frame's attachment (key blob)")
        mode = arguments.integer(given, "mode", 0, 0, 0o7777) if given.get("mode") is not None else None
        self.work(request, path, self._files.write(path, blob, mode))

    def _edit(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        edit = edit_of(given, self._workspace)
        self.work(request, edit.path, self._files.edit(edit))

    def _whole(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        asked = whole_file(given, self._workspace)
        self.work(request, asked.path, self._files.whole(asked))

    def _range(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        span = span_of(given, self._workspace)
        self.work(request, span.path, self._files.range(span))

    def _patch(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        patch = arguments.characters(given, "patch", _PATCH_LIMIT)
        self.work(request, "patch.apply", self._files.patch(patch))  # one patch at a time

    def _facts(self, request: Request, _given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        self.work(request, self._workspace, lambda: HandlerReply(facts.workspace(self._workspace)))

    def work(self, request: Request, path: str, work: Callable[[], HandlerReply]) -> None:
        """Do this in a worker thread, after what was asked before of the same file, and answer with what it gives."""

        def failed(error: Exception) -> None:
            if isinstance(error, FileError):
                request.fail(error.code, str(error))
            else:
                request.fail("internal", f"{type(error).__name__}: {error}")

        def done(reply: HandlerReply) -> None:
            request.answer({"ok": True, "result": reply.result}, reply.blob)

        take_back = self._files.start(path, work, done, failed)

        def cancel() -> bool:
            if not take_back():
                return False
            request.fail("cancelled", "the request was cancelled before it was begun")
            return True

        request.cancel = cancel
