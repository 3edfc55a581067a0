"""A window on a file: open it at a line, move it."""

from __future__ import annotations

import os
from typing import List, Optional

WINDOW = 100
_SIZE_LIMIT = 50 * 1024 * 1024


class Window:
    """Which file is open, and the line in the middle of what is shown of it."""

    path: Optional[str] = None
    line = 1


_window = Window()


def open_file(path: str, line_number: int = 1, context_lines: int = WINDOW) -> None:
    """Open a file and show the lines around one of them, at most 100.

    Args:
        path: the file.
        line_number: the line to be in the middle of what is shown.
        context_lines: how many lines to show.
    """
    lines = _read(path)
    if lines is None or not _is_line(line_number, lines):
        return
    _window.path = os.path.abspath(path)
    _show(lines, line_number, max(1, min(int(context_lines), WINDOW)))


def goto_line(line_number: int) -> None:
    """Show the lines around one of the open file.

    Args:
        line_number: the line to be in the middle of what is shown.
    """
    lines = _opened()
    if lines is not None and _is_line(line_number, lines):
        _show(lines, line_number, WINDOW)


def scroll_down() -> None:
    """Show the next 100 lines of the open file."""
    _scroll(WINDOW)


def scroll_up() -> None:
    """Show the 100 lines before."""
    _scroll(-WINDOW)


def opened_path() -> Optional[str]:
    """The path of the open file."""
    return _window.path


def _scroll(lines_down: int) -> None:
    lines = _opened()
    if lines is not None:
        _show(lines, min(max(1, _window.line + lines_down), max(1, len(lines))), WINDOW)


def _opened() -> Optional[List[str]]:
    if _window.path is None:
        print("ERROR: No file is open. Use open_file(path) first.")
        return None
    return _read(_window.path)


def _read(path: str) -> Optional[List[str]]:
    """The file's lines; None, and it is said why, when it has none to show."""
    if not os.path.isfile(path):
        print(f"ERROR: There is no file {path}.")
        return None
    try:
        if os.path.getsize(path) > _SIZE_LIMIT:
            print(f"ERROR: {path} is too large to be opened; look at parts of it with head, tail or sed -n.")
            return None
        with open(path, encoding="utf-8", errors="replace", newline=None) as file:
            return file.read().split("\n") if os.path.getsize(path) else []
    except OSError as error:
        print(f"ERROR: {path} cannot be read: {error.strerror or error}.")
        return None


def _is_line(number: int, lines: List[str]) -> bool:
    total = max(1, _count(lines))
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= total:
        print(f"ERROR: The line number must be between 1 and {total}.")
        return False
    return True


def _count(lines: List[str]) -> int:
    """How many lines there are: a newline at the end of the file begins none."""
    return len(lines) - 1 if lines and not lines[-1] else len(lines)


def _show(lines: List[str], line: int, size: int) -> None:
    """Show `size` lines around one, or fewer when there are fewer."""
    total = _count(lines)
    first = max(1, min(line - size // 2, total - size + 1))
    last = min(total, first + size - 1)
    _window.line = line
    print(f"[File: {_window.path} ({total} lines total)]")
    print(f"({first - 1} more lines above)" if first > 1 else "(this is the beginning of the file)")
    for number in range(first, last + 1):
        print(f"{number}|{lines[number - 1]}")
    print(f"({total - last} more lines below)" if last < total else "(this is the end of the file)")
