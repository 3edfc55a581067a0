"""Snapshots of the workspace: when they are taken, and the operations that restore them (see `snapshot_tree`).

Once a server has asked for one, one is taken after each operation that may have changed something, under its key, while
the model thinks. Operations that come meanwhile wait for its end, within a limit. Where it takes too long (a large
workspace) only requested snapshots are taken.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from ..core import arguments
from ..core.arguments import BadRequestError, RequestError
from ..core.connection import Operation, Request
from ..core.loop import Loop, Plan
from ..core.workers import Reply, Workers
from ..wire import MAX_BLOB
from .disk import FileError, failure

LANE = "snapshots"
WAIT_SECONDS = 2.0
QUICK_SECONDS = 0.25
"""Of work, not of waiting for a processor: a small workspace stays one on a busy machine."""
GLANCE = 64
"""Files and folders that are looked at between two operations without a thread."""
PART = 8 * 1024 * 1024
PACKED = "packed-"
UNREAD_SECONDS = 600.0
_FILE_NAME = re.compile("[0-9A-Za-z]*")
_ONE_TIME_KEYS = ("once:", "direct:")


class Snapshots:
    """Serves ``workspace.snapshot``, ``.restore``, ``.pack`` and ``.unpack``, and takes snapshots by itself."""

    def __init__(self, loop: Loop, workers: Workers, workspace: str, state_directory: str) -> None:
        self._workers = workers
        self._workspace = workspace
        self._folder = os.path.join(state_directory, "snapshots")
        self._opened: Optional[Any] = None
        self._is_armed = False
        self._is_slow = False
        self._busy = 0
        self._stopping = False
        self._exclusive = 0
        self._hurrying = Plan(loop)
        self._waiting: List[Callable[[], None]] = []
        self.operations: Dict[str, Operation] = {
            "workspace.snapshot": self._snapshot,
            "workspace.restore": self._restore,
            "workspace.pack": self._pack,
            "workspace.unpack": self._unpack,
        }

    def before(self, request: Request, begin: Callable[[], None]) -> None:
        """Begin an operation that may change something once no snapshot is being taken."""
        if not self._busy:
            begin()
            return
        self._waiting.append(begin)
        if not self._hurrying.is_planned:
            self._hurrying.at(WAIT_SECONDS, self._hurry)

        def cancel() -> bool:
            if begin not in self._waiting:
                return False
            self._waiting.remove(begin)
            request.fail("cancelled", "the request was cancelled before it was begun")
            return True

        request.cancel = cancel

    def after(self, key: str) -> None:
        if not self._is_armed or self._is_slow or self._busy or key.startswith(_ONE_TIME_KEYS):
            return
        try:
            # Most operations change nothing: in a small workspace that is seen sooner than a thread would have begun.
            is_taken = self._opened is not None and bool(self._opened.take_unchanged(key, GLANCE))
        except OSError:
            is_taken = False  # the thorough way will say why
        if not is_taken:
            self._begin(lambda: self._take(key))

    def forget(self, request: Request, is_lost: Callable[[str], bool]) -> None:
        """Forget those of these names, and answer."""
        if self._opened is None and not os.path.exists(self._folder):
            request.finish({})
            return

        def work() -> Reply:
            self._tree().forget(is_lost)
            return Reply({})

        self._serve(request, work)

    # Operations

    def _snapshot(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        name = arguments.text(args, "name")
        self._is_armed = True
        self._serve(request, lambda: self._take(name), exclusive=False)

    def _restore(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        names, keep = arguments.texts(args, "names"), arguments.text(args, "keep")

        def work() -> Reply:
            tree = self._tree()
            name = tree.last_taken(names)
            if name is None:
                return Reply({"restored": None, "written": 0, "removed": 0})
            present = tree.take(keep)
            try:
                written, removed = tree.restore(name, present)
            except OSError as error:  # nobody can say of how many
                reason = str(failure(error, "the workspace"))
                told = f"only a part of the files is as it was then ({reason}); go back again"
                raise FileError("interrupted", told) from error
            return Reply({"restored": name, "written": written, "removed": removed})

        self._serve(request, work)

    def _pack(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        names, keep = arguments.texts(args, "names"), arguments.text(args, "keep")
        offset = arguments.integer(args, "offset", 0, 0, 2**62)
        file_name = arguments.characters(args, "file", 64, "")  # each reader has a file of its own
        if not _FILE_NAME.fullmatch(file_name):
            raise BadRequestError("file: only letters and digits")
        place = os.path.join(self._folder, f"{PACKED}{file_name}")

        def work() -> Reply:
            name = None
            if offset == 0:
                tree = self._tree()
                self._forget_unread()
                name = tree.last_taken(names)
                if name is None:
                    tree.take(keep)
                try:
                    tree.pack(keep if name is None else name, place)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(place)
                    raise
            with open(place, "rb") as file:
                file.seek(offset)
                data = file.read(min(PART, MAX_BLOB))
                ends = offset + len(data) >= os.path.getsize(place)
            if ends:
                os.unlink(place)
            return Reply({"packed": name, "eof": ends}, data)

        self._serve(request, work)

    def _forget_unread(self) -> None:
        """Remove what was packed for readers who have not come back."""
        for entry in os.scandir(self._folder):
            if entry.name.startswith(PACKED) and entry.stat().st_mtime < time.time() - UNREAD_SECONDS:
                os.unlink(entry.path)

    def _unpack(self, request: Request, args: Dict[str, Any], blob: Optional[bytes]) -> None:
        offset, ends = arguments.integer(args, "offset", 0, 0, 2**62), arguments.flag(args, "eof")
        if blob is None:
            raise BadRequestError("workspace.unpack needs a part of the file as the frame's attachment (key blob)")
        place = os.path.join(self._folder, "unpacked.tar")

        def work() -> Reply:
            tree = self._tree()
            with open(place, "r+b" if offset else "wb") as file:
                file.truncate(offset)
                file.seek(offset)
                file.write(blob)
            if not ends:
                return Reply({"entries": 0})
            try:
                return Reply({"entries": tree.unpack(place)})
            finally:
                os.unlink(place)

        self._serve(request, work)

    # The work

    def _tree(self) -> Any:
        if self._opened is None:
            # Needs modules that are slow to load, and that a runner without snapshots can do without.
            from .snapshot_tree import Tree, TreeStore

            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._opened = Tree(self._workspace, TreeStore(self._folder))
        return self._opened

    def _take(self, name: str) -> Reply:
        start, worked = time.monotonic(), time.thread_time()
        try:
            entries = self._tree().take(name, lambda: self._stopping)
        finally:
            self._is_slow = time.thread_time() - worked > QUICK_SECONDS or time.monotonic() - start > WAIT_SECONDS
        return Reply({"files": len(entries), "left_alone": sum(one.kind == "x" for one in entries.values())})

    def _serve(self, request: Request, work: Callable[[], Reply], *, exclusive: bool = True) -> None:
        def failed(error: Exception) -> None:
            if isinstance(error, OSError):
                found = failure(error, "the files of the workspace")
                is_full = found.code == "no_space"
                request.fail(found.code if is_full else "not_possible", f"{found}{'; free some space' * is_full}")
            else:
                request.fail(error.code if isinstance(error, RequestError) else "internal", str(error))

        self._begin(work, lambda reply: request.finish(*reply), failed, exclusive=exclusive)

    def _begin(
        self,
        work: Callable[[], Reply],
        done: Callable[[Reply], None] = lambda _reply: None,
        failed: Callable[[Exception], None] = lambda _error: None,
        *,
        exclusive: bool = False,
    ) -> None:
        """Do the work after the one before it; what may change files waits, for long if ``exclusive``."""

        def ended(tell: Callable[[Any], None], outcome: Any) -> None:
            self._busy -= 1
            self._exclusive -= exclusive
            if not self._busy:
                self._stopping = False
                self._release_waiting()
            tell(outcome)

        self._workers.start(LANE, work, partial(ended, done), partial(ended, failed))
        self._busy += 1
        self._exclusive += exclusive

    def _hurry(self) -> None:
        """Over the limit: whoever waits goes on, and the snapshot is dropped."""
        if self._exclusive:
            self._hurrying.at(WAIT_SECONDS, self._hurry)
        elif self._busy:
            self._stopping = True
            self._release_waiting()

    def _release_waiting(self) -> None:
        self._hurrying.cancel()
        waiting, self._waiting = self._waiting, []
        for begin in waiting:
            begin()
