"""Turns what programs write to a terminal into the text a person would read on it.

A screen of fixed height is kept: what scrolls off its top is final and handed on, what is still on it may be changed
by carriage returns, cursor movements and erasing, so that a progress bar leaves its last state and a full-screen
program its picture. Colours, titles and all other control sequences are dropped. Lines are never wrapped or cut,
except on the screen of a full-screen program, which counts on its width.
"""

from __future__ import annotations

import re
from typing import Callable, List, Optional

from . import columns
from .painting import Painting
from .screen import BLOCK, ROWS

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ASCII_CONTROLS = bytes(set(range(32)) - {9, 10}) + b"\x7f"
_IDLE = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b")) + b"\x7f"
_IDLE_OR_HIGH = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x9f]+")
COLOUR = re.compile("\x1b\\[[0-9;:]{0,64}m")
TOKEN = re.compile(
    "(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    "|(?P<newline>[\n\x0b\x0c]+)"
    "|(?P<return>\r+)"
    "|(?P<back>\x08+)"
    "|\x1b\\[(?P<parameters>[0-?]{0,256})[ -/]{0,16}(?P<final>[@-~])"
    "|(?P<string>\x1b[\\]PX^_])"
    "|\x1b\\((?P<letters>[0-~])"
    "|\x1b[ -/]{1,16}[0-~]"
    "|\x1b(?P<escape>[0-~])"
    "|[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x9f]+"
    "|\x1b"
)
INCOMPLETE = re.compile("(?:\x1b(?:\\[[0-?]{0,256}[ -/]{0,16}|[ -/]{0,16})|\r)\\Z")
STRING_END = re.compile("[\x07\x18\x1a]|\x1b\\\\|(?=[\n\x1b])")
LONGEST_INCOMPLETE = 280


def is_plain(text: str) -> bool:
    """True when the text holds no control character but newlines and tabs."""
    if text.isascii():  # several times faster than the expression, and the usual case of a flood
        return len(text.encode("ascii").translate(None, _ASCII_CONTROLS)) == len(text)
    return _CONTROLS.search(text) is None


def without_idle(text: str) -> str:
    """Return a text that holds no escape sequence without the control characters that have no effect, NUL above all."""
    if text.isascii():
        return text.encode("ascii").translate(None, _IDLE).decode("ascii")
    return _IDLE_OR_HIGH.sub("", text)


class TerminalText(Painting):
    """A terminal's screen that forgets everything but its text.

    ``commit`` receives final text in order; :meth:`flush` commits what is still on the screen. The text is the same
    however the input is divided among calls of :meth:`feed`.
    """

    def __init__(
        self, commit: Callable[[str], None], reply: Optional[Callable[[bytes], object]] = None, *, rows: int = ROWS
    ) -> None:
        """``reply`` types the answer to a program that asks where the cursor is."""
        super().__init__(commit, reply, rows)
        self._tail: List[str] = []
        self._tail_length = 0
        self._carry = ""
        self._in_string = False

    def feed(self, text: str) -> None:
        """Take the next text as programs wrote it."""
        if self._carry:
            text = self._carry + text
            self._carry = ""
        if self._in_string:
            text = self._skip_string(text)
        if not text:
            return
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        if "\x1b" in text or text[-1] == "\r":
            text = self._hold_incomplete(text)
            plain = COLOUR.sub("", text)
            if "\x1b" not in plain:  # otherwise what stood before and after a colour might now look like a sequence
                text = plain
        if not text:
            return
        if self._append(text):
            return
        if "\x1b" not in text:
            text = without_idle(text)
            if self._append(text):
                return
        self._settle()
        self._interpret(text)

    def flush(self) -> None:
        """Commit what is on the screen, and empty it unless a full-screen program has it: its picture stays."""
        self._carry = ""
        self._in_string = False
        self._settle()
        self._show()

    def clear(self) -> None:
        """Empty the screen without committing what was on it."""
        self._tail.clear()
        super().clear()

    def _at_end(self) -> bool:
        return self._row == len(self._lines) - 1 and self._column == columns.width(self._lines[-1])

    def _hold_incomplete(self, text: str) -> str:
        tail = max(0, len(text) - LONGEST_INCOMPLETE)
        match = INCOMPLETE.search(text, tail)
        if match is None:
            return text
        self._carry = match.group()
        return text[: match.start()]

    def _skip_string(self, text: str) -> str:
        match = STRING_END.search(text)
        if match is None:
            return ""
        if match.start() == len(text) - 1 and text[-1] == "\x1b":
            self._carry = "\x1b"  # perhaps the first half of the terminator
            return ""
        self._in_string = False
        return text[match.end() :]

    def _append(self, text: str) -> bool:
        """The fast way for plain text at the end of the screen: it is not divided into lines before it must be.

        False for anything else.
        """
        if self._has_modes or not (self._tail or self._at_end()) or not is_plain(text):
            return False
        if not self._tail:
            self._tail.append("\n".join(self._lines))
            self._tail_length = len(self._tail[0])
        self._tail.append(text)
        self._tail_length += len(text)
        if self._tail_length > 8 * BLOCK:
            self._settle()
        return True

    def _settle(self) -> None:
        """Divide what was appended the fast way into the lines of the screen."""
        if not self._tail:
            return
        text = "".join(self._tail)
        for piece in reversed(self._tail[1:]):  # the first is what stood there before
            visible = piece.rstrip("\n")
            if visible:
                self._last = visible[-1]
                break
        self._tail.clear()
        self._tail_length = 0
        start = len(text)
        for _ in range(self._rows):
            start = text.rfind("\n", 0, start)
            if start < 0:
                break
        if start >= 0:
            if self._shown is None:
                self._commit(text[: start + 1])
            text = text[start + 1 :]
        self._lines = text.split("\n")
        self._row = len(self._lines) - 1
        self._column = columns.width(self._lines[-1])
        self._limit_line()

    def _interpret(self, text: str) -> None:
        position = 0
        while position < len(text):
            match = TOKEN.match(text, position)
            if match is None:  # cannot be: every character is text or a control character
                return
            position = match.end()
            kind = match.lastgroup
            if kind == "text":
                self._write(match.group())
            elif kind == "newline":
                self._newlines(position - match.start())
            elif kind == "return":
                self._column = 0
            elif kind == "back":
                self._back(position - match.start())
            elif kind == "final":
                self._control(match.group("final"), match.group("parameters"))
            elif kind == "letters":
                self._designate(match.group("letters"))
            elif kind == "escape":
                self._escape(match.group("escape"))
            elif kind == "string":
                self._in_string = True
                rest = self._skip_string(text[position:])
                text, position = rest, 0
