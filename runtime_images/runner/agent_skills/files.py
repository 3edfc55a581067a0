"""Text files in cells: a window on one, searches, and the file editor."""

from __future__ import annotations

import fnmatch
import os
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ..files.editor import Edit, Editor
from ..files.edits import EditHistory
from ..files.text_file import decode, is_binary, readable


def read_lines(path: str) -> List[str]:
    """The lines without their ends, of any system; a final end begins no further line."""
    with open(path, "rb") as file:
        return lines_of(file.read())


def lines_of(content: bytes) -> List[str]:
    """The lines of a text file's bytes."""
    text = readable(decode(content).text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


WINDOW = 100
_SIZE_LIMIT = 50 * 1024 * 1024


class Window:
    """The open file, the line in the middle of what is shown, and the first and last shown."""

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


def _scroll(line: int) -> None:
    """No line between it and what was shown before is passed over."""
    lines = _opened()
    if lines is not None:
        _show(lines, min(max(1, line), max(1, len(lines))), WINDOW)


def _opened() -> Optional[List[str]]:
    if _window.path is None:
        print("ERROR: No file is open. Use open_file(path) first.")
        return None
    return _read(_window.path)


def _read(path: str) -> Optional[List[str]]:
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
    """Whether there is such a file; if not, prints what there is."""
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
    total = len(lines)
    first = max(1, min(line - size // 2, total - size + 1))
    last = min(total, first + size - 1)
    _window.line, _window.first, _window.last = line, first, last
    print(f"[File: {_window.path} ({total} lines total)]")
    print(f"({first - 1} more lines above)" if first > 1 else "(this is the beginning of the file)")
    for number in range(first, last + 1):
        print(f"{number}|{lines[number - 1]}")
    print(f"({total - last} more lines below)" if last < total else "(this is the end of the file)")


HISTORY = "DRYDOCK_EDIT_HISTORY"  # variable: the folder with the earlier versions of edited files

_editors: Dict[str, Editor] = {}


def file_editor(
    command: str,
    path: str,
    file_text: Optional[str] = None,
    view_range: Optional[List[int]] = None,
    old_str: Optional[str] = None,
    new_str: Optional[str] = None,
    insert_line: Optional[int] = None,
    **unknown: Any,
) -> str:
    """View, create or edit a file.

    Args:
        command: view, create, str_replace, insert or undo_edit.
        path: the file's absolute path; a folder can be viewed too.
        file_text: what create writes.
        view_range: the first and the last line that view shows; -1 stands for the end.
        old_str: what str_replace replaces; it must be in the file exactly once.
        new_str: what str_replace and insert put there.
        insert_line: the line behind which insert puts it.
        unknown: anything else is refused.

    Returns:
        What the file editor tool says; errors begin with ERROR.
    """
    if unknown:
        return f"ERROR:\nUnexpected arguments: {', '.join(sorted(unknown))}."
    folder = os.environ.get(HISTORY) or os.path.join(tempfile.gettempdir(), "edit-history")
    if folder not in _editors:
        _editors[folder] = Editor(EditHistory(folder))
    edit = Edit(command, path, os.getcwd(), file_text, old_str, new_str, insert_line, view_range)
    result = _editors[folder].run(edit)
    text: str = result["text"]
    return f"ERROR:\n{text}" if result["is_error"] else text


FILES_LIMIT = 100
_FOUND_LIMIT = 1000
_LINE_LIMIT = 500
_SEARCHED_SIZE_LIMIT = 20 * 1024 * 1024


def search_dir(search_term: str, dir_path: str = "./") -> None:
    """Show the lines with a text in all files of a folder and those below it; hidden ones are left out.

    Args:
        search_term: the text.
        dir_path: the folder.
    """
    if not _is_folder(dir_path):
        return
    found: List[str] = []
    files = 0
    for path in _files(dir_path):
        lines = _lines_with(path, search_term)
        files += bool(lines)
        found += [f"{path} (Line {number}): {line}" for number, line in lines]
        if files > FILES_LIMIT:
            print(
                f'More than {FILES_LIMIT} files contain "{search_term}" in {dir_path}. Search for something narrower.'
            )
            return
    _report(search_term, dir_path, found)


def search_file(search_term: str, file_path: Optional[str] = None) -> None:
    """Show the lines with a text in a file.

    Args:
        search_term: the text.
        file_path: the file; the open one by default.
    """
    path = file_path or _window.path
    if path is None:
        print("ERROR: No file is named or open. Name one, or use open_file(path) first.")
    elif is_file(path):
        _report(search_term, path, [f"Line {number}: {line}" for number, line in _lines_with(path, search_term)])


def find_file(file_name: str, dir_path: str = "./") -> None:
    """Show the paths of the files with a text in their names, in a folder and those below it.

    Args:
        file_name: the name, a part of it, or a pattern such as ``*.csv``.
        dir_path: the folder.
    """
    if not _is_folder(dir_path):
        return
    named = [(path, os.path.basename(path)) for path in _files(dir_path)]
    found = [path for path, name in named if file_name in name or fnmatch.fnmatchcase(name, file_name)]
    _report(file_name, dir_path, found)


def _is_folder(path: str) -> bool:
    if os.path.isdir(path):
        return True
    if os.path.isfile(path):
        print(f"ERROR: {path} is a file, not a folder.")
    else:
        print(f"ERROR: There is no folder {path or repr(path)}.")
    return False


def _files(folder: str) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield os.path.join(root, name)


def _lines_with(path: str, term: str) -> List[Tuple[int, str]]:
    """Numbers and texts of matching lines; none of files that are no text, or very large."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _SEARCHED_SIZE_LIMIT:
            return []
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return []
    if is_binary(content):
        return []
    return [(number, line.strip()[:_LINE_LIMIT]) for number, line in enumerate(lines_of(content), 1) if term in line]


def _report(term: str, place: str, found: List[str]) -> None:
    if not found:
        print(f'No matches found for "{term}" in {place}')
        return
    print(f'[Found {len(found)} matches for "{term}" in {place}]')
    for line in found[:_FOUND_LIMIT]:
        print(line)
    if len(found) > _FOUND_LIMIT:
        print(f"({len(found) - _FOUND_LIMIT} more are not shown)")
    print(f'[End of matches for "{term}" in {place}]')
