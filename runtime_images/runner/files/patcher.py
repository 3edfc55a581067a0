"""Applying patches to the files of the workspace: checked whole before anything is written."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from ..core import arguments
from . import disk, patch_places
from .diff import unified
from .edit_checks import FILE_LIMIT
from .history import EditHistory
from .patch_places import Replacement
from .patch_text import ADD, DELETE, PatchError, Section, parse
from .text_file import TextFile, decode, encode, is_binary

_DIFF_LIMIT = 64 * 1024


class _Step(NamedTuple):
    """What is to be done to one file: ``target`` is where the new content goes, None where the file goes."""

    summary: str
    path: str
    target: Optional[str]
    old: Optional[bytes]
    new: bytes
    diff: str


class Patcher:
    """Applies patches below one folder. Blocking; to be used from worker threads, one patch at a time."""

    def __init__(self, workspace: str, history: EditHistory) -> None:
        self._workspace = workspace
        self._history = history

    def run(self, patch: str) -> Dict[str, Any]:
        """Apply the patch and return the result of ``patch.apply``; what is wrong with it is a result too."""
        doubt = 0
        steps: List[_Step] = []
        touched: Set[str] = set()
        try:
            for section in parse(patch):
                step, more = self._step(section)
                files = {os.path.realpath(path) for path in (step.path, step.target or step.path)}
                if files & touched:  # by other names for it, or links to it
                    raise PatchError(f"Two sections of the patch change the file {section.move_to or section.path}.")
                touched |= files
                steps.append(step)
                doubt += more
            self._write(steps)
        except (PatchError, disk.FileError) as error:
            return {"text": str(error), "is_error": True, "paths": [], "diff": None, "fuzz": 0}
        diff = "".join(step.diff for step in steps)
        return {
            "text": "\n".join(["Done!", *(step.summary for step in steps)]),
            "is_error": False,
            "paths": [step.target or step.path for step in steps],
            "diff": diff
            if len(diff) <= _DIFF_LIMIT
            else diff[:_DIFF_LIMIT] + "\n[… the rest of the diff is left out …]\n",
            "fuzz": doubt,
        }

    def _step(self, section: Section) -> Tuple[_Step, int]:
        path = self._inside(section.path)
        if section.kind == ADD:
            if disk.kind(path) != "missing":
                raise PatchError(f"{section.path} cannot be added: it exists already. Update it, or delete it first.")
            new = encode(section.content, "utf-8")
            return _Step(f"A {section.path}", path, path, None, new, unified("", section.content, path)), 0
        old = _content(path, section)
        is_text = not is_binary(old)
        if section.kind == DELETE:
            diff = unified(decode(old).text, "", path) if is_text else ""
            return _Step(f"D {section.path}", path, None, old, b"", diff), 0
        if not is_text:
            raise PatchError(f"{section.path} is binary and cannot be patched.")
        lines = TextFile(old).lines()
        found, doubt = patch_places.changes(section.path, lines, section.hunks)
        new = _changed(TextFile(old), found)
        if len(new) > FILE_LIMIT:
            raise PatchError(f"{section.path} would have {len(new)} bytes; the limit is {FILE_LIMIT}.")
        target, summary = path, f"M {section.path}"
        if section.move_to is not None and section.move_to != section.path:
            target, summary = self._move_target(section.move_to), f"R {section.path} -> {section.move_to}"
        return _Step(summary, path, target, old, new, _diff(path, target, lines, found)), doubt

    def _move_target(self, name: str) -> str:
        if os.path.isabs(name) or ".." in name.split("/"):
            raise PatchError(f"A file cannot be moved to {name}: give a path relative to the workspace, without `..`.")
        path = self._inside(name)
        if disk.kind(path) != "missing":
            raise PatchError(f"A file cannot be moved to {name}: that exists already.")
        return path

    def _inside(self, name: str) -> str:
        """Return the absolute path of a file that lies in the workspace, also when links are followed."""
        if "\0" in name:
            raise PatchError("A path in the patch holds a NUL character.")
        root = os.path.realpath(self._workspace)
        path = arguments.resolve(self._workspace, name)
        if os.path.commonpath([root, os.path.realpath(path)]) != root or os.path.realpath(path) == root:
            raise PatchError(f"{name} is outside the workspace {self._workspace}; a patch may change only files in it.")
        return path

    def _write(self, steps: List[_Step]) -> None:
        done: List[_Step] = []
        try:
            for step in steps:
                done.append(step)
                if step.target is not None:
                    mode = None if step.target == step.path else disk.read(step.path, 1).mode
                    disk.replace(step.target, step.new, mode)
                if step.target != step.path:
                    _remove(step.path)
        except disk.FileError:
            for step in reversed(done):
                _take_back(step)
            raise
        for step in steps:
            if step.old is not None and step.target == step.path:
                self._history.push(step.path, step.old)


def _content(path: str, section: Section) -> bytes:
    name = section.path
    if disk.kind(path) == "missing":
        hint = "it cannot be deleted" if section.kind == DELETE else f"use `*** Add File: {name}` for a new file"
        raise PatchError(f"{name} does not exist; {hint}.")
    content = disk.read(path, FILE_LIMIT + 1)
    if len(content.data) > FILE_LIMIT:
        raise PatchError(f"{name} has more than {FILE_LIMIT} bytes, which is the limit.")
    return content.data


def _changed(file: TextFile, found: List[Replacement]) -> bytes:
    """Return the file with the changes."""
    lines = file.lines()
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    ranges: List[Tuple[int, int, str]] = []
    for change in found:
        start, end = starts[change.start], min(len(file.text), starts[change.start + change.removed])
        text = "".join(f"{line}\n" for line in change.added)
        if lines and not file.text.endswith("\n") and change.start + change.removed == len(lines):
            # The last line has no end: what comes in its place has none either.
            text = ("\n" + text if change.removed == 0 else text)[:-1] if text else ""
        ranges.append((min(start, end), end, text))
    return file.with_changes(ranges)


def _diff(path: str, target: str, lines: List[str], found: List[Replacement]) -> str:
    """Return the unified diff of the changes, each as a hunk with up to three lines around it."""
    parts = [f"--- {path}\n+++ {target}\n"] if found else []
    shift = shown = 0
    for index, change in enumerate(found):
        ceiling = found[index + 1].start if index + 1 < len(found) else len(lines)
        end = change.start + change.removed
        head = lines[max(shown, change.start - 3) : change.start]
        tail = lines[end : min(ceiling, end + 3)]
        shown = end + len(tail)
        first = change.start - len(head) + 1
        around = len(head) + len(tail)
        parts.append(
            f"@@ -{first},{around + change.removed} +{first + shift},{around + len(change.added)} @@\n"
            + "".join(f" {line}\n" for line in head)
            + "".join(f"-{line}\n" for line in lines[change.start : end])
            + "".join(f"+{line}\n" for line in change.added)
            + "".join(f" {line}\n" for line in tail)
        )
        shift += len(change.added) - change.removed
    return "".join(parts)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        raise disk.failure(error, path) from error


def _take_back(step: _Step) -> None:
    """Restore a file as far as that can be done."""
    with contextlib.suppress(OSError, disk.FileError):
        if step.old is not None:
            disk.replace(step.path, step.old)
        if step.target is not None and (step.old is None or step.target != step.path):
            os.unlink(step.target)
