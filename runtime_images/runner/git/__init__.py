"""Repositories of the workspace, viewed and cloned by git in a process of its own.

Only what the runner and that process share is here, so that the runner's start loads nothing else.
"""

from __future__ import annotations

import os

LAST_COMMIT, BASE = "commit", "base"
"""What the files are compared with: the last commit, or where the branch was begun."""

COMMITS = 200
"""The most commits in one answer."""

FILE_LIMIT = 1024 * 1024
"""Bytes of a file that is shown before and after."""

LOOK_SECONDS = 30.0
"""Within which a look at a repository is over."""

CLONE_SECONDS = 600.0
"""Within which a clone is over, where nothing else is said."""


MARK = os.path.join(".git", "drydock-set-up")
"""A file of a clone whose own scripts are still to be run; whoever asks for the clone says what it holds: a number."""


def scratch_of(folder: str) -> str:
    """Where a clone is made before it gets its name."""
    parent, name = os.path.split(folder)
    return os.path.join(parent, f".{name}.cloning")
