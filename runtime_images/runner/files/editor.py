"""The file editor: view, create, str_replace, insert, undo_edit."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from ..core import arguments
from ..core.text import cut_middle
from . import disk, edits, pictures
from .edits import FILE_LIMIT, RESPONSE_LIMIT, EditError, EditHistory, change_of, numbered, outcome_of
from .text_file import TextFile, decode, encode

_CONTEXT = 4
_SAMPLE = 64 * 1024
_CUT_HINT = " — use a view_range, or search for what you need with grep -n"
_REVIEW = "Review the result, for indentation and duplicate lines for instance, and edit the file again where needed."
_REQUIRED = {"create": ("file_text",), "str_replace": ("old_str", "new_str"), "insert": ("insert_line", "new_str")}


class Edit(NamedTuple):
    """The checked arguments of one ``file.edit``; ``directory`` is where relative paths might have been meant.

    ``only`` limits which files may be changed. ``create`` may replace a content that is ``blank``.
    """

    command: str
    path: str
    directory: str
    file_text: Optional[str] = None
    old_str: Optional[str] = None
    new_str: Optional[str] = None
    insert_line: Optional[int] = None
    view_range: Optional[List[Any]] = None
    only: Optional[List[str]] = None
    blank: Optional[str] = None


class Editor:
    """Edits files, keeping the versions before each edit. Blocking; for worker threads."""

    def __init__(self, history: EditHistory) -> None:
        self._history = history
        self._commands: Dict[str, Callable[[Edit], Dict[str, Any]]] = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._replace,
            "insert": self._insert,
            "undo_edit": self._undo,
        }

    def run(self, edit: Edit) -> Dict[str, Any]:
        """Do the edit and return the result of ``file.edit``; what is wrong with it is a result too."""

        def work(result: Dict[str, Any]) -> Dict[str, Any]:
            result["prev_exist"] = existed = edits.exists(edit.path)
            self._check(edit, existed)
            return self._commands[edit.command](edit)

        return outcome_of(edit.command, edit.path, work)

    def _check(self, edit: Edit, existed: bool) -> None:
        """Checks that all commands share, in the order in which a model is told of them."""
        path = edit.path
        if edit.only is not None and edit.command != "view" and os.path.normpath(path) not in edit.only:
            raise EditError(
                f"Operation `{edit.command}` is not allowed on {path}. Every file may be viewed; the only ones that "
                f"may be changed are: {', '.join(edit.only)}."
            )
        edits.require_absolute(path, edit.directory)
        if edit.command == "create" and existed and not _is_blank(edit):
            raise EditError(f"Invalid `path` parameter: {path}. It exists already; cannot overwrite with `create`.")
        if edit.command != "create" and not existed:
            raise EditError(f"Invalid `path` parameter: {path}. The path does not exist; give one that does.")
        is_directory = existed and os.path.isdir(path)
        if is_directory and edit.command != "view":
            raise EditError(f"Invalid `path` parameter: {path}. It is a directory; only `view` is allowed on those.")
        if existed:
            edits.require_ordinary(path)
        elif path.endswith(("/", "/.")):
            raise EditError(f"Invalid `path` parameter: {path}. It ends like a directory's; give that of a file.")
        for name in _REQUIRED.get(edit.command, ()):
            if getattr(edit, name) is None:
                raise EditError(f"Parameter `{name}` is required for command: {edit.command}.")
        if existed and not is_directory:
            edits.require_small(path)
            if edit.command != "undo_edit" and not (edit.command == "view" and pictures.is_named_as_one(path)):
                edits.require_text(path, disk.read(path, _SAMPLE).data)
        if edit.command not in self._commands:
            raise EditError(f"Unknown command {edit.command}; the allowed ones are: {', '.join(self._commands)}.")

    def _view(self, edit: Edit) -> Dict[str, Any]:
        path = edit.path
        if os.path.isdir(path):
            if edit.view_range is not None:
                raise EditError("Invalid `view_range` parameter: a directory has no lines; leave it out.")
            return {"text": _cut(edits.directory(path), " — list single directories with ls -la")}
        data = disk.read(path, FILE_LIMIT + 1).data
        if pictures.is_named_as_one(path):
            try:
                shown = pictures.picture(data)
            except pictures.PictureError as error:
                raise EditError(f"File validation failed for {path}: {error}.") from None
            if shown is not None:
                what = f"The image {path} ({shown.mime}, {shown.width} x {shown.height} pixels, {len(data)} bytes)."
                return {"text": what, "image": shown.url}
            edits.require_text(path, data)  # a pointer to an image elsewhere, for instance
        lines = TextFile(data).lines()
        first, last, note = 1, len(lines), ""
        if edit.view_range is not None:
            first, last, note = _view_range(edit.view_range, len(lines))
        return {"text": _cut(note + numbered(lines, first, last, f"The lines of {path}, as with `cat -n`:"))}

    def _create(self, edit: Edit) -> Dict[str, Any]:
        new = encode(edit.file_text or "", "utf-8")
        edits.require_fitting(edit.path, new)
        old = None if edit.blank is None or disk.kind(edit.path) == "missing" else disk.read(edit.path, FILE_LIMIT).data
        disk.replace(edit.path, new)
        self._history.push(edit.path, new)
        return {"text": f"File created successfully at: {edit.path}", **change_of(edit.path, old, new)}

    def _replace(self, edit: Edit) -> Dict[str, Any]:
        old_str, new_str = edit.old_str or "", edit.new_str or ""
        if not old_str.strip():
            raise EditError(
                "No replacement was performed: `old_str` is empty, or white space alone. Take in the text around it."
            )
        if old_str == new_str:
            raise EditError("No replacement was performed: `old_str` and `new_str` are the same.")
        data = disk.read(edit.path, FILE_LIMIT + 1).data
        file = TextFile(data)
        old_str, new_str = old_str.replace("\r\n", "\n"), new_str.replace("\r\n", "\n")
        if not file.text.count(old_str) and old_str.strip() != old_str:
            old_str = old_str.strip()
        start = self._only_occurrence(edit.path, file, old_str)
        new = file.replaced(start, start + len(old_str), new_str)
        line = file.text.count("\n", 0, start) + 1
        return self._write(edit.path, data, new, line, line + new_str.count("\n"))

    def _only_occurrence(self, path: str, file: TextFile, old_str: str) -> int:
        start = file.text.find(old_str)
        if start < 0:
            raise EditError(
                f"No replacement was performed: old_str `{cut_middle(old_str, 2000).text}` did not appear verbatim in "
                f"{path}. View the file and copy the text exactly, white space included."
            )
        if file.text.find(old_str, start + 1) < 0:
            return start
        lines: List[int] = []
        while start >= 0 and len(lines) < 100:
            lines.append(file.text.count("\n", 0, start) + 1)
            start = file.text.find(old_str, start + len(old_str))
        numbers = ", ".join(str(line) for line in sorted(set(lines)))
        raise EditError(
            f"No replacement was performed: old_str `{cut_middle(old_str, 2000).text}` occurs several times, in lines "
            f"{numbers}. Make it unique by taking in more of the text around it."
        )

    def _insert(self, edit: Edit) -> Dict[str, Any]:
        data = disk.read(edit.path, FILE_LIMIT + 1).data
        file = TextFile(data)
        count = len(file.lines())
        number = edit.insert_line or 0
        if not 0 <= number <= count:
            raise EditError(
                f"Invalid `insert_line` parameter: {number}. It must be from 0 (before the first line) to {count}, "
                "the number of lines."
            )
        added = (edit.new_str or "").replace("\r\n", "\n") + "\n"
        if number == count and file.text and not file.text.endswith("\n"):
            added = "\n" + added  # the last line had no end, and is none any more
        position = file.line_start(number)
        new = file.replaced(position, position, added)
        return self._write(edit.path, data, new, number + 1, number + (edit.new_str or "").count("\n") + 1)

    def _undo(self, edit: Edit) -> Dict[str, Any]:
        before = self._history.pop(edit.path)
        if before is None:
            raise EditError(f"No edit history found for {edit.path}.")
        data = disk.read(edit.path, FILE_LIMIT + 1).data
        try:
            disk.replace(edit.path, before)
        except disk.FileError:
            self._history.push(edit.path, before)
            raise
        lines = TextFile(before).lines()
        shown = numbered(lines, 1, len(lines), f"The last edit to {edit.path} was undone. Its lines now:")
        return {"text": _cut(shown), **change_of(edit.path, data, before)}

    def _write(self, path: str, old: bytes, new: bytes, first: int, last: int) -> Dict[str, Any]:
        edits.require_fitting(path, new)
        disk.replace(path, new)
        self._history.push(path, old)
        lines = TextFile(new).lines()
        start, end = max(1, first - _CONTEXT), min(len(lines), last + _CONTEXT)
        place = _cut(numbered(lines, start, end, f"The place in {path}, as `cat -n` shows it:"))
        return {"text": f"The file {path} has been edited. {place}{_REVIEW}", **change_of(path, old, new)}


def _is_blank(edit: Edit) -> bool:
    if edit.blank is None or disk.kind(edit.path) != "file":
        return False
    text = decode(disk.read(edit.path, FILE_LIMIT).data).text
    return text.strip() in ("", edit.blank.strip())


def _view_range(value: List[Any], count: int) -> "tuple[int, int, str]":
    if len(value) != 2 or not all(isinstance(part, int) and not isinstance(part, bool) for part in value):
        raise EditError("Invalid `view_range` parameter: it must be a list of two whole numbers, [first, last].")
    first, last = value
    if not 1 <= first <= max(1, count):
        raise EditError(
            f"Invalid `view_range` parameter: {value}. Its first line {first} must be from 1 to {count}, the number "
            "of lines in the file."
        )
    note = ""
    if last == -1:
        last = count
    elif last > count:
        note = f"NOTE: the last line {last} of the view_range is beyond the end; the file has {count} lines.\n"
        last = count
    if last < first and count:
        raise EditError(
            f"Invalid `view_range` parameter: {value}. Its last line {last} must not be before its first, {first}; "
            "-1 stands for the end of the file."
        )
    return first, last, note


def _cut(text: str, hint: str = _CUT_HINT) -> str:
    return cut_middle(text, RESPONSE_LIMIT, hint).text


def edit_of(args: Dict[str, Any], directory: str) -> Edit:
    """Check the types of the arguments of ``file.edit``; their values are the editor's to judge."""
    where = arguments.edited_path(args)
    view_range = args.get("view_range")
    if view_range is not None and not isinstance(view_range, list):
        raise arguments.BadRequestError("view_range must be a list of two whole numbers")
    line = args.get("insert_line")
    if line is not None and (isinstance(line, bool) or not isinstance(line, int)):
        raise arguments.BadRequestError("insert_line must be a whole number")
    return Edit(
        arguments.text(args, "command"),
        where,
        arguments.text(args, "cwd", directory),
        arguments.text_or_none(args, "file_text"),
        arguments.text_or_none(args, "old_str"),
        arguments.text_or_none(args, "new_str"),
        line,
        view_range,
        arguments.texts(args, "only") if args.get("only") is not None else None,
        arguments.text_or_none(args, "blank"),
    )
