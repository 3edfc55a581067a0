"""A terminal's screen: lines of text, a cursor, and what control characters and sequences do to them."""

from __future__ import annotations

from typing import Callable, List, Optional

ROWS = 200
COLUMNS = 256
BLOCK = 32 * 1024


class Screen:
    """Rows that may be painted over. What scrolls off the top is final and goes to ``commit``.

    A full-screen program paints on a screen of its own (the alternate one), of which only the picture counts: it is
    kept when it has been shown, since the program goes on from there.
    """

    def __init__(self, commit: Callable[[str], None], reply: Optional[Callable[[bytes], object]], rows: int) -> None:
        self._commit = commit
        self._reply = reply
        self._rows = rows
        self._lines: List[str] = [""]
        self._row = 0
        self._column = 0
        self._saved = (0, 0)
        self._last = " "
        self._is_full = False
        self._is_painted = False
        self._shown: Optional[List[str]] = None

    def clear(self) -> None:
        """Empty the screen without committing what was on it."""
        self._lines = [""]
        self._row = self._column = 0
        self._is_painted = False

    def _show(self) -> None:
        """Commit what is on the screen; an ordinary one is then empty, that of a full-screen program stays."""
        if self._is_full:
            picture = self._picture()
            if picture != self._shown:
                self._commit("\n".join(picture))
            self._shown = picture
            return
        while len(self._lines) - 1 > self._row and not self._lines[-1] and not self._lines[-2]:
            self._lines.pop()  # rows below the text that a program has only passed through
        if self._is_painted:  # rows that it has only made blank
            while len(self._lines) > 1 and not self._lines[-2].strip() and not self._lines[-1].strip():
                self._lines.pop()
            while len(self._lines) > 1 and not self._lines[0].strip():
                del self._lines[0]
        rest = "\n".join(self._lines)
        self.clear()
        if rest:
            self._commit(rest)

    def _picture(self) -> List[str]:
        picture = [line.rstrip() for line in self._lines]
        while picture and not picture[-1]:
            picture.pop()
        return picture

    def _scroll(self) -> None:
        excess = len(self._lines) - self._rows
        if excess > 0:
            gone = self._lines[:excess]
            del self._lines[:excess]
            self._row = max(0, self._row - excess)
            gone.append("")
            if self._shown is None:
                self._commit("\n".join(gone))

    def _limit_line(self) -> None:
        # A line without end is handed on in blocks of fixed size, so that where it is divided does not depend on
        # how its input was divided. Only then can it no longer be overwritten from its very beginning.
        line = self._lines[self._row]
        if len(line) <= 2 * BLOCK or self._column != len(line):
            return
        blocks = (len(line) - BLOCK - 1) // BLOCK
        above = self._lines[: self._row]
        above.append(line[: blocks * BLOCK])
        self._commit("\n".join(above))
        self._lines[: self._row + 1] = [line[blocks * BLOCK :]]
        self._row = 0
        self._column = len(self._lines[0])

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
            self._is_painted = True
            self._move(count - 1, column)
        elif final in "Hf":
            self._is_painted = True
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
        # The text from before a full-screen program stays; of the program's last picture what was not shown yet.
        if entering == self._is_full:
            return
        self._is_full = entering
        if entering:
            if self._lines != [""]:
                self._commit("\n".join(self._lines) + "\n")
            self.clear()
            return
        picture = self._picture()
        if self._shown is not None:
            shown = {"", *self._shown}
            picture = [line for line in picture if line not in shown]
        self._shown = None
        self.clear()
        if picture:
            self._commit("\n".join(picture) + "\n")

    def _edit(self, final: str, first: int, count: int) -> None:
        row, column = self._row, self._column
        line = self._lines[row]
        if final == "K":
            self._lines[row] = (line[:column], " " * min(column + 1, len(line)) + line[column + 1 :], "")[first % 3]
        elif final == "J" and first == 0:
            self._lines[row] = line[:column]
            del self._lines[row + 1 :]
        elif final == "J" and first == 2:
            self._is_painted = True
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
