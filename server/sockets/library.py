"""`socketio` without its managers for Redis, which are not used here: they load Redis' client, and OpenTelemetry's SDK.

The modules of the server import it from here alone.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def _without_redis() -> Any:
    """The package, for which the import system takes Redis' client for not installed."""
    is_hidden = "redis" not in sys.modules
    if is_hidden:
        sys.modules["redis"] = None  # type: ignore[assignment] # as its documentation says
    try:
        import_module("socketio.packet")
        return import_module("socketio")
    finally:
        if is_hidden:
            del sys.modules["redis"]


socketio = _without_redis()
RefusedError: type[Exception] = socketio.exceptions.ConnectionRefusedError
