"""Frames as JSON text: fast, and able to carry whatever a log may hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson


def to_json(value: Mapping[str, Any]) -> bytes:
    """The JSON of a frame in UTF-8. Never fails on JSON data: what JavaScript cannot read is written so that it can.

    Not-a-number and infinities become null, lone surrogates are escaped, integers beyond 64 bits are kept.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(_finite(value), ensure_ascii=True, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
