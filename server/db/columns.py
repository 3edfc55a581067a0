"""Column types that read and write the same on every database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import BigInteger, Dialect
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970 (UTC) of an aware moment."""
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The aware UTC moment so many microseconds after the start of 1970."""
    return _EPOCH + timedelta(microseconds=value)


class UtcMoment(TypeDecorator[datetime]):
    """An aware moment, kept as microseconds since 1970: exact, sortable, free of the drivers' time zone rules."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_microseconds(value)
