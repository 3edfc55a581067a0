"""Control events: they steer a conversation and are never sent to a model as they are."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from agent_core.events.classification import ErrorClassification, classified
from agent_core.events.event import Event, Source
from agent_core.events.llm_events import ActionEvent, MessageEvent, MetricsSnapshot, ObservationEvent, UsageTotals
from agent_core.events.messages import Frozen, ImageContent, Message, TextContent, content_to_str
from agent_core.events.plain_text import first_line
from agent_core.events.schema import Observation


class AgentState(StrEnum):
    """What a conversation's agent is doing."""

    LOADING = "loading"
    RUNNING = "running"
    AWAITING_USER_INPUT = "awaiting_user_input"
    PAUSED = "paused"
    STOPPED = "stopped"
    FINISHED = "finished"
    REJECTED = "rejected"
    ERROR = "error"
    AWAITING_USER_CONFIRMATION = "awaiting_user_confirmation"
    USER_CONFIRMED = "user_confirmed"
    USER_REJECTED = "user_rejected"
    RATE_LIMITED = "rate_limited"

    @property
    def in_words(self) -> str:
        return self.value.replace("_", " ")


class AgentStateChanged(Event):
    """The agent is in this state now; `reason` is a public id or a short text, `detail` tells people what to do."""

    kind: Literal["AgentStateChanged"] = "AgentStateChanged"
    agent_state: AgentState
    reason: str = ""
    detail: str = ""

    @property
    def headline(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        return f"the agent is {self.agent_state.in_words}{because}"


class ChangeAgentState(Event):
    """A request for this state; `remember`, with ``user_confirmed``, approves of all that comes later, too.

    With ``running`` or ``user_confirmed``, `max_steps` is after how many the agent is paused (None: never). With
    ``user_rejected`` the agent is told the `reason`, and where there are `action_ids` only these are refused: the
    others go on waiting.
    """

    kind: Literal["ChangeAgentState"] = "ChangeAgentState"
    agent_state: AgentState
    remember: bool = False
    max_steps: int | None = Field(default=None, ge=1, exclude_if=lambda value: value is None)
    reason: str = Field(default="", exclude_if=lambda value: not value)
    action_ids: list[int] | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def headline(self) -> str:
        return f"the agent shall be {self.agent_state.in_words}"


class PauseEvent(ChangeAgentState):
    """A program's request to pause, and the marker of it in the log."""

    kind: Literal["PauseEvent"] = "PauseEvent"  # type: ignore[assignment] # another event of the same meaning
    source: Source = "user"
    agent_state: AgentState = AgentState.PAUSED


class InterruptEvent(ChangeAgentState):
    """A program's request to end what is going on at once; the agent is paused then."""

    kind: Literal["InterruptEvent"] = "InterruptEvent"  # type: ignore[assignment] # as above
    source: Source = "user"
    agent_state: AgentState = AgentState.PAUSED


class ConfirmationPolicyChanged(Event):
    """From here on this policy (its data, with its `kind`) decides which actions wait for the user."""

    kind: Literal["ConfirmationPolicyChanged"] = "ConfirmationPolicyChanged"
    source: Source = "user"
    policy: dict[str, Any]

    @property
    def headline(self) -> str:
        return f"actions are confirmed by the policy {self.policy.get('kind', '?')}"


class RecallAction(Event):
    """A question to the memory; answered by exactly one `RecallObservation` with this id as its `cause`."""

    kind: Literal["RecallAction"] = "RecallAction"
    source: Source = "user"
    recall_type: Literal["workspace_context", "knowledge"]
    query: str = ""

    @property
    def headline(self) -> str:
        return f"recalls what is known for: {self.query}" if self.query else "recalls what is known"


class RecalledKnowledge(Frozen):
    """A skill that is told with a message, in which the `trigger` stands; it is empty for one that always counts."""

    name: str
    trigger: str
    content: str


class RecallObservation(Event):
    """What the memory knows: facts of the workspace, or knowledge triggered by the message.

    Also an empty answer is stored: it lets the agent go on. With the workspace all secrets are named, later new ones.
    """

    kind: Literal["RecallObservation"] = "RecallObservation"
    cause: int
    recall_type: Literal["workspace_context", "knowledge"]
    repo_name: str = ""
    repo_directory: str = ""
    repo_branch: str = ""
    repo_instructions: str = ""
    runtime_hosts: dict[str, int] = Field(default_factory=dict)
    additional_agent_instructions: str = ""
    date: str = ""
    custom_secrets_descriptions: dict[str, str] = Field(default_factory=dict)
    conversation_instructions: str = ""
    working_dir: str = ""
    microagent_knowledge: list[RecalledKnowledge] = Field(default_factory=list)

    @property
    def headline(self) -> str:
        if names := [one.name for one in self.microagent_knowledge]:
            return f"recalled: {', '.join(names)}"
        place = self.repo_name or self.working_dir or "the workspace"
        return "recalled nothing" if self.is_empty else f"recalled what is known of {place}"

    @property
    def is_empty(self) -> bool:
        is_knowledge = self.recall_type == "knowledge"
        return is_knowledge and not self.microagent_knowledge and not self.custom_secrets_descriptions


class Condensation(Event):
    """These events are forgotten by the view; `summary` stands at `summary_offset` in their place.

    `metrics` is the conversation's cost including the summary; `metadata` says which condenser made it, and how.
    """

    kind: Literal["Condensation"] = "Condensation"
    source: Source = "agent"
    forgotten_event_ids: list[int]
    summary: str | None = None
    summary_offset: int | None = Field(default=None, ge=0)
    llm_response_id: str | None = None
    metrics: MetricsSnapshot | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def headline(self) -> str:
        told = f", summed up as: {self.summary}" if self.summary else ""
        return f"{len(self.forgotten_event_ids)} events are no longer shown to the model{told}"


class CondensationRequest(Event):
    """The view shall be condensed before the next step: by the user, the action `cause`, or because it is too long."""

    kind: Literal["CondensationRequest"] = "CondensationRequest"
    source: Source = "agent"

    @property
    def headline(self) -> str:
        return "the history is to be shortened"

    @property
    def is_of_overflow(self) -> bool:
        """Whether the agent cannot go on without it."""
        return self.source == "agent" and self.cause is None


class SubAgentSpending(Frozen):
    """What a sub-agent has cost so far, with all its tasks and models.

    `name` is that of its conversation (`agent_core.events.store.child_id`); `iterations` are the answers of its model
    since the last such event that count as the asking conversation's own.
    """

    name: str
    spent: UsageTotals
    iterations: int = 0


class MetricsUpdated(Event):
    """The conversation's cost by now, where no other event tells of the calls (a title, say).

    `sub_agent` is whose calls they were, if one's; `cause` is then the action that it works for.
    """

    kind: Literal["MetricsUpdated"] = "MetricsUpdated"
    metrics: MetricsSnapshot
    sub_agent: SubAgentSpending | None = None

    @property
    def headline(self) -> str:
        usage = self.metrics.usage
        tokens = f"{usage.prompt_tokens} tokens read, {usage.completion_tokens} written"
        return f"{tokens}, {self.metrics.accumulated_cost:.4f} US dollars so far"


class HookExecutionEvent(Event):
    """A hook of the type `hook_event_type` (``PreToolUse`` …) was run; `hook_command` may be a question to a model.

    `success`: the hook itself did not fail. `blocked`: it stopped the action `action_id`, the message `message_id`, or
    the agent's coming to rest. `hook_input` is what it was told, as JSON text.
    """

    kind: Literal["HookExecutionEvent"] = "HookExecutionEvent"
    source: Source = "hook"
    hook_event_type: str
    hook_command: str
    tool_name: str | None = None
    success: bool
    blocked: bool = False
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    reason: str = ""
    additional_context: str = ""
    error: str = ""
    action_id: int | None = None
    message_id: int | None = None
    hook_input: str = ""

    @property
    def headline(self) -> str:
        ended = "blocked" if self.blocked else "passed" if self.success else "failed"
        because = self.reason or self.error or self.stderr
        return f"hook {self.hook_event_type} {ended}: {self.hook_command}{f' ({because})' if because else ''}"


class LoopDetected(Event):
    """The agent was stopped in a loop, which began at event `start` and repeats as `pattern` says."""

    kind: Literal["LoopDetected"] = "LoopDetected"
    start: int
    pattern: str

    @property
    def headline(self) -> str:
        return f"the agent repeats itself since [{self.start}]: {self.pattern}"


class LoopRecovery(Event):
    """What a user wants of an agent that was found in a loop.

    1: go back to before the loop, and wait; 2: go back, and say the user's last message again; 3: stop.
    """

    kind: Literal["LoopRecovery"] = "LoopRecovery"
    source: Source = "user"
    option: Literal[1, 2, 3] = 1

    @property
    def headline(self) -> str:
        return f"out of the loop by way {self.option}"


class Trajectory(Event):
    """An agent's recorded `turns`, with its user's words in between, to be done again before its model is asked."""

    kind: Literal["Trajectory"] = "Trajectory"
    source: Source = "user"
    turns: list[Message]

    @property
    def headline(self) -> str:
        return f"{len(self.turns)} recorded turns are to be done again"


class ConversationError(Event):
    """Something failed outside any action (a model call, a limit, an internal error).

    `code` is a public id or exception class, `detail` says for people what happened and what to do.
    """

    kind: Literal["ConversationError"] = "ConversationError"
    code: str
    detail: str

    @property
    def headline(self) -> str:
        return f"{self.code}: {self.detail}"

    @property
    def classification(self) -> ErrorClassification:
        return classified(self.code, self.detail)


ConversationErrorEvent = ConversationError
"""The same by the name that other programs know."""


class ToolServerFailed(Event):
    """A server of tools, or one of its tools, cannot be used here; `detail` says why and what to do, for people.

    `sign_in` is the id of the sign-in (`agent_core.mcp.grants.sign_in_id`) where somebody only has to sign in there.
    """

    kind: Literal["ToolServerFailed"] = "ToolServerFailed"
    server: str
    detail: str
    sign_in: str = ""

    @property
    def headline(self) -> str:
        return f"MCP server {self.server} failed: {self.detail}"


class SkillLeftOut(Event):
    """A file of a skill cannot be used: `path`, and the `line` where it is known; `detail` says why, for people."""

    kind: Literal["SkillLeftOut"] = "SkillLeftOut"
    path: str
    line: int | None = None
    detail: str

    @property
    def headline(self) -> str:
        place = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"a skill is left out ({place}): {self.detail}"


class ClientToolResult(Event):
    """What a client answers to the call `cause` of its tool; the agent is told by the observation that follows."""

    kind: Literal["ClientToolResult"] = "ClientToolResult"
    source: Source = "user"
    content: list[TextContent | ImageContent] = Field(default_factory=list)
    is_error: bool = False

    @property
    def headline(self) -> str:
        said = "\n".join(content_to_str(self.content))
        return f"the client's tool {'failed' if self.is_error else 'answered'}: {first_line(said)}"


class ForeignEvent(Event):
    """An event of the public protocol that has no meaning inside yet, kept so that nothing sent is lost.

    `name` is its public type, `payload` holds ``args`` of an action, or ``content`` and ``extras``.
    """

    kind: Literal["ForeignEvent"] = "ForeignEvent"
    name: str
    is_action: bool
    payload: dict[str, Any] = Field(default_factory=dict)

    @property
    def headline(self) -> str:
        content = self.payload.get("content") or self.payload.get("message") or ""
        return f"{self.name}: {content}" if content else self.name


class RecordedResult(Observation):
    """The result of a call, as it was recorded."""


class Recorded(Event):
    """One event of an imported conversation: shown, and told to a model, but nothing is done because of it.

    Such events stand at the beginning of a log. `record` is its public form, without what the event itself has; `told`
    is what a model is told of it: a message, or a call together with its result.
    """

    kind: Literal["Recorded"] = "Recorded"
    record: dict[str, Any]
    told: list[MessageEvent | ActionEvent | ObservationEvent] = Field(default_factory=list)

    @property
    def headline(self) -> str:
        return f"a recorded {self.record.get('action') or self.record.get('observation') or 'event'}"
