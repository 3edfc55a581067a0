"""Page ids: where the next page of a list begins, opaque to clients and the same whatever comes or goes before it."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, Table, tuple_

from server.db.errors import InvalidPageError
from server.db.tables import from_microseconds, to_microseconds

T = TypeVar("T")


def page_id(*last: str | int) -> str:
    """The id of the page behind what is sorted by these values."""
    return base64.urlsafe_b64encode(json.dumps(last).encode()).decode("ascii").rstrip("=")


def position(text: str, *kinds: type) -> list[str | int]:
    """The values that `page_id` was given; `InvalidPageError` where that is none that a page before has handed out."""
    try:
        last = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if not isinstance(last, list) or [type(one) for one in last] != list(kinds):
            raise TypeError("wrong types")
        for one in last:  # neither a half character nor a NUL is to reach the database
            if b"\0" in str(one).encode():
                raise ValueError("holds a NUL character")
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise InvalidPageError("page_id is not valid; use the next_page_id of the page before, or none") from error
    return last


@dataclass(frozen=True, slots=True)
class NewestFirst(Generic[T]):
    """Some of what is kept, newest first, and where the next page begins (None: this was the last)."""

    results: list[T]
    next_page_id: str | None


def newest_first(statement: Select[Any], table: Table, *, limit: int, page_id: str | None) -> Select[Any]:
    """The rows of a page by time and id, from `page_id` (else `InvalidPageError`) on, and one more; none twice."""
    if page_id is not None:
        moment, name = position(page_id, int, str)
        try:
            behind = (from_microseconds(int(moment)), str(name))
        except OverflowError as error:
            raise InvalidPageError("page_id is not valid; use the next_page_id of the page before, or none") from error
        statement = statement.where(tuple_(table.c.created_at, table.c.id) < behind)
    return statement.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(max(limit, 0) + 1)


def page_of(found: list[T], limit: int) -> NewestFirst[T]:
    """The page of what `newest_first` has found."""
    last: Any = found[limit - 1] if 0 < limit < len(found) else None
    return NewestFirst(found[: max(limit, 0)], last and page_id(to_microseconds(last.created_at), last.id))
