"""What the database's errors mean: for the writer, which must decide, and for the user, who must understand."""

from __future__ import annotations

from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    SQLAlchemyError,
)

from server.db import sqlite
from server.db.errors import DatabaseError


def explain(error: BaseException) -> str:
    """What a database error means, in words for the user; never the statement or its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return sqlite.reason(cause) or f"{type(cause).__name__}: {cause}"


def database_error(what: str, error: BaseException) -> DatabaseError:
    """The error for the user: what could not be done, and why."""
    return DatabaseError(f"{what}: {explain(error)}")


def is_conflict(error: BaseException) -> bool:
    """Whether `error` says that a row with this key exists already."""
    return isinstance(error, IntegrityError) or sqlite.is_conflict(error)


def is_database_failure(error: BaseException) -> bool:
    """Whether `error` comes from the database, its driver or the way to it."""
    return isinstance(error, SQLAlchemyError | OSError) or sqlite.is_failure(error)


def is_outage(error: BaseException) -> bool:
    """Whether `error` concerns the database as a whole (full, locked, unreachable), not one of its rows."""
    return isinstance(error, OperationalError | InterfaceError | InternalError | OSError) or sqlite.is_outage(error)
