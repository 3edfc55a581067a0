"""Agents with few tools: two that only read, and two that use nothing but a browser."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from agent_core.agent.agent import Agent
from agent_core.agent.tool_specs import ToolSpecs
from agent_core.tools.browser import BrowserTool
from agent_core.tools.gemini_files import ListDirectoryTool, ReadFileTool
from agent_core.tools.glob import GlobTool
from agent_core.tools.grep import GrepTool
from agent_core.tools.locating import LOCATING_TOOLS
from agent_core.tools.spec import Tool

READ_ONLY_PROMPT: Final = "system_prompt_read_only.j2"
LOCATING_PROMPT: Final = "system_prompt_locating.j2"
BROWSING_PROMPT: Final = "system_prompt_browsing.j2"


def _reading_tools() -> list[Tool]:
    return [Tool(name=tool.tool_name) for tool in (GrepTool, GlobTool, ReadFileTool, ListDirectoryTool)]


class ReadOnlyAgent(Agent):
    """Answers questions about what is there, and can change nothing: it has no shell, no editor and no MCP tools."""

    tools: ToolSpecs = Field(default_factory=_reading_tools)
    system_prompt_filename: str = READ_ONLY_PROMPT

    @property
    def supports_openhands_mcp(self) -> bool:
        """No: what the tools of others change cannot be known."""
        return False


class LocAgent(Agent):
    """Finds the places in a project's code that a task is about, and can change nothing; it needs an IPython kernel."""

    tools: ToolSpecs = Field(default_factory=lambda: [Tool(name=tool.tool_name) for tool in LOCATING_TOOLS])
    system_prompt_filename: str = LOCATING_PROMPT

    @property
    def supports_openhands_mcp(self) -> bool:
        """No: what the tools of others change cannot be known."""
        return False


class BrowsingAgent(Agent):
    """Does its task in a browser, by what a page says."""

    tools: ToolSpecs = Field(
        default_factory=lambda: [Tool(name=BrowserTool.tool_name, params={"set_of_marks": False, "visible_only": True})]
    )
    system_prompt_filename: str = BROWSING_PROMPT


class VisualBrowsingAgent(Agent):
    """Does its task in a browser, by what a page says and by how it looks; for models that see."""

    tools: ToolSpecs = Field(default_factory=lambda: [Tool(name=BrowserTool.tool_name)])
    system_prompt_filename: str = BROWSING_PROMPT
