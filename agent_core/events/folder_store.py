"""Event store in a folder of plain files, for programs that use agent_core."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from agent_core.errors import EventStoreError, StaleOwnerError
from agent_core.events.store import SEPARATOR, NewEvent, StoredEvent, name_in_parent, parent_of

T = TypeVar("T")

SUBAGENTS = "subagents"

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(slots=True)
class _Log:
    """Index of a log: places and lengths of its payloads, and how far it has looked."""

    places: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0


class FolderEventStore:
    """An `EventStore` with a folder for each conversation: ``events.log``, and ``epoch``, its owner's number.

    Before each append in ``events.log`` stands a line with its check sum and the lengths of its payloads; an append
    that a crash cut short is overwritten. An append is on the disk when it returns. Processes may share the folder.
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
            raise EventStoreError(f"The log in {self._folder} cannot be used: {error}.") from error

    # --- in the thread ---

    def _path(self, conversation_id: str) -> Path:
        return self.folder_of(conversation_id) / "events.log"

    def _append(self, conversation_id: str, payloads: list[bytes], epoch: int) -> int:
        with self._locked(conversation_id) as folder:
            if epoch < _epoch_in(folder):
                raise StaleOwnerError(f"conversation {conversation_id} has a newer owner than epoch {epoch}")
            log = self._known(conversation_id)
            first = len(log.places)
            if not payloads:
                return first
            head = f"{crc32(b''.join(payloads))} {' '.join(str(len(one)) for one in payloads)}\n".encode()
            with open(folder / "events.log", "r+b" if log.end else "wb") as file:
                file.truncate(log.end)
                file.seek(log.end)
                file.write(head + b"".join(one + b"\n" for one in payloads))
                file.flush()
                os.fsync(file.fileno())
            self._known(conversation_id)
            return first

    def _claim(self, conversation_id: str) -> int:
        with self._locked(conversation_id) as folder:
            epoch = _epoch_in(folder) + 1
            fresh = folder / "epoch.new"
            fresh.write_text(str(epoch))
            fresh.replace(folder / "epoch")
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

    def _known(self, conversation_id: str) -> _Log:
        log = self._logs.setdefault(conversation_id, _Log())
        path = self._path(conversation_id)
        size = path.stat().st_size if path.exists() else 0
        if size < log.end:  # deleted, and perhaps begun again
            log.places.clear()
            log.end = 0
        if size > log.end:
            with open(path, "rb") as file:
                file.seek(log.end)
                while (lengths := _whole_append(file.readline(), file.read)) is not None:
                    place = file.tell() - sum(lengths) - len(lengths)
                    for length in lengths:
                        log.places.append((place, length))
                        place += length + 1
                    log.end = place
        return log

    @contextmanager
    def _locked(self, conversation_id: str) -> Iterator[Path]:
        folder = self.folder_of(conversation_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(folder / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield folder


def _epoch_in(folder: Path) -> int:
    try:
        return int((folder / "epoch").read_text())
    except FileNotFoundError:
        return 0


def _whole_append(head: bytes, read: Callable[[int], bytes]) -> list[int] | None:
    try:
        check, *lengths = (int(word) for word in head.split())
    except ValueError:
        return None
    body = read(sum(lengths) + len(lengths))
    if not head.endswith(b"\n") or not lengths or len(body) != sum(lengths) + len(lengths):
        return None
    payloads, place = b"", 0
    for length in lengths:
        payloads += body[place : place + length]
        place += length + 1
    return lengths if crc32(payloads) == check else None
