"""Where a command's output ends in what a terminal delivers."""

from __future__ import annotations

from typing import Optional, Tuple


class Boundary:
    """Divides the terminal's bytes at a marker, which may arrive in pieces; what is part of it is never output."""

    def __init__(self) -> None:
        self._marker: Optional[bytes] = None
        self._held = b""

    @property
    def awaited(self) -> bool:
        """True until the marker has come or been given up: what comes belongs to the command."""
        return self._marker is not None

    def expect(self, marker: bytes) -> None:
        """Begin to look for a marker, one that starts with an escape character and holds no other."""
        self._marker = marker
        self._held = b""

    def divide(self, data: bytes) -> Tuple[bytes, bytes]:
        """Return the bytes before the marker, and those after it."""
        marker = self._marker
        if marker is None:
            return b"", data
        if self._held:
            data, self._held = self._held + data, b""
        found = data.find(marker)
        if found >= 0:
            self._marker = None
            return data[:found], data[found + len(marker) :]
        escape = data.rfind(b"\x1b", max(0, len(data) - len(marker)))
        if escape >= 0 and marker.startswith(data[escape:]):
            data, self._held = data[:escape], data[escape:]
        return data, b""

    def give_up(self) -> bytes:
        """Look no longer; return what had been held back."""
        held, self._held, self._marker = self._held, b"", None
        return held
