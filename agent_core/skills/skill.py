"""Skills: texts for the agent, and what brings them up: a word, a task's name, or a touched file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from agent_core.events.messages import Frozen

_GLOB_PARTS = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|[^*?/]+|/")
MAX_DESCRIPTION_CHARS = 1024
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SkillType = Literal["repo", "knowledge", "path", "agentskills"]
SkillLevel = Literal["explicit", "plugin", "project", "organization", "user", "public"]

SKILL_LEVELS: Final[tuple[SkillLevel, ...]] = ("explicit", "plugin", "project", "organization", "user", "public")
"""Where skills come from; of two with the same name the one of the earlier level is used."""

TRUSTED_LEVELS: Final[frozenset[SkillLevel]] = frozenset({"explicit", "plugin", "user"})
"""Those that somebody has chosen one by one: their skills may bring MCP servers."""

SERVERS_REFUSED: Final = (
    "it is not used, because such a skill may not start programs or open connections outside of the sandbox."
    " Configure it in your settings if you trust it."
)


def _trimmed(values: list[str], info: ValidationInfo) -> list[str]:
    trimmed = [value.strip() for value in values]
    if not all(trimmed):
        raise ValueError(f"{info.field_name} must not hold an empty text: it would match every message")
    return trimmed


_Words = Annotated[list[str], Field(min_length=1), AfterValidator(_trimmed)]


class KeywordTrigger(Frozen):
    """Brings a skill up when one of `keywords` stands in a message as a whole token, in any case."""

    type: Literal["keyword"] = "keyword"
    keywords: _Words

    def match(self, message: str) -> str | None:
        return _first(self.keywords, message, _keyword_pattern)


class TaskTrigger(Frozen):
    """Brings a skill up when one of `triggers` (``/name``) stands in a message by itself, in any case."""

    type: Literal["task"] = "task"
    triggers: _Words

    def match(self, message: str) -> str | None:
        return _first(self.triggers, message, _task_pattern)


class PathTrigger(Frozen):
    """Brings a skill up when a tool touches a file that one of `paths` matches, relative to the project's root.

    As in ``.gitignore``, ``*`` and ``?`` stay within one folder, ``**`` does not; without a slash any folder matches.
    """

    type: Literal["path"] = "path"
    paths: _Words

    def match_path(self, path: str) -> str | None:
        relative = path.removeprefix("./").strip("/")
        return next((pattern for pattern in self.paths if _is_beneath(relative, _glob_parts(pattern))), None)


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


@lru_cache(maxsize=512)
def _glob_parts(pattern: str) -> tuple[str, ...]:
    anchored = "/" in pattern.rstrip("/")
    parts = _GLOB_PARTS.findall(pattern.removeprefix("./").strip("/"))
    return tuple(parts if anchored else ["**/", *parts])


def _is_beneath(path: str, parts: Iterable[str]) -> bool:
    """Whether these parts of a pattern match the path, or a folder that it is in.

    Each part is looked at once for each place that those before it may end at: an expression would try each way to
    share the path out among many ``*``, and a repository's file says how many there are.
    """
    ends = {0}
    for part in parts:
        match part:
            case "**":
                ends = set(range(min(ends), len(path) + 1))
            case "**/":
                ends |= {place + 1 for place in range(min(ends), len(path)) if path[place] == "/"}
            case "/**":
                slashes = [place for place in ends if path.startswith("/", place)]
                ends = set(range(min(slashes) + 1, len(path) + 1)) if slashes else set()
            case "*":
                reached: set[int] = set()
                for place in sorted(ends):
                    if place not in reached:
                        reached.update(range(place, _end_of_name(path, place) + 1))
                ends = reached
            case "?":
                ends = {place + 1 for place in ends if place < _end_of_name(path, place)}
            case text:
                ends = {place + len(text) for place in ends if path.startswith(text, place)}
        if not ends:
            return False
    return any(place == len(path) or path[place] == "/" for place in ends)


def _end_of_name(path: str, place: int) -> int:
    end = path.find("/", place)
    return len(path) if end < 0 else end


class SkillInput(Frozen):
    """One thing that a task needs to know; ``${name}`` stands for it in the text."""

    name: str = Field(min_length=1)
    description: str = ""


class SkillResources(Frozen):
    """The files beside a ``SKILL.md``, as paths relative to its folder."""

    scripts: list[str] = Field(default_factory=list)
    references: list[str] = Field(default_factory=list)
    assets: list[str] = Field(default_factory=list)


class Skill(Frozen):
    """A text for the agent; `source` is the path of its file, `level` where it comes from.

    Without a `trigger` it is always told, unless it has the AgentSkills format: then it is listed, and told when asked
    for.
    """

    name: str = Field(min_length=1)
    content: str
    source: str | None = None
    level: SkillLevel = "explicit"
    trigger: Trigger | None = None
    description: str | None = Field(default=None, max_length=MAX_DESCRIPTION_CHARS)
    version: str = "1.0.0"
    license: str | None = None
    compatibility: str | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    allowed_tools: list[str] | None = None
    inputs: list[SkillInput] = Field(default_factory=list)
    mcp_tools: dict[str, Any] | None = None
    is_agentskills_format: bool = False
    disable_model_invocation: bool = False
    resources: SkillResources = Field(default_factory=SkillResources)

    @field_validator("name")
    @classmethod
    def _name_is_a_line(cls, value: str) -> str:
        if not value.strip() or "\n" in value:
            raise ValueError("name must be one line that is not empty")
        return value.strip()

    def at(self, level: SkillLevel) -> Skill:
        """The same skill, from there."""
        return self if self.level == level else self.model_copy(update={"level": level})

    @property
    def mcp_server_names(self) -> list[str]:
        """The names of the MCP servers in `mcp_tools`, as far as they can be told."""
        config = self.mcp_tools or {}
        programs = config.get("stdio_servers")
        if isinstance(programs, list):
            return [str(one.get("name", "unnamed"))[:100] for one in programs if isinstance(one, dict)]
        servers = config.get("mcpServers", config)
        return [str(name)[:100] for name in servers] if isinstance(servers, dict) else []

    @property
    def trigger_words(self) -> list[str]:
        """The words, or the patterns of paths, that bring it up."""
        match self.trigger:
            case KeywordTrigger(keywords=words) | TaskTrigger(triggers=words) | PathTrigger(paths=words):
                return list(words)
            case None:
                return []

    @property
    def is_always_on(self) -> bool:
        return self.trigger is None and not self.is_agentskills_format

    @property
    def is_listed(self) -> bool:
        if isinstance(self.trigger, PathTrigger):  # a rule comes up by itself when it is time
            return False
        return (self.is_agentskills_format or self.trigger is not None) and not self.disable_model_invocation

    @property
    def summary(self) -> str:
        """The description; without one the first line of the text that is no heading."""
        if self.description:
            return " ".join(self.description.split())
        lines = (line.strip() for line in self.content.splitlines())
        return next((line for line in lines if line and not line.startswith("#")), "")

    def get_skill_type(self) -> SkillType:
        if self.is_agentskills_format:
            return "agentskills"
        if self.trigger is None:
            return "repo"
        return "path" if isinstance(self.trigger, PathTrigger) else "knowledge"

    def match_trigger(self, message: str) -> str | None:
        if self.trigger is None or isinstance(self.trigger, PathTrigger):
            return None
        return self.trigger.match(message)

    def match_path(self, path: str) -> str | None:
        return self.trigger.match_path(path) if isinstance(self.trigger, PathTrigger) else None

    def extract_variables(self) -> list[str]:
        return list(dict.fromkeys(_VARIABLE.findall(self.content)))

    def requires_user_input(self) -> bool:
        return isinstance(self.trigger, TaskTrigger) and bool(self.extract_variables() or self.inputs)
