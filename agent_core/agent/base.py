"""What every agent is: frozen configuration that can be stored, sent and made again (agent-core 2.1)."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from agent_core.events.llm_events import SystemPromptEvent
from agent_core.events.messages import TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.llm import LLM, CallContext, LLMResponse, RetryNotice
from agent_core.memory.condenser import AnyCondenser
from agent_core.templates import rendered
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.presets import get_builtin_tools
from agent_core.tools.registry import resolve_tools
from agent_core.tools.spec import Tool

PROMPT_DIR = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True)
class StepInput:
    """What one step works from: the prompt in wire form, the tools at hand, and whom to tell while it goes on.

    `predicts_risk` says whether the model was asked to give the risk of its calls.
    """

    prompt: Sequence[dict[str, Any]]
    tools: Mapping[str, ToolDefinition]
    tool_schemas: Sequence[dict[str, Any]]
    predicts_risk: bool = True
    context: CallContext | None = None
    on_delta: Callable[[TextDelta | TextDiscarded], None] | None = None
    on_retry: Callable[[RetryNotice], None] | None = None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step came to.

    Attributes:
        events: to be appended together, in this order.
        errors: for events by their position in `events`, the error that answers each (calls that were no good).
        response: the model's answer, for the statistics.
    """

    events: list[AnyEvent]
    response: LLMResponse
    errors: Mapping[int, str] = field(default_factory=dict)


class AgentBase(BaseModel):
    """Configuration of an agent; all state is in the conversation's log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    llm: LLM
    tools: list[Tool] = Field(default_factory=list)
    include_default_tools: list[Tool] = Field(default_factory=get_builtin_tools)
    filter_tools_regex: str | None = None
    system_prompt: str | None = None
    system_prompt_filename: str = "system_prompt.j2"
    security_policy_filename: str = "security_policy.j2"
    system_prompt_kwargs: dict[str, Any] = Field(default_factory=dict)
    condenser: AnyCondenser | None = None

    classes: ClassVar[dict[str, type[AgentBase]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        AgentBase.classes[cls.__name__] = cls

    @property
    def name(self) -> str:
        """The class name."""
        return type(self).__name__

    def resolve_tools(self) -> dict[str, ToolDefinition]:
        """The tools of this agent by name: its own, filtered by `filter_tools_regex`, then the default ones.

        Raises:
            ToolNotFoundError: a spec names no registered tool.
            ValueError: two tools have the same name.
        """
        own = resolve_tools(self.tools)
        if self.filter_tools_regex is not None:
            own = {name: tool for name, tool in own.items() if re.match(self.filter_tools_regex, name)}
        defaults = resolve_tools(self.include_default_tools)
        if doubled := own.keys() & defaults.keys():
            raise ValueError(f"tools {sorted(doubled)} are given twice: they are among the default tools already")
        return {**own, **defaults}

    @property
    def static_system_message(self) -> str:
        """The system prompt: the same text for every conversation with the same configuration."""
        if self.system_prompt is not None:
            return self.system_prompt
        policy = rendered(PROMPT_DIR, self.security_policy_filename) if self.security_policy_filename else ""
        variables = {"agent_name": "Drydock", "llm_security_analyzer": True, **self.system_prompt_kwargs}
        variables["security_policy"] = policy
        return rendered(PROMPT_DIR, self.system_prompt_filename, variables)

    def system_prompt_event(self, tool_schemas: Sequence[dict[str, Any]], *, version: str) -> SystemPromptEvent:
        """The first event of a conversation with this agent."""
        return SystemPromptEvent(
            system_prompt=TextContent(text=self.static_system_message),
            tools=list(tool_schemas),
            agent_class=self.name,
            version=version,
        )

    @abstractmethod
    async def astep(self, step: StepInput) -> StepOutcome:
        """Ask the model once and turn its answer into events.

        Raises:
            LLMError: the call failed for good.
        """


def agent_class(name: str) -> type[AgentBase]:
    """The agent class of this name.

    Raises:
        KeyError: there is none; the message lists those there are.
    """
    if name not in AgentBase.classes:
        raise KeyError(f"agent {name!r} is not known; known are {sorted(AgentBase.classes)}")
    return AgentBase.classes[name]
