"""Bounds of what is asked of git; kept apart, so that the runner's start does not load what asks."""

from __future__ import annotations

COMMITS = 200
"""The most commits in one answer."""

FILE_LIMIT = 1024 * 1024
"""Bytes of a file that is shown before and after."""

LOOK_SECONDS = 30.0
"""Within which a look at a repository is over."""
