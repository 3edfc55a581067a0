"""Tools that belong together (agent-core 3.6). Importing this module registers the built-in tools."""

from __future__ import annotations

from agent_core.tools.file_editor import FileEditorTool
from agent_core.tools.finish import FinishTool
from agent_core.tools.spec import Tool
from agent_core.tools.terminal import TerminalTool
from agent_core.tools.think import ThinkTool


def get_default_tools() -> list[Tool]:
    """What a coding agent works with."""
    return [Tool(name=TerminalTool.tool_name), Tool(name=FileEditorTool.tool_name)]


def get_builtin_tools() -> list[Tool]:
    """What every agent has besides: finish and think."""
    return [Tool(name=FinishTool.tool_name), Tool(name=ThinkTool.tool_name)]
