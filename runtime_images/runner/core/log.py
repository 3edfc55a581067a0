"""The runner's log, which is its standard error."""

from __future__ import annotations

import sys


def complain(text: str) -> None:
    """Write this to standard error; harmless where that cannot be written (a full disk)."""
    try:
        sys.stderr.write(text + "\n")
    except OSError:
        return
