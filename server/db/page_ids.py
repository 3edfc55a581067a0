"""Page ids: where the next page of a list begins, opaque to clients and the same whatever comes or goes before it."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime

from server.db.errors import InvalidPageError
from server.db.tables import from_microseconds, to_microseconds


def page_id(*last: str | int) -> str:
    """The id of the page behind what is sorted by these values."""
    return base64.urlsafe_b64encode(json.dumps(last).encode()).decode("ascii").rstrip("=")


def position(given: str, *kinds: type) -> list[str | int]:
    """The values that `page_id` was given; `InvalidPageError` where that is none that a page before has handed out."""
    try:
        last = json.loads(base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)))
        if not isinstance(last, list) or [type(one) for one in last] != list(kinds):
            raise TypeError("wrong types")
        for one in last:
            str(one).encode()  # a half character is not to reach the database
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise InvalidPageError("page_id is not valid; use the next_page_id of the page before, or none") from error
    return last


def timed_page_id(moment: datetime, name: str) -> str:
    """The id of the page behind a row, where rows are sorted by time and then by name."""
    return page_id(to_microseconds(moment), name)


def timed_position(given: str) -> tuple[datetime, str]:
    """The row that `timed_page_id` was given; `InvalidPageError` likewise."""
    moment, name = position(given, int, str)
    try:
        return from_microseconds(int(moment)), str(name)
    except OverflowError as error:
        raise InvalidPageError("page_id is not valid; use the next_page_id of the page before, or none") from error
