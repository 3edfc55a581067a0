"""What brings a skill up: a word, a task's name, or a touched file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, field_validator

from agent_core.events.messages import Frozen


def _trimmed(values: list[str], field: str) -> list[str]:
    trimmed = [value.strip() for value in values]
    if not all(trimmed):
        raise ValueError(f"{field} must not hold an empty text: it would match every message")
    return trimmed


class KeywordTrigger(Frozen):
    """Brings a skill up when one of `keywords` stands in a message as a whole token, in any case."""

    type: Literal["keyword"] = "keyword"
    keywords: list[str] = Field(min_length=1)

    @field_validator("keywords")
    @classmethod
    def _no_empty_one(cls, value: list[str]) -> list[str]:
        return _trimmed(value, "keywords")

    def match(self, message: str) -> str | None:
        """The first keyword, in the order of the list, that is in `message`."""
        return _first(self.keywords, message, _keyword_pattern)


class TaskTrigger(Frozen):
    """Brings a skill up when one of `triggers` (``/name``) stands in a message by itself, in any case."""

    type: Literal["task"] = "task"
    triggers: list[str] = Field(min_length=1)

    @field_validator("triggers")
    @classmethod
    def _no_empty_one(cls, value: list[str]) -> list[str]:
        return _trimmed(value, "triggers")

    def match(self, message: str) -> str | None:
        """The first trigger, in the order of the list, that is in `message`."""
        return _first(self.triggers, message, _task_pattern)


class PathTrigger(Frozen):
    """Brings a skill up when a tool touches a file that one of `paths` matches.

    Patterns are like those of ``.gitignore``, relative to the project's root: ``*`` and ``?`` stay within one folder,
    ``**`` does not; a pattern without a slash matches a name in any folder.
    """

    type: Literal["path"] = "path"
    paths: list[str] = Field(min_length=1)

    @field_validator("paths")
    @classmethod
    def _no_empty_one(cls, value: list[str]) -> list[str]:
        return _trimmed(value, "paths")

    def match_path(self, path: str) -> str | None:
        """The first pattern that matches `path`, which is relative to the project's root."""
        relative = path.removeprefix("./").strip("/")
        return next((pattern for pattern in self.paths if _glob(pattern).fullmatch(relative)), None)


Trigger = Annotated[KeywordTrigger | TaskTrigger | PathTrigger, Field(discriminator="type")]


def _first(words: Iterable[str], message: str, pattern: Callable[[str], re.Pattern[str]]) -> str | None:
    return next((word for word in words if pattern(word).search(message)), None)


@lru_cache(maxsize=2048)
def _keyword_pattern(keyword: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-zA-Z0-9]){re.escape(keyword)}(?![a-zA-Z0-9])", re.IGNORECASE)


@lru_cache(maxsize=2048)
def _task_pattern(trigger: str) -> re.Pattern[str]:
    # A path that begins like the name (`/test/data`), or a longer name (`/test-all`), is something else.
    return re.compile(rf"(?<![\w/.-]){re.escape(trigger)}(?![\w/-])", re.IGNORECASE)


_GLOB_PARTS = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|[^*?/]+|/")
_GLOB_FORMS = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@lru_cache(maxsize=512)
def _glob(pattern: str) -> re.Pattern[str]:
    """The expression for one pattern; a folder that matches stands for all that is in it."""
    anchored = "/" in pattern.rstrip("/")
    parts = _GLOB_PARTS.findall(pattern.removeprefix("./").strip("/"))
    body = "".join(_GLOB_FORMS.get(part) or re.escape(part) for part in parts)
    return re.compile(("" if anchored else "(?:.*/)?") + body + "(?:/.*)?", re.DOTALL)
