"""What escape sequences do to a screen."""

from __future__ import annotations

from . import columns
from .screen import COLUMNS, Screen


class Painting(Screen):
    """A screen that understands escape sequences; those without an effect on its text are dropped."""

    def _escape(self, letter: str) -> None:
        if letter == "7":
            self._saved = (self._row, self._column)
        elif letter == "8":
            self._move(*self._saved)
        elif letter == "M" and self._row == self._top:
            self._shift_down(self._top, 1)
        elif letter == "M":
            self._move(self._row - 1, self._column)
        elif letter == "D":
            column = self._column
            self._newlines(1)
            self._column = column
        elif letter == "E":
            self._newlines(1)
        elif letter == "c":
            self.clear()
            self._reset_modes()

    def _designate(self, letter: str) -> None:
        """Choose the set that characters are drawn from: letters, or lines and corners."""
        self._draws_lines = letter == "0"

    def _control(self, final: str, parameters: str) -> None:
        numbers = [int(part) if part.isdigit() and len(part) < 7 else 0 for part in parameters.split(";")]
        first = numbers[0]
        count = min(max(1, first), 4 * COLUMNS)
        row, column = self._row, self._column
        if final == "A":
            self._move(max(row - count, self._top if row >= self._top else 0), column)
        elif final in "Be":
            self._move(min(row + count, self._bottom if row <= self._bottom else self._rows), column)
        elif final in "Ca":
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
        elif final == "r" and not parameters.startswith("?"):
            self._set_margins(max(1, first) - 1, numbers[1] if len(numbers) > 1 else 0)
        elif final == "s" and not parameters:
            self._saved = (row, column)
        elif final == "u" and not parameters:
            self._move(*self._saved)
        elif final == "n" and parameters == "6" and self._reply is not None:
            self._reply(f"\x1b[{row + 1};{column + 1}R".encode())
        elif final in "hl":
            self._set_mode(parameters, final == "h")
        else:
            self._edit(final, first, count)

    def _set_margins(self, top: int, end: int) -> None:
        bottom = min(end or self._rows, self._rows) - 1
        if top < bottom or (top, bottom) == (0, 0):
            self._top, self._bottom = top, bottom
            self._move(0, 0)

    def _set_mode(self, parameters: str, is_on: bool) -> None:
        if parameters == "4":
            self._inserts = is_on
        elif parameters == "?7":
            self._wraps = is_on
        elif parameters in ("?1049", "?1047", "?47"):
            self._alternate(is_on)

    def _alternate(self, entering: bool) -> None:
        # The text from before a full-screen program stays; of the program's last picture what was not shown yet.
        if entering == self._is_full:
            return
        self._is_full = entering
        self._reset_modes()
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
        row = self._row
        if final == "J":
            self._erase(first)
        elif final == "L" and self._top <= row <= self._bottom:
            self._shift_down(row, count)
            self._move(row, 0)
        elif final == "M" and self._top <= row <= self._bottom:
            top, self._top = self._top, -1  # lines that are taken out have not scrolled off
            self._shift_up(row, count)
            self._top = top
            self._move(row, 0)
        elif final == "S":
            self._shift_up(self._top, count)
        elif final == "T":
            self._shift_down(self._top, count)
        elif final == "b":
            self._write(self._last * count)
        elif final == "I" and self._is_full:
            self._tab(count)
        elif final == "Z" and self._is_full:
            self._tab(-count if self._column % 8 == 0 else 1 - count)
        elif final in "KPX@":
            self._lines[row] = self._edited(self._lines[row], final, first, count)

    def _erase(self, how: int) -> None:
        row = self._row
        if how == 0:
            self._lines[row] = self._edited(self._lines[row], "K", 0, 1)
            del self._lines[row + 1 :]
        elif how == 1:
            self._lines[: row + 1] = [""] * row + [self._edited(self._lines[row], "K", 1, 1)]
        elif how == 2:
            self._is_painted = True
            self._lines = [""] * (row + 1)

    def _edited(self, line: str, final: str, first: int, count: int) -> str:
        column, end = self._column, columns.width(line)
        if final == "K" and first == 2:
            return ""
        if final == "K" and first == 1:
            return " " * min(column + 1, end) + columns.split(line, column + 1)[1]
        if column >= end:
            return line
        before, rest = columns.split(line, column)
        if final == "K":
            return before
        if final == "P":
            return before + columns.split(rest, count)[1]
        if final == "X":
            return before + " " * min(count, end - column) + columns.split(rest, count)[1]
        wider = before + " " * count + rest
        return columns.fitting(wider, COLUMNS) if self._is_full else wider
