"""Transfers: workspace files on their way out and in, opened once and moved in parts; idle ones are dropped."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..core import arguments
from ..core.arguments import BadRequestError
from ..core.connection import Operation, Request
from ..core.loop import Loop, Plan
from ..core.workers import Reply, TooMuchWorkError, Workers
from .confined_folder import ConfinedFolder, Opened, readable
from .disk import FileError, failure
from .patterns import IgnoreRules

PART = 4 * 1024 * 1024
_ZIP_SECONDS = 0.5
LIMIT = 10_000
HIDDEN = frozenset((".git", ".DS_Store", "node_modules", "__pycache__", "lost+found", ".vscode"))
"""Names that listings for people leave out."""
_RULES_BYTES = 1024 * 1024
_KINDS = {stat.S_IFDIR: "folder", stat.S_IFREG: "file"}
IDLE_SECONDS = 600.0
AT_ONCE = 64

EntryPlace = Tuple[bool, str, str]


class Outgoing:
    """A file that is read, or a folder that becomes an archive."""

    def __init__(self, opened: Opened) -> None:
        self._descriptor = opened.descriptor
        self.size = opened.status.st_size
        self._archive: Optional[Any] = None
        self._last: Tuple[int, bytes, bool] = (0, b"", False)
        if opened.is_folder:
            from .zip_stream import ZipStream  # needed for this only

            self._archive, self._descriptor, self.size = ZipStream(opened.descriptor), -1, -1

    def part(self, offset: int, limit: int) -> Tuple[bytes, bool]:
        """The bytes from there on, and whether they are the last; an archive gives again only its newest part."""
        if self._archive is None:
            data = os.pread(self._descriptor, max(0, min(limit, self.size - offset)), offset)
            return data, offset + len(data) >= self.size
        start, data, ended = self._last
        if offset == start and data:
            return data, ended
        if offset != start + len(data):
            raise FileError("bad_request", f"offset must be {start + len(data)}: an archive is read from the beginning")
        if not ended:
            self._last = (offset, *self._archive.read(min(limit, PART), _ZIP_SECONDS))
        return self._last[1], self._last[2]

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()
        elif self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Incoming:
    """A file written beside its destination; nothing of it is seen before `keep`, and without it nothing is left."""

    def __init__(self, beneath: ConfinedFolder, path: str) -> None:
        self._place = beneath.place(path)
        self._path = path
        self._temporary: Optional[str] = None
        self._descriptor = -1
        try:
            if not self._place.missing:
                self._check_present(self._place.folder)
            self._descriptor = self._open()
        except OSError as error:
            os.close(self._place.folder)
            raise failure(error, path) from error
        except FileError:
            os.close(self._place.folder)
            raise

    def part(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written

    def keep(self) -> int:
        """Give the file its name, making missing folders; returns its size."""
        folder = os.dup(self._place.folder)
        try:
            for name in self._place.missing:
                with contextlib.suppress(FileExistsError):  # made by somebody else; if it is no folder, opening says so
                    os.mkdir(name, 0o777, dir_fd=folder)
                deeper = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                os.close(folder)
                folder = deeper
            self._check_present(folder)
            if self._temporary is None:  # in two steps, since an unnamed file cannot replace what is there
                name = _beside(self._place.name)
                os.link(f"/proc/self/fd/{self._descriptor}", name, dst_dir_fd=folder, follow_symlinks=True)
                try:
                    os.rename(name, self._place.name, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError:
                    os.unlink(name, dir_fd=folder)
                    raise
            else:
                os.rename(self._temporary, self._place.name, src_dir_fd=self._place.folder, dst_dir_fd=folder)
                self._temporary = None
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise failure(error, self._path) from error
        finally:
            os.close(folder)

    def close(self) -> None:
        if self._descriptor < 0:
            return
        if self._temporary is not None:
            os.unlink(self._temporary, dir_fd=self._place.folder)
        os.close(self._descriptor)
        os.close(self._place.folder)
        self._descriptor = -1

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(".", flags | os.O_TMPFILE, 0o666, dir_fd=self._place.folder)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
        self._temporary = _beside(self._place.name)
        return os.open(self._temporary, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self._place.folder)

    def _check_present(self, folder: int) -> None:
        """Existing files and links are replaced; a file's permissions are kept."""
        try:
            present = os.stat(self._place.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISREG(present.st_mode):
            if self._descriptor >= 0:
                os.fchmod(self._descriptor, stat.S_IMODE(present.st_mode))
        elif not stat.S_ISLNK(present.st_mode):
            what = "a folder" if stat.S_ISDIR(present.st_mode) else "no file"
            raise FileError("not_a_file", f"{self._path} is {what} already")


def _beside(name: str) -> str:
    return f".{name[:40]}.{os.urandom(6).hex()}.tmp"  # at most four bytes a sign, and 255 in all


def listed(beneath: ConfinedFolder, path: str, after: Optional[EntryPlace] = None) -> Dict[str, Any]:
    """A folder's entries, folders first: name, kind, size, modification time, and whether they are ignored.

    ``after`` is the entry that the listing continues behind (see `place_of`). Blocking; for worker threads.
    """
    opened = beneath.open(path)
    try:
        if not opened.is_folder:
            raise FileError("not_a_file", f"{path} is a file, not a folder")
        with os.scandir(opened.descriptor) as found:
            places = [(place_of(_is_folder(one), readable(one.name)), one.name) for one in found]
        names = [name for place, name in sorted(places) if after is None or place > after]
        parts = beneath.parts(path)
        rules = _rules(beneath)
        entries = [_entry(opened.descriptor, name, parts, rules) for name in names[:LIMIT]]
    except OSError as error:
        raise failure(error, path) from error
    finally:
        os.close(opened.descriptor)
    return {"path": "/".join(parts), "entries": entries, "left_out": max(0, len(names) - LIMIT)}


def _entry(folder: int, name: str, parts: List[str], rules: IgnoreRules) -> Dict[str, Any]:
    status: Optional[os.stat_result] = None
    is_link = False
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            is_link, status = True, os.stat(name, dir_fd=folder)
    except OSError:
        status = None  # a link to nothing, or something that was just removed
    kind = "missing" if status is None else _KINDS.get(stat.S_IFMT(status.st_mode), "other")
    path = [*parts, name]
    is_folder = kind == "folder"
    ends = range(1, len(path) + 1) if rules else ()  # it, and the folders that it is in
    return {
        "name": readable(name),
        "kind": kind,
        "link": is_link,
        "size": status.st_size if status is not None and kind == "file" else None,
        "modified": status.st_mtime if status is not None else None,
        "hidden": name in HIDDEN
        or any(rules.ignores("/".join(path[:end]), end < len(path) or is_folder) for end in ends),
    }


def _rules(beneath: ConfinedFolder) -> IgnoreRules:
    try:
        opened = beneath.open(".gitignore")
    except FileError:
        return IgnoreRules(())
    with open(opened.descriptor, "rb") as file:
        if opened.is_folder:
            return IgnoreRules(())
        return IgnoreRules(os.fsdecode(file.read(_RULES_BYTES)).splitlines())


def place_of(is_folder: bool, name: str) -> EntryPlace:
    """The sort key of listings."""
    return (not is_folder, name.lower(), name)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads in circles


class Transfers:
    """Serves ``transfer.*`` and ``folder.list``."""

    def __init__(self, loop: Loop, workers: Workers, workspace: str) -> None:
        self._loop = loop
        self._workers = workers
        self._beneath = ConfinedFolder(workspace)
        self._open: Dict[str, Any] = {}
        self._timers: Dict[str, Plan] = {}
        self.operations: Dict[str, Operation] = {
            "folder.list": self._folder_list,
            "transfer.read": self._begin_outgoing,
            "transfer.next": self._next,
            "transfer.write": self._begin_incoming,
            "transfer.put": self._put,
            "transfer.keep": self._keep,
            "transfer.drop": self._drop,
        }

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for transfer in self._open.values():
            transfer.close()
        self._open.clear()

    # Operations

    def _folder_list(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        path = arguments.text(args, "path", "")
        after = arguments.text(args, "after", "")
        place = place_of(arguments.flag(args, "after_folder"), after) if after else None
        self._work(request, "folder.list", lambda: Reply(listed(self._beneath, path, place)))

    def _begin_outgoing(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        path = arguments.text(args, "path", "")

        def work() -> Tuple[Outgoing, Dict[str, Any]]:
            opened = self._beneath.open(path)
            status = opened.status
            facts = {
                "kind": "folder" if opened.is_folder else "file",
                "size": None if opened.is_folder else status.st_size,
                "modified": status.st_mtime_ns,
                "tag": f"{status.st_dev:x}-{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}",
                "name": next(iter(self._beneath.parts(path)[-1:]), ""),
            }
            return Outgoing(opened), facts

        self._begin(request, work)

    def _begin_incoming(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        path = arguments.text(args, "path")
        self._begin(request, lambda: (Incoming(self._beneath, path), {}))

    def _next(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        transfer = self._known(args, Outgoing)
        offset = arguments.integer(args, "offset", 0, 0, 2**62)
        limit = arguments.integer(args, "limit", PART, 1, PART)

        def work() -> Reply:
            data, ended = transfer.part(offset, limit)
            return Reply({"eof": ended}, data)

        self._work(request, str(args["id"]), work)

    def _put(self, request: Request, args: Dict[str, Any], blob: Optional[bytes]) -> None:
        transfer = self._known(args, Incoming)
        offset = arguments.integer(args, "offset", 0, 0, 2**62)
        if blob is None:
            raise BadRequestError("transfer.put needs a part of the file as the frame's attachment (key blob)")
        data = blob

        def work() -> Reply:
            transfer.part(offset, data)
            return Reply({})

        self._work(request, str(args["id"]), work)

    def _keep(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        transfer = self._known(args, Incoming)
        self._work(request, str(args["id"]), lambda: Reply({"size": transfer.keep()}), ends=True)

    def _drop(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        ident = arguments.text(args, "id")
        if ident in self._open:
            self._work(request, ident, lambda: Reply({}), ends=True)
        else:
            request.finish({})  # it is over already

    # The work

    def _known(self, args: Dict[str, Any], kind: type) -> Any:
        transfer = self._open.get(arguments.text(args, "id"))
        if not isinstance(transfer, kind):
            raise FileError("not_found", "there is no such transfer (any more)")
        return transfer

    def _begin(self, request: Request, work: Callable[[], Tuple[Any, Dict[str, Any]]]) -> None:
        if len(self._open) >= AT_ONCE:
            raise TooMuchWorkError(f"{AT_ONCE} transfers are under way already")
        ident = os.urandom(8).hex()

        def done(opened: Tuple[Any, Dict[str, Any]]) -> None:
            self._open[ident], facts = opened
            self._wait_for_use(ident)
            request.finish({"id": ident, **facts})

        self._workers.start(f"transfer {ident}", work, done, partial(_fail, request))

    def _work(self, request: Request, lane: str, work: Callable[[], Reply], *, ends: bool = False) -> None:
        if lane in self._timers:
            self._timers[lane].cancel()

        def used(tell: Callable[[Any], None], outcome: Any) -> None:
            if ends:
                self._end(lane)
            elif lane in self._open:
                self._wait_for_use(lane)
            tell(outcome)

        done = partial(used, lambda reply: request.finish(*reply))
        self._workers.start(f"transfer {lane}", work, done, partial(used, partial(_fail, request)))

    def _wait_for_use(self, ident: str) -> None:
        self._timers.setdefault(ident, Plan(self._loop)).at(IDLE_SECONDS, lambda: self._end(ident))

    def _end(self, ident: str) -> None:
        if ident in self._timers:
            self._timers.pop(ident).cancel()
        if ident in self._open:
            self._workers.start(f"transfer {ident}", self._open.pop(ident).close, failed=_report)


def _fail(request: Request, error: Exception) -> None:
    known = failure(error, "the file") if isinstance(error, OSError) else error
    if isinstance(known, FileError):
        request.fail(known.code, str(known))
    else:
        request.fail("internal", f"{type(error).__name__}: {error}")


def _report(error: Exception) -> None:
    raise error  # the loop writes it to the runner's standard error
