"""Events that a model sees: prompts, messages, tool calls and their results."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BeforeValidator, Field

from agent_core.events.classification import ErrorClassification
from agent_core.events.event import Event, LLMConvertibleEvent, Source
from agent_core.events.messages import Content, Frozen, ImageContent, Lean, Message, MessageToolCall, TextContent
from agent_core.events.plain_text import MAX_LINE_CHARS, one_line
from agent_core.events.risk import SecurityRisk
from agent_core.events.schema import AnyAction, AnyObservation

_CAUSE = AliasChoices("cause", "action_id")


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
        return self.score >= 0.5


class UsageTotals(Lean):
    """Accumulated cost in US dollars (0 where no price is known), and tokens."""

    accumulated_cost: float = 0.0
    usage: TokenUsage = Field(default_factory=TokenUsage)


class MetricsSnapshot(UsageTotals):
    """What the conversation has cost with the call that produced the event: in all, and by model (`by_usage_id`)."""

    max_budget: float | None = None
    by_usage_id: dict[str, UsageTotals] = Field(default_factory=dict)


class SystemPromptEvent(LLMConvertibleEvent):
    """The first event of an agent's conversation: what it is told and which tools it has.

    `system_prompt` is the same for all conversations with the same configuration (cacheable), `dynamic_context` this
    one's own. `tools` are the schemas as given to the model.
    """

    kind: Literal["SystemPromptEvent"] = "SystemPromptEvent"
    source: Source = "agent"
    system_prompt: TextContent
    dynamic_context: TextContent | None = None
    tools: list[dict[str, Any]] = Field(default_factory=list)
    agent_class: str = "Agent"
    version: str | None = None

    @property
    def headline(self) -> str:
        names = [str(schema.get("function", schema).get("name", "?")) for schema in self.tools]
        return f"system prompt of {self.agent_class}; {len(names)} tools: {', '.join(names)}"

    def to_llm_message(self) -> Message:
        static = self.system_prompt.model_copy(update={"cache_prompt": True})
        return Message(role="system", content=[static, self.dynamic_context] if self.dynamic_context else [static])


class MessageEvent(LLMConvertibleEvent):
    """A message of the user, of the agent, or (source environment, role user) a nudge to the agent.

    `wait_for_response`: the agent is done until the user answers. `file_urls` are paths of uploaded files, of which
    the model is told those that the text does not name. `seen` is, of what came from the model, the id of the newest
    event that it had been shown. With `waits_for_run` it lets an agent at rest be, until a `ChangeAgentState` asks for
    a run.
    """

    kind: Literal["MessageEvent"] = "MessageEvent"
    llm_message: Message
    llm_response_id: str | None = None
    sender: str | None = None
    activated_skills: list[str] = Field(default_factory=list)
    extended_content: list[TextContent] = Field(default_factory=list)
    file_urls: list[str] | None = None
    waits_for_run: bool = Field(default=False, exclude_if=lambda value: not value)
    wait_for_response: bool = False
    critic_result: CriticResult | None = None
    seen: int | None = None
    metrics: MetricsSnapshot | None = None

    @property
    def headline(self) -> str:
        pictures = sum(len(part.image_urls) for part in self.llm_message.content if isinstance(part, ImageContent))
        shown = f" [{pictures} image{'s' if pictures > 1 else ''}]" if pictures else ""
        from_whom = f"({self.sender}) " if self.sender else ""
        return f"{from_whom}{self.llm_message.text or '(no text)'}{shown}"

    @property
    def is_blank(self) -> bool:
        """Whether it says nothing; the model may have thought."""
        only_text = all(isinstance(part, TextContent) for part in self.llm_message.content)
        return only_text and not self.llm_message.text.strip()

    def to_llm_message(self) -> Message:
        named = self.llm_message.text
        files = [path for path in self.file_urls or () if path.strip() and path not in named]
        told = [TextContent(text="\n".join(["Uploaded files:", *files]))] if files else []
        if not (told or self.extended_content):
            return self.llm_message
        content = [*self.llm_message.content, *told, *self.extended_content]
        return self.llm_message.model_copy(update={"content": content})


class ActionEvent(LLMConvertibleEvent):
    """One tool call, of the model (`tool_call` set) or of the user directly (`tool_call` None).

    Of the calls of one `llm_response_id` only the first carries thought, reasoning and thinking blocks.

    Attributes:
        action: None when the call could not be validated: it is answered by an `AgentErrorEvent` and never executed.
        awaits_confirmation: it is executed only after an `ActionDecision`.
        calls_in_response: of how many calls it is one, so that a batch is known to be whole; 0: nobody has counted.
        hard_timeout: limits the execution, in seconds, and makes it blocking.
        seen: id of the newest event that the model had been shown.
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
    def headline(self) -> str:
        asked = str(self.action) if self.action is not None else "(its arguments could not be read)"
        risk = f" [risk {self.security_risk}]" if self.security_risk in (SecurityRisk.MEDIUM, SecurityRisk.HIGH) else ""
        waits = " [waits for the user]" if self.awaits_confirmation else ""
        return f"{self.tool_name}: {one_line(asked, MAX_LINE_CHARS - 50)}{risk}{waits}"

    @property
    def thought_text(self) -> str:
        return "\n".join(part.text for part in self.thought)

    def to_llm_message(self) -> Message:
        return Message(
            role="assistant",
            content=list(self.thought) if self.thought_text.strip() else [],
            tool_calls=None if self.tool_call is None else [self.tool_call],
            reasoning_content=self.reasoning_content,
            thinking_blocks=self.thinking_blocks,
        )


class ObservationEvent(LLMConvertibleEvent):
    """The result of the action `cause`.

    `extended_content` is told the model with it: the rules for a touched file, whose names are `activated_skills`.
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
    def headline(self) -> str:
        return f"{self.tool_name} -> {self.observation}"

    @property
    def action_id(self) -> int:
        return self.cause

    def to_llm_message(self) -> Message:
        return _result_of(self, [*self.observation.to_llm_content, *self.extended_content])


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
    def headline(self) -> str:
        return f"{self.tool_name} refused: {self.rejection_reason}"

    @property
    def action_id(self) -> int:
        return self.cause

    def to_llm_message(self) -> Message:
        return _result_of(self, [TextContent(text=f"Action rejected: {self.rejection_reason}")])


class AgentErrorEvent(LLMConvertibleEvent):
    """The answer to an action that could not be executed: bad call, lost sandbox, interruption, internal error.

    `error` tells model and user what happened and what to do; `error_id` is a public id or empty. `classification` is
    ``agent_action`` when the model can mend its call; None means unknown.
    """

    kind: Literal["AgentErrorEvent"] = "AgentErrorEvent"
    source: Source = "agent"
    error: str
    tool_name: str = ""
    tool_call_id: str = ""
    classification: Annotated[
        ErrorClassification, BeforeValidator(lambda value: ErrorClassification.UNKNOWN if value is None else value)
    ] = ErrorClassification.UNKNOWN
    error_id: str = ""
    reissued_as: int | None = None

    @property
    def headline(self) -> str:
        return f"{self.tool_name or 'error'} failed: {self.error}"

    @classmethod
    def answering(cls, call: ActionEvent, error: str, classification: ErrorClassification) -> Self:
        return cls(
            cause=call.id,
            error=error,
            tool_name=call.tool_name,
            tool_call_id=call.tool_call_id,
            classification=classification,
        )

    def to_llm_message(self) -> Message:
        return _result_of(self, [TextContent(text=self.error)])


class CondensationSummaryEvent(LLMConvertibleEvent):
    """What stands in a view for condensed events; never stored: it is made from a `Condensation`, whose id it has."""

    kind: Literal["CondensationSummaryEvent"] = "CondensationSummaryEvent"
    summary: str

    @property
    def headline(self) -> str:
        return f"summary of what came before: {self.summary}"

    def to_llm_message(self) -> Message:
        return Message.user(f"[What came before, in short]\n{self.summary}")


AnswerEvent = ObservationEvent | UserRejectObservation | AgentErrorEvent
"""The events that answer an action: every action gets exactly one, found by its `cause`.

`reissued_as` is the id of the `ActionDecision` that let it run (or refused it), where there was one.
"""


def _result_of(event: AnswerEvent, content: list[Content]) -> Message:
    return Message(role="tool", content=content, tool_call_id=event.tool_call_id, name=event.tool_name)


class ActionDecision(Event):
    """The user's answer to the action `cause`, of which `action` is a copy; `reason` is said instead of agreeing."""

    kind: Literal["ActionDecision"] = "ActionDecision"
    source: Source = "user"
    cause: int
    decision: Literal["confirmed", "rejected"]
    action: ActionEvent
    reason: str = ""

    @property
    def headline(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        return f"{self.action.tool_name} {self.decision}{because}"
