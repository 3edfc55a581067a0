"""Agents with few tools: two that only read, two that use nothing but a browser, and one that plans."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, model_validator

from agent_core.agent.agent import Agent
from agent_core.agent.toolbox import ToolSpecs
from agent_core.llm.llm import LLM
from agent_core.memory.condensers.presets import condenser_llm
from agent_core.memory.condensers.summarizing import LLMSummarizingCondenser
from agent_core.tools.browser import BrowserTool
from agent_core.tools.gemini_files import ListDirectoryTool, ReadFileTool
from agent_core.tools.glob import GlobTool
from agent_core.tools.grep import GrepTool
from agent_core.tools.locating import LOCATING_TOOLS
from agent_core.tools.plan_editor import PLAN_PARTS
from agent_core.tools.presets import get_planning_tools
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


PLANNING_PROMPT: Final = "system_prompt_planning.j2"
MAX_SIZE: Final = 100
KEEP_FIRST: Final = 6


def plan_structure() -> str:
    """The parts of a plan with what belongs into each, for the prompt."""
    return "\n".join(f"{number}. **{title}**: {content}" for number, (title, content) in enumerate(PLAN_PARTS, 1))


class PlanningAgent(Agent):
    """Looks at everything and changes nothing but the plan, ``PLAN.md`` in the workspace.

    Its prompt tells it the parts of a plan (`system_prompt_kwargs`, ``plan_structure``).
    """

    tools: ToolSpecs = Field(default_factory=get_planning_tools)
    system_prompt_filename: str = PLANNING_PROMPT

    @model_validator(mode="before")
    @classmethod
    def _knows_the_parts(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("system_prompt") is not None:
            return data
        return {**data, "system_prompt_kwargs": {"plan_structure": plan_structure(), **_given(data)}}


def get_planning_agent(llm: LLM) -> PlanningAgent:
    """A planning agent, which sums up what it did when its history becomes long."""
    return PlanningAgent(
        llm=llm,
        condenser=LLMSummarizingCondenser(llm=condenser_llm(llm), max_size=MAX_SIZE, keep_first=KEEP_FIRST),
    )


def _given(data: dict[str, Any]) -> dict[str, Any]:
    return data.get("system_prompt_kwargs") or {}
