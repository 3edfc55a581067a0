"""Texts that are too long, cut in their middle (agent-core 4.2)."""

from __future__ import annotations

from math import ceil

NOTICE = "\n[... {omitted} characters were left out here ...]\n"


def maybe_truncate(text: str, limit: int, notice: str = NOTICE) -> str:
    """`text`, if it has at most `limit` characters; else its beginning and its end with a notice between them.

    ``{omitted}`` in the notice becomes the number of characters that are missing. The result has `limit` characters;
    a notice that is longer than that is all that is left, cut.
    """
    if len(text) <= limit:
        return text
    shown = _filled(notice, len(text), limit)
    if len(shown) >= limit:
        return shown[:limit]
    head = ceil((limit - len(shown)) / 2)
    tail = limit - len(shown) - head
    return text[:head] + shown + (text[-tail:] if tail else "")


def _filled(notice: str, length: int, limit: int) -> str:
    """The notice with the number of characters that are missing because of it: its own length counts."""
    shown = notice
    for _ in range(3):  # a longer number makes the notice longer, which is known at the latest the second time
        shown = notice.replace("{omitted}", str(length - max(0, limit - len(shown))))
    return shown
