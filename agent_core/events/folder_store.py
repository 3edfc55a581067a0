"""Event store in a folder of plain files, for programs that use agent_core."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar
from zlib import crc32

from agent_core.errors import EventStoreError, StaleOwnerError
from agent_core.events.store import SEPARATOR, NewEvent, StoredEvent, name_in_parent, parent_of

T = TypeVar("T")

SUBAGENTS = "subagents"

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_HEAD = re.compile(rb"[0-9]{1,10}(?: [0-9]{1,12})+\n")
_BEGUN_HEAD = re.compile(rb"[0-9 ]*")


@dataclass(slots=True)
class _Log:
    """Index of a log: places and lengths of its payloads, and how far it has looked.

    `has_refused`: behind that is what was not stored, and could not be cut off.
    """

    places: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    has_refused: bool = False


class FolderEventStore:
    """An `EventStore` with a folder for each conversation: ``events.log``, and ``epoch``, its owner's number.

    Before each append in ``events.log`` stands a line with its check sum and the lengths of its payloads. An append is
    on the disk when it returns; one that fails is taken back, and one that a crash cut short is overwritten. Whatever
    else is wrong with the file is an error that says where and what to do, and leaves the file alone. Processes may
    share the folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).absolute()
        self._logs: dict[str, _Log] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="event-store")

    def folder_of(self, conversation_id: str) -> Path:
        """The conversation's folder; that of a sub-conversation is in ``subagents`` below its parent's."""
        if (parent := parent_of(conversation_id)) is not None:
            return self.folder_of(parent) / SUBAGENTS / name_in_parent(conversation_id)
        digest = hashlib.sha256(conversation_id.encode()).hexdigest()[:40]
        return self._folder / (conversation_id if _PLAIN.fullmatch(conversation_id) else f"id-{digest}")

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        payloads = [event.payload for event in events]
        return await self._do(lambda: self._append(conversation_id, payloads, epoch))

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        start = max(after + 1, 0)
        return await self._do(lambda: self._read(conversation_id, range(start, start + limit)))

    async def read_before(self, conversation_id: str, *, before: int, limit: int = 100) -> list[StoredEvent]:
        def work() -> list[StoredEvent]:
            end = min(max(before, 0), len(self._known(conversation_id).places))
            return self._read(conversation_id, range(max(end - limit, 0), end))[::-1]

        return await self._do(work)

    async def last_id(self, conversation_id: str) -> int:
        return await self._do(lambda: len(self._known(conversation_id).places) - 1)

    async def claim(self, conversation_id: str) -> int:
        return await self._do(lambda: self._claim(conversation_id))

    async def delete(self, conversation_id: str) -> None:
        await self._do(lambda: self._delete(conversation_id))

    def remove(self, conversation_id: str) -> None:
        """Remove the conversation's folder; nobody may use it any more."""
        shutil.rmtree(self.folder_of(conversation_id), ignore_errors=True)

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except OSError as error:
            raise EventStoreError.about_file(f"The log in {self._folder}", error) from error

    # --- in the thread ---

    def _path(self, conversation_id: str) -> Path:
        return self.folder_of(conversation_id) / "events.log"

    def _append(self, conversation_id: str, payloads: list[bytes], epoch: int) -> int:
        with self._locked(conversation_id) as folder:
            if epoch != (owner := _epoch_in(folder)):
                what = "was opened by another program" if epoch < owner else f"has lost its folder {folder}"
                raise StaleOwnerError(f"Conversation {conversation_id} {what} meanwhile; nothing more was stored here.")
            log = self._known(conversation_id, is_locked=True)
            first = len(log.places)
            if not payloads:
                return first
            head = f"{crc32(b''.join(payloads))} {' '.join(str(len(one)) for one in payloads)}\n".encode()
            with open(folder / "events.log", "r+b" if log.end else "wb", buffering=0) as file:
                try:
                    file.truncate(log.end)
                    file.seek(log.end)
                    _write_whole(file, head + b"".join(one + b"\n" for one in payloads))
                    os.fsync(file.fileno())
                    if not log.end:
                        self._sync_way_to(folder)
                except OSError:
                    log.has_refused = True
                    with suppress(OSError):
                        file.truncate(log.end)
                        log.has_refused = False
                    raise
            log.has_refused = False
            self._known(conversation_id, is_locked=True)
            return first

    def _sync_way_to(self, folder: Path) -> None:
        """Have the disk know the folder, which may be as new as those that it is in."""
        while folder != self._folder.parent:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno != errno.EINVAL:  # a file system that keeps its folders without being asked
                    raise
            finally:
                os.close(descriptor)
            folder = folder.parent

    def _claim(self, conversation_id: str) -> int:
        with self._locked(conversation_id) as folder:
            epoch = _epoch_in(folder) + 1
            fresh = folder / "epoch.new"
            with open(fresh, "w") as file:
                file.write(str(epoch))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(folder / "epoch")
            if (log := self._logs.get(conversation_id)) is not None and log.has_refused:
                del self._logs[conversation_id]  # others may have gone on behind it meanwhile: what is there counts
            return epoch

    def _delete(self, conversation_id: str) -> None:
        folder = self.folder_of(conversation_id)
        below = folder / SUBAGENTS
        for child in sorted(below.iterdir()) if below.is_dir() else ():
            self._delete(f"{conversation_id}{SEPARATOR}{child.name}")
        if (folder / "epoch").exists():
            self._claim(conversation_id)  # whoever owned it is fenced off
        self._path(conversation_id).unlink(missing_ok=True)
        self._logs.pop(conversation_id, None)

    def _read(self, conversation_id: str, ids: range) -> list[StoredEvent]:
        places = self._known(conversation_id).places
        positions = range(ids.start, min(ids.stop, len(places)))
        if not positions:
            return []
        with open(self._path(conversation_id), "rb") as file:
            return [StoredEvent(i, os.pread(file.fileno(), places[i][1], places[i][0])) for i in positions]

    def _known(self, conversation_id: str, *, is_locked: bool = False) -> _Log:
        """The index up to the end of the log; raises `EventStoreError` where the file is damaged."""
        try:
            return self._indexed(conversation_id)
        except EventStoreError:  # unless somebody is writing just now, or has begun the log anew
            self._logs.pop(conversation_id, None)
            with nullcontext() if is_locked else self._unchanged(conversation_id):
                return self._indexed(conversation_id)

    def _indexed(self, conversation_id: str) -> _Log:
        log = self._logs.setdefault(conversation_id, _Log())
        path = self._path(conversation_id)
        size = path.stat().st_size if path.exists() else 0
        if size < log.end:  # deleted, and perhaps begun again
            log.places.clear()
            log.end = 0
        if size > log.end and not log.has_refused:
            with open(path, "rb") as file:
                file.seek(log.end)
                while (lengths := _whole_append(file, size)) is not None:
                    place = file.tell() - sum(lengths) - len(lengths)
                    for length in lengths:
                        log.places.append((place, length))
                        place += length + 1
                    log.end = place
                file.seek(log.end)
                if not _is_cut_short(file.read()):
                    raise EventStoreError(
                        f"The log {path} is damaged at byte {log.end}, behind its first {len(log.places)} events, and"
                        " was left as it is. Restore the file from a backup, or go on without what follows: truncate"
                        f" -s {log.end} {path}"
                    )
        return log

    @contextmanager
    def _locked(self, conversation_id: str) -> Iterator[Path]:
        folder = self.folder_of(conversation_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(folder / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield folder

    @contextmanager
    def _unchanged(self, conversation_id: str) -> Iterator[None]:
        """Within this nobody writes the log; also where this program may only read."""
        try:
            file = open(self.folder_of(conversation_id) / "lock", "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:  # nobody has ever written
            yield
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield


def _epoch_in(folder: Path) -> int:
    try:
        return int((folder / "epoch").read_text())
    except FileNotFoundError:
        return 0
    except ValueError:  # damaged: higher than any number that an owner may have
        return (folder / "epoch").stat().st_mtime_ns


def _write_whole(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _whole_append(file: BinaryIO, size: int) -> list[int] | None:
    """The lengths of the payloads of the append at which the file stands, which it goes past; None: there is none."""
    head = file.readline()
    if not _HEAD.fullmatch(head):
        return None
    check, *lengths = (int(word) for word in head.split())
    whole = sum(lengths) + len(lengths)
    if whole > size - file.tell() or len(body := file.read(whole)) != whole:
        return None
    payloads, place = b"", 0
    for length in lengths:
        payloads += body[place : place + length]
        place += length + 1
    return lengths if crc32(payloads) == check else None


def _is_cut_short(rest: bytes) -> bool:
    """Whether these bytes are what a crash leaves of one append: its beginning, or blocks that were never written."""
    head, newline, body = rest.partition(b"\n")
    if any(_whole_append(io.BytesIO(rest[at.start() + 1 :]), len(rest)) for at in re.finditer(rb"\n(?=[0-9])", rest)):
        return False  # something was stored behind it
    if b"\0" in rest:
        return True
    if not newline:
        return _BEGUN_HEAD.fullmatch(head) is not None
    if not _HEAD.fullmatch(head + newline):
        return False
    lengths = [int(word) for word in head.split()[1:]]
    return len(body) < sum(lengths) + len(lengths)
