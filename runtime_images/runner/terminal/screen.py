"""A terminal's screen: lines of text, a cursor, margins, and what is handed on when it scrolls or is looked at."""

from __future__ import annotations

from typing import Callable, List, Optional

from . import columns

ROWS = 200
COLUMNS = 256
BLOCK = 32 * 1024
_TAB = 8
_LINE_DRAWING = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")


class Screen:
    """Rows that may be painted over. What scrolls off the top is final and goes to ``commit``.

    A full-screen program paints on a screen of its own (the alternate one), of which only the picture counts: it is
    kept when it has been shown, since the program goes on from there. Only there have lines the screen's width, and
    tabs their stops: elsewhere what a program prints stays as it is.
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
        self._measured, self._measured_width = "", 0
        self._is_full = False
        self._is_painted = False
        self._shown: Optional[List[str]] = None
        self._reset_modes()

    def _reset_modes(self) -> None:
        self._top, self._bottom = 0, self._rows - 1
        self._draws_lines = self._inserts = False
        self._wraps = True

    @property
    def _has_modes(self) -> bool:
        """Whether text means more than itself: it has to be written character by character."""
        return self._is_full or self._draws_lines or self._inserts or self._has_margins

    @property
    def _has_margins(self) -> bool:
        return self._top > 0 or self._bottom < self._rows - 1

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
        if self._is_painted:  # rows that it has only made blank, also up to the right edge
            self._lines = [line.rstrip() if columns.width(line) >= COLUMNS else line for line in self._lines]
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
            self._commit_gone(gone)

    def _commit_gone(self, gone: List[str]) -> None:
        if self._shown is None:
            self._commit("\n".join([*gone, ""]))

    def _shift_up(self, top: int, count: int) -> None:
        """Take lines out at the row ``top``; those below it move up, down to the margin."""
        below = self._lines[self._bottom + 1 :]
        inside = self._lines[top : self._bottom + 1]
        gone, inside = inside[:count], inside[count:]
        if top == self._top == 0 and not self._is_full:
            self._commit_gone(gone)
        if below:
            inside += [""] * (self._bottom + 1 - top - len(inside))
        self._lines[top:] = inside + below
        self._fill()

    def _shift_down(self, top: int, count: int) -> None:
        """Put empty lines in at the row ``top``; those from it on move down, down to the margin."""
        below = self._lines[self._bottom + 1 :]
        inside = [""] * min(count, self._bottom + 1 - top) + self._lines[top : self._bottom + 1]
        self._lines[top:] = inside[: self._bottom + 1 - top] + below
        self._fill()

    def _fill(self) -> None:
        missing = self._row - len(self._lines) + 1
        if missing > 0:
            self._lines += [""] * missing

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
        self._last = run[-1]
        if self._draws_lines:
            run = run.translate(_LINE_DRAWING)
        if not self._is_full:
            self._put(run)
            self._limit_line()
            return
        for number, piece in enumerate(run.split("\t")):
            if number:
                self._tab(1)
            self._write_within(piece)

    def _write_within(self, run: str) -> None:
        """Write on a screen with a right edge."""
        while run:
            piece = columns.fitting(run, COLUMNS - self._column)
            if piece:
                self._put(piece)
                run = run[len(piece) :]
            elif self._wraps:
                self._newlines(1)
            else:  # everything else on the last column, over one another
                self._column = COLUMNS - 1
                self._put(run[-1])
                return

    def _put(self, run: str) -> None:
        line = self._lines[self._row]
        if line is not self._measured:
            self._measured, self._measured_width = line, columns.width(line)
        if self._column == self._measured_width and len(line) + len(run) <= columns.LONGEST:  # as most is written
            self._measured = line = line + run
            self._column += columns.width(run)
            self._measured_width = self._column
        elif self._inserts:
            before, rest = columns.split(line, self._column)
            self._column += columns.width(run)
            line = before + run + rest
            if self._is_full:
                line = columns.fitting(line, COLUMNS)
        else:
            line, self._column = columns.overwrite(line, self._column, run)
        self._lines[self._row] = line

    def _back(self, count: int) -> None:
        # Behind the last column of a screen the cursor is still on it.
        self._column = max(0, min(self._column, COLUMNS - 1) - count if self._is_full else self._column - count)

    def _tab(self, count: int) -> None:
        stop = (self._column // _TAB + count) * _TAB
        self._column = min(max(0, stop), COLUMNS - 1)

    def _newlines(self, count: int) -> None:
        self._column = 0
        if self._has_margins:
            for _ in range(count):
                self._down()
            return
        self._row += count
        missing = self._row - len(self._lines) + 1
        if missing > 0:
            self._lines += [""] * missing
            self._scroll()
            self._row = len(self._lines) - 1

    def _down(self) -> None:
        if self._row == self._bottom:
            self._shift_up(self._top, 1)
        elif self._row < self._rows - 1:
            self._row += 1
            self._fill()

    def _move(self, row: int, column: int) -> None:
        self._row = min(max(0, row), self._rows - 1)
        self._column = min(max(0, column), COLUMNS - 1 if self._is_full else 4 * COLUMNS)
        self._fill()
