"""CodeActAgent: the default agent, whose tools are chosen by flags."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from pydantic import Field, model_validator

from agent_core.agent.agent import Agent
from agent_core.agent.system_prompt import SYSTEM_PROMPT
from agent_core.agent.toolbox import ToolSpecs, shown_to_model
from agent_core.llm.llm import LLM, AnyLLM
from agent_core.skills.context import AgentContext
from agent_core.tools.builtin import FinishTool, ThinkTool
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.ipython import IPythonTool
from agent_core.tools.plugins import AgentSkillsRequirement, JupyterRequirement, PluginRequirement
from agent_core.tools.presets import get_default_tools, get_delegating_tools
from agent_core.tools.registry import canonical_name, list_registered_tools
from agent_core.tools.spec import Tool
from agent_core.tools.task_tracker import TaskTrackerTool

LONG_HORIZON_PROMPT: Final = "system_prompt_long_horizon.j2"

_TERMINAL: Final = "terminal"
_BROWSER: Final = "browser"
_LLM_EDITOR: Final = "edit_file"
_BY_FLAG: Final = {
    "enable_cmd": _TERMINAL,
    "enable_condensation_request": "request_condensation",
    "enable_browsing": _BROWSER,
    "enable_jupyter": IPythonTool.tool_name,
    "enable_plan_mode": TaskTrackerTool.tool_name,
    "enable_llm_editor": _LLM_EDITOR,
    "enable_editor": "file_editor",
}
_ALWAYS_BY_FLAG: Final = {"enable_think": ThinkTool.__name__, "enable_finish": FinishTool.__name__}
_STATING_RISK: Final = frozenset({_TERMINAL, "execute_ipython_cell", _BROWSER, _LLM_EDITOR, "file_editor"})
_TAKES_SHORT_DESCRIPTIONS: Final = re.compile(r"gpt-4|o1|o3|o4")


class CodeActAgent(Agent):
    """An `Agent` whose tools are those of a coding agent unless others are given.

    A flag for a tool that this process lacks is an error. `tools` and `include_default_tools`, when given, count
    instead of the flags.

    Attributes:
        enable_llm_editor: replaces the plain editor by one that asks a model (`draft_editor_llm`, its own if None).
        enable_som_visual_browsing: else the model is not shown pictures of pages.
        enable_prompt_extensions: else it is told nothing of the workspace and of skills.
        enable_history_truncation: else a history that is too long for the model is an error.
        cli_mode: it works where its user does.
    """

    VERSION: ClassVar[str] = "2.2"
    leaves_on_exit: ClassVar[bool] = True

    tools: ToolSpecs = Field(default_factory=get_default_tools)
    enable_cmd: bool = True
    enable_think: bool = True
    enable_finish: bool = True
    enable_condensation_request: bool = False
    enable_browsing: bool = True
    enable_som_visual_browsing: bool = True
    enable_jupyter: bool = True
    enable_plan_mode: bool = True
    enable_llm_editor: bool = False
    enable_editor: bool = True
    draft_editor_llm: AnyLLM | None = None
    enable_mcp: bool = True
    enable_sub_agents: bool = False
    enable_prompt_extensions: bool = True
    enable_history_truncation: bool = True
    cli_mode: bool = False
    disabled_microagents: list[str] = Field(default_factory=list)

    @property
    def supports_openhands_mcp(self) -> bool:
        return self.enable_mcp

    @property
    def llm_for_drafts(self) -> LLM:
        return self.draft_editor_llm or self.llm

    @property
    def is_told_of_workspace(self) -> bool:
        return self.enable_prompt_extensions

    @property
    def condenses_on_overflow(self) -> bool:
        return self.enable_history_truncation

    @property
    def skills_left_out(self) -> frozenset[str]:
        return frozenset(self.disabled_microagents)

    @property
    def resolved_system_prompt_filename(self) -> str:
        keeps_tasks = any(canonical_name(tool.name) == TaskTrackerTool.tool_name for tool in self.tools)
        if self.enable_plan_mode and keeps_tasks and self.system_prompt_filename == SYSTEM_PROMPT:
            return LONG_HORIZON_PROMPT if (self.prompt_dir / LONG_HORIZON_PROMPT).is_file() else SYSTEM_PROMPT
        return self.system_prompt_filename

    def resolve_tools(self, conv_state: Any = None) -> dict[str, ToolDefinition]:
        found = super().resolve_tools(conv_state)
        defaults = [tool.tool_name for tool in (ThinkTool, FinishTool) if tool.__name__ in self.include_default_tools]
        first = [name for name in (_TERMINAL, *defaults) if name in found]
        return {name: found[name] for name in dict.fromkeys((*first, *found))}

    def shown_tool(self, tool: ToolDefinition) -> dict[str, Any]:
        short = _TAKES_SHORT_DESCRIPTIONS.search(self.llm.model.lower()) is not None
        return shown_to_model(tool, short=short, states_risk=tool.name in _STATING_RISK)

    @model_validator(mode="before")
    @classmethod
    def _tools_by_flags(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        chosen = dict(data)
        if "tools" not in chosen:
            # A model that is to see pages is shown a picture of each.
            sees = _is_set(cls, data, "enable_som_visual_browsing")
            params: dict[str, dict[str, Any]] = {} if sees else {_BROWSER: {"set_of_marks": False}}
            if not _has_plugin(cls, AgentSkillsRequirement):
                params[IPythonTool.tool_name] = {"agent_skills": False}
            present = list_registered_tools()
            names: list[str] = []
            for flag, name in _BY_FLAG.items():
                if not _is_set(cls, data, flag) or (flag == "enable_editor" and _LLM_EDITOR in names):
                    continue
                if name == IPythonTool.tool_name and not _has_plugin(cls, JupyterRequirement):
                    if flag in data:
                        raise ValueError(
                            f"{flag} is set, but sandbox_plugins of {cls.__name__} have no kernel (jupyter)"
                        )
                    continue
                if name in present:
                    names.append(name)
                elif flag in data:
                    raise ValueError(f"{flag} is set, but there is no tool {name!r} here; there are {present}")
            if _is_set(cls, data, "enable_sub_agents"):
                names.extend(tool.name for tool in get_delegating_tools())
            chosen["tools"] = [Tool(name=name, params=params.get(name, {})) for name in names]
        if "include_default_tools" not in chosen:
            defaults = [name for flag, name in _ALWAYS_BY_FLAG.items() if _is_set(cls, data, flag)]
            chosen["include_default_tools"] = defaults
        if data.get("disabled_microagents") and data.get("agent_context") is not None:
            context = AgentContext.model_validate(data["agent_context"])
            disabled = sorted({*context.disabled_skills, *data["disabled_microagents"]})
            chosen["agent_context"] = context.model_copy(update={"disabled_skills": disabled})
        if data.get("cli_mode"):
            chosen["system_prompt_kwargs"] = {"cli_mode": True, **(data.get("system_prompt_kwargs") or {})}
        return chosen


def _is_set(agent: type[CodeActAgent], data: dict[str, Any], flag: str) -> bool:
    return bool(data.get(flag, agent.model_fields[flag].default))


def _has_plugin(agent: type[CodeActAgent], kind: type[PluginRequirement]) -> bool:
    return any(isinstance(one, kind) for one in agent.sandbox_plugins)
