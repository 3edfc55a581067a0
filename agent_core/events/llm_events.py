"""The events that a model sees: prompts, messages, tool calls and their results."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field

from agent_core.events.classification import ErrorClassification, classification_of
from agent_core.events.event import Event, LLMConvertibleEvent, Source
from agent_core.events.messages import Frozen, Lean, Message, MessageToolCall, TextContent
from agent_core.events.risk import SecurityRisk
from agent_core.events.schema import AnyAction, AnyObservation

_CAUSE = AliasChoices("cause", "action_id")
"""What an answer answers, also by the name that other programs know."""


class TokenUsage(Lean):
    """Tokens of one call, or of many added up."""

    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    context_window: int = 0
    per_turn_token: int = 0
    response_id: str = ""

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Counts are summed, the larger window and the newer per-turn value are kept."""
        return TokenUsage(
            model=self.model or other.model,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            context_window=max(self.context_window, other.context_window),
            per_turn_token=other.per_turn_token or self.per_turn_token,
            response_id=other.response_id or self.response_id,
        )


class CriticResult(Frozen):
    """How good a critic finds what the agent did: a score from 0 to 1, and why."""

    score: float = Field(ge=0, le=1)
    message: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def success(self) -> bool:
        """Whether it is good on the whole."""
        return self.score >= 0.5


class UsageFigures(Lean):
    """What calls have cost: US dollars (0 where no price is known), and tokens."""

    accumulated_cost: float = 0.0
    usage: TokenUsage = Field(default_factory=TokenUsage)


class MetricsSnapshot(UsageFigures):
    """What the conversation has cost up to and including the call that produced the event.

    The figures are those of all its models together, and in `by_usage_id` of each.
    """

    max_budget: float | None = None
    by_usage_id: dict[str, UsageFigures] = Field(default_factory=dict)


class SystemPromptEvent(LLMConvertibleEvent):
    """The first event of an agent's conversation: what it is told and which tools it has.

    `system_prompt` is the same for every conversation with the same agent configuration (cacheable);
    `dynamic_context` is this conversation's own. `tools` are the function-tool schemas as given to the model.
    """

    kind: Literal["SystemPromptEvent"] = "SystemPromptEvent"
    source: Source = "agent"
    system_prompt: TextContent
    dynamic_context: TextContent | None = None
    tools: list[dict[str, Any]] = Field(default_factory=list)
    agent_class: str = "Agent"
    version: str | None = None

    def to_llm_message(self) -> Message:
        """The system message: the prompt, marked as worth caching, and this conversation's own part."""
        static = self.system_prompt.model_copy(update={"cache_prompt": True})
        return Message(role="system", content=[static, self.dynamic_context] if self.dynamic_context else [static])


class MessageEvent(LLMConvertibleEvent):
    """A message of the user, of the agent, or (source environment, role user) a nudge to the agent.

    `wait_for_response` on an agent's message means that the agent is done until the user answers. `file_urls` are
    paths of uploaded files that the message mentions. `seen`, on what came from the model, is the id of the newest
    event that the model had been shown.
    """

    kind: Literal["MessageEvent"] = "MessageEvent"
    llm_message: Message
    llm_response_id: str | None = None
    sender: str | None = None
    activated_skills: list[str] = Field(default_factory=list)
    extended_content: list[TextContent] = Field(default_factory=list)
    file_urls: list[str] | None = None
    wait_for_response: bool = False
    critic_result: CriticResult | None = None
    seen: int | None = None
    metrics: MetricsSnapshot | None = None

    @property
    def is_blank(self) -> bool:
        """Whether it says nothing: a model that only thought, or did not even that."""
        only_text = all(isinstance(part, TextContent) for part in self.llm_message.content)
        return only_text and not self.llm_message.text.strip()

    def to_llm_message(self) -> Message:
        """The message as the model sees it: with the extended content at its end."""
        if not self.extended_content:
            return self.llm_message
        content = [*self.llm_message.content, *self.extended_content]
        return self.llm_message.model_copy(update={"content": content})


class ActionEvent(LLMConvertibleEvent):
    """One tool call: proposed by the model (`tool_call` set), or given by the user directly (`tool_call` None).

    `action` is None when the model's call could not be validated; such an event is answered by an `AgentErrorEvent`
    and never executed. With `awaits_confirmation` it is executed only after an `ActionDecision`. Within one
    `llm_response_id` only the first event carries thought, reasoning and thinking blocks.
    `calls_in_response` says of how many calls it is one, so that a batch is known to be whole; 0: nobody has counted.
    `hard_timeout` (seconds) limits the execution and makes it blocking. `seen` is the id of the newest event that the
    model had been shown.
    """

    kind: Literal["ActionEvent"] = "ActionEvent"
    source: Source = "agent"
    thought: list[TextContent] = Field(default_factory=list)
    reasoning_content: str | None = None
    thinking_blocks: list[dict[str, Any]] = Field(default_factory=list)
    action: AnyAction | None = None
    tool_name: str
    tool_call_id: str = ""
    tool_call: MessageToolCall | None = None
    llm_response_id: str = ""
    calls_in_response: int = 0
    security_risk: SecurityRisk = SecurityRisk.UNKNOWN
    summary: str = ""
    hidden: bool = False
    hard_timeout: float | None = None
    awaits_confirmation: bool = False
    critic_result: CriticResult | None = None
    seen: int | None = None
    metrics: MetricsSnapshot | None = None

    @property
    def thought_text(self) -> str:
        """The thought as one text."""
        return "\n".join(part.text for part in self.thought)

    def to_llm_message(self) -> Message:
        """The assistant's message with this one call (a view joins the calls of one answer)."""
        return Message(
            role="assistant",
            content=list(self.thought) if self.thought_text.strip() else [],
            tool_calls=None if self.tool_call is None else [self.tool_call],
            reasoning_content=self.reasoning_content,
            thinking_blocks=self.thinking_blocks,
        )


class ObservationEvent(LLMConvertibleEvent):
    """The result of the action whose id is `cause`.

    `extended_content` is what the model is told with it: the rules for the file that was touched, whose names are
    `activated_skills`.
    """

    kind: Literal["ObservationEvent"] = "ObservationEvent"
    cause: int = Field(validation_alias=_CAUSE)
    observation: AnyObservation
    activated_skills: list[str] = Field(default_factory=list)
    extended_content: list[TextContent] = Field(default_factory=list)
    tool_name: str
    tool_call_id: str = ""
    hidden: bool = False
    reissued_as: int | None = None

    @property
    def action_id(self) -> int:
        """The same as `cause`, by the name that other programs know."""
        return self.cause

    def to_llm_message(self) -> Message:
        """The tool result as the model sees it."""
        return Message(
            role="tool",
            content=[*self.observation.to_llm_content, *self.extended_content],
            tool_call_id=self.tool_call_id,
            name=self.tool_name,
        )


class UserRejectObservation(LLMConvertibleEvent):
    """The answer to an action that the user (or a hook) refused; it was not executed."""

    kind: Literal["UserRejectObservation"] = "UserRejectObservation"
    cause: int = Field(validation_alias=_CAUSE)
    tool_name: str
    tool_call_id: str = ""
    rejection_reason: str = "User rejected the action"
    rejection_source: Literal["user", "hook"] = "user"
    reissued_as: int | None = None

    @property
    def action_id(self) -> int:
        """The same as `cause`, by the name that other programs know."""
        return self.cause

    def to_llm_message(self) -> Message:
        """The refusal as the model sees it."""
        text = f"Action rejected: {self.rejection_reason}"
        return Message(
            role="tool",
            content=[TextContent(text=text)],
            tool_call_id=self.tool_call_id,
            name=self.tool_name,
        )


class AgentErrorEvent(LLMConvertibleEvent):
    """The answer to an action that could not be executed: bad call, lost sandbox, interruption, internal error.

    Attributes:
        error: what happened and what to do about it, for model and user alike.
        classification: what kind of failure; ``agent_action`` when the model can mend its call. None means unknown.
        error_id: public id, empty when there is none.
    """

    kind: Literal["AgentErrorEvent"] = "AgentErrorEvent"
    source: Source = "agent"
    error: str
    tool_name: str = ""
    tool_call_id: str = ""
    classification: Annotated[ErrorClassification, BeforeValidator(classification_of)] = ErrorClassification.UNKNOWN
    error_id: str = ""
    reissued_as: int | None = None

    def to_llm_message(self) -> Message:
        """The error as the model sees it."""
        return Message(
            role="tool",
            content=[TextContent(text=self.error)],
            tool_call_id=self.tool_call_id,
            name=self.tool_name,
        )


class CondensationSummaryEvent(LLMConvertibleEvent):
    """What stands in a view for the events that were condensed; made from a `Condensation`, whose id it has.

    It is never stored: the log has the `Condensation`.
    """

    kind: Literal["CondensationSummaryEvent"] = "CondensationSummaryEvent"
    summary: str

    def to_llm_message(self) -> Message:
        """The summary as the model sees it."""
        return Message.user(f"[What came before, in short]\n{self.summary}")


AnswerEvent = ObservationEvent | UserRejectObservation | AgentErrorEvent
"""The events that answer an action: every action gets exactly one, found by its `cause`.

`reissued_as` is the id of the `ActionDecision` that let the action run (or refused it), where there was one.
"""


class ActionDecision(Event):
    """The user's answer to an action that awaited confirmation; `cause` is the action, `action` a copy of it.

    `reason` is what the user said instead of agreeing.
    """

    kind: Literal["ActionDecision"] = "ActionDecision"
    source: Source = "user"
    cause: int
    decision: Literal["confirmed", "rejected"]
    action: ActionEvent
    reason: str = ""
