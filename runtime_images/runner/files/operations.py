"""The file operations: reading, writing and editing, each in a worker thread, and one at a time per file."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, NamedTuple, Optional

from ..core.workers import Job, Workers
from ..wire import MAX_BLOB
from . import disk
from .editor import Edit, Editor
from .line_ranges import Ranges, Span
from .patcher import Patcher
from .text_file import readable
from .whole_files import WholeFileArguments, WholeFiles


class HandlerReply(NamedTuple):
    """A result, and the bytes that go with it."""

    result: Dict[str, Any]
    blob: Optional[bytes] = None


class Files:
    """What ``file.…`` and ``patch.apply`` do."""

    def __init__(
        self, workers: Workers, editor: Editor, patcher: Patcher, whole_files: WholeFiles, ranges: Ranges
    ) -> None:
        self._workers = workers
        self._editor = editor
        self._patcher = patcher
        self._whole_files = whole_files
        self._ranges = ranges

    def read(self, path: str, offset: int, limit: Optional[int]) -> Callable[[], HandlerReply]:
        """Return the work of reading a file, or the part of it from an offset."""

        def work() -> HandlerReply:
            content = disk.read(path, MAX_BLOB + 1 if limit is None else limit, offset)
            if len(content.data) > MAX_BLOB:
                raise disk.FileError(
                    "too_large",
                    f"{path} has {content.size} bytes, the limit is {MAX_BLOB}: read it in parts",
                )
            end = offset + len(content.data)
            facts = {
                "path": path,
                "size": content.size,
                "offset": offset,
                "eof": end >= content.size,
                "mode": content.mode,
            }
            return HandlerReply(facts, content.data)

        return work

    def write(self, path: str, data: bytes, mode: Optional[int]) -> Callable[[], HandlerReply]:
        """Return the work of writing a file whole."""
        return lambda: HandlerReply({"path": path, "created": disk.replace(path, data, mode), "size": len(data)})

    def edit(self, edit: Edit) -> Callable[[], HandlerReply]:
        """Return the work of an editor command."""
        return lambda: HandlerReply(_readable(self._editor.run(edit)))

    def patch(self, text: str) -> Callable[[], HandlerReply]:
        """Return the work of applying a patch."""
        return lambda: HandlerReply(_readable(self._patcher.run(text)))

    def whole(self, asked: WholeFileArguments) -> Callable[[], HandlerReply]:
        """Return the work of reading, writing, replacing or listing."""
        return lambda: HandlerReply(_readable(self._whole_files.run(asked)))

    def range(self, span: Span) -> Callable[[], HandlerReply]:
        """Return the work of reading or replacing lines."""
        return lambda: HandlerReply(_readable(self._ranges.run(span)))

    def start(
        self,
        path: str,
        work: Callable[[], HandlerReply],
        done: Callable[[HandlerReply], None],
        failed: Callable[[Exception], None],
    ) -> Callable[[], bool]:
        """Do the work when those before it on the same file are done; return what takes it back if it has not begun.

        Raises:
            BusyError: too much work is waiting.
        """
        job: Job[HandlerReply] = Job(os.path.realpath(path), work, done, failed)
        self._workers.submit(job)
        return lambda: self._workers.cancel(job)


def _readable(result: Dict[str, Any]) -> Dict[str, Any]:
    return {name: readable(value) if isinstance(value, str) else value for name, value in result.items()}
