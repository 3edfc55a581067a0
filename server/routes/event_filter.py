"""Which events of a log a client wants to see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from server.wire.encoding import to_json
from server.wire.envelope import wire_time
from server.wire.trimming import is_hidden

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _iso(value: object) -> object:
    """Numbers, also in a text, would be read as seconds since 1970."""
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


class EventFilter(BaseModel):
    """The body of ``GET …/events``; all that is named has to hold.

    Attributes:
        query: a text that the event's JSON contains, in any case.
        start_date: the earliest time, ISO 8601; without a zone it is UTC.
        end_date: the latest time, likewise.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    exclude_hidden: bool = False
    query: str | None = None
    source: Literal["agent", "user", "environment"] | None = None
    start_date: Moment | None = None
    end_date: Moment | None = None

    def takes(self, wire: Mapping[str, Any]) -> bool:
        """Whether an event in its public form is among those wanted."""
        if self.exclude_hidden and is_hidden(wire):
            return False
        if self.source is not None and wire["source"] != self.source:
            return False
        # Public times have one form and one zone: their texts order as they do.
        if self.start_date is not None and wire["timestamp"] < wire_time(self.start_date):
            return False
        if self.end_date is not None and wire["timestamp"] > wire_time(self.end_date):
            return False
        return not self.query or self.query.lower() in to_json(wire).decode().lower()
