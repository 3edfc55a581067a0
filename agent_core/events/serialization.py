"""The one union of all events, and the bytes they are stored as."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic_core import PydanticSerializationError

from agent_core.events.control import (
    AgentStateChanged,
    ChangeAgentState,
    Condensation,
    CondensationRequest,
    ConversationError,
    ForeignEvent,
    RecallAction,
    RecallObservation,
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
    | RecallAction
    | RecallObservation
    | Condensation
    | CondensationRequest
    | ConversationError
    | ForeignEvent
)

_adapter: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="kind")])


def to_payload(event: AnyEvent) -> bytes:
    """The stored form of an event: a JSON object without the id (the log's position says it)."""
    return event.__pydantic_serializer__.to_json(event, exclude={"id"})


def encoded(event: AnyEvent) -> tuple[AnyEvent, bytes]:
    """The event with its payload; half characters, which UTF-8 cannot express, have become ``?`` in both."""
    try:
        return event, to_payload(event)
    except PydanticSerializationError:
        whole = _adapter.validate_python(_whole_characters(event.model_dump(mode="python")))
        return whole, to_payload(whole)


def _whole_characters(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_characters(item) for item in value]
    return value


def from_payload(payload: bytes, event_id: int) -> AnyEvent:
    """The event that `payload` holds, under its id.

    Raises:
        pydantic.ValidationError: when the bytes are not an event of a kind that this version knows.
    """
    return _adapter.validate_json(b'{"id":%d,' % event_id + payload.lstrip()[1:])


def from_data(data: object) -> AnyEvent:
    """The event that plain JSON data describes (with or without an id).

    Raises:
        pydantic.ValidationError: naming the field and the problem.
    """
    return _adapter.validate_python(data)
