"""`Backup`: one file with everything that a server keeps, made while the server runs or stands still."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from pydantic import BaseModel, ConfigDict
from sqlalchemy import make_url

from agent_core.events.store import parent_of
from agent_core.version import VERSION
from server.auth.identity import TOKEN_FILE
from server.auth.secrets import SecretBox
from server.db.archives import ArchiveWriter
from server.db.blobs import folder_name
from server.db.data_folder import ID_FILE, SEED_FOLDER
from server.db.database import BLOB_FOLDER, DATABASE_FILE, KEY_FILE
from server.db.errors import BackupError
from server.db.progress import ProgressTeller, Say
from server.db.sealing_keys import next_key_file
from server.db.sqlite import copy_database, damage_of
from server.db.workspace_copies import WorkspaceCopies, Workspaces, need_room

FORMAT: Final = 1
HEADER: Final = "drydock-backup.json"
"""The first member of a backup, which is a tar file."""
COPY_NAME: Final = "backup"
"""The copies of the database in the data folder are temporary files of this name, with the suffix ``.db``."""
END: Final = "checksums.json"
"""The last one: a backup without it is torn."""

KIND: Final = "backup of a server"


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
    """Size and SHA-256 of each file in a backup, and what those hold. `missing`: payloads that the server had lost.

    `workspaces`: conversations whose files were read from their sandboxes; `skipped`: those where that failed, and why;
    `gone`: those whose sandbox is there no more; `left_out`: how many files of a workspace could not be read.
    """

    model_config = ConfigDict(frozen=True)

    files: dict[str, tuple[int, str]]
    conversations: int
    events: int
    payloads: int
    missing: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    skipped: dict[str, str] = {}
    gone: tuple[str, ...] = ()
    left_out: dict[str, int] = {}


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
            shown = parsed.set(query={}).render_as_string()
            raise BackupError(
                f"the database is at {shown}: back it up with its own means (PostgreSQL: pg_dump, which takes it as it"
                " is at one moment, large payloads too), and then the folder forks and the files "
                f"secret.key, instance-id and token of {data_dir}"
            )
        return cls(data_dir, Path(str(parsed.database)).absolute(), has_payloads)

    def instance_id(self) -> str:
        """The server's own name; `BackupError`: that is no data folder of one."""
        try:
            return (self.data_dir / ID_FILE).read_text("ascii").strip()
        except OSError as error:
            raise BackupError(
                f"{self.data_dir} is no data folder of a server ({error.strerror}); name one with --data-dir"
            ) from error


class Backup:
    """Writes a backup; its methods block.

    The database is as it was at one moment, and every payload of it is there: payloads never change, and what was
    deleted, or was not whole yet, while the backup was made is left out with all of its rows.
    """

    def __init__(
        self,
        source: BackupSource,
        *,
        with_key: bool,
        say: Say,
        workspaces: Workspaces | None = None,
        reserve: int = 0,
    ) -> None:
        self._source = source
        self._with_key = with_key
        self._progress = ProgressTeller(say)
        self._workspaces = workspaces
        self._reserve = reserve

    def write(self, file: BinaryIO, copy: Path, *, is_beside: bool = True) -> BackupMade:
        """Write it to `file`; the database is first copied to the path `copy`, an empty file of the caller's.

        `is_beside`: both are on one disk. Raises `BackupError`, or `OSError` where `file` cannot be written.
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
                end = self._write(archive, database, copy, is_beside=is_beside)
                return BackupMade(end, archive.size)
        except sqlite3.Error as error:
            raise BackupError(
                f"the database {self._source.database} could not be copied to {copy.parent}: {error}; see to that "
                "disk's free space, and run this as the server's user"
            ) from error

    def _copy(self, copy: Path) -> None:
        need_room(copy.parent, self._source.database.stat().st_size, "a copy of the database")
        copy_database(
            self._source.database, copy, lambda left, whole: self._progress.tell("database", whole - left, whole)
        )

    def _write(self, archive: ArchiveWriter, database: sqlite3.Connection, copy: Path, *, is_beside: bool) -> BackupEnd:
        stored = _StoredConversations(database)
        key = self._key(stored)
        header = BackupHeader(
            format=FORMAT,
            version=VERSION,
            revision=stored.revision,
            made_at=datetime.now(UTC),
            instance_id=self._source.instance_id(),
            key_id=None if key is None else key[0],
            has_key=key is not None and self._with_key,
        )
        archive.add(HEADER, header.model_dump_json().encode())
        stored.drop_unfinished()
        if is_beside:
            size = copy.stat().st_size + self._size_of_payloads(stored)
            need_room(copy.parent, size, "the database and its payloads")
        missing = self._add_payloads(archive, stored) if self._source.has_payloads else []
        files = self._add_files(archive, stored, copy.parent, is_beside=is_beside)
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
        end = BackupEnd(files=archive.files, payloads=payloads, missing=tuple(missing), **counts, **files)
        archive.close(END, end.model_dump_json().encode())
        return end

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

    def _size_of_payloads(self, stored: _StoredConversations) -> int:
        size = 0
        for log, digest in stored.payloads() if self._source.has_payloads else ():
            with suppress(OSError):
                size += (self._source.data_dir / BLOB_FOLDER / folder_name(log) / digest).stat().st_size
        return size

    def _is_there(self, log: str) -> bool:
        """Whether the server has this log at this moment."""
        return bool(self._present("SELECT 1 FROM events WHERE conversation_id = ? LIMIT 1", log))

    def _present(self, query: str, *arguments: str) -> list[tuple[Any, ...]]:
        """What the server has at this moment."""
        with closing(sqlite3.connect(f"{self._source.database.as_uri()}?mode=rw", uri=True)) as present:
            return present.execute(query, arguments).fetchall()

    def _add_files(
        self, archive: ArchiveWriter, stored: _StoredConversations, folder: Path, *, is_beside: bool
    ) -> dict[str, Any]:
        """Add the files that wait for the first start of their conversation; where it is wished, workspaces, too.

        A workspace goes to where such files wait, for the restored server has no sandbox. Returns what there is to say.
        """
        copies, waiting = None, set[str]()
        if self._workspaces is not None:
            copies = WorkspaceCopies(
                self._workspaces, folder, self._progress, reserve=self._reserve, is_beside=is_beside
            )
        for number, conversation_id in enumerate(sorted(stored.ids)):
            name = f"{SEED_FOLDER}/{conversation_id}.tar"
            try:
                with (self._source.data_dir / name).open("rb") as content:
                    archive.add_file(name, content)
                waiting.add(conversation_id)
                continue
            except FileNotFoundError:
                pass
            # As it is by now: the files may have gone from there into a sandbox.
            if copies is not None and (sandbox := self._sandbox_of(conversation_id)):
                copies.add(archive, name, conversation_id, sandbox)
            self._progress.tell("files", number, len(stored.ids))
        if copies is None:
            return {}
        present = {str(one) for (one,) in self._present("SELECT id FROM conversations")}
        deleted = stored.ids - present - waiting - set(copies.added)
        stored.drop_logs(deleted)
        return {
            "workspaces": tuple(copies.added),
            "skipped": {one: why for one, why in copies.skipped.items() if one not in deleted},
            "gone": tuple(one for one in copies.gone if one not in deleted),
            "left_out": copies.left_out,
        }

    def _sandbox_of(self, conversation_id: str) -> dict[str, str]:
        rows = self._present("SELECT sandbox FROM conversations WHERE id = ?", conversation_id)
        state = json.loads(rows[0][0]) if rows and rows[0][0] is not None else None
        return {str(key): str(value) for key, value in state.items()} if isinstance(state, dict) else {}


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
