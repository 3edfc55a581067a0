"""What time it is, for what cannot be undone."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts the time asleep, too, where there is such a clock."""
_BEGAN_AT: Final = datetime.now(UTC)
_BEGAN: Final = time.clock_gettime(_CLOCK)


def since_boot() -> float:
    """Seconds by a clock that nobody sets."""
    return time.clock_gettime(_CLOCK)


def careful_now() -> datetime:
    """The present time (UTC), but never later than the process's start and what has passed since then.

    A clock that is set forward makes everything old at once. What is deleted or given up for its age must not go by it.
    """
    passed = timedelta(seconds=since_boot() - _BEGAN)
    return min(datetime.now(UTC), _BEGAN_AT + passed)
