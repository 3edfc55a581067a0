"""The planning agent: finds out what there is, and writes down what others are to do."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, model_validator

from agent_core.agent.agent import Agent
from agent_core.agent.tool_specs import ToolSpecs
from agent_core.llm.llm import LLM
from agent_core.memory.condensers.presets import condenser_llm
from agent_core.memory.condensers.summarizing import LLMSummarizingCondenser
from agent_core.tools.plan_editor import PLAN_PARTS
from agent_core.tools.presets import get_planning_tools

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
