"""`socketio` without its managers for Redis, which are not used here: they load Redis' client, and OpenTelemetry's SDK.

The modules of the server import it from here alone.
"""

from __future__ import annotations

import sys

_HIDDEN = "redis" not in sys.modules
if _HIDDEN:
    sys.modules["redis"] = None  # type: ignore[assignment]  # the import system then takes it for not installed
try:
    import socketio
    import socketio.packet
    from socketio.exceptions import ConnectionRefusedError as RefusedError
finally:
    if _HIDDEN:
        del sys.modules["redis"]

__all__ = ["RefusedError", "socketio"]
