"""`Activity`: whether a conversation is at work or looked at, and so whether it may be unloaded."""

from __future__ import annotations

from typing import NamedTuple


class Activity(NamedTuple):
    """Activity of a loaded conversation; `last_activity` is monotonic time."""

    last_activity: float
    is_busy: bool
    connections: int


def is_idle(activity: Activity, *, now: float, limit_seconds: float) -> bool:
    """Whether to unload it: nobody is connected, nothing is at work, and it was silent for the limit (0: never)."""
    if limit_seconds <= 0 or activity.is_busy or activity.connections:
        return False
    return now - activity.last_activity >= limit_seconds


def is_pause_over(paused_at: float, *, now: float, limit_seconds: float) -> bool:
    """Whether a sandbox paused at `paused_at` should be stopped by now (limit 0: never)."""
    return limit_seconds > 0 and now - paused_at >= limit_seconds
