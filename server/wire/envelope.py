"""An event of the log as the one JSON object that clients get for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from agent_core.events.control import (
    ForeignEvent,
    Recorded,
)
from agent_core.events.event import Event
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    MetricsSnapshot,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.serialization import AnyEvent
from server.wire.actions import ACTION_FORMS
from server.wire.forms import ActionForm, EventForm, ObservationForm
from server.wire.observations import OBSERVATION_FORMS

LIVE_FROM_ENVIRONMENT: Final = frozenset({"run", "agent_state_changed", "recall", "error"})
"""Observations of the environment that a client sees live, as the agent's."""

DEFAULT_USAGE_MODEL: Final = "default"
_NULL: Final = ObservationForm("null", "", {})
_TOKENS: Final = (
    *("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("context_window", "per_turn_token"),
)
_UTC_OFFSET: Final = "+00:00"


def to_wire(event: AnyEvent, *, live: bool) -> dict[str, Any] | None:
    """What clients are sent for `event`, now (`live`) or as history; None when it is never sent.

    Which state changes of a history are withheld is the reader's business: it depends on what follows.
    """
    form = _form(event)
    if form is None or form.name == "null":
        return None
    source = _source(event)
    if live and source == "environment":
        if not (isinstance(form, ObservationForm) and form.name in LIVE_FROM_ENVIRONMENT):
            return None
        source = "agent"
    if not live and form.name == "recall" and isinstance(form, ActionForm):
        return None
    return _envelope(event, form, source)


def to_record(event: AnyEvent) -> dict[str, Any]:
    """The log's entry as it is read back: every event has one, the protocol's null where clients are sent nothing."""
    return _envelope(event, _form(event) or _NULL, _source(event))


def _form(event: AnyEvent) -> EventForm | None:
    translate = _FORMS.get(type(event))
    return translate(event) if translate is not None else None


def wire_time(moment: datetime) -> str:
    """A moment as clients read it: ISO 8601 in UTC, microseconds, ending in ``Z``."""
    text = moment.isoformat(timespec="microseconds")
    if not text.endswith(_UTC_OFFSET):
        text = moment.astimezone(UTC).isoformat(timespec="microseconds")
    return text.removesuffix(_UTC_OFFSET) + "Z"


def _envelope(event: AnyEvent, form: EventForm, source: str) -> dict[str, Any]:
    """All keys in the protocol's order, then the additions; those without a value are left out."""
    wire: dict[str, Any] = {"id": event.id} if event.id >= 0 else {}
    wire["timestamp"] = wire_time(event.timestamp)
    wire["source"] = source
    wire["message"] = form.message
    if isinstance(event, Recorded):
        wire["message"] = event.record["message"]
        wire |= ({} if event.cause is None else {"cause": event.cause}) | event.record
    elif isinstance(form, ObservationForm):
        if (cause := _cause(event)) is not None:
            wire["cause"] = cause
        wire["observation"] = form.name
        wire["content"] = form.content
        wire["extras"] = form.extras
        if (success := form.success) is not None:
            wire["success"] = success
    else:
        wire["action"] = form.name
        call = event.action if isinstance(event, ActionDecision) else event
        if isinstance(call, ActionEvent) and call.tool_call is not None:
            wire["tool_call_metadata"] = _tool_call_metadata(call)
        if isinstance(call, ActionEvent | MessageEvent) and call.metrics is not None:
            wire["llm_metrics"] = _llm_metrics(call.metrics)
        wire["args"] = form.args
        if form.timeout is not None:
            wire["timeout"] = form.timeout
    if event.client_key is not None:
        wire["idempotency_key"] = event.client_key
    return wire


def _source(event: AnyEvent) -> str:
    """The protocol's source: an answer belongs to whoever acted, and a hook to the environment."""
    if isinstance(event, ActionDecision):
        return event.action.source
    if isinstance(event, UserRejectObservation):
        return "agent"
    return "environment" if event.source == "hook" else event.source


def _cause(event: AnyEvent) -> int | None:
    """The action as clients know it: a decided one has the id under which it was sent again."""
    if isinstance(event, ObservationEvent | UserRejectObservation | AgentErrorEvent) and event.reissued_as is not None:
        return event.reissued_as
    return event.cause


def _tool_call_metadata(event: ActionEvent) -> dict[str, Any]:
    metrics = event.metrics
    return {
        "function_name": event.tool_name,
        "tool_call_id": event.tool_call_id,
        # No client reads the response; its text and calls are in the events themselves.
        "model_response": {
            "id": event.llm_response_id,
            "created": int(event.timestamp.timestamp()),
            "model": metrics.usage.model if metrics is not None else "",
            "object": "chat.completion",
            "choices": [],
        },
        "total_calls_in_response": event.calls_in_response or 1,
    }


def _llm_metrics(metrics: MetricsSnapshot) -> dict[str, Any]:
    usage = metrics.usage
    return {
        "accumulated_cost": metrics.accumulated_cost,
        "max_budget_per_task": metrics.max_budget,
        "accumulated_token_usage": {
            "model": usage.model or DEFAULT_USAGE_MODEL,
            **{name: getattr(usage, name) for name in _TOKENS},
            "response_id": usage.response_id,
        },
        "costs": [],
        "response_latencies": [],
        "token_usages": [],
    }


def _recorded(event: Recorded) -> EventForm:
    record = event.record
    if "action" in record:
        return ActionForm(record["action"], record["args"])
    return ObservationForm(record["observation"], record["content"], record["extras"])


def _foreign(event: ForeignEvent) -> EventForm:
    payload = event.payload
    if event.is_action:
        return ActionForm(event.name, payload.get("args", {}), payload.get("timeout"))
    return ObservationForm(event.name, payload.get("content", ""), payload.get("extras", {}))


# What is missing here is not sent: after `ConversationError` comes a state event, or before it a status, that says what
# clients need, and a changed policy is seen by what is asked for from then on.
_FORMS: Final[dict[type[Event], Callable[[Any], EventForm | None]]] = {
    **ACTION_FORMS,
    **OBSERVATION_FORMS,
    ForeignEvent: _foreign,
    Recorded: _recorded,
}


_OF_THE_VIEW: Final = frozenset(
    {
        "dom_object",
        "axtree_object",
        "active_page_index",
        "last_browser_action",
        "last_browser_action_error",
        "focused_element_bid",
        "extra_element_properties",
        "screenshot",
        "set_of_marks",
    }
)


def is_hidden(wire: Mapping[str, Any]) -> bool:
    """Whether an event in its public form is marked as hidden."""
    return (wire.get("args") or wire.get("extras") or {}).get("hidden") is True


def without_view(wire: dict[str, Any]) -> dict[str, Any]:
    """The event without what only the browser view needs."""
    extras = wire.get("extras")
    if not isinstance(extras, dict) or _OF_THE_VIEW.isdisjoint(extras):
        return wire
    return {**wire, "extras": {key: value for key, value in extras.items() if key not in _OF_THE_VIEW}}
