"""The union of all events, and the bytes they are stored as."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json

from agent_core.events.branches import FilesRestored, Rewind
from agent_core.events.control import (
    AgentStateChanged,
    ChangeAgentState,
    ClientToolResult,
    Condensation,
    CondensationRequest,
    ConfirmationPolicyChanged,
    ConversationError,
    ForeignEvent,
    HookExecutionEvent,
    InterruptEvent,
    LoopDetected,
    LoopRecovery,
    MetricsUpdated,
    PauseEvent,
    RecallAction,
    RecallObservation,
    Recorded,
    SkillLeftOut,
    ToolServerFailed,
    Trajectory,
)
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    SystemPromptEvent,
    UserRejectObservation,
)
from agent_core.troubles import Trouble, coded

AnyEvent = (
    SystemPromptEvent
    | MessageEvent
    | ActionEvent
    | ObservationEvent
    | UserRejectObservation
    | AgentErrorEvent
    | ActionDecision
    | AgentStateChanged
    | ChangeAgentState
    | PauseEvent
    | InterruptEvent
    | ConfirmationPolicyChanged
    | RecallAction
    | RecallObservation
    | Condensation
    | CondensationRequest
    | MetricsUpdated
    | ConversationError
    | Rewind
    | FilesRestored
    | LoopDetected
    | LoopRecovery
    | Trajectory
    | ToolServerFailed
    | SkillLeftOut
    | HookExecutionEvent
    | ClientToolResult
    | ForeignEvent
    | Recorded
)

UNREADABLE = "null"

_log = logging.getLogger(__name__)
_adapter: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="kind")])

CERTAIN_DEPTH = 150
"""Data nested so deeply can be read again; not much deeper they cannot."""


def to_payload(event: AnyEvent) -> bytes:
    """The stored form of an event: a JSON object without the id (the log's position says it)."""
    return event.__pydantic_serializer__.to_json(event, exclude={"id"})


def encoded(event: AnyEvent) -> tuple[AnyEvent, bytes]:
    """The event with its payload; half characters, which UTF-8 cannot express, have become ``?`` in both.

    Raises `ValueError` for what JSON cannot express, or what could not be read again.
    """
    try:
        payload = to_payload(event)
    except PydanticSerializationError:
        event = _adapter.validate_python(_whole_characters(event.model_dump(mode="python")))
        payload = to_payload(event)
    # Counting is quick, and hardly any event has so many brackets.
    if payload.count(b"[") + payload.count(b"{") > CERTAIN_DEPTH:
        try:
            from_json(payload)
        except ValueError as error:
            raise ValueError(f"the event holds data that could not be read again ({error}); make it flatter") from error
    return event, payload


def _whole_characters(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_characters(item) for item in value]
    return value


def from_payload(payload: bytes, event_id: int, conversation_id: str = "") -> AnyEvent:
    """The event that `payload` holds, under its id, in the log of this conversation.

    One of an unknown kind becomes a `ForeignEvent` called ``null``, which nobody is shown: its log stays readable.
    """
    try:
        return _adapter.validate_json(b'{"id":%d,' % event_id + payload.lstrip()[1:])
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        text = "event %d of conversation %s cannot be read and is passed over: %s %s"
        extra = coded(Trouble.EVENT_UNREADABLE, conversation_id)
        _log.error(text, event_id, conversation_id or "(unknown)", place, problem["msg"], extra=extra)
        return ForeignEvent(id=event_id, name=UNREADABLE, is_action=False)


def from_data(data: object) -> AnyEvent:
    """The event that plain JSON data describe (with or without an id); raises `pydantic.ValidationError`."""
    return _adapter.validate_python(data)
