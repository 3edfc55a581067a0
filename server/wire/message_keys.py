"""What stands at the top of a client's message beside its type and fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from server.wire.errors import WireError
from server.wire.json_data import json_type

MAX_TIMEOUT_SECONDS: Final = 24 * 3600.0
CLIENT_KEY: Final = "idempotency_key"
MAX_KEY_CHARS: Final = 255


def client_key(data: Mapping[str, Any]) -> str | None:
    """`idempotency_key`, an addition: the client's name for what it sends.

    Raises:
        WireError: it is no such name.
    """
    key = data.get(CLIENT_KEY)
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not all("!" <= char <= "~" for char in key):
        raise WireError(f"{CLIENT_KEY} is no key; send 1 to {MAX_KEY_CHARS} visible ASCII characters, or leave it out")
    return key


def hard_timeout(data: Mapping[str, Any]) -> float | None:
    """`timeout`: the action's hard limit in seconds.

    Raises:
        WireError: it is no number of seconds, or too many.
    """
    value = data.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WireError(f"timeout is {json_type(value)}; send seconds as a number, or leave it out")
    if not 0 < value <= MAX_TIMEOUT_SECONDS:
        raise WireError(f"timeout is {value:g}; send more than 0 and at most {MAX_TIMEOUT_SECONDS:g} seconds")
    return float(value)
