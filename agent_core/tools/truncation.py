"""Texts that are too long, cut in their middle."""

from __future__ import annotations

import hashlib
from math import ceil
from pathlib import Path

NOTICE = "\n[... {omitted} characters were left out here ...]\n"
NOTICE_WITH_FILE = (
    "\n[... {omitted} characters were left out here; the whole text is in {path}, where line {line} is the first that"
    " is hidden here ...]\n"
)


def maybe_truncate(
    text: str, limit: int, notice: str = NOTICE, save_dir: str | Path | None = None, prefix: str = "tool"
) -> str:
    """`text`, if it has at most `limit` characters; else that many, its middle replaced by a notice (cut if longer).

    ``{omitted}`` in the notice becomes the number of missing characters. With `save_dir` the whole text is kept there
    in ``{prefix}_output_{beginning of its SHA-256}.txt``, and the notice names that file and the first hidden line,
    unless it cannot be written.
    """
    if len(text) <= limit:
        return text
    shown = _filled(notice, len(text), limit)
    if len(shown) >= limit:
        return shown[:limit]
    head = ceil((limit - len(shown)) / 2)
    path = _saved(text, Path(save_dir), prefix) if save_dir is not None else None
    if path is not None:
        line = text.count("\n", 0, head) + 1
        shown = _filled(NOTICE_WITH_FILE.replace("{path}", str(path)).replace("{line}", str(line)), len(text), limit)
        shown = shown[: limit - head]
    tail = limit - len(shown) - head
    return text[:head] + shown + (text[-tail:] if tail else "")


def _filled(notice: str, length: int, limit: int) -> str:
    shown = notice
    for _ in range(3):  # a longer number makes the notice longer, which is known at the latest the second time
        shown = notice.replace("{omitted}", str(length - max(0, limit - len(shown))))
    return shown


def _saved(text: str, folder: Path, prefix: str) -> Path | None:
    data = text.encode("utf-8", "replace")
    path = folder / f"{prefix}_output_{hashlib.sha256(data).hexdigest()[:8]}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(data)
    except OSError:
        return None
    return path
