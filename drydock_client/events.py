"""Events of a conversation's log and of its live connection.

Unknown fields are kept (``model_extra``), unknown types of events are an `Action` or `Observation` like any other, and
what has no known form at all is an `Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

T = TypeVar("T")


class AgentState(StrEnum):
    """What the agent does. A state of a newer server is a plain text; both compare as texts."""

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


RESTING: Final = frozenset(
    {
        AgentState.AWAITING_USER_INPUT,
        AgentState.PAUSED,
        AgentState.STOPPED,
        AgentState.FINISHED,
        AgentState.REJECTED,
        AgentState.ERROR,
        AgentState.AWAITING_USER_CONFIRMATION,
    }
)


class Tolerant(BaseModel):
    """Base of all that is read from a server."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=(), defer_build=True)


class TokenUsage(Tolerant):
    """Tokens of all model calls so far; `per_turn_token` are those of the last one."""

    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    context_window: int = 0
    per_turn_token: int = 0
    response_id: str = ""


class LlmMetrics(Tolerant):
    """What the model has cost so far, in US dollars."""

    accumulated_cost: float = 0.0
    max_budget_per_task: float | None = None
    accumulated_token_usage: TokenUsage | None = None


class ToolCallMetadata(Tolerant):
    """The model's call behind an action."""

    function_name: str = ""
    tool_call_id: str = ""
    model_response: dict[str, Any] | None = None
    total_calls_in_response: int = 1


class Envelope(Tolerant):
    """What all stored events have. `cause` is the id of the action that is answered."""

    id: int
    timestamp: datetime
    source: str
    message: str = ""
    cause: int | None = None


class Action(Envelope):
    """Something that somebody did or asked for: `action` is its type, `args` what belongs to it."""

    action: str
    args: dict[str, Any] = Field(default_factory=dict)
    timeout: float | None = None
    tool_call_metadata: ToolCallMetadata | None = None
    llm_metrics: LlmMetrics | None = None


class Observation(Envelope):
    """What came of it: `observation` is its type, `content` its text, `extras` what belongs to it."""

    observation: str
    content: str = ""
    extras: dict[str, Any] = Field(default_factory=dict)
    success: bool | None = None


class State(Tolerant):
    """The agent's state has changed; `id` is None where it is told on connecting. `detail` is `reason` for people."""

    id: int | None = None
    timestamp: datetime | None = None
    state: Annotated[AgentState | str, Field(union_mode="left_to_right")]
    reason: str = ""
    detail: str = ""


Event = Action | Observation | State
"""What is in a log; there, each has an `id`: 0, 1, 2, …"""


EXPLAINED_WAITS: Final = frozenset({"STATUS$HELD_BACK", "STATUS$WAITING_FOR_ENGINE", "STATUS$ERROR_DISK_RESERVE"})
"""A conversation in one of these has a `runtime_warning` that says why."""
_WAITS: Final = EXPLAINED_WAITS | {
    "STATUS$WAITING_FOR_TURN",
    "AGENT_ERROR$TOO_MANY_CONVERSATIONS",
    "STATUS$ERROR_STORAGE",
}
_LOSSES: Final = frozenset({"STATUS$ERROR_RUNTIME_DISCONNECTED", "STATUS$ERROR_DISK_LIMIT"})


class Status(Tolerant):
    """News that are not in the log: `id` is such as ``STATUS$STARTING_RUNTIME``; or the conversation's new title."""

    type: str = "info"
    id: str = ""
    message: str = ""
    conversation_title: str | None = None

    @property
    def tells_wait(self) -> bool:
        """Whether work is wanted and does not go on for now: `message` says why, and what becomes of it."""
        return self.id in _WAITS

    @property
    def tells_trouble(self) -> bool:
        """The same, or the sandbox has gone, which the next command starts again."""
        return self.tells_wait or self.id in _LOSSES


class Problem(Tolerant):
    """The server tells of an error in words."""

    message: str = ""


class TextDelta(Tolerant):
    """More of the model's answer (`kind` ``message``) or of its ``reasoning``; an event replaces it later."""

    kind: str
    response_id: str
    text: str


class TextDiscarded(Tolerant):
    """That answer broke off: its text is void."""

    response_id: str


class OutputDelta(Tolerant):
    """More output of the running action with the id `cause`."""

    cause: int
    text: str


class ToolCall(Tolerant):
    """A call that a client of the conversation is to carry out, or (`is_over`) that nobody waits for any more."""

    call_id: int
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    deadline: datetime | None = None
    is_over: bool = False


class Resync(Tolerant):
    """What is known is not from this log (the server was reset): it is told anew, from its beginning.

    `latest_event_id` was known; the log has the events from `start_id` to `end_id`.
    """

    reason: str
    latest_event_id: int
    start_id: int
    end_id: int


class Connected(Tolerant):
    """The connection is up, for the first time or `again`: text on its way is told from its beginning from here on."""

    again: bool = False


class Unknown(Tolerant):
    """What a newer server sends: `name` is that of the socket's event."""

    name: str
    data: Any = None

    @property
    def id(self) -> int | None:
        value = self.data.get("id") if isinstance(self.data, dict) else None
        return value if type(value) is int else None


Live = Event | Status | Problem | TextDelta | TextDiscarded | OutputDelta | ToolCall | Resync | Connected | Unknown
"""What a live connection carries."""


def read_event(data: object) -> Event | Unknown:
    """An entry of a log."""
    return _read("oh_event", data, _stored)


def read_frame(name: str, data: object) -> Live:
    """The argument of a socket's event."""
    return _read(name, data, _READERS.get(name))


def _read(name: str, data: object, reader: Callable[[Mapping[str, Any]], T | None] | None) -> T | Unknown:
    try:
        found = reader(data) if reader is not None and isinstance(data, dict) else None
    except ValidationError:  # a form of another server: left to the program
        found = None
    return found or Unknown(name=name, data=data)


def _stored(data: Mapping[str, Any]) -> Event | None:
    if data.get("observation") == "agent_state_changed":
        extras = data.get("extras")
        facts = extras if isinstance(extras, dict) else {}
        named = {"id": data.get("id"), "timestamp": data.get("timestamp"), "state": facts.get("agent_state")}
        return State.model_validate({**facts, **named})
    if "observation" in data:
        return Observation.model_validate(data)
    return Action.model_validate(data) if "action" in data else None


def _live(data: Mapping[str, Any]) -> Event | Status | Problem | None:
    if "status_update" in data:
        return Status.model_validate(data)
    if data.get("error") is True:
        return Problem.model_validate(data)
    return _stored(data)


def _delta(data: Mapping[str, Any]) -> TextDelta | TextDiscarded | OutputDelta | None:
    match data.get("kind"):
        case "message" | "reasoning":
            return TextDelta.model_validate(data)
        case "discard":
            return TextDiscarded.model_validate(data)
        case "output":
            return OutputDelta.model_validate(data)
    return None


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Live | None]]] = {
    "oh_event": _live,
    "oh_delta": _delta,
    "oh_tool_call": ToolCall.model_validate,
    "oh_resync": Resync.model_validate,
}
