"""A window on a file: open it at a line, move it."""

from __future__ import annotations

import os
from typing import List, Optional

from .reading import read_lines

WINDOW = 100
_SIZE_LIMIT = 50 * 1024 * 1024


class Window:
    """Which file is open, the line in the middle of what is shown of it, and the first and the last that are shown."""

    path: Optional[str] = None
    line = first = last = 1


_window = Window()


def open_file(path: str, line_number: Optional[int] = 1, context_lines: Optional[int] = WINDOW) -> None:
    """Open a file and show the lines around one of them, at most 100.

    Args:
        path: the file.
        line_number: the line to be in the middle of what is shown.
        context_lines: how many lines to show.
    """
    lines = _read(path)
    line = 1 if line_number is None else line_number
    if lines is None or not _is_line(line, lines):
        return
    _window.path = os.path.abspath(path)
    size = context_lines if context_lines is not None and context_lines > 0 else WINDOW
    _show(lines, line, min(size, WINDOW))


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
    _scroll(min(_window.line + WINDOW, _window.last + 1 + WINDOW // 2))


def scroll_up() -> None:
    """Show the 100 lines before."""
    _scroll(max(_window.line - WINDOW, _window.first - WINDOW // 2))


def opened_path() -> Optional[str]:
    """The path of the open file."""
    return _window.path


def _scroll(line: int) -> None:
    """Show what is around a line; no line between it and what was shown before is passed over."""
    lines = _opened()
    if lines is not None:
        _show(lines, min(max(1, line), max(1, len(lines))), WINDOW)


def _opened() -> Optional[List[str]]:
    if _window.path is None:
        print("ERROR: No file is open. Use open_file(path) first.")
        return None
    return _read(_window.path)


def _read(path: str) -> Optional[List[str]]:
    """The file's lines; None, and it is said why, when it has none to show."""
    if not is_file(path):
        return None
    try:
        if os.path.getsize(path) > _SIZE_LIMIT:
            print(f"ERROR: {path} is too large to be opened; look at parts of it with head, tail or sed -n.")
            return None
        return read_lines(path)
    except OSError as error:
        print(f"ERROR: {path} cannot be read: {error.strerror or error}.")
        return None


def is_file(path: str) -> bool:
    """Whether there is such a file; if not, it is said what there is."""
    if os.path.isfile(path):
        return True
    if os.path.isdir(path):
        print(f"ERROR: {path} is a folder.")
    elif os.path.exists(path):
        print(f"ERROR: {path} is no regular file.")
    else:
        print(f"ERROR: There is no file {path or repr(path)}.")
    return False


def _is_line(number: int, lines: List[str]) -> bool:
    total = max(1, len(lines))
    if not 1 <= number <= total:
        print(f"ERROR: The line number must be between 1 and {total}.")
        return False
    return True


def _show(lines: List[str], line: int, size: int) -> None:
    """Show `size` lines around one, or fewer when there are fewer."""
    total = len(lines)
    first = max(1, min(line - size // 2, total - size + 1))
    last = min(total, first + size - 1)
    _window.line, _window.first, _window.last = line, first, last
    print(f"[File: {_window.path} ({total} lines total)]")
    print(f"({first - 1} more lines above)" if first > 1 else "(this is the beginning of the file)")
    for number in range(first, last + 1):
        print(f"{number}|{lines[number - 1]}")
    print(f"({total - last} more lines below)" if last < total else "(this is the end of the file)")
