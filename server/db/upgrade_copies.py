"""`UpgradeCopies`: what the database was before each upgrade of its schema, kept for a way back."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from server.db.blobs import sync_folder
from server.db.errors import DatabaseError
from server.db.sqlite import copy_database

KEPT: Final = 3
"""Copies that are kept: the newest ones."""

_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)-schema-(\w+)\.db")
_MIB: Final = 1024 * 1024
_log = logging.getLogger(__name__)


class UpgradeCopies:
    """Copies of a SQLite database in a folder, each named by its time and its schema. Methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, database: Path, revision: str) -> Path:
        """Copy the database, whose schema is `revision`, durably; older copies go. `DatabaseError`: nothing is left."""
        target = self._folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-schema-{revision}.db"
        temporary = target.with_name(f".{target.name}")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            for left in self._folder.glob(".*"):
                left.unlink()
            size, free = database.stat().st_size, shutil.disk_usage(self._folder).free
            if free < 2 * size:
                raise DatabaseError(
                    f"a copy of the database is made before its schema is upgraded: {self._folder} needs "
                    f"{2 * size // _MIB} MiB for that and for the upgrade, {free // _MIB} MiB are free; free some space"
                )
            temporary.touch(mode=0o600)
            copy_database(database, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.rename(target)
            sync_folder(self._folder)
        except (sqlite3.Error, OSError) as error:
            raise DatabaseError(
                f"the database could not be copied to {self._folder} before the upgrade of its schema ({error}); "
                "nothing was changed: see to that disk and start again"
            ) from error
        finally:
            for left in self._folder.glob(".*"):
                with suppress(OSError):
                    left.unlink()
        for old in self._copies()[:-KEPT]:
            with suppress(OSError):  # it goes with the next upgrade
                old.unlink(missing_ok=True)
        _log.info("the database, whose schema is %s, was copied to %s before its upgrade", revision, target)
        return target

    def newest(self, known: Collection[str]) -> Path | None:
        """The newest copy with one of these schemas."""
        copies = ((path, _NAME.fullmatch(path.name)) for path in reversed(self._copies()))
        return next((path for path, name in copies if name is not None and name[2] in known), None)

    def _copies(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))
