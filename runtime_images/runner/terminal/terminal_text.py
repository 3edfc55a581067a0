"""A terminal's screen as the text that a person would read on it.

Lines scrolled off the top of a screen of fixed height are final, those on it may change: a progress bar leaves its last
state, a full-screen program its picture. Colours, titles and other control sequences are dropped. Lines are never
wrapped or cut, except on a full-screen program's screen.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Optional, Tuple

ROWS = 200
COLUMNS = 256
BLOCK = 32 * 1024
_TAB = 8
_LINE_DRAWING = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
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
_LONGEST = 1024
_PERHAPS_NOT_ONE = re.compile(
    "[^\x00-\u02ff\u0370-\u0482\u048a-\u0590\u2010-\u2027\u2030-\u205e\u2190-\u2319\u2500-\u25fc\ufffd]"
)
"""Most of what is printed has none of these: each of its characters takes one column."""


class _Widths(Dict[str, int]):
    def __missing__(self, character: str) -> int:
        import unicodedata  # a table of a megabyte, which a runner whose programs print ASCII does without

        if len(self) >= 4096:
            self.clear()
        kind = unicodedata.category(character)
        if kind in ("Mn", "Me") or (kind == "Cf" and character != "\xad") or "\u1160" <= character <= "\u11ff":
            width = 0
        else:
            width = 2 if kind != "Cn" and unicodedata.east_asian_width(character) in "WF" else 1
        self[character] = width
        return width


_widths = _Widths()


def _width(text: str) -> int:
    """How many columns a text without control characters takes.

    East Asian characters and most emoji take two, combining accents none. A line longer than any screen counts each
    character as one.
    """
    if _is_simple(text):
        return len(text)
    return sum(map(_widths.__getitem__, text))


def _split(line: str, column: int) -> Tuple[str, str]:
    """The line's first ``column`` columns, padded with blanks, and the rest; a character that is cut becomes blanks."""
    if _is_simple(line):
        return line[:column].ljust(column), line[column:]
    taken = 0
    for index, character in enumerate(line):
        wide = _widths[character]
        if taken + wide > column:
            if taken < column:
                return line[:index] + " ", " " + line[index + 1 :]
            return line[:index], line[index:]
        taken += wide
    return line + " " * (column - taken), ""


def _overwrite(line: str, column: int, text: str) -> Tuple[str, int]:
    """Return the line with a text written over it from a column on, and the column behind the text."""
    if len(line) > _LONGEST or (_is_simple(line) and _is_simple(text)):
        end = column + len(text)
        return line[:column].ljust(column) + text + line[end:], end
    before, after = _split(line, column)
    wide = _width(text)
    written = before + text + _split(after, wide)[1]
    return written, len(before) + len(text) if len(written) > _LONGEST else column + wide


def _fitting(text: str, room: int) -> str:
    """Return as much of the text's beginning as fits into so many columns."""
    if text.isascii():
        return text[:room]
    taken = 0
    for index, character in enumerate(text):
        taken += _widths[character]
        if taken > room:
            return text[:index]
    return text


def _is_simple(text: str) -> bool:
    return text.isascii() or len(text) > _LONGEST or _PERHAPS_NOT_ONE.search(text) is None


def is_plain(text: str) -> bool:
    """True when the text holds no control character but newlines and tabs."""
    if text.isascii():  # several times faster than the expression, and the usual case of a flood
        return len(text.encode("ascii").translate(None, _ASCII_CONTROLS)) == len(text)
    return _CONTROLS.search(text) is None


class TerminalText:
    """Lines, a cursor and margins; ``commit`` gets final text in order, however the input is divided.

    A full-screen program has a screen of its own (the alternate one), whose picture is kept when shown, since the
    program goes on from there. Only there have lines the screen's width, and tabs their stops. ``reply`` types the
    answer to a program that asks where the cursor is.
    """

    def __init__(
        self, commit: Callable[[str], None], reply: Optional[Callable[[bytes], object]] = None, *, rows: int = ROWS
    ) -> None:
        self._commit = commit
        self._reply = reply
        self._rows = rows
        self._lines: List[str] = [""]
        self._row = self._column = 0
        self._top, self._bottom = 0, rows - 1
        self._saved = (0, 0)
        self._last = " "
        self._measured, self._measured_width = "", 0
        self._is_full = False
        self._is_painted = False
        self._shown: Optional[List[str]] = None
        self._tail: List[str] = []
        self._tail_length = 0
        self._carry = ""
        self._in_string = False
        self._reset_modes()

    def feed(self, text: str) -> None:
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
            incomplete = INCOMPLETE.search(text, max(0, len(text) - 280))
            if incomplete is not None:
                self._carry = incomplete.group()
                text = text[: incomplete.start()]
            plain = COLOUR.sub("", text)
            if "\x1b" not in plain:  # otherwise what stood before and after a colour might now look like a sequence
                text = plain
        if not text:
            return
        if self._append(text):
            return
        if "\x1b" not in text:
            # Without escapes, control characters that have no effect may go, NUL above all.
            if text.isascii():
                text = text.encode("ascii").translate(None, _IDLE).decode("ascii")
            else:
                text = _IDLE_OR_HIGH.sub("", text)
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
        self._tail.clear()
        self._lines = [""]
        self._row = self._column = 0
        self._is_painted = False

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
        """Add plain text at the screen's end, undivided as long as possible; False for anything else."""
        is_at_end = bool(self._tail) or (self._row == len(self._lines) - 1 and self._column == _width(self._lines[-1]))
        has_modes = self._is_full or self._draws_lines or self._inserts or self._has_margins
        if has_modes or not is_at_end or not is_plain(text):
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
        self._column = _width(self._lines[-1])
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
                # Behind the last column of a screen the cursor is still on it.
                column = min(self._column, COLUMNS - 1) if self._is_full else self._column
                self._column = max(0, column - (position - match.start()))
            elif kind == "final":
                self._control(match.group("final"), match.group("parameters"))
            elif kind == "letters":
                self._draws_lines = match.group("letters") == "0"
            elif kind == "escape":
                self._escape(match.group("escape"))
            elif kind == "string":
                self._in_string = True
                text, position = self._skip_string(text[position:]), 0

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
            top, end = max(1, first) - 1, numbers[1] if len(numbers) > 1 else 0
            bottom = min(end or self._rows, self._rows) - 1
            if top < bottom or (top, bottom) == (0, 0):
                self._top, self._bottom = top, bottom
                self._move(0, 0)
        elif final == "s" and not parameters:
            self._saved = (row, column)
        elif final == "u" and not parameters:
            self._move(*self._saved)
        elif final == "n" and parameters == "6" and self._reply is not None:
            self._reply(f"\x1b[{row + 1};{column + 1}R".encode())
        elif final in "hl":
            if parameters == "4":
                self._inserts = final == "h"
            elif parameters == "?7":
                self._wraps = final == "h"
            elif parameters in ("?1049", "?1047", "?47"):
                self._alternate(final == "h")
        else:
            self._edit(final, first, count)

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
        column, end = self._column, _width(line)
        if final == "K" and first == 2:
            return ""
        if final == "K" and first == 1:
            return " " * min(column + 1, end) + _split(line, column + 1)[1]
        if column >= end:
            return line
        before, after = _split(line, column)
        if final == "K":
            return before
        if final == "P":
            return before + _split(after, count)[1]
        if final == "X":
            return before + " " * min(count, end - column) + _split(after, count)[1]
        wider = before + " " * count + after
        return _fitting(wider, COLUMNS) if self._is_full else wider

    def _reset_modes(self) -> None:
        self._top, self._bottom = 0, self._rows - 1
        self._draws_lines = self._inserts = False
        self._wraps = True

    @property
    def _has_margins(self) -> bool:
        return self._top > 0 or self._bottom < self._rows - 1

    def _show(self) -> None:
        if self._is_full:
            picture = self._picture()
            if picture != self._shown:
                self._commit("\n".join(picture))
            self._shown = picture
            return
        while len(self._lines) - 1 > self._row and not self._lines[-1] and not self._lines[-2]:
            self._lines.pop()  # rows below the text that a program has only passed through
        if self._is_painted:  # rows that it has only made blank, also up to the right edge
            self._lines = [line.rstrip() if _width(line) >= COLUMNS else line for line in self._lines]
            while len(self._lines) > 1 and not self._lines[-2].strip() and not self._lines[-1].strip():
                self._lines.pop()
            while len(self._lines) > 1 and not self._lines[0].strip():
                del self._lines[0]
        text = "\n".join(self._lines)
        self.clear()
        if text:
            self._commit(text)

    def _picture(self) -> List[str]:
        picture = [line.rstrip() for line in self._lines]
        while picture and not picture[-1]:
            picture.pop()
        return picture

    def _shift_up(self, top: int, count: int) -> None:
        below = self._lines[self._bottom + 1 :]
        inside = self._lines[top : self._bottom + 1]
        gone, inside = inside[:count], inside[count:]
        if top == self._top == 0 and not self._is_full and self._shown is None:
            self._commit("\n".join([*gone, ""]))
        if below:
            inside += [""] * (self._bottom + 1 - top - len(inside))
        self._lines[top:] = inside + below
        self._fill()

    def _shift_down(self, top: int, count: int) -> None:
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
        while run:
            piece = _fitting(run, COLUMNS - self._column)
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
            self._measured, self._measured_width = line, _width(line)
        if self._column == self._measured_width and len(line) + len(run) <= _LONGEST:  # as most is written
            self._measured = line = line + run
            self._column += _width(run)
            self._measured_width = self._column
        elif self._inserts:
            before, after = _split(line, self._column)
            self._column += _width(run)
            line = before + run + after
            if self._is_full:
                line = _fitting(line, COLUMNS)
        else:
            line, self._column = _overwrite(line, self._column, run)
        self._lines[self._row] = line

    def _tab(self, count: int) -> None:
        stop = (self._column // _TAB + count) * _TAB
        self._column = min(max(0, stop), COLUMNS - 1)

    def _newlines(self, count: int) -> None:
        self._column = 0
        if self._has_margins:
            for _ in range(count):
                if self._row == self._bottom:
                    self._shift_up(self._top, 1)
                elif self._row < self._rows - 1:
                    self._row += 1
                    self._fill()
            return
        self._row += count
        if self._row < len(self._lines):
            return
        self._fill()
        gone = self._lines[: -self._rows]
        if gone:
            del self._lines[: -self._rows]
            if self._shown is None:
                self._commit("\n".join([*gone, ""]))
        self._row = len(self._lines) - 1

    def _move(self, row: int, column: int) -> None:
        self._row = min(max(0, row), self._rows - 1)
        self._column = min(max(0, column), COLUMNS - 1 if self._is_full else 4 * COLUMNS)
        self._fill()
