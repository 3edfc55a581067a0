"""``file.range``: lines of a file, read and replaced, for edits that a model drafts."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..core import arguments
from ..core.text import cut_middle
from . import disk, edits
from .edits import FILE_LIMIT, RESPONSE_LIMIT, EditError, EditHistory, change_of, numbered, outcome_of
from .text_file import TextFile, encode

LINES_LIMIT = 300
_CHUNK = 20
_CHUNKS = 3
_CHUNK_CHARACTERS = 4000
_WORD = re.compile(r"\w+|[^\w\s]")


class LineRange(NamedTuple):
    """The checked arguments of one ``file.range``.

    ``first`` and ``last`` count from one; -1 is the end of the file, for ``first`` the place behind its last line.
    ``draft`` finds similar parts where the range is too long to be read. ``version`` is the one that was read, "" for a
    missing file; no other is overwritten. ``problems`` are reported in the result.
    """

    command: str
    path: str
    directory: str
    first: int = 1
    last: int = -1
    draft: str = ""
    text: str = ""
    version: str = ""
    problems: str = ""


def run(span: LineRange, history: EditHistory) -> Dict[str, Any]:
    """Read or replace the lines and return the result; errors are results too. Blocking; for worker threads."""

    def work(result: Dict[str, Any]) -> Dict[str, Any]:
        data = _content(span)
        result["prev_exist"] = data is not None
        return _read(span, data) if span.command == "read" else _replace(span, data, history)

    return outcome_of(span.command, span.path, work)


def _replace(span: LineRange, old: Optional[bytes], history: EditHistory) -> Dict[str, Any]:
    path = span.path
    if _version(old) != span.version:
        raise EditError(f"{path} was changed by something else meanwhile; nothing was written. Look at it anew.")
    new = spliced(old, span.first, span.last, span.text)
    edits.require_fitting(path, new)
    disk.replace(path, new)
    history.push(path, new if old is None else old)
    change = change_of(path, old, new)
    if span.problems:
        text = f"{path} was written, but there are new problems in it:\n{span.problems}\nThe changes:\n{change['diff']}"
    elif old is None:
        text = f"File created successfully at: {path}"
    elif change["diff"]:
        text = f"The file {path} has been edited:\n{change['diff']}"
    else:
        text = f"The draft changes nothing in {path}: it is as it was."
    text = cut_middle(text, RESPONSE_LIMIT, " — view the file to see all").text
    return {"text": text, "is_error": bool(span.problems), **change}


def spliced(old: Optional[bytes], first: int, last: int, text: str) -> bytes:
    """Return the file with the text in place of these lines, all others byte for byte; no text removes the lines.

    A line that is the file's last stays without an end if it had none.
    """
    if not old:
        return encode(text, "utf-8")
    file = TextFile(old)
    start, end = file.line_start(first - 1), file.line_start(last)
    text = text.replace("\r\n", "\n")
    if text and not text.endswith("\n"):
        text += "\n"
    if file.text and not file.text.endswith("\n") and end == len(file.text):
        text = ("\n" + text if start == end else text)[:-1] if text else ""
    return file.replaced(start, end, text)


def _content(span: LineRange) -> Optional[bytes]:
    edits.require_absolute(span.path, span.directory)
    if not edits.exists(span.path):
        if span.path.endswith(("/", "/.")):
            raise EditError(f"Invalid `path` parameter: {span.path}. It ends like a directory's; give that of a file.")
        return None
    if disk.kind(span.path) == "directory":
        raise EditError(f"Invalid `path` parameter: {span.path}. It is a directory; give the path of a file.")
    edits.require_ordinary(span.path)
    edits.require_small(span.path)
    data = disk.read(span.path, FILE_LIMIT + 1).data
    edits.require_text(span.path, data)
    return data


def _read(span: LineRange, data: Optional[bytes]) -> Dict[str, Any]:
    lines = TextFile(data or b"").lines()
    first, last = _bounds(span, len(lines)) if data is not None else (1, 0)
    if last - first + 1 > LINES_LIMIT + 1:
        raise EditError(_too_long(span, lines, first, last))
    return {
        "text": "",
        "first": first,
        "last": last,
        "lines": len(lines),
        "content": "".join(f"{line}\n" for line in lines[first - 1 : last]),
        "version": _version(data),
    }


def _bounds(span: LineRange, count: int) -> Tuple[int, int]:
    first, last, most = span.first, span.last, max(1, count)
    if not (first == -1 or 1 <= first <= most):
        rule = f"`start` must be from 1 to {most}, or -1 to put the draft behind the last line"
    elif not (last == -1 or 1 <= last <= most):
        rule = f"`end` must be from 1 to {most}, or -1 for the last line"
    elif -1 not in (first, last) and last < first:
        rule = "`end` must not be before `start`"
    elif first == -1 or not count:
        return count + 1, count
    else:
        return first, count if last == -1 else last
    raise EditError(f"Invalid range for editing: start={first}, end={last}, and {span.path} has {count} lines. {rule}.")


def _too_long(span: LineRange, lines: List[str], first: int, last: int) -> str:
    parts = [
        f"The range of lines to edit is too long: {first} to {last} are {last - first + 1} lines, and at most "
        f"{LINES_LIMIT} can be edited at once. Give a smaller range with `start` and `end`. These parts of {span.path} "
        "are the most similar to the draft:\n"
    ]
    for start, likeness in _similar(lines, span.draft):
        end = min(len(lines), start + _CHUNK)
        head = f"\nLines {start + 1} to {end} (similarity {likeness:.2f}):"
        parts.append(cut_middle(numbered(lines, start + 1, end, head), _CHUNK_CHARACTERS).text)
    return cut_middle("".join(parts), RESPONSE_LIMIT).text


def _similar(lines: List[str], draft: str) -> List[Tuple[int, float]]:
    """Where the parts begin that share most words with the draft, the most similar first."""
    target = Counter(_WORD.findall(draft))
    total = sum(target.values())
    found: List[Tuple[float, int]] = []
    for start in range(0, len(lines), _CHUNK):
        words = Counter(_WORD.findall("\n".join(lines[start : start + _CHUNK])))
        shared = sum((target & words).values())
        found.append((-2 * shared / max(1, total + sum(words.values())), start))
    return [(start, -likeness) for likeness, start in sorted(found)[:_CHUNKS]]


def _version(data: Optional[bytes]) -> str:
    import hashlib  # see EditHistory

    return "" if data is None else hashlib.sha256(data).hexdigest()


def span_of(args: Dict[str, Any], directory: str) -> LineRange:
    """Check the arguments of ``file.range`` and ``code.lint``."""
    command = arguments.text(args, "command")
    if command not in ("read", "replace"):
        raise arguments.BadRequestError("command must be one of read, replace")
    return LineRange(
        command,
        arguments.edited_path(args),
        arguments.text(args, "cwd", directory),
        arguments.integer(args, "first", 1, -(2**31), 2**31),
        arguments.integer(args, "last", -1, -(2**31), 2**31),
        arguments.text(args, "draft", ""),
        arguments.characters(args, "text", 2**62, ""),
        arguments.text(args, "version", ""),
        arguments.text(args, "problems", ""),
    )
