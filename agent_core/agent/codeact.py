"""CodeActAgent: the default agent, with a terminal and a file editor (agent-core 2.10)."""

from __future__ import annotations

from pydantic import Field

from agent_core.agent.agent import Agent
from agent_core.tools.presets import get_default_tools
from agent_core.tools.spec import Tool


class CodeActAgent(Agent):
    """An `Agent` whose tools are those of a coding agent unless others are given."""

    tools: list[Tool] = Field(default_factory=get_default_tools)
