"""Patterns for paths (``*``, ``?``, ``[a-z]``, ``**``, ``{a,b}``) as regular expressions, and rules of ignore files."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Pattern, Tuple

_SIZE_LIMIT = 1024 * 1024
_EXCLUDE = "exclude"
_PART = re.compile(
    r"(?P<folders>(?:(?<=/)|\A)\*{2,}/(?:\*\*/)*)|(?P<all>(?:(?<=/)|\A)\*{2,}\Z)|(?P<stars>\*+)"
    # characters in brackets, with escapes; a closing bracket that comes first is one of them
    r"|\[(?:(?P<negated>[!^])|(?![!^]))(?P<items>(?:\\.|[^\\])(?:\\.|[^\\\]])*)\]|\\(?P<escaped>.)|.",
    re.DOTALL,
)
_STARS: Dict[Optional[str], str] = {"folders": "(?:[^/]+/)*", "all": ".+", "stars": "[^/]*"}
_CLASS_ITEM = re.compile(r"(\\.|.)(?:-(\\.|.))?", re.DOTALL)
_KINDS = (".rgignore", ".ignore", ".gitignore")
"""Names of ignore files, by falling precedence."""


def compiled(pattern: str) -> Pattern[str]:
    """Return a regular expression for whole slash-separated paths, or for names where the pattern has no slash.

    Never fails: what is not closed, or makes no sense, stands for itself.
    """
    return re.compile(_translated(pattern, braces=True), re.DOTALL)


def split_base(pattern: str) -> Tuple[str, str]:
    """Return a pattern's plain leading folders and the rest: ``/a/b/*.py`` is ``/a/b`` and ``*.py``."""
    parts = pattern.split("/")
    count = 0
    while count < len(parts) - 1 and not any(character in parts[count] for character in "*?[{\\"):
        count += 1
    base = "/".join(parts[:count])
    return (base or "/") if pattern.startswith("/") else base, "/".join(parts[count:])


def _translated(pattern: str, *, braces: bool) -> str:
    out: List[str] = []
    groups = _groups(pattern) if braces else {}
    for part in _PART.finditer(pattern):
        kind = part.lastgroup
        if kind in _STARS:
            out.append(_STARS[kind])
        elif kind == "items":
            out.append(_class(part["negated"], part["items"]))
        elif kind == "escaped":
            out.append(re.escape(part["escaped"]))
        elif part[0] == "?":
            out.append("[^/]")
        else:
            out.append(groups.get(part.start()) or re.escape(part[0]))
    return "".join(out)


def _class(negated: Optional[str], items: str) -> str:
    body = ""
    for item in _CLASS_ITEM.finditer(items):
        low, high = item[1][-1], (item[2] or item[1])[-1]
        if low <= high:  # else nothing is between them
            body += re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"
    if not body:
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{body}]"


def _groups(pattern: str) -> Dict[int, str]:
    """What stands for the braces and commas of a choice, by position; braces without a comma stand for themselves."""
    found: Dict[int, str] = {}
    open_braces: List[List[int]] = []
    for part in _PART.finditer(pattern):
        position = part.start()
        if part[0] == "{":
            open_braces.append([position])
        elif part[0] == "," and open_braces:
            open_braces[-1].append(position)
        elif part[0] == "}" and open_braces:
            first, *commas = open_braces.pop()
            if commas:
                found.update({first: "(?:", position: ")", **dict.fromkeys(commas, "|")})
    return found


class _Rule(NamedTuple):
    pattern: Pattern[str]
    keeps: bool
    for_directories: bool


class IgnoreRules:
    """The rules of one ignore file, as git reads them. Paths are relative to its folder, with slashes."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for rule in map(_rule, lines) if rule is not None]
        sources = [f"(?:{rule.pattern.pattern})" for rule in self._rules]
        self._any = re.compile("|".join(sources), re.DOTALL) if sources else None

    def __bool__(self) -> bool:
        return bool(self._rules)

    def ignores(self, path: str, is_directory: bool) -> Optional[bool]:
        """Whether the path is ignored, by the last rule that matches; None when none does."""
        if self._any is None or self._any.fullmatch(path) is None:
            return None
        for rule in reversed(self._rules):
            if (is_directory or not rule.for_directories) and rule.pattern.fullmatch(path) is not None:
                return not rule.keeps
        return None


def _rule(line: str) -> Optional[_Rule]:
    line = line.rstrip("\r\n")
    text = line.rstrip(" ")
    if (len(text) - len(text.rstrip("\\"))) % 2 and len(text) < len(line):
        text += " "  # an escaped blank
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text[1:] if keeps else text
    for_directories = text.endswith("/")
    text = text[:-1] if for_directories else text
    if not text:
        return None
    anchored = "/" in text
    source = _translated(text[1:] if text.startswith("/") else text, braces=False)
    return _Rule(re.compile(source if anchored else f"(?:.*/)?{source}", re.DOTALL), keeps, for_directories)


class IgnoreLevel:
    """The rules that count below a folder: its own, and those of the folders above."""

    def __init__(
        self, folder: str, above: "Optional[IgnoreLevel]", rules: Dict[str, IgnoreRules], begins_repository: bool
    ) -> None:
        self._start = len(folder.rstrip("/")) + 1
        self._above = above
        self._rules = rules
        self._begins_repository = begins_repository
        self.is_in_repository: bool = begins_repository or (above is not None and above.is_in_repository)

    def ignores(self, path: str, is_directory: bool) -> bool:
        for kind in (*_KINDS, _EXCLUDE):
            level: Optional[IgnoreLevel] = self
            while level is not None:
                rules = level._rules.get(kind)
                verdict = rules.ignores(path[level._start :], is_directory) if rules is not None else None
                if verdict is not None:
                    return verdict
                ends = level._begins_repository and kind in (".gitignore", _EXCLUDE)
                level = None if ends else level._above
        return False


def level_of(folder: str, above: Optional[IgnoreLevel], names: Iterable[str]) -> Optional[IgnoreLevel]:
    """Return the rules below a folder that has entries of these names; None when there are none."""
    present = set(names)
    begins = ".git" in present
    in_repository = begins or (above is not None and above.is_in_repository)
    rules: Dict[str, IgnoreRules] = {}
    for kind in _KINDS:
        if kind in present and (in_repository or kind != ".gitignore"):
            rules[kind] = _read(os.path.join(folder, kind))
    if begins:
        rules[_EXCLUDE] = _read(os.path.join(folder, ".git/info/exclude"))
    return IgnoreLevel(folder, above, rules, begins) if rules else above


def level_above(folder: str) -> Optional[IgnoreLevel]:
    """Return the rules of the folders above; those of git only as far up as the repository goes."""
    folders: List[str] = []
    while os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        folders.append(folder)
    level: Optional[IgnoreLevel] = None
    for each in reversed(folders):
        present = [name for name in (".git", *_KINDS) if os.path.lexists(os.path.join(each, name))]
        level = level_of(each, level, present)
    return level


def _read(path: str) -> IgnoreRules:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
            return IgnoreRules(file.read(_SIZE_LIMIT).splitlines())
    except OSError:
        return IgnoreRules(())
