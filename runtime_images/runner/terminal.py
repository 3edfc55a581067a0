"""Turns what programs write to a terminal into the text a person would read on it.

A screen of fixed height is kept: what scrolls off its top is final and handed on, what is still on it may be changed
by carriage returns, cursor movements and erasing, so that a progress bar leaves its last state and a full-screen
program its picture. Colours, titles and all other control sequences are dropped. Lines are never wrapped or cut.
"""

from __future__ import annotations

from typing import Callable, List, Optional

from . import sequences

ROWS = 200
COLUMNS = 256
_BLOCK = 32 * 1024


class TerminalText:
    """A terminal's screen that forgets everything but its text.

    ``commit`` receives final text in order; :meth:`flush` commits what is still on the screen. The text is the same
    however the input is divided among calls of :meth:`feed`.
    """

    def __init__(
        self, commit: Callable[[str], None], reply: Optional[Callable[[bytes], object]] = None, *, rows: int = ROWS
    ) -> None:
        """``reply`` types the answer to a program that asks where the cursor is."""
        self._commit = commit
        self._reply = reply
        self._rows = rows
        self._lines: List[str] = [""]
        self._tail: List[str] = []
        self._tail_length = 0
        self._row = 0
        self._column = 0
        self._carry = ""
        self._in_string = False
        self._saved = (0, 0)
        self._last = " "

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
            plain = sequences.COLOUR.sub("", text)
            if "\x1b" not in plain:  # otherwise what stood before and after a colour might now look like a sequence
                text = plain
        if not text:
            return
        if (self._tail or self._at_end()) and sequences.is_plain(text):
            self._append(text)
        else:
            self._settle()
            self._interpret(text)

    def flush(self) -> None:
        """Commit everything on the screen and start with an empty one."""
        self._carry = ""
        self._in_string = False
        self._settle()
        while len(self._lines) - 1 > self._row and not self._lines[-1] and not self._lines[-2]:
            self._lines.pop()  # rows below the text that a program has only passed through
        rest = "\n".join(self._lines)
        self.clear()
        if rest:
            self._commit(rest)

    def clear(self) -> None:
        """Empty the screen without committing what was on it."""
        self._tail.clear()
        self._lines = [""]
        self._row = self._column = 0

    def _at_end(self) -> bool:
        return self._row == len(self._lines) - 1 and self._column == len(self._lines[-1])

    def _hold_incomplete(self, text: str) -> str:
        tail = max(0, len(text) - sequences.LONGEST_INCOMPLETE)
        match = sequences.INCOMPLETE.search(text, tail)
        if match is None:
            return text
        self._carry = match.group()
        return text[: match.start()]

    def _skip_string(self, text: str) -> str:
        match = sequences.STRING_END.search(text)
        if match is None:
            return ""
        if match.start() == len(text) - 1 and text[-1] == "\x1b":
            self._carry = "\x1b"  # perhaps the first half of the terminator
            return ""
        self._in_string = False
        return text[match.end() :]

    def _append(self, text: str) -> None:
        """The fast way for plain text at the end of the screen: it is not divided into lines before it must be."""
        if not self._tail:
            self._tail.append("\n".join(self._lines))
            self._tail_length = len(self._tail[0])
        self._tail.append(text)
        self._tail_length += len(text)
        if self._tail_length > 8 * _BLOCK:
            self._settle()

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
            self._commit(text[: start + 1])
            text = text[start + 1 :]
        self._lines = text.split("\n")
        self._row = len(self._lines) - 1
        self._column = len(self._lines[-1])
        self._limit_line()

    def _scroll(self) -> None:
        excess = len(self._lines) - self._rows
        if excess > 0:
            gone = self._lines[:excess]
            del self._lines[:excess]
            self._row = max(0, self._row - excess)
            gone.append("")
            self._commit("\n".join(gone))

    def _limit_line(self) -> None:
        # A line without end is handed on in blocks of fixed size, so that where it is divided does not depend on
        # how its input was divided. Only then can it no longer be overwritten from its very beginning.
        line = self._lines[self._row]
        if len(line) <= 2 * _BLOCK or self._column != len(line):
            return
        blocks = (len(line) - _BLOCK - 1) // _BLOCK
        above = self._lines[: self._row]
        above.append(line[: blocks * _BLOCK])
        self._commit("\n".join(above))
        self._lines[: self._row + 1] = [line[blocks * _BLOCK :]]
        self._row = 0
        self._column = len(self._lines[0])

    def _interpret(self, text: str) -> None:
        position = 0
        while position < len(text):
            match = sequences.TOKEN.match(text, position)
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
                self._column = max(0, self._column - 1)
            elif kind == "final":
                self._control(match.group("final"), match.group("parameters"))
            elif kind == "escape":
                self._escape(match.group("escape"))
            elif kind == "string":
                self._in_string = True
                rest = self._skip_string(text[position:])
                text, position = rest, 0

    def _write(self, run: str) -> None:
        line = self._lines[self._row]
        column = self._column
        if column == len(line):
            line += run
        elif column > len(line):
            line = line.ljust(column) + run
        else:
            line = line[:column] + run + line[column + len(run) :]
        self._lines[self._row] = line
        self._column = column + len(run)
        self._last = run[-1]
        self._limit_line()

    def _newlines(self, count: int) -> None:
        self._row += count
        self._column = 0
        missing = self._row - len(self._lines) + 1
        if missing > 0:
            self._lines += [""] * missing
            self._scroll()
            self._row = len(self._lines) - 1

    def _move(self, row: int, column: int) -> None:
        self._row = min(max(0, row), self._rows - 1)
        self._column = min(max(0, column), 4 * COLUMNS)
        missing = self._row - len(self._lines) + 1
        if missing > 0:
            self._lines += [""] * missing

    def _escape(self, letter: str) -> None:
        if letter == "7":
            self._saved = (self._row, self._column)
        elif letter == "8":
            self._move(*self._saved)
        elif letter == "M":
            self._move(self._row - 1, self._column)
        elif letter in "DE":
            self._newlines(1)
        elif letter == "c":
            self.clear()

    def _control(self, final: str, parameters: str) -> None:
        numbers = [int(part) if part.isdigit() and len(part) < 7 else 0 for part in parameters.split(";")]
        first = numbers[0]
        count = min(max(1, first), 4 * COLUMNS)
        row, column = self._row, self._column
        if final == "A":
            self._move(row - count, column)
        elif final == "B":
            self._move(row + count, column)
        elif final == "C":
            self._move(row, column + count)
        elif final == "D":
            self._move(row, column - count)
        elif final == "E":
            self._move(row + count, 0)
        elif final == "F":
            self._move(row - count, 0)
        elif final in "G`":
            self._move(row, count - 1)
        elif final == "d":
            self._move(count - 1, column)
        elif final in "Hf":
            second = numbers[1] if len(numbers) > 1 else 1
            self._move(count - 1, max(1, second) - 1)
        elif final == "s" and not parameters:
            self._saved = (row, column)
        elif final == "u" and not parameters:
            self._move(*self._saved)
        elif final == "n" and parameters == "6" and self._reply is not None:
            self._reply(f"\x1b[{row + 1};{column + 1}R".encode())
        elif final in "hl" and parameters in ("?1049", "?1047", "?47"):
            self._alternate(final == "h")
        else:
            self._edit(final, first, count)

    def _alternate(self, entering: bool) -> None:
        # The text from before a full-screen program stays; the program's last picture is kept as text too.
        if entering and self._lines != [""]:
            self._commit("\n".join(self._lines) + "\n")
            self.clear()
        elif not entering:
            self._move(len(self._lines) - 1, 0)
            if self._lines[-1]:
                self._newlines(1)

    def _edit(self, final: str, first: int, count: int) -> None:
        row, column = self._row, self._column
        line = self._lines[row]
        if final == "K":
            self._lines[row] = (line[:column], " " * min(column + 1, len(line)) + line[column + 1 :], "")[first % 3]
        elif final == "J" and first == 0:
            self._lines[row] = line[:column]
            del self._lines[row + 1 :]
        elif final == "J" and first == 2:
            self._lines = [""] * (row + 1)
        elif final == "P":
            self._lines[row] = line[:column] + line[column + count :]
        elif final == "X":
            self._lines[row] = line[:column] + " " * min(count, len(line) - column) + line[column + count :]
        elif final == "@":
            self._lines[row] = line[:column] + " " * count + line[column:]
        elif final == "L":
            self._lines[row:row] = [""] * min(count, self._rows - row)
            del self._lines[self._rows :]
        elif final == "M":
            del self._lines[row : row + count]
            self._move(row, 0)
        elif final == "b":
            self._write(self._last * count)
