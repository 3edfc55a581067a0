"""What is publicly known about a model: window, prices, abilities, from the table that the client library carries.

The table is three megabytes and the library takes seconds to import, so neither is loaded for this: the one entry is
cut out of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

_FILE = "model_prices_and_context_window_backup.json"
_LIBRARY = "litellm"


@lru_cache(maxsize=256)
def model_entry(model: str) -> Mapping[str, Any] | None:
    """The table's entry for a model by its configured name, else without its prefixes; None when it is not listed."""
    table = _table()
    if table is None:
        return None
    for name in _names(model):
        entry = _cut(table, name)
        if entry is not None:
            return MappingProxyType(entry)
    return None


def _names(model: str) -> Iterator[str]:
    yield model
    while "/" in model:
        model = model.partition("/")[2]
        yield model


def _table() -> bytes | None:
    spec = find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name(_FILE)
    return path.read_bytes() if path.is_file() else None


def _cut(table: bytes, name: str) -> dict[str, Any] | None:
    """The entry of that key at the top level, where keys are indented by four spaces."""
    start = table.find(b"\n    " + json.dumps(name).encode() + b": {")
    if start < 0:
        return None
    start = table.index(b"{", start)
    end = table.index(b"\n    }", start)
    entry: dict[str, Any] = json.loads(table[start : end + 6])
    return entry
