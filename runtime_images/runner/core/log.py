"""The runner's log, which is its standard error."""

from __future__ import annotations

import sys


def complain(text: str) -> None:
    """Say this on standard error; harmless where that cannot be written, such as a file on a full disk."""
    try:
        sys.stderr.write(text + "\n")
    except OSError:
        return
