"""`Restore`: a data folder made of a backup, after everything in that was checked."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from agent_core.errors import DrydockError
from server.auth.identity import TOKEN_FILE
from server.auth.secrets import SecretBox
from server.db.archives import ArchiveError, HashedFile, copy_to, misplaced, read_archive
from server.db.backup import END, FORMAT, HEADER, KIND, BackupEnd, BackupHeader
from server.db.blobs import sync_folder
from server.db.data_folder import (
    ID_FILE,
    REPLACED,
    RESTORING,
    SEED_FOLDER,
    UNPACKING,
    InstanceLock,
    contents,
    finish_restore,
    give_to_owner,
    is_of,
    prepare_data_dir,
)
from server.db.database import BLOB_FOLDER, DATABASE_FILE, HEAD, KEY_FILE
from server.db.errors import BackupError
from server.db.progress import ProgressTeller, Say
from server.db.sqlite import damage_of
from server.db.workspace_copies import need_room

_Model = TypeVar("_Model", bound=BaseModel)
_NAMES: Final = re.compile(
    rf"{re.escape(DATABASE_FILE)}|{re.escape(KEY_FILE)}|{TOKEN_FILE}|{ID_FILE}"
    rf"|{BLOB_FOLDER}/~?[a-z0-9][a-z0-9_-]{{0,99}}/[0-9a-f]{{64}}"
    rf"|{SEED_FOLDER}/(?!.*\.\.)[^/\\\x00-\x1f\x7f]{{1,200}}\.tar"
)
"""All that a backup may hold: nothing else is ever written, nor anywhere else."""
_IN_DATA_FOLDER: Final = ("local", "unconfined")
"""Providers whose sandboxes are in the data folder."""


class RestoredBackup(NamedTuple):
    """What a backup was of, what it held, where the old contents are now, and whether the key is there.

    `kept`: conversations whose sandbox is still here, and keeps its files.
    """

    header: BackupHeader
    end: BackupEnd
    replaced: Path | None
    has_key: bool
    kept: tuple[str, ...]


class Restore:
    """Reads a backup into a data folder; its methods block.

    By default the restored server is another one, beside which the first may go on: it has an instance id of its own,
    knows none of the first one's sandboxes, takes up no agent by itself and tells no webhook. With `take_over` it is
    the same server, whose sandboxes on this host are found again: of what `is_here`, the files are not put back.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        take_over: bool,
        replace: bool,
        say: Say,
        is_here: Callable[[str, Mapping[str, str]], bool] = lambda _conversation_id, _sandbox: False,
    ) -> None:
        self._data_dir = data_dir
        self._take_over = take_over
        self._replace = replace
        self._progress = ProgressTeller(say)
        self._is_here = is_here

    def read(self, file: BinaryIO, size: int = 0) -> RestoredBackup:
        """Read the backup in `file` (of that size, if known); a `DrydockError` or `OSError` has changed nothing.

        Raises `ArchiveError` where it is no whole backup, `BackupError` where it is of a newer version, or the folder
        is not empty and not to be replaced.
        """
        data_dir = prepare_data_dir(self._data_dir)
        with InstanceLock(data_dir):
            finish_restore(data_dir)
            for left in data_dir.glob(f"{UNPACKING}*"):
                shutil.rmtree(left)
            if contents(data_dir) and not self._replace:
                raise BackupError(
                    f"the data folder {data_dir} is not empty; name another one with --data-dir, or have its contents "
                    f"moved into a folder {REPLACED}… in it with --force"
                )
            need_room(data_dir, size, f"what is in the {KIND}")
            name = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ-") + secrets.token_hex(2)
            fresh = data_dir / (UNPACKING + name)
            fresh.mkdir(mode=0o700)
            try:
                header, end = self._unpack(file, fresh, size)
                has_key, kept = self._settle(header, end, fresh)
                _sync_folders(fresh, data_dir)
            except sqlite3.OperationalError as error:
                shutil.rmtree(fresh)
                raise BackupError(
                    f"the database could not be written into {data_dir} ({error}); see to that disk"
                ) from error
            except BaseException:
                shutil.rmtree(fresh)
                raise
            fresh.rename(data_dir / (RESTORING + name))
            return RestoredBackup(header, end, finish_restore(data_dir), has_key, kept)

    def _unpack(self, file: BinaryIO, fresh: Path, size: int) -> tuple[BackupHeader, BackupEnd]:
        unpacked = 0

        def take(name: str, content: HashedFile, length: int) -> None:
            nonlocal unpacked
            _write(fresh, name, content)
            unpacked += length
            self._progress.tell("restore", unpacked, size or unpacked)

        read = read_archive(file, first=HEADER, last=END, check=_header, take=take, kind=KIND)
        if not (fresh / DATABASE_FILE).exists():
            raise ArchiveError(f"the {KIND} is damaged: it holds no database; take another one")
        return _header(read.first), _parsed(BackupEnd, read.last)

    def _settle(self, header: BackupHeader, end: BackupEnd, fresh: Path) -> tuple[bool, tuple[str, ...]]:
        """Make what was unpacked a data folder of its own; returns whether its secrets can be read, and `kept`."""
        kept: tuple[str, ...] = ()
        with closing(sqlite3.connect(fresh / DATABASE_FILE, isolation_level=None)) as database:
            if damage := damage_of(database):
                raise ArchiveError(f"the {KIND} is damaged: its database is not sound ({damage}); take another one")
            if self._take_over:
                found = ((one, _sandbox_of(database, one)) for one in end.workspaces)
                stay = is_of(self._data_dir, header.instance_id)
                kept = tuple(
                    one
                    for one, sandbox in found
                    # Those of another server's folder are moved away with it.
                    if (stay or sandbox.get("provider") not in _IN_DATA_FOLDER) and self._is_here(one, sandbox)
                )
            else:
                _make_another(database)
        for conversation_id in kept:
            (fresh / SEED_FOLDER / f"{conversation_id}.tar").unlink()
        if not self._take_over:
            (fresh / ID_FILE).write_text(f"{secrets.token_hex(8)}\n", "ascii")
        present = self._data_dir / KEY_FILE
        if not header.has_key and header.key_id is not None and _key_id(present) == header.key_id:
            shutil.copyfile(present, fresh / KEY_FILE)
            (fresh / KEY_FILE).chmod(0o600)
        return header.key_id is None or (fresh / KEY_FILE).exists(), kept


def _key_id(path: Path) -> str | None:
    with suppress(DrydockError, OSError):  # one that is damaged is not the one that is needed
        return SecretBox.open(path).key_id if path.exists() else None
    return None


def _header(text: bytes) -> BackupHeader:
    header = _parsed(BackupHeader, text)
    if header.format > FORMAT or header.revision > HEAD:
        raise BackupError(
            f"the backup was made by a newer version of Drydock ({header.version}, whose schema is {header.revision}; "
            f"this version knows up to {HEAD}); install that version, or a later one, and restore with it"
        )
    return header


def _parsed(model: type[_Model], text: bytes) -> _Model:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise ArchiveError(f"the {KIND} is damaged: its {model.__name__} cannot be read; take another one") from error


def _write(folder: Path, name: str, content: HashedFile) -> None:
    if not _NAMES.fullmatch(name):
        raise misplaced(KIND, name)
    path = folder / name
    for above in (path.parent.parent, path.parent):
        above.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        copy_to(content, file)
        file.flush()
        os.fsync(file.fileno())


def _sandbox_of(database: sqlite3.Connection, conversation_id: str) -> Mapping[str, str]:
    row = database.execute("SELECT sandbox FROM conversations WHERE id = ?", (conversation_id,)).fetchone()
    state = json.loads(row[0]) if row is not None and row[0] is not None else None
    return {str(key): str(value) for key, value in state.items()} if isinstance(state, dict) else {}


def _make_another(database: sqlite3.Connection) -> None:
    """Let the database be that of another server than the one whose it was: no sandbox, nothing at work, no webhook."""
    with database:
        database.execute("BEGIN")
        database.execute(
            "UPDATE conversations"
            " SET sandbox = NULL, options = json_remove(options, '$.other_sandboxes'),"
            # What waits for its user's word still does, and retention leaves it alone.
            " agent_state = CASE agent_state WHEN 'awaiting_user_confirmation' THEN agent_state END"
        )
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'webhooks'").fetchone():
            database.execute("UPDATE webhooks SET active = 0")


def _sync_folders(top: Path, data_dir: Path) -> None:
    for path in (top, *top.rglob("*")):
        give_to_owner(path, data_dir)
        if path.is_dir():
            sync_folder(path)
