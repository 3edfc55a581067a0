"""Typing lines that are longer than a terminal keeps: handed on in pieces, as a person would with C-d."""

from __future__ import annotations

import termios
from typing import Optional

KEPT = 4095
"""So many bytes of a line does a terminal keep, without its end; what is typed beyond them is lost."""
_PIECE = 4000
_ENDS = (b"\r", b"\n")
_DISABLED = b"\0"


class TypedLine:
    """The line that is being typed at one terminal, while the terminal collects lines for a program.

    The end-of-input key gives a program what there is of a line; only at the beginning of one does it mean the end.
    """

    def __init__(self, descriptor: int) -> None:
        """``descriptor`` is the program's end of the terminal."""
        self._descriptor = descriptor
        self._length = 0

    def begin(self) -> None:
        """Say that what was typed so far is forgotten."""
        self._length = 0

    def takes(self, data: bytes) -> bool:
        """Return whether all of the data can get to the program."""
        lines = data.replace(b"\n", b"\r").split(b"\r")
        return max(map(len, lines)) <= KEPT or self._handing_on() != _DISABLED

    def due(self) -> bytes:
        """Return the key that has to be typed now, before anything else, or nothing."""
        key = self._handing_on()
        if key is None:
            self._length = 0
        return key if key and key != _DISABLED and self._length >= _PIECE else b""

    def room(self, data: bytes) -> int:
        """Return how many of the next bytes can be typed at once, at least one."""
        room = max(1, _PIECE - self._length)
        if room >= len(data):
            return len(data)
        whole = room
        while whole > 0 and data[whole] & 0xC0 == 0x80:  # a character that takes several bytes stays whole
            whole -= 1
        return whole or room

    def typed(self, data: bytes) -> None:
        """Say what was typed."""
        end = max(data.rfind(end) for end in _ENDS)
        self._length = len(data) - end - 1 if end >= 0 else self._length + len(data)

    def _handing_on(self) -> Optional[bytes]:
        """Return the key that hands a line on unfinished; None where the program gets every byte at once."""
        modes = termios.tcgetattr(self._descriptor)
        if not modes[3] & termios.ICANON:
            return None
        key: bytes = modes[6][termios.VEOF]
        return key
