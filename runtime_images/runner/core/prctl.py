"""What a process tells the kernel about itself; a module that costs next to nothing to load."""

from __future__ import annotations

from typing import Any

DUMPABLE = 4
CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> bool:
    """Tell it; False when this Python cannot, or the kernel refuses."""
    try:
        import _ctypes  # and not ctypes, which would take as long to load as half of the runner

        own: Any = None  # the names that this process has loaded already
        call = _ctypes.dlsym(_ctypes.dlopen(own, 0), "prctl")
        return bool(_ctypes.call_function(call, (option, value, 0, 0, 0)) == 0)
    except (ImportError, AttributeError, OSError):
        return False
