"""Agents ready for use."""

from __future__ import annotations

from typing import Final

from agent_core.agent.agent import Agent
from agent_core.agent.system_prompt import family_of
from agent_core.llm.llm import LLM
from agent_core.memory.condensers.presets import KEEP_FIRST, condenser_llm
from agent_core.memory.condensers.summarizing import LLMSummarizingCondenser
from agent_core.tools.presets import get_default_tools

MAX_SIZE: Final = 80
BY_MODEL: Final = "auto"
"""The preset that stands for the one which suits the model."""


def preset_for(model: str) -> str:
    """The name of the set of tools that a model of this name was trained for, as far as that is known."""
    family, variant = family_of(model)
    if family == "google_gemini":
        return "gemini"
    return "gpt5" if variant in ("gpt-5", "codex") else "default"


def get_default_agent(llm: LLM, cli_mode: bool = False, enable_sub_agents: bool = False) -> Agent:
    """An agent for work on code, which sums up what it did when its history becomes long.

    `cli_mode` is for an agent that works where its user does, not in a sandbox: it judges risks accordingly, and has no
    browser. With `enable_sub_agents` it can have sub-agents do tasks.
    """
    return Agent(
        llm=llm,
        tools=get_default_tools(enable_browser=not cli_mode, enable_sub_agents=enable_sub_agents),
        condenser=LLMSummarizingCondenser(llm=condenser_llm(llm), max_size=MAX_SIZE, keep_first=KEEP_FIRST),
        system_prompt_kwargs={"cli_mode": cli_mode},
    )
