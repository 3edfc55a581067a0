"""Errors of the database: those that users are told, and what an error of SQLAlchemy, SQLite or PostgreSQL means."""

from __future__ import annotations

import socket
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

_LOST: Final = "the connection to the database server was lost, or cannot be made; see that it runs"
_NO_HOST: Final = "none of the database servers that database_url names is what its target_session_attrs asks for"
_OF_LOSS: Final = ("08", "25P03", "57P01", "57P02", "57P03", "57P05")
"""Beginnings of PostgreSQL's codes of a connection that is gone: ended, or never there while the server starts."""

_POOLED: Final = (
    "the connection is another one for each transaction, as pgbouncer has it with pool_mode = transaction; give Drydock"
    " pool_mode = session there"
)
_SQLSTATES: Final = {
    "22023": "an option in database_url has a value that the database server does not take",
    "25006": "the database is read-only (a standby, or default_transaction_read_only); make it the primary, or name"
    " that in database_url",
    "26000": _POOLED,
    "28": "the database server does not let this user in; check user and password in database_url, and pg_hba.conf",
    "3D000": "there is no such database on that server; make it (CREATE DATABASE name ENCODING 'UTF8'), or name"
    " another one in database_url",
    "40": "another transaction was in the way; try again",
    "42704": "the database server does not know an option that database_url has; see its log",
    "42P05": _POOLED,
    "42501": "the database does not allow this to its user; let the user of database_url own the database",
    "53": "the database server has not enough memory or another resource; see its log",
    "53100": "the disk of the database server is full; free some space",
    "53300": "the database server has no connection left (max_connections); end some, or allow more",
    "55P03": "another program holds the database locked (an upgrade or a backup, perhaps); stop it or wait",
    "57": "the database server was told to end this; see its log",
    "57014": "the database server did not finish this within its time limit (statement_timeout)",
    "58": "the disk of the database server reported an error; check its health and the free space",
    "F0": "the configuration of the database server is damaged; see its log",
    "XX": "the database server reported a fault of its own, or a damaged table; see its log",
}
"""What PostgreSQL's codes mean, by the whole code or by its first two characters."""

_OUTAGES: Final = ("08", "25006", "25P03", "28", "3D000", "42501", "53", "55P03", "57", "58", "F0", "XX")
"""Beginnings of the codes that concern the database as a whole."""


def explain(error: BaseException) -> str:
    """What a database error means, in words for the user; never the statement or its values."""
    cause = _cause(error)
    if is_lost(error) and not isinstance(cause, OSError):
        return _NO_HOST if "target attribute" in str(cause) else _LOST
    if (state := _sqlstate(cause)) is not None:
        return _SQLSTATES.get(state) or _SQLSTATES.get(state[:2]) or f"{type(cause).__name__} ({state})"
    return _sqlite_reason(cause) or _network_reason(cause) or f"{type(cause).__name__}: {cause}"


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
        return DISK_FULL if _sqlstate(error) == "53100" else storage_code(_cause(error))
    if code == sqlite3.SQLITE_ERROR:
        return ""  # a statement that it does not take
    return DISK_FULL if code == sqlite3.SQLITE_FULL else STORAGE_UNAVAILABLE


def is_conflict(error: BaseException) -> bool:
    """Whether `error` says that a row with this key exists already."""
    return isinstance(error, IntegrityError | sqlite3.IntegrityError) or (_sqlstate(error) or "").startswith("23")


def is_database_failure(error: BaseException) -> bool:
    """Whether `error` comes from the database, its driver or the way to it."""
    return isinstance(error, SQLAlchemyError | OSError | sqlite3.Error) or _is_of_driver(error)


def is_outage(error: BaseException) -> bool:
    """Whether `error` concerns the database as a whole (full, locked, unreachable), not one of its rows or pages."""
    if (state := _sqlstate(error)) is not None:
        return state.startswith(_OUTAGES)
    if _is_of_driver(error):
        return True  # what the driver says by itself is of the connection, or of a value, which has its own kind
    return isinstance(error, OperationalError | InterfaceError | InternalError | OSError | sqlite3.OperationalError)


def is_damage(error: BaseException) -> bool:
    """Whether a page could not be read: SQLite says so of what is damaged and of a disk that reports an error."""
    return _sqlite_code(error) == sqlite3.SQLITE_CORRUPT or _sqlstate(error) in ("XX001", "XX002")


def is_locked(error: BaseException) -> bool:
    """Whether another program held the lock for longer than we wait for it."""
    return _sqlite_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or _sqlstate(error) == "55P03"


def is_lost(error: BaseException) -> bool:
    """Whether the connection to the database server is gone, or cannot be made, or nothing came back in time.

    What was to be stored may be stored, unless its connection could not be made.
    """
    cause = _cause(error)
    if (state := _sqlstate(cause)) is not None:
        return state.startswith(_OF_LOSS)
    # What the driver says by itself is of a connection that is closed, or was lost in the midst of something.
    return _is_of_driver(cause) or _network_reason(cause) is not None


def _cause(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's code of an error."""
    state = getattr(_cause(error), "sqlstate", None)
    return state if isinstance(state, str) else None


def _is_of_driver(error: BaseException) -> bool:
    """An error of PostgreSQL's driver, as it is or as SQLAlchemy hands it on; it is only loaded where it is used."""
    return type(error).__module__.startswith(("asyncpg.", "sqlalchemy.dialects.postgresql.asyncpg"))


def _network_reason(error: BaseException) -> str | None:
    if isinstance(error, TimeoutError):
        return "the database server did not answer in time"
    if isinstance(error, socket.gaierror):
        return f"the host of the database server has no address ({error.strerror})"
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return "there is no socket of the database server; see that it runs, and that database_url names its folder"
    if isinstance(error, ConnectionError):
        return f"the database server cannot be reached ({error.strerror or error}); see that it runs at that address"
    return None


def _sqlite_code(error: BaseException) -> int | None:
    code = getattr(_cause(error), "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def _sqlite_reason(error: BaseException) -> str | None:
    if isinstance(error, DatabaseGoneError):
        return str(error)
    code = getattr(error, "sqlite_errorcode", None)
    return _REASONS.get(code & 0xFF) if isinstance(code, int) else None


class BackupError(DrydockError):
    """A backup could not be made, or cannot be used; the message says why, and what to do."""
