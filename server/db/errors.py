"""Errors of the database: those that users are told, and what an error of SQLAlchemy or of SQLite means."""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, InternalError, OperationalError, SQLAlchemyError

from agent_core.errors import (
    DISK_FULL,
    STORAGE_UNAVAILABLE,
    DrydockError,
    EventStoreError,
    UnreadableError,
    storage_code,
)

BUSY: Final = "database_busy"
"""The code of a read that had no turn in time: others were before it."""


class DatabaseError(EventStoreError):
    """The database could not be read or written; nothing of the failed change was stored."""


class DatabaseUnreadableError(DatabaseError, UnreadableError):
    """A part of the database cannot be read; what does not need it goes on."""


class DatabaseGoneError(OSError):
    """The database's file was removed or replaced while it is open: what is written to it would be lost."""


class DatabaseVersionError(DrydockError):
    """The database was made by a version of Drydock that this one does not know."""


class DataDirectoryError(DrydockError):
    """The data folder cannot be used; the message names it and the fix."""


class InstanceRunningError(DrydockError):
    """Another server is using the same data folder."""


class ConversationExistsError(DrydockError):
    """There is a conversation with this id already."""


class InvalidPageError(DrydockError, ValueError):
    """A `page_id` that no listing ever handed out."""


class TooManyWebhooksError(DrydockError):
    """A user has as many webhooks as one may have."""


_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full (or a limit on the database's size is reached); free some space",
    sqlite3.SQLITE_BUSY: "another program holds the database locked (a backup, perhaps); stop it or wait",
    sqlite3.SQLITE_LOCKED: "another program holds the database locked (a backup, perhaps); stop it or wait",
    sqlite3.SQLITE_READONLY: "the database is read-only; give this user write access to it and to its folder",
    sqlite3.SQLITE_IOERR: "the disk reported an error; check its health, the free space and this user's quota",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened; check that its folder exists and may be written",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged, or the disk cannot read a part of it; check the disk,"
    " and if this stays restore the file from a backup",
    sqlite3.SQLITE_NOTADB: "the file is not a Drydock database; move it away or choose another data folder",
}


def explain(error: BaseException) -> str:
    """What a database error means, in words for the user; never the statement or its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return _sqlite_reason(cause) or f"{type(cause).__name__}: {cause}"


def database_error(what: str, error: BaseException) -> DatabaseError:
    """The error for the user: what could not be done, and why."""
    kind = DatabaseUnreadableError if is_damage(error) else DatabaseError
    return kind(f"{what}: {explain(error)}", code=outage_code(error))


def outage_code(error: BaseException) -> str:
    """The code of an error that concerns the database as a whole; "" where it does not, or will not pass."""
    if not is_outage(error):
        return ""
    code = _sqlite_code(error)
    if code is None:
        return storage_code(error.orig if isinstance(error, DBAPIError) and error.orig is not None else error)
    if code == sqlite3.SQLITE_ERROR:
        return ""  # a statement that it does not take
    return DISK_FULL if code == sqlite3.SQLITE_FULL else STORAGE_UNAVAILABLE


def is_conflict(error: BaseException) -> bool:
    """Whether `error` says that a row with this key exists already."""
    return isinstance(error, IntegrityError | sqlite3.IntegrityError)


def is_database_failure(error: BaseException) -> bool:
    """Whether `error` comes from the database, its driver or the way to it."""
    return isinstance(error, SQLAlchemyError | OSError | sqlite3.Error)


def is_outage(error: BaseException) -> bool:
    """Whether `error` concerns the database as a whole (full, locked, unreachable), not one of its rows or pages."""
    return isinstance(error, OperationalError | InterfaceError | InternalError | OSError | sqlite3.OperationalError)


def is_damage(error: BaseException) -> bool:
    """Whether a page could not be read: SQLite says so of what is damaged and of a disk that reports an error."""
    return _sqlite_code(error) == sqlite3.SQLITE_CORRUPT


def is_locked(error: BaseException) -> bool:
    """Whether another program held the lock for longer than we wait for it."""
    return _sqlite_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _sqlite_code(error: BaseException) -> int | None:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    code = getattr(cause, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def _sqlite_reason(error: BaseException) -> str | None:
    if isinstance(error, DatabaseGoneError):
        return str(error)
    code = getattr(error, "sqlite_errorcode", None)
    return _REASONS.get(code & 0xFF) if isinstance(code, int) else None


class BackupError(DrydockError):
    """A backup could not be made, or cannot be used; the message says why, and what to do."""
