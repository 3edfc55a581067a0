"""The audit log opened by itself, or found in a file (exported, a backup, a copy of the database) and checked."""

from __future__ import annotations

import base64
import json
import sqlite3
import tarfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from server.auth.audit import AuditRecord, ChainCheck, Head, canonical, hash_of
from server.auth.signing import pem_of, public_of
from server.db import backup
from server.db.archives import ArchiveError, HashedFile, copy_to, read_archive
from server.db.database import DATABASE_FILE, KEY_FILE, open_beside
from server.db.engine import DatabaseSettings
from server.db.repositories.audit import AuditLog
from server.db.tables import read_moment
from server.db.temporary_files import temporary_file

_SQLITE: Final = b"SQLite format 3\0"
_MAX_LINE: Final = 64 * 1024
_KEPT: Final = ("audit", "audit_heads")


class CheckedFile(NamedTuple):
    """What was found in a file: what it is, the check of its records, and whose key has signed their end."""

    kind: str
    check: ChainCheck
    public: bytes | None


@asynccontextmanager
async def open_audit(data_dir: Path, settings: DatabaseSettings) -> AsyncIterator[AuditLog]:
    """The audit log of a server, which may be running; `DatabaseError`: there is none, or it is another version's."""
    async with open_beside(data_dir, settings) as (engines, writer):
        yield AuditLog.of(engines, writer, data_dir / KEY_FILE)


def head_line(head: Head) -> str:
    """The last line of an exported log: its signed end, and the key to that."""
    signed = json.loads(head.signed_text())
    signature = base64.b64encode(bytes.fromhex(head.signature)).decode()
    return canonical({"head": signed, "public_key": pem_of(bytes.fromhex(head.public_key)), "signature": signature})


def check_file(path: Path, public: bytes | None, noted: tuple[tuple[int, str], ...] = ()) -> CheckedFile:
    """Look through the audit log in a file; `public`: the key that must have signed it, None for any.

    Raises `ArchiveError` where the file is of none of the kinds, or torn, and `OSError` where it cannot be read.
    """
    with path.open("rb") as file:
        begin = file.read(len(_SQLITE))
    if begin == _SQLITE:
        return _check_database("database", path, public, noted)
    if begin.startswith(b"{"):
        return _check_lines(path, public, noted)
    if not tarfile.is_tarfile(path):
        raise ArchiveError(
            f"{path} is neither an exported audit log, nor a backup, nor a database, nor an exported conversation"
        )
    return _check_backup(path, public, noted)


def _check_backup(path: Path, public: bytes | None, noted: tuple[tuple[int, str], ...]) -> CheckedFile:
    with temporary_file(path.parent, "audit-of-backup", ".db") as (copy, target):

        def take(name: str, content: HashedFile, _size: int) -> None:
            if name == DATABASE_FILE:
                copy_to(content, target)
                target.flush()

        with path.open("rb") as file:
            read_archive(file, first=backup.HEADER, last=backup.END, check=lambda _: None, take=take, kind=backup.KIND)
        return _check_database(backup.KIND, copy, public, noted)


def _check_database(kind: str, path: Path, public: bytes | None, noted: tuple[tuple[int, str], ...]) -> CheckedFile:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("BEGIN")  # all of it as it is at one moment
            found = database.execute("SELECT name FROM sqlite_master WHERE name IN (?, ?)", _KEPT).fetchall()
            if len(found) != len(_KEPT):
                raise ArchiveError(f"the {kind} is of a version of Drydock that had no audit log yet")
            rows = database.execute(
                "SELECT number, hash, stump_number, stump_hash, signature, public_key FROM audit_heads"
            ).fetchall()
            head = Head._make(rows[0]) if rows else None
            check = ChainCheck(head, noted)
            records = database.execute("SELECT number, at, user_id, action, record, hash FROM audit ORDER BY number")
            for number, at, *others in records:
                check.take(AuditRecord(number, read_moment(at), *others))
    except sqlite3.Error as error:
        raise ArchiveError(f"the audit log of the {kind} cannot be read ({error}); take another copy") from error
    check.end(public)
    return CheckedFile(kind, check, _public_of_head(head))


def _check_lines(path: Path, public: bytes | None, noted: tuple[tuple[int, str], ...]) -> CheckedFile:
    head = _head_in(path)
    check = ChainCheck(head, noted)
    if head is None:
        check.problems.append("its last line is no signed end: it is torn, or only a part was exported")
    with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for text in _lines(file):
            if (record := _record_of(text)) is None:
                if head is None or "head" not in _read(text):
                    check.problems.append(f"behind record {check.last[0]} is a line that is no record")
                break
            check.take(record)
    if head is not None:
        check.end(public)
    return CheckedFile("exported audit log", check, _public_of_head(head))


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(_MAX_LINE):
        yield line.rstrip("\n")


def _head_in(path: Path) -> Head | None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MAX_LINE))
        last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    line = _read(last.decode("utf-8", "replace"))
    try:
        signed, stump = line["head"], line["head"]["stump"]
        key = public_of(line["public_key"]).hex()
        signature = base64.b64decode(line["signature"], validate=True).hex()
        head = Head(signed["number"], signed["hash"], stump["number"], stump["hash"], signature, key)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    return head if all(isinstance(one, int) for one in (head.number, head.stump_number)) else None


def _record_of(text: str) -> AuditRecord | None:
    """The record in a line; it stands for what is beside it in a database, too."""
    fields = _read(text)
    try:
        at = datetime.strptime(fields["at"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        number, user_id, action = fields["number"], fields["actor"]["id"], fields["action"]
    except (LookupError, TypeError, ValueError):
        return None
    return AuditRecord(number, at, user_id, action, text, hash_of(text)) if type(number) is int else None


def _read(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _public_of_head(head: Head | None) -> bytes | None:
    try:
        return bytes.fromhex(head.public_key) if head is not None and head.public_key else None
    except ValueError:
        return None
