"""Tools that belong together (agent-core 3.6). Importing this module registers the built-in tools."""

from __future__ import annotations

from agent_core.tools.file_editor import FileEditorTool
from agent_core.tools.finish import FinishTool
from agent_core.tools.registry import is_tool_usable
from agent_core.tools.spec import Tool
from agent_core.tools.task_tracker import TaskTrackerTool
from agent_core.tools.terminal import TerminalTool
from agent_core.tools.think import ThinkTool

BROWSER_TOOLS = "browser_tool_set"


def get_default_tools(enable_browser: bool = True) -> list[Tool]:
    """What a coding agent works with; the browser's tools only where this process has them."""
    names = [TerminalTool.tool_name, FileEditorTool.tool_name, TaskTrackerTool.tool_name]
    if enable_browser and is_tool_usable(BROWSER_TOOLS):
        names.append(BROWSER_TOOLS)
    return [Tool(name=name) for name in names]


def get_builtin_tools() -> list[Tool]:
    """What every agent has besides: finish and think."""
    return [Tool(name=FinishTool.tool_name), Tool(name=ThinkTool.tool_name)]
