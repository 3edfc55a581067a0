"""Kinds of sub-agents: built in, registered by programs, or in Markdown files with their configuration as a header."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from agent_core.errors import SkillValidationError
from agent_core.events.messages import Frozen
from agent_core.skills.files import split_frontmatter, unusable_file

AgentLevel = Literal["programmatic", "plugin", "project", "user", "built-in"]
PermissionMode = Literal["always_confirm", "never_confirm", "confirm_risky"]

LEVELS: Final[tuple[AgentLevel, ...]] = ("programmatic", "plugin", "project", "user", "built-in")
"""Where definitions come from; of two with the same name the one of the earlier level is used."""

INHERIT: Final = "inherit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_EXAMPLE = re.compile(r"<example>(.*?)</example>", re.DOTALL)
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

_registered: dict[str, AgentKind] = {}


class AgentDefinition(Frozen):
    """A kind of sub-agent. Unknown names in a file's header are passed over; None means what the asking agent has.

    `examples` say when to ask for it (in a file ``<example>`` blocks of the description); `model` is ``inherit`` or a
    stored profile; `tools` None leaves out those that make sub-agents; `skills` are out of the asking agent's;
    `max_iteration_per_run` counts answers to one task, `max_budget_per_run` US dollars; `hooks` run beside the asking
    agent's; `condenser` is ``default``, ``none`` or a condenser's data; `instructions` end its system message.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    other_options: ClassVar[tuple[str, ...]] = ("mcp_servers",)

    name: str
    description: str = ""
    examples: list[str] = Field(default_factory=list)
    model: str = INHERIT
    color: str | None = None
    tools: list[str] | None = None
    skills: list[str] = Field(default_factory=list)
    max_iteration_per_run: int | None = Field(default=None, gt=0)
    max_budget_per_run: float | None = Field(default=None, gt=0)
    hooks: dict[str, Any] | None = None
    mcp_config: dict[str, Any] = Field(default_factory=dict)
    permission_mode: PermissionMode | None = None
    condenser: Literal["default", "none"] | dict[str, Any] = "default"
    profile_store_dir: str | None = None
    instructions: str = ""
    level: AgentLevel = "programmatic"
    source: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        fields = {key: value for key, value in values.items() if value is not None}
        if "mcp_servers" in fields:
            fields.setdefault("mcp_config", fields.pop("mcp_servers"))
        description = str(fields.get("description", ""))
        if found := [one.strip() for one in _EXAMPLE.findall(description)]:
            fields["examples"] = [*fields.get("examples", []), *found]
            fields["description"] = " ".join(_EXAMPLE.sub(" ", description).split())
        return fields

    @field_validator("name")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} is no name: letters, digits and _.:-, up to 64, without spaces")
        return value

    @field_validator("tools", "skills", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value

    @field_validator("permission_mode", mode="before")
    @classmethod
    def _none_inherits(cls, value: Any) -> Any:
        return None if value in ("", "none", "inherit") else value

    @field_validator("mcp_config", mode="before")
    @classmethod
    def _servers(cls, value: Any) -> Any:
        return value["mcpServers"] if isinstance(value, dict) and "mcpServers" in value else value

    @property
    def summary(self) -> str:
        examples = f" For example: {'; '.join(self.examples)}" if self.examples else ""
        return " ".join(f"{self.name}: {self.description or 'no description'}{examples}".split())


def agent_from_text(path: str, text: str, level: AgentLevel) -> AgentDefinition:
    """The definition in a Markdown file, whose name is the default name; raises `SkillValidationError`."""
    try:
        header, body = split_frontmatter(text)
        name = header.get("name") or PurePosixPath(path).stem
        fields = {key: value for key, value in header.items() if key not in ("level", "source", "instructions")}
        return AgentDefinition.model_validate(
            {**fields, "name": str(name), "instructions": body, "level": level, "source": path}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "its header"
        raise unusable_file(path, ValueError(f"{field}: {first['msg']}"), text) from None
    except ValueError as error:
        raise unusable_file(path, error, text) from None


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


@dataclass(frozen=True, slots=True)
class AgentKind:
    """A definition, and what makes its agents where a program registered a function for that."""

    definition: AgentDefinition
    make: AgentMaker | None = None


def register_agent(name: str, factory_func: AgentMaker, description: str = "") -> None:
    """Make a kind known to this process; ``factory_func(llm)`` makes its agent. `ValueError`: the name is taken."""
    definition = AgentDefinition(name=name, description=description, level="programmatic")
    _register(AgentKind(definition, factory_func))


def register_agent_if_absent(name: str, factory_func: AgentMaker, description: str = "") -> bool:
    """`register_agent` where the program has no kind of that name yet; whether that was so."""
    if is_registered(name):
        return False
    register_agent(name, factory_func, description)
    return True


def register_agent_definition(definition: AgentDefinition) -> None:
    """Make a kind of sub-agent known to this process; raises `ValueError` if the name is taken."""
    _register(AgentKind(definition))


def registered_definitions() -> list[AgentDefinition]:
    """The registered kinds that are all data: those without a function of the program's."""
    return [kind.definition for kind in _registered.values() if kind.make is None]


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
    """The kinds that a conversation has: those it was `given`, registered ones, those of files, built-in ones."""

    from_files: list[AgentDefinition] = field(default_factory=list)
    given: Sequence[AgentDefinition] = ()

    def kinds(self) -> dict[str, AgentKind]:
        """By name, each name once, in the order of `LEVELS`."""
        known = [
            *map(AgentKind, self.given),
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
