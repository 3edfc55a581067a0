"""The files that say what a search should pass over: ``.gitignore`` and its like, by the rules of git."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Pattern

from .globs import translated

_SIZE_LIMIT = 1024 * 1024
_EXCLUDE = "exclude"
KINDS = (".rgignore", ".ignore", ".gitignore")
"""The names of such files; what an earlier kind says counts more than what a later one does."""


class _Rule(NamedTuple):
    pattern: Pattern[str]
    keeps: bool
    for_directories: bool


class IgnoreRules:
    """The rules of one file. Paths are relative to its folder, with slashes between their parts."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules: List[_Rule] = []
        sources: List[str] = []
        for line in lines:
            source = _source(line)
            if source is not None:
                text, keeps, for_directories = source
                self._rules.append(_Rule(re.compile(text, re.DOTALL), keeps, for_directories))
                sources.append(text)
        self._any = re.compile("|".join(f"(?:{source})" for source in sources), re.DOTALL) if sources else None

    def __bool__(self) -> bool:
        return bool(self._rules)

    def ignores(self, path: str, is_directory: bool) -> Optional[bool]:
        """Return whether the path is passed over; None when no rule speaks of it. The last rule that does counts."""
        if self._any is None or self._any.fullmatch(path) is None:
            return None
        for rule in reversed(self._rules):
            if (is_directory or not rule.for_directories) and rule.pattern.fullmatch(path) is not None:
                return not rule.keeps
        return None


class Level:
    """What counts below a folder that has rules: they, and those of the folders above."""

    def __init__(
        self, folder: str, above: "Optional[Level]", rules: Dict[str, IgnoreRules], begins_repository: bool
    ) -> None:
        self._start = len(folder.rstrip("/")) + 1
        self._above = above
        self._rules = rules
        self._begins_repository = begins_repository
        self.is_in_repository: bool = begins_repository or (above is not None and above.is_in_repository)

    def ignores(self, path: str, is_directory: bool) -> bool:
        """Return whether an entry below the folder, given by its whole path, is passed over."""
        for kind in (*KINDS, _EXCLUDE):
            level: Optional[Level] = self
            while level is not None:
                rules = level._rules.get(kind)
                said = rules.ignores(path[level._start :], is_directory) if rules is not None else None
                if said is not None:
                    return said
                ends = level._begins_repository and kind in (".gitignore", _EXCLUDE)
                level = None if ends else level._above
        return False


def level_of(folder: str, above: Optional[Level], names: Iterable[str]) -> Optional[Level]:
    """Return what counts below a folder that has entries of these names; None when nothing does."""
    present = set(names)
    begins = ".git" in present
    in_repository = begins or (above is not None and above.is_in_repository)
    rules: Dict[str, IgnoreRules] = {}
    for kind in KINDS:
        if kind in present and (in_repository or kind != ".gitignore"):
            rules[kind] = _read(os.path.join(folder, kind))
    if begins:
        rules[_EXCLUDE] = _read(os.path.join(folder, ".git/info/exclude"))
    return Level(folder, above, rules, begins) if rules else above


def level_above(folder: str) -> Optional[Level]:
    """Return what the folders above say; the rules of git only as far up as the repository goes."""
    folders: List[str] = []
    while os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        folders.append(folder)
    level: Optional[Level] = None
    for each in reversed(folders):
        present = [name for name in (".git", *KINDS) if os.path.lexists(os.path.join(each, name))]
        level = level_of(each, level, present)
    return level


def _read(path: str) -> IgnoreRules:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
            return IgnoreRules(file.read(_SIZE_LIMIT).splitlines())
    except OSError:
        return IgnoreRules(())


def _source(line: str) -> "Optional[tuple[str, bool, bool]]":
    """Return the rule of a line: its regular expression, whether it keeps, and whether it is for directories only."""
    text = _without_trailing_blanks(line.rstrip("\r\n"))
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text[1:] if keeps else text
    for_directories = text.endswith("/")
    text = text[:-1] if for_directories else text
    if not text:
        return None
    anchored = "/" in text
    text = text[1:] if text.startswith("/") else text
    source = translated(text, braces=False)
    return (source if anchored else f"(?:.*/)?{source}"), keeps, for_directories


def _without_trailing_blanks(line: str) -> str:
    text = line.rstrip(" ")
    slashes = len(text) - len(text.rstrip("\\"))
    return text + " " if slashes % 2 and len(text) < len(line) else text
