"""Secrets that were lent to commands as variables, kept out of what the runner writes to disk.

The server hides more forms of them from everybody, but does not see what stays in the sandbox.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Optional

MASK = "<secret_hidden>"
_LEAST = 4
_MOST = 200
"""Values that are remembered: as many as a conversation has secrets, each perhaps renewed once."""


class LentSecrets:
    """The values of this run of the runner."""

    def __init__(self) -> None:
        self._values: Dict[str, None] = {}
        self._pattern: Optional[re.Pattern[str]] = None
        self.longest = 0

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, values: Iterable[str]) -> None:
        """Hide these from now on, but for values shorter than four characters, which would hide half of every text."""
        fresh = [value for value in values if len(value.strip()) >= _LEAST and value not in self._values]
        if not fresh:
            return
        self._values.update(dict.fromkeys(fresh))
        while len(self._values) > _MOST:
            del self._values[next(iter(self._values))]
        forms = sorted({form for value in self._values for form in _forms(value)}, key=len, reverse=True)
        self.longest = len(forms[0])
        self._pattern = re.compile("|".join(map(re.escape, forms)))

    def hide(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def settled(self, text: str) -> int:
        """Return up to where no value in the text can have begun that is not all there."""
        end = max(0, len(text) - self.longest + 1)
        for match in self._pattern.finditer(text) if self._pattern is not None else ():
            if match.start() < end < match.end():
                return match.end()
        return end


def _forms(value: str) -> List[str]:
    # Loaded only now: most runners lend nothing.
    import base64
    from urllib.parse import quote, quote_plus

    lines = [line for line in value.split("\n") if len(line) >= 4 * _LEAST] if "\n" in value else []
    found = set()
    for part in (value, value.strip(), *lines):
        data = part.encode("utf-8", "surrogateescape")
        found |= {part, quote(part, safe="", errors="replace"), quote_plus(part, errors="replace")}
        found |= {data.hex(), data.hex().upper(), part.replace("\n", "\r\n")}
        for offset in range(3):  # what stands before it shifts its characters
            coded = base64.b64encode(b"\0" * offset + data).decode().rstrip("=")
            core = coded[(0, 2, 3)[offset] : len(coded) if (len(data) + offset) % 3 == 0 else len(coded) - 1]
            found |= {core, core.replace("+", "-").replace("/", "_")} if len(core) >= 2 * _LEAST else set()
    return [form for form in found if len(form) >= _LEAST]
