"""One conversation in one file: its log, those of its sub-agents and the files of its workspace; out, and in again.

A file of `server.db.archives`: what it is of; the logs in parts, each a line of JSON for an event; a tar file with the
workspace, in parts, as for a fork; checksums. No secret is in it: logs are masked before they are stored.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tarfile
import tempfile
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_core.errors import DISK_FULL, EventStoreError, SandboxError
from agent_core.events.event import utc_now
from agent_core.events.store import SEPARATOR, NewEvent, StoredEvent
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.session.rewind import ReadableLog, StoredLog, fork_log
from agent_core.tools.context import SandboxAccess
from agent_core.version import VERSION
from server.conversation_manager.conversation_manager import ConversationManager
from server.conversation_manager.forks import sandbox_of
from server.db.archives import (
    ArchiveError,
    ArchiveWriter,
    HashedFile,
    Member,
    copy_to,
    members_of,
    misplaced,
    read_archive,
)
from server.db.database import Database
from server.db.repositories.conversations import ConversationRecord
from server.db.storage_health import file_error
from server.db.workspace_copies import ATTEMPTS
from server.session.unfinished import seed_of, unfinished_conversation, waiting_files

FORMAT: Final = 1
HEADER: Final = "drydock-conversation.json"
END: Final = "checksums.json"
KIND: Final = "exported conversation"

_PAGE: Final = 200
_PIECE: Final = 4 * 1024**2
_LOOK: Final = 32 * 1024**2
"""Bytes of a copy that are written between two looks at the disk."""
_NAMED: Final = 20
"""Files that were left out and are named, each by so many characters of its path."""
_NAME: Final = 200
_MAX_PART: Final = 256 * 1024**2
"""Bytes of a part of a log: a page of events, or one that is large."""
_MAX_DEPTH: Final = 16
_LOG: Final = re.compile(r"log/((?:[a-z0-9][a-z0-9_-]{0,63}/)*)(\d{6,9})\.jsonl")
_FILES: Final = re.compile(r"workspace/(\d{6,9})")


class ConversationHeader(BaseModel):
    """What an exported conversation was, and where its files were left out, why.

    `left_out`: how many of its files could not be read, and `left_out_names` the first of them.
    """

    model_config = ConfigDict(frozen=True)

    format: int
    version: str
    conversation_id: str = Field(max_length=200)
    title: str | None = None
    exported_at: datetime
    without_files: str = ""
    left_out: int = 0
    left_out_names: list[str] = []


async def export_archive(
    database: Database, manager: ConversationManager, record: ConversationRecord, *, with_files: bool, reserve: int = 0
) -> AsyncIterator[bytes]:
    """The conversation as a file, in parts: the log as it is when this begins, all files as they are behind it.

    Its sandbox is started if need be. Memory is bounded by a page of events; the files are copied into the data folder
    first, whose disk keeps `reserve` bytes. Raises a `DrydockError`; that of the files comes before the first part.
    """
    with manager.keeping(record.id):
        logs = sorted((await database.events.last_ids(record.id)).items())
        if not with_files or record.sandbox is None:
            without = "it had no sandbox" if with_files else "they were not wanted"
            with (await waiting_files(database, record.id) if with_files else None) or nullcontext() as waiting:
                async for part in _export(database, record, logs, waiting, without="" if waiting else without):
                    yield part
            return
        sandbox = await sandbox_of(manager, record.id)
        with tempfile.TemporaryFile(dir=database.data_dir) as files:
            left_out = await _copy_workspace(sandbox, _Spool(files, database.data_dir, reserve))
            async for part in _export(database, record, logs, files, left_out=left_out):
                yield part


async def _copy_workspace(sandbox: SandboxAccess, spool: _Spool) -> list[str]:
    """Copy all files of a workspace, as they are; returns the paths of those that could not be read."""
    if not isinstance(sandbox, SandboxConnection):
        raise SandboxError("It works in the sandbox of another conversation.", fix="Export that one.")
    for _ in range(ATTEMPTS - 1):
        try:
            return await sandbox.sandbox.archive(spool)
        except SandboxError as error:
            if error.code != "changed":
                raise
        await asyncio.to_thread(spool.clear)
    return await sandbox.sandbox.archive(spool)


async def _export(
    database: Database,
    record: ConversationRecord,
    logs: list[tuple[str, int]],
    files: BinaryIO | None = None,
    *,
    without: str = "",
    left_out: Sequence[str] = (),
) -> AsyncIterator[bytes]:
    header = ConversationHeader(
        format=FORMAT,
        version=VERSION,
        conversation_id=record.id,
        title=record.title,
        exported_at=utc_now(),
        without_files=without,
        left_out=len(left_out),
        left_out_names=[name[:_NAME].encode(errors="replace").decode() for name in left_out[:_NAMED]],
    )
    parts = _Parts()
    archive = ArchiveWriter(parts)  # type: ignore[arg-type] # all that is asked of a file
    archive.add(HEADER, header.model_dump_json().encode())
    for log, last in logs:
        number, after = 0, -1
        folder = log[len(record.id) :].replace(SEPARATOR, "/").strip("/")
        while after < last:
            page = await database.events.read(log, after=after, limit=min(_PAGE, last - after))
            if not page:
                raise ArchiveError(f"conversation {record.id} was deleted while it was exported")
            lines = b"".join(one.payload + b"\n" for one in page)
            name = "/".join(filter(None, ("log", folder, f"{number:06}.jsonl")))
            await asyncio.to_thread(archive.add, name, lines)
            yield parts.take()
            number, after = number + 1, page[-1].id
    if files is not None:
        files.seek(0)
        number = 0
        while part := await asyncio.to_thread(files.read, _PIECE):
            await asyncio.to_thread(archive.add, f"workspace/{number:06}", part)
            yield parts.take()
            number += 1
    archive.close(END, orjson.dumps({"files": archive.files}))
    yield parts.take()


class _Parts:
    """A file that is written, and taken away as it grows."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._written.append(data)
        return len(data)

    def take(self) -> bytes:
        taken, self._written = b"".join(self._written), []
        return taken


class _Spool:
    """The file that a workspace is copied to, by a thread, as long as the disk keeps its reserve."""

    def __init__(self, file: BinaryIO, folder: Path, reserve: int) -> None:
        self._file, self._folder, self._reserve = file, folder, reserve
        self._looked_at = 0

    def tell(self) -> int:
        return self._file.tell()

    def clear(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._looked_at = 0

    def write(self, data: bytes, /) -> int:
        if self._file.tell() >= self._looked_at:
            self._looked_at = self._file.tell() + _LOOK
            if shutil.disk_usage(self._folder).free < self._reserve + _LOOK:
                raise EventStoreError("The server's disk has no room for a copy of its files.", code=DISK_FULL)
        try:
            return self._file.write(data)
        except OSError as error:
            raise file_error("Its files cannot be copied", error) from error


async def import_archive(database: Database, record: ConversationRecord, file: BinaryIO) -> None:
    """Make the new conversation `record` of a file from `export_archive`, not started; by default with its title.

    What was open is closed, as in a fork, and the first start puts the files into its workspace. Raises `ArchiveError`,
    which says what is wrong with the file, or another `DrydockError`: nothing is left of it.
    """
    async with unfinished_conversation(database, record.id):
        logs = ArchivedLogs(file)
        seed = seed_of(database.data_dir, record.id)
        await asyncio.to_thread(logs.open, seed)
        first = logs.header.conversation_id
        for log in logs.ids:
            source, target = ReadableLog(logs, log), StoredLog(database.events, record.id + log[len(first) :])
            await (fork_log(source, target, upto=None, reset_metrics=False) if log == first else _copy(source, target))
        await database.waiting_files.keep(record.id, seed)
        # Last, so that nobody ever sees one that is not whole, not even when this process is killed.
        await database.conversations.create(replace(record, title=record.title or logs.header.title))


async def _copy(source: ReadableLog, target: StoredLog) -> None:
    epoch, after = await target.store.claim(target.conversation_id), -1
    while page := await source.page(after=after):
        stored = await source.store.read(source.conversation_id, after=after, limit=len(page))
        events = [
            NewEvent(event.kind, event.source, event.cause, event.timestamp, one.payload)
            for event, one in zip(page, stored, strict=True)
        ]
        await target.store.append(target.conversation_id, events, epoch=epoch)
        after = page[-1].id


class _Part(NamedTuple):
    """A part of a log in the file: where it is, and the ids of its events."""

    place: int
    size: int
    first: int
    events: int


class ArchivedLogs:
    """The logs in the file of an exported conversation: an `EventReader` that keeps one part in memory.

    The file must be one that can be read again.
    """

    header: ConversationHeader

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._parts: dict[str, list[_Part]] = {}
        self._read: tuple[_Part, list[bytes]] | None = None

    @property
    def ids(self) -> list[str]:
        """The conversation's own log, then those below it."""
        return sorted(self._parts)

    def open(self, seed: Path) -> None:
        """Check the whole file and put its workspace into the tar file `seed`; blocks. Raises `ArchiveError`."""
        files = 0

        def take(name: str, content: HashedFile, size: int) -> None:
            nonlocal files
            if (log := _LOG.fullmatch(name)) is not None and size <= _MAX_PART:
                self._take_events(name, log[1], int(log[2]), content.read(size))
            elif (part := _FILES.fullmatch(name)) is not None and int(part[1]) == files:
                seed.parent.mkdir(mode=0o700, exist_ok=True)
                with seed.open("ab" if files else "wb") as workspace:
                    copy_to(content, workspace)
                files += 1
            else:
                raise misplaced(KIND, name)

        def check(text: bytes) -> None:
            self.header = _header(text)
            self._parts = {self.header.conversation_id: []}

        read_archive(self._file, first=HEADER, last=END, check=check, take=take, kind=KIND)
        self._place()
        if files:
            _check_workspace(seed)

    def _take_events(self, name: str, folder: str, number: int, text: bytes) -> None:
        names = [self.header.conversation_id, *filter(None, folder.split("/"))]
        parts = self._parts.setdefault(SEPARATOR.join(names), [])
        lines = _lines(text)
        if number != len(parts) or not lines or len(names) > _MAX_DEPTH:
            raise misplaced(KIND, name)
        first = parts[-1].first + parts[-1].events if parts else 0
        for number, line in enumerate(lines, 1):
            if not _is_event(line):
                raise ArchiveError(f"the {KIND} is damaged: line {number} of {name} is no event")
        parts.append(_Part(0, len(text), first, len(lines)))

    def _place(self) -> None:
        """Find out where the parts are, which is not known while they are read one behind the other."""
        self._file.seek(0)
        with tarfile.open(fileobj=self._file, mode="r:") as tar:
            for member in tar:
                if (log := _LOG.fullmatch(member.name)) is not None:
                    parts = self._parts[SEPARATOR.join([self.header.conversation_id, *filter(None, log[1].split("/"))])]
                    parts[int(log[2])] = parts[int(log[2])]._replace(place=member.offset_data)

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        parts = self._parts.get(conversation_id, [])
        number = bisect_right(parts, after + 1, key=lambda part: part.first) - 1
        if number < 0 or after + 1 >= parts[number].first + parts[number].events:
            return []
        part = parts[number]
        if self._read is None or self._read[0] is not part:
            self._read = part, await asyncio.to_thread(self._lines_of, part)
        start = after + 1 - part.first
        return [StoredEvent(after + 1 + n, line) for n, line in enumerate(self._read[1][start : start + limit])]

    async def last_id(self, conversation_id: str) -> int:
        parts = self._parts.get(conversation_id)
        return parts[-1].first + parts[-1].events - 1 if parts else -1

    def _lines_of(self, part: _Part) -> list[bytes]:
        self._file.seek(part.place)
        return _lines(self._file.read(part.size))


def _header(text: bytes) -> ConversationHeader:
    try:
        header = ConversationHeader.model_validate_json(text)
    except ValidationError as error:
        raise ArchiveError(f"the {KIND} is damaged: what it is of cannot be read; export it again") from error
    if header.format > FORMAT:
        raise ArchiveError(f"the {KIND} is of a newer version of Drydock ({header.version}); import it with that one")
    return header


def _lines(text: bytes) -> list[bytes]:
    return text.removesuffix(b"\n").split(b"\n")


def _is_event(line: bytes) -> bool:
    """Whether it could be one; what this version cannot read is passed over, as in every log."""
    try:
        data = orjson.loads(line)
    except ValueError:
        return False
    return isinstance(data, dict) and isinstance(data.get("kind"), str)


def _check_workspace(seed: Path) -> None:
    """See that the files stay in the workspace that they are unpacked into, wherever it is."""
    links = set[str]()
    try:
        with tarfile.open(seed, mode="r:", tarinfo=Member) as tar:
            for member in members_of(tar):
                path, to = PurePosixPath(member.name), PurePosixPath(member.linkname if member.islnk() else ".")
                inside = not (path.is_absolute() or to.is_absolute() or ".." in (*path.parts, *to.parts))
                through = links.intersection(map(str, (*path.parents, *to.parents, to)))
                plain = member.isreg() or member.isdir() or member.issym() or member.islnk()
                if not inside or through or not plain:
                    name = member.name[:200]
                    raise ArchiveError(f"the {KIND} holds a file that does not belong into a workspace: {name!r}")
                if member.issym():
                    links.add(str(path))
    except (tarfile.TarError, EOFError) as error:
        raise ArchiveError(f"the {KIND} is damaged: its workspace cannot be read ({error}); export it again") from error
