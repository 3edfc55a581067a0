"""Snapshots in files: what clients were promised, compared with what the code says now.

A break fails the test. An addition fails it too, until the file is written anew: run the test with the variable
``UPDATE_SNAPSHOTS=1`` and commit the file with the change. A break is never written; see docs/protocol.md for its rule.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

UPDATE = "UPDATE_SNAPSHOTS"


def check_snapshot(path: Path, now: dict[str, Any], find_breaks: Callable[[Any, Any], Iterable[str]]) -> None:
    """Make sure that `now` breaks no promise of the snapshot in `path`, and that the file says the same as `now`.

    `find_breaks` takes the stored snapshot and the new one and tells what would break a client, a line each.
    """
    stored = json.loads(path.read_text("utf-8")) if path.exists() else None
    found = list(find_breaks(stored, now)) if stored is not None else []
    assert not found, f"this would break clients ({path.name}):\n" + "\n".join(found)
    if stored == now:
        return
    assert os.environ.get(UPDATE), f"{path.name} does not say what is new; run this test with {UPDATE}=1 and commit it"
    path.write_text(json.dumps(now, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")
