"""Words that a program puts on a conversation of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MAX_TAG_CHARS: Final = 256
_NAME: Final = re.compile(r"[a-z0-9]+")


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """A copy of the tags.

    Raises:
        ValueError: a name has other characters than lower-case letters and digits, or a value is too long.
        TypeError: a value is no text.
    """
    for name, value in tags.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"tag {name!r}: a name has only lower-case letters and digits")
        if not isinstance(value, str):
            raise TypeError(f"tag {name!r}: its value is a {type(value).__name__}: give a text")
        if len(value) > MAX_TAG_CHARS:
            raise ValueError(
                f"tag {name!r}: its value has {len(value)} characters; at most {MAX_TAG_CHARS} are allowed"
            )
    return dict(tags)
