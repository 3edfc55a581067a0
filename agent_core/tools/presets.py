"""Tools that belong together. Importing this module registers the built-in tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from agent_core.tools import browser_code, file_reader, llm_edit  # noqa: F401 - they register their tools
from agent_core.tools.apply_patch import ApplyPatchTool
from agent_core.tools.browser import BrowserToolSet
from agent_core.tools.builtin import FinishTool, ThinkTool
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.delegate import DelegateTool, TaskToolSet
from agent_core.tools.file_editor import FileEditorTool, PlanningFileEditorTool
from agent_core.tools.file_search import GlobTool, GrepTool
from agent_core.tools.gemini_files import GEMINI_FILE_TOOLS
from agent_core.tools.ipython import IPythonTool
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import Tool
from agent_core.tools.task_tracker import TaskTrackerTool
from agent_core.tools.terminal import TerminalTool

BROWSER_TOOLS = BrowserToolSet.name
_PLANNING_TOOLS: tuple[type[ToolDefinition], ...] = (GlobTool, GrepTool, PlanningFileEditorTool)


def get_default_tools(
    enable_browser: bool = True, enable_sub_agents: bool = False, enable_jupyter: bool = False
) -> list[Tool]:
    """What a coding agent works with; on request also the browser's tools, sub-agents (`task`), an IPython kernel."""
    names = [TerminalTool.tool_name, FileEditorTool.tool_name, TaskTrackerTool.tool_name]
    if enable_browser:
        names.append(BROWSER_TOOLS)
    if enable_jupyter:
        names.append(IPythonTool.tool_name)
    if enable_sub_agents:
        names.append(TaskToolSet.tool_name)
    return [Tool(name=name) for name in names]


def get_gpt5_tools() -> list[Tool]:
    """The default tools for models that were trained to write patches: `apply_patch` in place of the editor."""
    editor = FileEditorTool.tool_name
    tools = get_default_tools(enable_browser=False)
    return [Tool(name=ApplyPatchTool.tool_name) if tool.name == editor else tool for tool in tools]


def get_gemini_tools() -> list[Tool]:
    """The default tools for Gemini models, with the file tools that those know in place of the editor."""
    names = [TerminalTool.tool_name, *(tool.tool_name for tool in GEMINI_FILE_TOOLS), TaskTrackerTool.tool_name]
    return [Tool(name=name) for name in names]


def register_planning_tools() -> None:
    """Register what a planning agent works with; calling it again is fine."""
    for tool in _PLANNING_TOOLS:
        register_tool(tool.name, tool)


def get_planning_tools() -> list[Tool]:
    """What a planning agent works with: it finds and reads everything, and writes the plan."""
    register_planning_tools()
    return [Tool(name=tool.name) for tool in _PLANNING_TOOLS]


def get_delegating_tools() -> list[Tool]:
    """All with which an agent puts sub-agents to work: several at once (`delegate`), or one (`task`)."""
    return [Tool(name=DelegateTool.tool_name), Tool(name=TaskToolSet.tool_name)]


def get_builtin_tools() -> list[Tool]:
    """What every agent has besides: finish and think."""
    return [Tool(name=FinishTool.tool_name), Tool(name=ThinkTool.tool_name)]


TOOL_PRESETS: Final[Mapping[str, Callable[[], list[Tool]]]] = {
    "default": get_default_tools,
    "gpt5": get_gpt5_tools,
    "gemini": get_gemini_tools,
    "planning": get_planning_tools,
    "delegating": lambda: [*get_default_tools(), *get_delegating_tools()],
}
"""Sets of tools by the names that settings give them."""


def preset_tools(name: str) -> list[Tool]:
    """The tools of this preset; the ValueError lists those there are."""
    if name not in TOOL_PRESETS:
        raise ValueError(f"there is no preset {name!r}; give one of {', '.join(TOOL_PRESETS)}")
    return TOOL_PRESETS[name]()
