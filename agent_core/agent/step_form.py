"""What goes into one step of an agent, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.llm import CallContext, LLMResponse, RetryNotice
from agent_core.memory.view import View
from agent_core.tools.definition import ToolDefinition


class SteppingConversation(Protocol):
    """A conversation that takes single steps, as `agent_core.Conversation` does."""

    @property
    def agent(self) -> Any:
        """Who works."""
        ...

    def step(self, on_event: Callable[[Any], object] | None, on_token: Callable[[Any], object] | None) -> None:
        """Let its agent take one step."""
        ...


@dataclass(frozen=True, slots=True)
class StepInput:
    """What one step works from: the prompt in wire form, the tools at hand, and whom to tell while it goes on.

    `predicts_risk` says whether what the model says of the risk of its calls counts for anything. `view` is what the
    prompt was made from; it is only to be read.
    """

    prompt: Sequence[dict[str, Any]]
    tools: Mapping[str, ToolDefinition]
    tool_schemas: Sequence[dict[str, Any]]
    predicts_risk: bool = True
    context: CallContext | None = None
    on_delta: Callable[[TextDelta | TextDiscarded], None] | None = None
    on_retry: Callable[[RetryNotice], None] | None = None
    view: View | None = None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step came to.

    Attributes:
        events: to be appended together, in this order. Calls and messages need no response id, and calls no form of the
            model's (`tool_call`): they are given some.
        errors: for events by their position in `events`, the error that answers each (calls that were no good).
        response: the model's answer, where a model was asked.
    """

    events: list[AnyEvent]
    response: LLMResponse | None = None
    errors: Mapping[int, str] = field(default_factory=dict)
