"""Patterns for names and paths (``*``, ``?``, ``[a-z]``, ``**``, and ``{a,b}`` where wanted) as regular expressions."""

from __future__ import annotations

import re
from typing import Dict, List, Pattern, Tuple


def compiled(pattern: str, *, braces: bool = True) -> Pattern[str]:
    """Return what matches whole paths, whose parts are separated by slashes; a pattern without slashes matches names.

    Never fails: what is not closed, or makes no sense, stands for itself.
    """
    return re.compile(translated(pattern, braces=braces), re.DOTALL)


def translated(pattern: str, *, braces: bool = True) -> str:
    """Return the regular expression, for ``fullmatch``."""
    out: List[str] = []
    groups = _groups(pattern) if braces else {}
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "*":
            text, position = _stars(pattern, position)
            out.append(text)
            continue
        if character == "[":
            text, position = _class(pattern, position)
            out.append(text)
            continue
        if character == "\\" and position + 1 < len(pattern):
            position += 1
            out.append(re.escape(pattern[position]))
        elif character == "?":
            out.append("[^/]")
        elif position in groups:
            out.append(groups[position])
        else:
            out.append(re.escape(character))
        position += 1
    return "".join(out)


def has_wildcard(part: str) -> bool:
    """True when a part of a pattern is more than a plain name."""
    return any(character in part for character in "*?[{\\")


def split_base(pattern: str) -> Tuple[str, str]:
    """Return the plain folders that a pattern begins with, and what is left: ``/a/b/*.py`` is ``/a/b`` and ``*.py``."""
    parts = pattern.split("/")
    count = 0
    while count < len(parts) - 1 and not has_wildcard(parts[count]):
        count += 1
    base = "/".join(parts[:count])
    return (base or "/") if pattern.startswith("/") else base, "/".join(parts[count:])


def _stars(pattern: str, start: int) -> Tuple[str, int]:
    """Return what the run of stars stands for, and where the pattern goes on."""
    end = start
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    begins = start == 0 or pattern[start - 1] == "/"
    if end - start < 2 or not begins:
        return "[^/]*", end
    if end == len(pattern):
        return ".+", end
    if pattern[end] != "/":
        return "[^/]*", end
    while pattern.startswith("/**/", end):  # several in a row are one
        end += 3
    return "(?:[^/]+/)*", end + 1


def _class(pattern: str, start: int) -> Tuple[str, int]:
    position = start + 1
    negated = position < len(pattern) and pattern[position] in "!^"
    position += negated
    first = position
    while position < len(pattern) and (pattern[position] != "]" or position == first):
        position += 2 if pattern[position] == "\\" else 1
    if position >= len(pattern):
        return re.escape("["), start + 1
    body = "".join(_class_part(part) for part in _class_items(pattern[first:position]))
    if not body:
        return "(?!)" if not negated else "[^/]", position + 1
    return f"(?!/)[{'^' if negated else ''}{body}]", position + 1


def _class_items(body: str) -> List[Tuple[str, str]]:
    """Return the characters and ranges of a class, each as its two ends."""
    characters: List[str] = []
    ranges: List[bool] = []
    position = 0
    while position < len(body):
        escaped = body[position] == "\\" and position + 1 < len(body)
        position += escaped
        characters.append(body[position])
        ranges.append(body[position] == "-" and not escaped)
        position += 1
    items: List[Tuple[str, str]] = []
    index = 0
    while index < len(characters):
        if index + 2 < len(characters) and ranges[index + 1]:
            items.append((characters[index], characters[index + 2]))
            index += 3
        else:
            items.append((characters[index], characters[index]))
            index += 1
    return items


def _class_part(ends: Tuple[str, str]) -> str:
    low, high = ends
    if low > high:
        return ""  # nothing is between them
    return re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"


def _groups(pattern: str) -> Dict[int, str]:
    """Return what stands for an opening brace, a comma or a closing one of a choice, by its position.

    A pair of braces without a comma of its own is no choice and stands for itself, as in a shell.
    """
    found: Dict[int, str] = {}
    begun: List[List[int]] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "[":
            position = _class(pattern, position)[1]
            continue
        if character == "\\":
            position += 1
        elif character == "{":
            begun.append([position])
        elif character == "," and begun:
            begun[-1].append(position)
        elif character == "}" and begun:
            first, *commas = begun.pop()
            if commas:
                found.update({first: "(?:", position: ")", **dict.fromkeys(commas, "|")})
        position += 1
    return found
