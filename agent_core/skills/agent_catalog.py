"""The kinds of sub-agents that there are, and which of them a name means."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_core.errors import SkillValidationError
from agent_core.skills.agent_definition import LEVELS, AgentDefinition, AgentLevel, agent_from_text

_REPORT = (
    "You work for another agent, which sees nothing of what you do but your last message. Do what it asks, on your own:"
    " nobody answers questions. When you are done, finish with a report of what you did and found, complete and short;"
    " name files by their paths. If you cannot do it, say why."
)

BUILTIN_AGENTS: Final = (
    AgentDefinition(
        name="general-purpose",
        description="Works on any task on its own: reads and changes files, runs commands.",
        tools=["terminal", "file_editor", "task_tracker"],
        instructions=_REPORT,
        level="built-in",
    ),
    AgentDefinition(
        name="code-explorer",
        description="Finds out how something works or where it is, in the files of the workspace; changes nothing.",
        tools=["terminal", "grep", "glob"],
        instructions=f"{_REPORT} You only look: change no file, install nothing, start no service.",
        level="built-in",
    ),
    AgentDefinition(
        name="bash-runner",
        description="Runs shell commands, such as builds and tests, and reports what came of them.",
        tools=["terminal"],
        instructions=f"{_REPORT} Of long outputs report what matters, in their own words.",
        level="built-in",
    ),
    AgentDefinition(
        name="web-researcher",
        description="Finds things out on web pages with a browser, and says where it found them.",
        tools=["browser_tool_set"],
        instructions=f"{_REPORT} Give the address of each page that a statement rests on.",
        level="built-in",
    ),
)


logger = logging.getLogger(__name__)

AGENT_FOLDERS: Final = (".agents/agents", ".openhands/agents")
"""Folders with definitions, of a project and of a user's home; the first one wins."""

ALIASES: Final = {
    "default": "general-purpose",
    "explore": "code-explorer",
    "bash": "bash-runner",
    "BrowsingAgent": "web-researcher",
}
"""Other names of the built-in kinds."""

MAX_FILE_BYTES: Final = 64 * 1024
MAX_FILES: Final = 200

AgentMaker = Callable[[Any], Any]
"""Makes an agent from a model: ``(LLM) -> AgentBase``."""


@dataclass(frozen=True, slots=True)
class AgentKind:
    """A definition, and what makes its agents where a program registered a function for that."""

    definition: AgentDefinition
    make: AgentMaker | None = None


_registered: dict[str, AgentKind] = {}


def register_agent(name: str, factory_func: AgentMaker, description: str = "") -> None:
    """Make a kind of sub-agent known to this process; ``factory_func(llm)`` makes its agent.

    Raises:
        ValueError: the name is taken, or is none.
    """
    definition = AgentDefinition(name=name, description=description, level="programmatic")
    _register(AgentKind(definition, factory_func))


def register_agent_if_absent(name: str, factory_func: AgentMaker, description: str = "") -> bool:
    """`register_agent` where the program has no kind of that name yet; whether that was so.

    Raises:
        ValueError: the name is none.
    """
    if is_registered(name):
        return False
    register_agent(name, factory_func, description)
    return True


def register_agent_definition(definition: AgentDefinition) -> None:
    """Make a kind of sub-agent known to this process.

    Raises:
        ValueError: the name is taken.
    """
    _register(AgentKind(definition))


def unregister_agent(name: str) -> None:
    """Forget a registered kind; an unknown one is fine."""
    _registered.pop(name, None)


def is_registered(name: str) -> bool:
    """Whether the program has a kind of that name."""
    return name in _registered


def _register(kind: AgentKind) -> None:
    name = kind.definition.name
    if name in _registered:
        raise ValueError(f"a sub-agent named {name!r} is registered already; choose another name")
    _registered[name] = kind


@dataclass(slots=True)
class AgentCatalog:
    """All kinds that a conversation has: the registered ones, those of files, and the built-in ones."""

    from_files: list[AgentDefinition] = field(default_factory=list)

    def kinds(self) -> dict[str, AgentKind]:
        """By name, each name once, in the order of `LEVELS`."""
        known = [
            *_registered.values(),
            *map(AgentKind, self.from_files),
            *map(AgentKind, BUILTIN_AGENTS),
        ]
        found: dict[str, AgentKind] = {}
        for level in LEVELS:
            for kind in known:
                if kind.definition.level == level:
                    found.setdefault(kind.definition.name, kind)
        return found

    def find(self, name: str) -> AgentKind | None:
        """The kind of that name, or of the one that it is an alias of."""
        kinds = self.kinds()
        return kinds.get(name) or kinds.get(ALIASES.get(name, ""))


def agents_in_texts(files: Mapping[str, str], level: AgentLevel) -> list[AgentDefinition]:
    """The definitions in these files (texts by path); of a name the first, and broken ones not, with a warning."""
    found: dict[str, AgentDefinition] = {}
    for path, text in files.items():
        try:
            definition = agent_from_text(path, text, level)
        except SkillValidationError as error:
            logger.warning("a sub-agent is left out: %s", error)
            continue
        if found.setdefault(definition.name, definition) is not definition:
            logger.warning("the sub-agent %r of %s is left out: another one has that name", definition.name, path)
    return list(found.values())


def load_user_agents(home: Path | None = None) -> list[AgentDefinition]:
    """The definitions in the folders of a user's home; none where there are none."""
    root = home if home is not None else Path.home()
    files: dict[str, str] = {}
    for path in _markdown_files(root / folder for folder in AGENT_FOLDERS):
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
            files[str(path)] = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            logger.warning("a sub-agent is left out: %s: %s", path, error)
    return agents_in_texts(files, "user")


def _markdown_files(folders: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for folder in folders:
        if folder.is_dir():
            found += sorted(path for path in folder.iterdir() if path.suffix.lower() == ".md" and path.is_file())
    return [path for path in found if path.name.lower() != "readme.md"][:MAX_FILES]
