"""What the model of an imported conversation is told of what was recorded: who said what, and what tools gave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.events.recorded import Recorded, RecordedResult
from server.wire.errors import WireError
from server.wire.incoming import from_wire
from server.wire.recorded_calls import metadata_of, object_of, recorded_call, response_of, translated_call
from server.wire.trajectory import counting

END_OF_RECORD: Final = (
    "[The conversation so far took place elsewhere and was imported. The files, programs and variables of that time "
    "are not here, unless you find them: look before you rely on them.]"
)

_NO_TOOLS: Final = frozenset({"system", "change_agent_state", "recall", "loop_recovery", "null", "rewind"}) | frozenset(
    {"condensation", "condensation_request", "message", "finish", "reject"}
)


def retold(events: Sequence[Recorded]) -> Iterator[Recorded]:
    """The same events, the one at place n with the id n, each with what a model is told of it.

    A call is told together with its result, so there is none without one; what rewinds have undone is left out.
    """
    counts = counting([{"id": place, **event.record} for place, event in enumerate(events)])
    open_calls: dict[int, Recorded] = {}
    for place, event in enumerate(events):
        told: list[MessageEvent | ActionEvent | ObservationEvent] = []
        name = event.record.get("action")
        if counts[place] and name in ("message", "finish"):
            told = _said(event, place)
        elif counts[place] and name is not None and name not in _NO_TOOLS:
            open_calls[place] = event
        elif counts[place] and event.cause is not None and (action := open_calls.pop(event.cause, None)) is not None:
            told = _done(action, event.cause, event, place)
        if place == len(events) - 1:
            told = [*told, MessageEvent(id=place, timestamp=event.timestamp, llm_message=Message.user(END_OF_RECORD))]
        yield event.model_copy(update={"told": told}) if told else event


def _said(event: Recorded, place: int) -> list[MessageEvent | ActionEvent | ObservationEvent]:
    args: dict[str, Any] = event.record["args"]
    if event.record["action"] == "finish":
        message = Message.assistant(args.get("final_thought") or args.get("thought") or event.record["message"])
    elif event.source == "agent":
        message = Message.assistant(args["content"])
    else:
        message = _user_message(args)
    known = {"id": place, "timestamp": event.timestamp, "source": event.source}
    told = MessageEvent(llm_message=message, **known)
    return [] if told.is_blank else [told]


def _user_message(args: dict[str, Any]) -> Message:
    try:
        event = from_wire({"action": "message", "args": {key: args.get(key) for key in ("content", "image_urls")}})
    except WireError:  # its pictures are none, or it says nothing
        return Message.user(args["content"])
    return event.llm_message if isinstance(event, MessageEvent) else Message.user(args["content"])


def _done(
    action: Recorded, action_id: int, result: Recorded, place: int
) -> list[MessageEvent | ActionEvent | ObservationEvent]:
    call = _call(action.record, f"recorded_{action_id}")
    thought = action.record["args"].get("thought")
    said = [TextContent(text=thought)] if isinstance(thought, str) and action.record["action"] != "think" else []
    kind = result.record.get("observation")
    observation = RecordedResult.from_text(result.record.get("content", ""), is_error=kind == "error")
    return [
        ActionEvent(
            id=action_id,
            timestamp=action.timestamp,
            thought=said,
            tool_name=call.name,
            tool_call_id=call.id,
            tool_call=call,
            llm_response_id=call.id,
        ),
        ObservationEvent(
            id=place,
            timestamp=result.timestamp,
            cause=action_id,
            observation=observation,
            tool_name=call.name,
            tool_call_id=call.id,
        ),
    ]


def _call(record: dict[str, Any], call_id: str) -> MessageToolCall:
    """The call as it would be made here, or else as it was made, or as the record names it."""
    name, args = record["action"], record["args"]
    try:
        return translated_call(name, args, call_id)
    except WireError:
        made = recorded_call(response_of(record), str(metadata_of(record).get("tool_call_id")))
    if made is not None:
        return made.model_copy(update={"id": call_id})
    arguments = {key: value for key, value in object_of(args).items() if key not in ("thought", "security_risk")}
    return MessageToolCall(id=call_id, name=name, arguments=json.dumps(arguments, ensure_ascii=False))
