"""What settings may choose about an agent: flags of its tools, and tools by name."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from agent_core.agent.base import AgentBase
from agent_core.agent.presets import BY_MODEL, preset_for
from agent_core.errors import ToolNotFoundError
from agent_core.events.messages import Frozen
from agent_core.tools.finish import FinishTool
from agent_core.tools.presets import BROWSER_TOOLS, preset_tools
from agent_core.tools.registry import canonical_name, resolve_tool
from agent_core.tools.spec import NamesRegex, Tool
from agent_core.tools.think import ThinkTool

MAX_TOOLS: Final = 100
MAX_NAME_CHARS: Final = 1_000
MAX_TOGETHER: Final = 64
_BY_DEFAULT: Final = frozenset({FinishTool.tool_name, ThinkTool.tool_name})
ModelName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARS)]


def _specs(value: Any) -> Any:
    """A tool may be given by its name alone."""
    return [{"name": one} if isinstance(one, str) else one for one in value] if isinstance(value, list) else value


class AgentOptions(Frozen):
    """Choices about an agent; what is None is left as it is: to whoever chose before, and in the end to the agent.

    The flags mean what they do for `CodeActAgent`; an agent that has no such flag is not changed by it. `preset` names
    a set of tools and `tools` lists them; either counts instead of the flags. Of these tools and of those of MCP
    servers `filter_tools_regex` keeps the ones whose names it matches from their beginning.
    `tool_concurrency_limit` says how many calls of one answer may run at the same time. `draft_editor_model` names the
    model that writes out the drafts of `edit_file`, where the agent's own model is reached; the agent's own if None.

    Raises:
        pydantic.ValidationError: a name is not known, or a value cannot be used; it says which and why.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    enable_cmd: bool | None = None
    enable_think: bool | None = None
    enable_finish: bool | None = None
    enable_condensation_request: bool | None = None
    enable_browsing: bool | None = None
    enable_jupyter: bool | None = None
    enable_plan_mode: bool | None = None
    enable_llm_editor: bool | None = None
    enable_editor: bool | None = None
    enable_mcp: bool | None = None
    enable_prompt_extensions: bool | None = None
    enable_history_truncation: bool | None = None
    enable_som_visual_browsing: bool | None = None
    enable_sub_agents: bool | None = None
    cli_mode: bool | None = None
    disabled_microagents: list[str] | None = Field(default=None, max_length=MAX_TOOLS)
    filter_tools_regex: NamesRegex = None
    tool_concurrency_limit: int | None = Field(default=None, ge=1, le=MAX_TOGETHER)
    draft_editor_model: ModelName | None = None
    preset: str | None = None
    tools: Annotated[Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None, BeforeValidator(_specs)] = None

    @field_validator("preset")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        if value not in (None, BY_MODEL):
            try:
                preset_tools(str(value))
            except ValueError as error:
                raise ValueError(f"{error}, or {BY_MODEL} for the one that suits the model") from None
        return value

    @field_validator("tools")
    @classmethod
    def _can_be_made(cls, value: list[Tool] | None) -> list[Tool] | None:
        names: set[str] = set()
        for number, spec in enumerate(value or []):
            try:
                made = [tool.name for tool in resolve_tool(spec)]
            except ToolNotFoundError as error:
                raise ValueError(f"{number}: {error.args[0]}") from None
            except (TypeError, ValueError) as error:
                raise ValueError(f"{number}: {error}") from None
            if doubled := names.intersection(made):
                raise ValueError(f"{number}: {sorted(doubled)} is given twice; give each tool once")
            names.update(made)
        return value

    @model_validator(mode="after")
    def _is_one_choice(self) -> Self:
        if self.preset is not None and self.tools is not None:
            raise ValueError("preset and tools exclude each other; give one of them")
        return self

    def over(self, other: AgentOptions) -> AgentOptions:
        """These choices, and those of `other` where nothing is chosen here."""
        own = self.model_dump(exclude_none=True)
        rest = other.model_dump(exclude_none=True)
        if own.keys() & {"preset", "tools"}:
            rest = {name: value for name, value in rest.items() if name not in ("preset", "tools")}
        return AgentOptions.model_validate({**rest, **own})

    def fields_for(self, agent: type[AgentBase], *, model: str = "", browsing: bool = True) -> dict[str, Any]:
        """What these choices are as fields of an agent of this class; without `browsing` none has a browser by default.

        `model` is the name of its model, by which the preset ``auto`` chooses.

        Tools that are listed by name are those tools, whatever `browsing` says; finish and think are chosen by their
        flags alone.
        """
        chosen = self.model_dump(exclude_none=True, exclude={"preset", "tools"})
        if not browsing:
            chosen["enable_browsing"] = False
        fields = {name: value for name, value in chosen.items() if name in agent.model_fields}
        if self.tools is not None:
            fields["tools"] = [tool for tool in self.tools if canonical_name(tool.name) not in _BY_DEFAULT]
        elif self.preset is not None:
            tools = preset_tools(preset_for(model) if self.preset == BY_MODEL else self.preset)
            has_browser = chosen.get("enable_browsing", True)
            fields["tools"] = [tool for tool in tools if has_browser or canonical_name(tool.name) != BROWSER_TOOLS]
        return fields
