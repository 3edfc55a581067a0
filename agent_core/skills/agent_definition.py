"""What a kind of sub-agent is: a Markdown file, its header the configuration, its body the instructions."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from agent_core.errors import SkillValidationError
from agent_core.events.messages import Frozen
from agent_core.skills.frontmatter import split

AgentLevel = Literal["programmatic", "plugin", "project", "user", "built-in"]
PermissionMode = Literal["always_confirm", "never_confirm", "confirm_risky"]

LEVELS: Final[tuple[AgentLevel, ...]] = ("programmatic", "plugin", "project", "user", "built-in")
"""Where definitions come from; of two with the same name the one of the earlier level is used."""

INHERIT: Final = "inherit"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_EXAMPLE = re.compile(r"<example>(.*?)</example>", re.DOTALL)


class AgentDefinition(Frozen):
    """A kind of sub-agent. Unknown names in a file's header are passed over.

    Attributes:
        name: what it is asked for by.
        description: what it is good for, told to the agent that may ask for it.
        examples: when to ask for it; in a file these are ``<example>`` blocks of the description.
        model: ``inherit`` for the asking agent's model, or the name of a stored profile.
        color: for whoever shows it.
        tools: names of its tools; None for those of the asking agent, but for the ones that make sub-agents.
        skills: names of skills that it is told, out of those of the asking agent.
        max_iteration_per_run: answers of its model to one task; None for the asking agent's limit.
        max_budget_per_run: US dollars; None for the asking agent's limit.
        hooks: run before and after its calls, beside those of the asking agent (the ``hooks`` of a hook file).
        mcp_config: servers of the Model Context Protocol, by name.
        permission_mode: which of its actions are asked for; None for the asking agent's policy.
        condenser: ``default``, ``none``, or the data of a condenser, with its ``kind``.
        profile_store_dir: where profiles are stored; None for the usual place.
        instructions: told at the end of its system message.
        level: where it comes from.
        source: its file; None for one that has none.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

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
        given = {key: value for key, value in values.items() if value is not None}
        if "mcp_servers" in given:
            given.setdefault("mcp_config", given.pop("mcp_servers"))
        description = str(given.get("description", ""))
        if found := [one.strip() for one in _EXAMPLE.findall(description)]:
            given["examples"] = [*given.get("examples", []), *found]
            given["description"] = " ".join(_EXAMPLE.sub(" ", description).split())
        return given

    @field_validator("name")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} is no name: letters, digits and _.:-, up to 64, without spaces")
        return value

    @field_validator("tools", "skills", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """A header may list names in one line, with commas."""
        return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value

    @field_validator("permission_mode", mode="before")
    @classmethod
    def _none_inherits(cls, value: Any) -> Any:
        return None if value in ("", "none", "inherit") else value

    @field_validator("mcp_config", mode="before")
    @classmethod
    def _servers(cls, value: Any) -> Any:
        """The servers, also where they stand under ``mcpServers``, as in a file of their own."""
        return value["mcpServers"] if isinstance(value, dict) and "mcpServers" in value else value

    @property
    def summary(self) -> str:
        """One line for the agent that may ask for it."""
        examples = f" For example: {'; '.join(self.examples)}" if self.examples else ""
        return " ".join(f"{self.name}: {self.description or 'no description'}{examples}".split())


def agent_from_text(path: str, text: str, level: AgentLevel) -> AgentDefinition:
    """The definition in a Markdown file, which is called like the file where its header gives no name.

    Raises:
        SkillValidationError: it cannot be used; the message names the file and the problem.
    """
    try:
        header, body = split(text)
        name = header.get("name") or PurePosixPath(path).stem
        fields = {key: value for key, value in header.items() if key not in ("level", "source", "instructions")}
        return AgentDefinition.model_validate(
            {**fields, "name": str(name), "instructions": body, "level": level, "source": path}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "its header"
        raise SkillValidationError(f"{path}: {field}: {first['msg']}") from None
    except ValueError as error:
        raise SkillValidationError(f"{path}: {error}") from None
