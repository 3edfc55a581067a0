"""Events of recorded conversations, kept as they were; what clients draw is checked, so that none can break them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from pydantic import ValidationError

from agent_core.events.control import Recorded
from agent_core.events.event import Source, utc_now
from server.wire.errors import WireError, problem_of
from server.wire.fields import ACTIONS, ADDITIONS, OBSERVATIONS, Fields, JsonObject
from server.wire.forms import ActionForm, EventForm, ObservationForm
from server.wire.incoming import modern_args
from server.wire.json_data import json_type

MAX_EVENTS: Final = 100_000
MAX_NAME: Final = 200
_SOURCES: Final = ("agent", "user", "environment")
_KEYS: Final = (
    *("message", "action", "observation", "tool_call_metadata", "llm_metrics"),
    *("args", "timeout", "content", "extras", "success"),
)
_ORDER: Final = {key: place for place, key in enumerate(_KEYS)}
_OF_THE_EVENT: Final = frozenset({"id", "timestamp", "source", "cause"})
_TYPES: Final = {**ACTIONS, **ADDITIONS}
_LEFT_OUT: Final[dict[str, Any]] = {"message": "", "action": "null", "args": {"hidden": True}}
"""Stands for an event that the recording leaves out, so that all others keep their ids; it is in no export."""


class MetricsFields(Fields):
    """What clients read of ``llm_metrics``."""

    accumulated_cost: float = 0.0
    max_budget_per_task: float | None = None
    accumulated_token_usage: JsonObject | None = None


def recorded_events(items: list[Any]) -> Iterator[Recorded]:
    """A trajectory's events with their places (or the next number) as ids, naive times in UTC; raises `WireError`."""
    next_id = 0
    for place, item in enumerate(items):
        try:
            event_id = _id(item, next_id)
            if event_id >= MAX_EVENTS:
                raise WireError(f"id: {event_id} is too large; at most {MAX_EVENTS} events can be imported")
            event = _recorded(item, event_id)
        except WireError as error:
            raise WireError(f"event {place}: {error}") from error
        while next_id < event_id:
            yield Recorded(timestamp=event.timestamp, record=_LEFT_OUT)
            next_id += 1
        yield event
        next_id += 1


def known_args(name: object, args: dict[str, Any]) -> dict[str, Any]:
    """What is known here of the args of a recorded action (`WireError`: wrong); all those of an unknown type."""
    model = _TYPES.get(name) if isinstance(name, str) else None
    if model is None:
        return args
    fields, _ = _repaired(model, modern_args(args), name=str(name), where="args")
    return fields.model_dump(by_alias=True, exclude_unset=True)


def _id(item: Any, next_id: int) -> int:
    if not isinstance(item, dict):
        raise WireError(f"is {json_type(item)}; each event is an object")
    value = item.get("id")
    if value is None:
        return next_id
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"id is {json_type(value)}; it is an integer")
    if value < next_id:
        raise WireError(f"id: {value} is not greater than that of the event before it; give them in their order")
    return value


def _recorded(item: dict[str, Any], event_id: int) -> Recorded:
    source = item.get("source")
    if source not in _SOURCES:
        raise WireError(f"source: is {_shown(source)}; it is one of {', '.join(_SOURCES)}")
    record = {key: value for key, value in item.items() if key not in _OF_THE_EVENT and value is not None}
    if ("action" in record) == ("observation" in record):
        raise WireError("action, observation: an event has one of them")
    _object(record, "tool_call_metadata")
    if "llm_metrics" in record:
        metrics = _object(record, "llm_metrics")
        record["llm_metrics"] = _repaired(MetricsFields, metrics, name="llm_metrics", where="llm_metrics")[1]
    form = _action(record) if "action" in record else _observation(record)
    to = record["args"].get("to") if record.get("action") == "rewind" else None
    if to is not None and not to < event_id:
        raise WireError(f"args.to: {to} is not the id of an event before this one")
    message = record.setdefault("message", form.message)
    if not isinstance(message, str):
        raise WireError(f"message is {json_type(message)}; it is a text")
    return Recorded(
        timestamp=_time(item.get("timestamp")),
        source=cast(Source, source),
        cause=_cause(item, event_id),
        record={key: record[key] for key in sorted(record, key=lambda key: _ORDER.get(key, len(_ORDER)))},
    )


def _action(record: dict[str, Any]) -> EventForm:
    name, args = _name(record, "action"), _object(record, "args")
    if name in _TYPES:
        args = _checked(_TYPES[name], modern_args(args), name=name, where="args")
    record["args"] = args
    return ActionForm(name, args)


def _observation(record: dict[str, Any]) -> EventForm:
    name, extras = _name(record, "observation"), _object(record, "extras")
    model = OBSERVATIONS.get(name)
    content = record.setdefault("content", "") if model is None or name == "null" else record.get("content")
    if not isinstance(content, str):
        raise WireError(f"content is {json_type(content)}; it is a text")
    if name == "run" and "metadata" not in extras and isinstance(extras.get("exit_code"), int):
        extras = {**extras, "metadata": {"exit_code": extras["exit_code"]}}  # as the oldest servers wrote it
    if name == "browse":
        extras = {"trigger_by_action": "browse", **extras}  # there was no other once
    if model is not None:
        extras = _checked(model, extras, name=name, where="extras")
    record["extras"] = extras
    form = ObservationForm(name, content, extras)
    if form.success is not None:
        record.setdefault("success", form.success)
    return form


def _checked(model: type[Fields], value: dict[str, Any], *, name: str, where: str) -> dict[str, Any]:
    fields, stored = _repaired(model, value, name=name, where=where)
    return {**fields.model_dump(by_alias=True), **stored}


def _repaired(model: type[Fields], value: dict[str, Any], *, name: str, where: str) -> tuple[Fields, dict[str, Any]]:
    try:
        return model.model_validate(value), value
    except ValidationError:
        known, stored = copy.deepcopy(value), copy.deepcopy(value)
    while True:
        try:
            return model.model_validate(known), stored
        except ValidationError as error:
            # From behind: what is left out of a list moves what stands behind it there.
            repaired = [_repair(known, stored, one) for one in reversed(error.errors(include_url=False))]
            if not any(repaired):
                raise WireError(problem_of(error, name=name, where=where)) from error


def _repair(known: Any, stored: Any, problem: Any) -> bool:
    """See to a problem that clients can do without (unknown fields, nulls, numbers as texts); whether it is one."""
    kind, value, path = problem["type"], problem["input"], problem["loc"]
    if kind == "missing":
        return False
    try:
        if kind == "extra_forbidden" or (kind == "literal_error" and isinstance(value, str)):
            del _holder(known, path)[path[-1]]
            return True
        for one in (known, stored):
            if value is None:
                del _holder(one, path)[path[-1]]
            elif kind == "string_type" and len(path) > 1 and type(value) in (int, float):
                _holder(one, path)[path[-1]] = str(value)
            else:
                return False
    except (LookupError, TypeError):  # the place of a member of a union, which is none in the data
        return False
    return True


def _holder(data: Any, path: Sequence[Any]) -> Any:
    for part in path[:-1]:
        data = data[part]
    return data


def _name(record: dict[str, Any], key: str) -> str:
    name = record[key]
    if not isinstance(name, str) or not name or len(name) > MAX_NAME:
        raise WireError(f"{key}: is {_shown(name)}; it is the name of a type, {MAX_NAME} characters at most")
    return name


def _object(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key, {})
    if not isinstance(value, dict):
        raise WireError(f"{key} is {json_type(value)}; it is an object")
    return value


def _cause(item: dict[str, Any], event_id: int) -> int | None:
    cause = item.get("cause")
    if cause is None:
        return None
    if not isinstance(cause, int) or isinstance(cause, bool):
        raise WireError(f"cause is {json_type(cause)}; it is the id of an event before this one")
    if not 0 <= cause < event_id:
        raise WireError(f"cause: {cause} is not the id of an event before this one")
    return cause


def _time(value: Any) -> datetime:
    if value is None:
        return utc_now()
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        if moment is not None:
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise WireError(f"timestamp: is {_shown(value)}; it is a time such as 2025-11-15T09:43:21.123456")


def _shown(value: Any) -> str:
    return repr(value[:40]) if isinstance(value, str) else json_type(value)
