"""Query parameters that several routes take, pages of lists among them.

Lists of a form that the protocol gives name their next page in a header ``Link`` with ``rel="next"`` (RFC 8288), the
others in a field ``next_page_id``. Without a ``limit`` there is one page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Query, Request, Response
from pydantic import AfterValidator, BeforeValidator, Field

from server.db.errors import InvalidPageError
from server.db.page_ids import page_id as make_page_id
from server.db.page_ids import position
from server.http.base_path import base_path_of
from server.routes.replies import plain_error

_MAX_PATH: Final = 4096
_EXACT: Final = 2**53
"""Beyond it JavaScript loses digits."""

FilePath = Annotated[
    str, Query(max_length=_MAX_PATH, description="Relative to the workspace, or absolute below it; empty: itself.")
]
PageId = Annotated[str | None, Query(max_length=2000, description="`next_page_id` of the page before.")]
RepositoryQuery = Annotated[str | None, Query(max_length=500, description="Only those of this repository.")]
ConversationQuery = Annotated[
    str | None,
    Query(max_length=200, description="Only those whose title, repository or id has this text, in any case."),
]
EventId = Annotated[int, Query(ge=-_EXACT, le=_EXACT)]

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _iso(value: object) -> object:
    if value is not None and not (isinstance(value, str) and _DATE.match(value)):
        raise ValueError("send a time as ISO 8601 has it, such as 2026-11-01T10:00:00Z")
    return value


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("send a time that UTC has in the years 1 to 9999, too") from None


Moment = Annotated[datetime, BeforeValidator(_iso), AfterValidator(_in_utc), Field(strict=False)]
"""A time in UTC, given as ISO 8601 has it; without a zone it is one."""


T = TypeVar("T")
MAX_LIMIT: Final = 1000


class Paging:
    """Which page is asked for, and where the next one is told."""

    def __init__(
        self,
        request: Request,
        response: Response,
        limit: Annotated[
            int | None, Query(ge=1, le=MAX_LIMIT, description="At most so many on a page; without it all are one.")
        ] = None,
        page_id: PageId = None,
    ) -> None:
        self.limit = limit
        self.page_id = page_id
        self._request = request
        self._response = response

    def last(self, *kinds: type) -> tuple[Any, ...] | None:
        """The place of the last entry shown, of these kinds of values; None: first page. `ReplyError` 400: made up."""
        if self.page_id is None:
            return None
        try:
            return tuple(position(self.page_id, *kinds))
        except InvalidPageError as error:
            raise plain_error(400, str(error)) from error

    def cut(
        self, items: Iterable[T], place: Callable[[T], tuple[Any, ...]], *kinds: type, goes_on: bool = False
    ) -> tuple[list[T], str | None]:
        """The page of `items`, sorted by their places (values of `kinds`), and the next id. `goes_on`: more follow."""
        last = self.last(*kinds)
        behind = [item for item in items if last is None or place(item) > last]
        page = behind if self.limit is None else behind[: self.limit]
        if not page or (len(page) == len(behind) and not goes_on):
            return page, None
        return page, make_page_id(*place(page[-1]))

    def linked(
        self, items: Iterable[T], place: Callable[[T], tuple[Any, ...]], *kinds: type, goes_on: bool = False
    ) -> list[T]:
        page, next_page_id = self.cut(items, place, *kinds, goes_on=goes_on)
        if next_page_id is not None:
            url = self._request.url.include_query_params(page_id=next_page_id)
            self._response.headers["link"] = f'<{base_path_of(self._request.scope)}{url.path}?{url.query}>; rel="next"'
        return page


PagingDependency = Annotated[Paging, Depends(Paging)]
LINKED: Final[dict[str, Any]] = {
    "headers": {"Link": {"description": "The next page (`next`), if there is one.", "schema": {"type": "string"}}}
}
