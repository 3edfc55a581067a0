"""Reading, writing, replacing and listing in the way of the Gemini tools."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, List, NamedTuple, Optional

from ..core import arguments
from ..core.text import cut_middle, printable
from . import disk, edits
from .edits import FILE_LIMIT, RESPONSE_LIMIT, EditError, EditHistory, change_of, numbered, outcome_of
from .text_file import TextFile, encode, is_binary

LINES_LIMIT = 1000
_ENTRIES = 1000


class WholeFileArguments(NamedTuple):
    """The checked arguments of one ``file.whole``; which of them count depends on the command."""

    command: str
    path: str
    content: str = ""
    old: str = ""
    new: str = ""
    expected: int = 1
    offset: int = 0
    limit: int = LINES_LIMIT
    recursive: bool = False


class WholeFiles:
    """Serves ``file.whole``, answering errors as results. Blocking; for worker threads."""

    commands = ("read", "write", "replace", "list")

    def __init__(self, history: EditHistory) -> None:
        self._history = history

    def run(self, args: WholeFileArguments) -> Dict[str, Any]:
        do = {"read": _read, "write": self._write, "replace": self._replace, "list": _list}[args.command]
        return outcome_of(args.command, args.path, lambda _: do(args))

    def _write(self, args: WholeFileArguments) -> Dict[str, Any]:
        old = None if disk.kind(args.path) == "missing" else _bytes(args.path)
        return self._changed(args, old, encode(args.content, "utf-8"), "Wrote" if old else "Created")

    def _replace(self, args: WholeFileArguments) -> Dict[str, Any]:
        path = args.path
        if not args.old:
            if disk.kind(path) != "missing":
                raise EditError(f"{path} exists already; an empty old_string is for a new file.")
            return self._changed(args, None, encode(args.new, "utf-8"), "Created")
        old = _text_bytes(path)
        if args.old == args.new:
            raise EditError("old_string and new_string are the same; nothing was changed.")
        target, new = args.old.replace("\r\n", "\n"), args.new.replace("\r\n", "\n")
        file = TextFile(old)
        places = [file.text.find(target)]
        while places[-1] >= 0:
            places.append(file.text.find(target, places[-1] + len(target)))
        places.pop()
        if len(places) != args.expected:
            count = f"stands {len(places)} times" if places else "is not"
            advice = "Take in more of the text around it" if places else "View the file and copy the text exactly"
            raise EditError(
                f"old_string {count} in {path}, but {args.expected} replacement(s) were expected. {advice}, "
                "or correct expected_replacements."
            )
        data = file.with_changes([(start, start + len(target), new) for start in places])
        return self._changed(args, old, data, f"Made {len(places)} replacement(s) in")

    def _changed(self, args: WholeFileArguments, old: Optional[bytes], new: bytes, what: str) -> Dict[str, Any]:
        if len(new) > FILE_LIMIT:
            raise EditError(f"{args.path} would have {len(new)} bytes; the limit is {FILE_LIMIT}.")
        disk.replace(args.path, new)
        if old is not None:
            self._history.push(args.path, old)
        change = change_of(args.path, None if old is None or is_binary(old) else old, new)
        return {"text": f"{what} {args.path}.", "prev_exist": old is not None, **change}


def _read(args: WholeFileArguments) -> Dict[str, Any]:
    lines = TextFile(_text_bytes(args.path)).lines()
    first, last = args.offset + 1, min(len(lines), args.offset + args.limit)
    if args.offset and args.offset >= len(lines):
        raise EditError(f"offset {args.offset} is beyond the end; {args.path} has {len(lines)} lines.")
    header = f"The lines of {args.path}:"
    if (first, last) != (1, len(lines)) and lines:
        header = f"The lines {first} to {last} of {args.path}, which has {len(lines)}:"
    text = numbered(lines, first, last, header)
    if last < len(lines):
        text += f"[There is more: read on with offset={last}.]\n"
    return {"text": cut_middle(text, RESPONSE_LIMIT * 4, " — use offset and limit").text, "prev_exist": True}


def _list(args: WholeFileArguments) -> Dict[str, Any]:
    path = args.path
    kind = disk.kind(path)
    if kind != "directory":
        what = {"missing": "does not exist", "file": "is a file"}.get(kind, f"is {kind}")
        raise EditError(f"{path} {what}; give a directory.")
    if args.recursive:
        return {"text": cut_middle(edits.directory(path), RESPONSE_LIMIT, "").text, "prev_exist": True}
    try:
        with os.scandir(path) as found:
            entries = sorted(found, key=lambda entry: (not entry.is_dir(follow_symlinks=False), entry.name))
    except OSError as error:
        raise disk.failure(error, path) from error
    lines: List[str] = []
    for entry in entries[:_ENTRIES]:
        name = printable(entry.name)
        if entry.is_dir(follow_symlinks=False):
            name += "/"
        else:
            with contextlib.suppress(OSError):
                name += f" ({entry.stat(follow_symlinks=False).st_size} bytes)"
        lines.append(name)
    if len(entries) > _ENTRIES:
        lines.append(f"[… {len(entries) - _ENTRIES} more entries are not listed …]")
    return {"text": "\n".join([f"The entries of {path}:", *(lines or ["(none)"])]), "prev_exist": True}


def _bytes(path: str) -> bytes:
    content = disk.read(path, FILE_LIMIT + 1)
    if len(content.data) > FILE_LIMIT:
        raise EditError(f"{path} has {content.size} bytes; the limit is {FILE_LIMIT}.")
    return content.data


def _text_bytes(path: str) -> bytes:
    data = _bytes(path)
    if is_binary(data):
        raise EditError(f"{path} is binary and cannot be shown or edited.")
    return data


def whole_file(args: Dict[str, Any], directory: str) -> WholeFileArguments:
    """Check the arguments of ``file.whole``; a relative path is below the directory, or with ``~/`` the home."""
    command = arguments.text(args, "command")
    if command not in WholeFiles.commands:
        raise arguments.BadRequestError(f"command must be one of {', '.join(WholeFiles.commands)}")
    where = arguments.text(args, "path")
    if not where or "\0" in where or not arguments.is_unicode(where):
        raise arguments.BadRequestError("path must be a path without NUL or half characters")
    return WholeFileArguments(
        command,
        arguments.resolve(directory, where),
        arguments.text(args, "content", ""),
        arguments.text(args, "old", ""),
        arguments.text(args, "new", ""),
        arguments.integer(args, "expected", 1, 1, 1000000),
        arguments.integer(args, "offset", 0, 0, 2**31),
        arguments.integer(args, "limit", LINES_LIMIT, 1, LINES_LIMIT),
        arguments.flag(args, "recursive"),
    )
