"""Keeps what this process knows from others of its user: nobody may look into its memory, or take its descriptors.

Commands in the sandbox run as the same user as the runner, whose memory holds what was lent to others of them, and
whose descriptors lead to the server.
"""

from __future__ import annotations

from .log import complain
from .prctl import DUMPABLE, prctl


def hide() -> None:
    """Do so from now on; programs that are started later are not hidden."""
    if not prctl(DUMPABLE, 0):
        complain("other programs of this user can look into the runner: this Python cannot call prctl")
