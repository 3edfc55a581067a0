"""`Backup`: one file with everything that a server keeps, made while the server runs or stands still."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from pydantic import BaseModel, ConfigDict
from sqlalchemy import make_url

from agent_core.errors import DrydockError
from agent_core.events.store import parent_of
from agent_core.version import VERSION
from server.auth.identity import TOKEN_FILE
from server.auth.secrets import SecretBox
from server.db.archives import ArchiveWriter
from server.db.blobs import folder_name
from server.db.data_folder import ID_FILE, SEED_FOLDER
from server.db.database import BLOB_FOLDER, DATABASE_FILE, KEY_FILE
from server.db.sealing_keys import next_key_file
from server.db.sqlite import copy_database, damage_of

FORMAT: Final = 1
HEADER: Final = "drydock-backup.json"
"""The first member of a backup, which is a tar file."""
END: Final = "checksums.json"
"""The last one: a backup without it is torn."""

PROGRESS_SECONDS = 1.0
_MIB = 1024 * 1024

Say = Callable[[str], None]
"""Takes one line for people: how far it has come."""


KIND: Final = "backup of a server"


class BackupError(DrydockError):
    """A backup could not be made, or cannot be used; the message says why, and what to do."""


class BackupHeader(BaseModel):
    """What a backup is of. `key_id` names the key that its secrets are sealed with, which is in it if `has_key`."""

    model_config = ConfigDict(frozen=True)

    format: int
    version: str
    revision: str
    made_at: datetime
    instance_id: str
    key_id: str | None
    has_key: bool


class BackupEnd(BaseModel):
    """Size and SHA-256 of each file in a backup, and what those hold. `missing`: payloads that the server had lost."""

    model_config = ConfigDict(frozen=True)

    files: dict[str, tuple[int, str]]
    conversations: int
    events: int
    payloads: int
    missing: tuple[str, ...] = ()


class BackupMade(NamedTuple):
    """A backup that was written: its end, and the bytes of the whole file."""

    end: BackupEnd
    size: int


class BackupSource(NamedTuple):
    """What is backed up: a data folder, its SQLite file, and whether payloads are kept in the folder."""

    data_dir: Path
    database: Path
    has_payloads: bool = True

    @classmethod
    def of(cls, data_dir: Path, url: str | None, *, has_payloads: bool) -> BackupSource:
        """That of a server with this database URL; `BackupError` says what to do where the database is no file."""
        if url is None:
            return cls(data_dir, data_dir / DATABASE_FILE, has_payloads)
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite":
            raise BackupError(
                f"the database is at {parsed.render_as_string()}: back it up with its own means (PostgreSQL: pg_dump, "
                "which takes it as it is at one moment), and then the folders blobs and forks and the files "
                f"secret.key, instance-id and token of {data_dir}"
            )
        return cls(data_dir, Path(str(parsed.database)).absolute(), has_payloads)


class Backup:
    """Writes a backup; its methods block.

    The database is as it was at one moment, and every payload of it is there: payloads never change, and what was
    deleted, or was not whole yet, while the backup was made is left out with all of its rows.
    """

    def __init__(self, source: BackupSource, *, with_key: bool, say: Say) -> None:
        self._source = source
        self._with_key = with_key
        self._progress = ProgressTeller(say)

    def write(self, file: BinaryIO, copy: Path) -> BackupMade:
        """Write it to `file`; the database is first copied to the path `copy`, which is gone in the end.

        Raises `BackupError`, or `OSError` where `file` cannot be written.
        """
        try:
            self._source.database.open("rb").close()
        except OSError as error:
            raise BackupError(
                f"the database {self._source.database} cannot be read ({error.strerror}); name the server's data folder"
                " with --data-dir, and run this as the server's user"
            ) from error
        try:
            self._copy(copy)
            with closing(sqlite3.connect(copy, isolation_level=None)) as database:
                if damage := damage_of(database):
                    raise BackupError(f"the database {self._source.database} is damaged ({damage}); no backup was made")
                archive = ArchiveWriter(file)
                return BackupMade(self._write(archive, database, copy), archive.size)
        except sqlite3.Error as error:
            raise BackupError(
                f"the database {self._source.database} could not be copied to {copy.parent}: {error}; see to that "
                "disk's free space, and run this as the server's user"
            ) from error
        finally:
            for name in (copy.name, f"{copy.name}-journal", f"{copy.name}-wal", f"{copy.name}-shm"):
                copy.with_name(name).unlink(missing_ok=True)

    def _copy(self, copy: Path) -> None:
        size = self._source.database.stat().st_size
        if shutil.disk_usage(copy.parent).free < size:
            raise BackupError(f"{copy.parent} has no room for a copy of the database ({size // _MIB} MiB)")
        copy.touch(mode=0o600)
        copy_database(
            self._source.database, copy, lambda left, whole: self._progress.tell("database", whole - left, whole)
        )

    def _write(self, archive: ArchiveWriter, database: sqlite3.Connection, copy: Path) -> BackupEnd:
        stored = _StoredConversations(database)
        key = self._key(stored)
        header = BackupHeader(
            format=FORMAT,
            version=VERSION,
            revision=stored.revision,
            made_at=datetime.now(UTC),
            instance_id=self._instance_id(),
            key_id=None if key is None else key[0],
            has_key=key is not None and self._with_key,
        )
        archive.add(HEADER, header.model_dump_json().encode())
        stored.drop_unfinished()
        missing = self._add_payloads(archive, stored) if self._source.has_payloads else []
        self._add_seeds(archive, stored)
        counts = stored.counts()
        with copy.open("rb") as content:
            archive.add_file(DATABASE_FILE, content)
        archive.add(ID_FILE, f"{header.instance_id}\n".encode())
        if key is not None and self._with_key:
            archive.add(KEY_FILE, key[1])
        token = self._source.data_dir / TOKEN_FILE
        if self._with_key and token.exists():
            archive.add(TOKEN_FILE, token.read_bytes())
        payloads = sum(name.startswith(f"{BLOB_FOLDER}/") for name in archive.files)
        end = BackupEnd(files=archive.files, payloads=payloads, missing=tuple(missing), **counts)
        archive.close(END, end.model_dump_json().encode())
        return end

    def _instance_id(self) -> str:
        try:
            return (self._source.data_dir / ID_FILE).read_text("ascii").strip()
        except OSError as error:
            raise BackupError(
                f"{self._source.data_dir} is no data folder of a server ({error.strerror}); name one with --data-dir"
            ) from error

    def _key(self, stored: _StoredConversations) -> tuple[str, bytes] | None:
        """The key that the copied database is sealed with, by its id: just then it may be exchanged."""
        key_file = self._source.data_dir / KEY_FILE
        if not key_file.exists():
            return None
        known = stored.key_ids()
        for path in (key_file, next_key_file(key_file)):
            with suppress(FileNotFoundError):
                content = path.read_bytes()
                key_id = SecretBox.open(path).key_id
                if key_id in known or not known:
                    return key_id, content
        raise BackupError(
            f"the key in {key_file} is not the one that the database's secrets are sealed with; restore that one, or "
            "start the server once, which says what becomes of the secrets"
        )

    def _add_payloads(self, archive: ArchiveWriter, stored: _StoredConversations) -> list[str]:
        """Add what events refer to; returns what the server itself has lost. What was deleted meanwhile is dropped."""
        payloads, missing, gone = stored.payloads(), list[str](), set[str]()
        for number, (log, digest) in enumerate(payloads, 1):
            name = f"{BLOB_FOLDER}/{folder_name(log)}/{digest}"
            try:
                with (self._source.data_dir / name).open("rb") as content:
                    found = archive.add_file(name, content)
                if found != digest:
                    missing.append(name)
            except FileNotFoundError:
                (missing.append(name) if self._is_there(log) else gone.add(log))
            self._progress.tell("payloads", number, len(payloads))
        stored.drop_logs(gone)
        return missing

    def _is_there(self, log: str) -> bool:
        """Whether the server has this log at this moment."""
        with closing(sqlite3.connect(f"{self._source.database.as_uri()}?mode=rw", uri=True)) as present:
            found = present.execute("SELECT 1 FROM events WHERE conversation_id = ? LIMIT 1", (log,))
            return found.fetchone() is not None

    def _add_seeds(self, archive: ArchiveWriter, stored: _StoredConversations) -> None:
        """Add the files that wait for the first start of their conversation."""
        for conversation_id in sorted(stored.ids):
            name = f"{SEED_FOLDER}/{conversation_id}.tar"
            with suppress(FileNotFoundError), (self._source.data_dir / name).open("rb") as content:
                archive.add_file(name, content)


class ProgressTeller:
    """Says how far something has come, at most once in `PROGRESS_SECONDS`."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._next = time.monotonic() + PROGRESS_SECONDS

    def tell(self, what: str, done: int, whole: int) -> None:
        if (now := time.monotonic()) >= self._next:
            self._next = now + PROGRESS_SECONDS
            self._say(f"{what}: {100 * done // max(whole, 1)} %")


class _StoredConversations:
    """The copy of a database, which is made whole: conversations that came or went just then are taken out."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "alembic_version" not in self._tables:
            raise BackupError("the database holds nothing yet; start the server once")
        self.revision = str(next(database.execute("SELECT version_num FROM alembic_version"))[0])
        self.ids = {str(row[0]) for row in database.execute("SELECT id FROM conversations")}

    def key_ids(self) -> set[str]:
        if "sealing_keys" not in self._tables:
            return set()
        return {str(row[0]) for row in self._database.execute("SELECT key_id FROM sealing_keys")}

    def payloads(self) -> list[tuple[str, str]]:
        """The large payloads, by log and digest."""
        statement = "SELECT DISTINCT conversation_id, blob FROM events WHERE blob IS NOT NULL ORDER BY 1, 2"
        return self._database.execute(statement).fetchall()

    def counts(self) -> Counter[str]:
        events = next(self._database.execute("SELECT count(*) FROM events"))[0]
        return Counter(conversations=len(self.ids), events=events)

    def drop_unfinished(self) -> None:
        """Drop logs that have no conversation: it was being made."""
        self.drop_logs({log for log in self._logs() if self._conversation_of(log) is None})

    def drop_logs(self, logs: set[str]) -> None:
        """Drop these logs, and all that is of their conversations."""
        doomed = {self._conversation_of(log) or log for log in logs}
        if not doomed:
            return
        self.ids -= doomed
        doomed_logs = [log for log in self._logs() if doomed.intersection(_line_of(log))]
        with self._database:
            self._database.execute("BEGIN")
            for table in self._tables & {"events", "chat_turns", "feedback", "webhook_positions"}:
                statement = f"DELETE FROM {table} WHERE conversation_id = ?"  # noqa: S608 - a table of ours
                self._database.executemany(statement, [(log,) for log in doomed_logs])
            self._database.executemany("DELETE FROM conversations WHERE id = ?", [(one,) for one in doomed])

    def _logs(self) -> list[str]:
        return [str(row[0]) for row in self._database.execute("SELECT DISTINCT conversation_id FROM events")]

    def _conversation_of(self, log: str) -> str | None:
        return next((one for one in _line_of(log) if one in self.ids), None)


def _line_of(log: str) -> Iterator[str]:
    """The log, and those that it is below of, from the bottom up."""
    found: str | None = log
    while found is not None:
        yield found
        found = parent_of(found)
