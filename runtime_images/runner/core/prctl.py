"""``prctl`` settings of the runner's own process."""

from __future__ import annotations

from typing import Any

from .log import complain

_DUMPABLE = 4
_CHILD_SUBREAPER = 36


def hide() -> None:
    """Keep others out of this process's memory and descriptors; programs started later are not hidden.

    Commands run as the same user as the runner, whose memory holds secrets lent to others of them and whose descriptors
    lead to the server.
    """
    if not _prctl(_DUMPABLE, 0):
        complain("other programs of this user can look into the runner: this Python cannot call prctl")


def adopt_orphans() -> None:
    """Make orphans this process's children, so that they are found whatever their session and environment."""
    _prctl(_CHILD_SUBREAPER, 1)  # without it there are still the marks


def _prctl(option: int, value: int) -> bool:
    """False when this Python cannot, or the kernel refuses."""
    try:
        import _ctypes  # and not ctypes, which would take as long to load as half of the runner

        own: Any = None  # the names that this process has loaded already
        call = _ctypes.dlsym(_ctypes.dlopen(own, 0), "prctl")
        return bool(_ctypes.call_function(call, (option, value, 0, 0, 0)) == 0)
    except (ImportError, AttributeError, OSError):
        return False
