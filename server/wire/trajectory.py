"""Exported trajectories: the turns that an agent does again, and the transcript that a model is told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from agent_core.controller.replay import ReplayedTurns, call_of
from agent_core.events.branches import Branches, Rewind
from agent_core.events.control import ForeignEvent, Recorded, RecordedResult
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.tools.builtin import FinishTool
from server.wire.errors import WireError
from server.wire.imported_events import known_args
from server.wire.incoming import from_wire, modern_args
from server.wire.json_data import check_json, in_turns, json_type, read_document

MAX_VALUES: Final = 1_000_000
"""How many values a trajectory may hold."""

_MAX_CHARS: Final = 64 * 1024 * 1024
"""More than any request has: its size is the gate's business."""

END_OF_RECORD: Final = (
    "[The conversation so far took place elsewhere and was imported. The files, programs and variables of that time "
    "are not here, unless you find them: look before you rely on them.]"
)

_NO_TOOLS: Final = frozenset({"system", "change_agent_state", "recall", "loop_recovery", "null", "rewind"}) | frozenset(
    {"condensation", "condensation_request", "message", "finish", "reject"}
)

# No sets: what is looked for in them may be a list or an object.
_UNDECIDED: Final = ("awaiting_confirmation", "rejected")
_WITHOUT_EFFECT: Final = (
    *("system", "change_agent_state", "recall", "loop_recovery", "null", "rewind"),
    *("condensation", "condensation_request"),
    *("initialize", "start", "pause", "resume", "stop", "summarize", "add_task", "modify_task"),  # once there were
)


async def trajectory_of(data: object) -> list[dict[str, Any]]:
    """The events of an exported trajectory (a list, or an object around it); `WireError` names event and field."""
    items = data.get("trajectory") if isinstance(data, dict) else data
    if not isinstance(items, list):
        raise WireError(f"is {json_type(items)}, not a list of events; send an exported trajectory")
    if not items:
        raise WireError("has no events; send an exported trajectory")
    async for place, item in in_turns(enumerate(items)):
        if not isinstance(item, dict):
            raise WireError(f"event {place} is {json_type(item)}; each event is an object")
        try:
            check_json(item, max_chars=_MAX_CHARS, max_values=MAX_VALUES)
        except WireError as error:
            raise WireError(f"event {place}: {error}") from error
    return items


async def read_trajectory(text: str) -> list[Message]:
    """The turns of a trajectory, without what rewinds have undone; raises `WireError` for what cannot be done here."""
    try:
        document = await read_document(text.encode(), max_values=MAX_VALUES, is_strict=False)
        items = await trajectory_of(document)
    except WireError as error:
        raise WireError(f"replay_json: {error}") from error
    except (ValueError, RecursionError) as error:
        raise WireError(f"replay_json: is no valid JSON ({error}); send an exported trajectory") from error
    turns = ReplayedTurns()
    async for place, (item, counts) in in_turns(enumerate(zip(items, not_rewound(items), strict=True))):
        if "action" not in item or item.get("source") == "environment" or not counts:
            continue
        try:
            _take(item, place, turns)
        except WireError as error:
            raise WireError(f"replay_json: event {place}: {error}") from error
    if not turns.messages or turns.messages[0].role != "user":
        raise WireError("replay_json: does not begin with a message of the user; send it from its beginning")
    return turns.messages


def not_rewound(items: list[dict[str, Any]]) -> list[bool]:
    """Which of the events no rewind has undone."""
    if all(item.get("action") != "rewind" for item in items):
        return [True] * len(items)
    branches, last = Branches(), -1
    ids: list[int] = []
    for item in items:
        own_id = item.get("id")
        last = own_id if isinstance(own_id, int) and own_id > last else last + 1
        ids.append(last)
        event: Event = ForeignEvent(id=last, name="null", is_action=False)
        if item.get("action") == "rewind":
            to = _object(item.get("args")).get("to")
            event = Rewind(id=last, to=to if isinstance(to, int) and 0 <= to < last else -1)
        branches.fold(event)
    return [branches.has(event_id) for event_id in ids]


def _take(item: dict[str, Any], place: int, turns: ReplayedTurns) -> None:
    name, args = item["action"], _object(item.get("args"))
    if name in _WITHOUT_EFFECT or args.get("confirmation_state") in _UNDECIDED:
        return
    if name == "message":
        if (message := _message(item, args)) is not None:
            turns.say(message)
        return
    metadata = _object(item.get("tool_call_metadata"))
    response = _object(metadata.get("model_response"))
    call_id = str(metadata.get("tool_call_id") or f"call_{place}")
    call = _recorded_call(response, call_id) or _translated_call(name, args, call_id)
    thought = args.get("thought")
    thoughts = [TextContent(text=thought)] if isinstance(thought, str) and thought.strip() and name != "think" else []
    response_id = str(response.get("id") or "")
    # Answers whose calls were told one by one only belong together when they say so.
    turns.call(call, thoughts, response_id if metadata.get("total_calls_in_response", 1) != 1 else "")


def _message(item: dict[str, Any], args: dict[str, Any]) -> Message | None:
    content, images = args.get("content"), modern_args(args).get("image_urls")
    if isinstance(content, str) and not content.strip() and not images:
        return None
    event = from_wire({"action": "message", "args": {"content": content, "image_urls": images}})
    if not isinstance(event, MessageEvent):
        raise WireError("action: is no message")
    if item.get("source") == "user":
        return event.llm_message
    return Message.assistant(event.llm_message.text)


def _recorded_call(response: dict[str, Any], call_id: str) -> MessageToolCall | None:
    for choice in _objects(response.get("choices")):
        for call in _objects(_object(choice.get("message")).get("tool_calls")):
            function = _object(call.get("function"))
            if call.get("id") == call_id and isinstance(function.get("name"), str):
                arguments = function.get("arguments")
                arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
                return MessageToolCall(id=call_id, name=function["name"], arguments=arguments)
    return None


def _translated_call(name: object, args: dict[str, Any], call_id: str) -> MessageToolCall:
    if name == "finish":
        message = str(args.get("final_thought") or args.get("thought") or "")
        return MessageToolCall(id=call_id, name=FinishTool.tool_name, arguments=json.dumps({"message": message}))
    if name == "call_tool_mcp":
        return MessageToolCall(
            id=call_id, name=str(args.get("name", "")), arguments=json.dumps(_object(args.get("arguments")))
        )
    known = known_args(name, args)
    event = from_wire({"action": name, "args": {key: known[key] for key in known if key != "cwd" or known[key]}})
    if not isinstance(event, ActionEvent) or event.action is None:
        raise WireError(f"action {name!r} cannot be done again by this server")
    return call_of(call_id, event.tool_name, event.action)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def with_transcript(events: Sequence[Recorded]) -> Iterator[Recorded]:
    """The events, each with what a model is told of it: a call only together with its result."""
    counts = not_rewound([{"id": place, **event.record} for place, event in enumerate(events)])
    open_calls: dict[int, Recorded] = {}
    for place, event in enumerate(events):
        messages: list[MessageEvent | ActionEvent | ObservationEvent] = []
        name = event.record.get("action")
        if counts[place] and name in ("message", "finish"):
            messages = _messages_of(event, place)
        elif counts[place] and name is not None and name not in _NO_TOOLS:
            open_calls[place] = event
        elif counts[place] and event.cause is not None and (action := open_calls.pop(event.cause, None)) is not None:
            messages = _done(action, event.cause, event, place)
        if place == len(events) - 1:
            messages = [
                *messages,
                MessageEvent(id=place, timestamp=event.timestamp, llm_message=Message.user(END_OF_RECORD)),
            ]
        yield event.model_copy(update={"told": messages}) if messages else event


def _messages_of(event: Recorded, place: int) -> list[MessageEvent | ActionEvent | ObservationEvent]:
    args: dict[str, Any] = event.record["args"]
    if event.record["action"] == "finish":
        message = Message.assistant(args.get("final_thought") or args.get("thought") or event.record["message"])
    elif event.source == "agent":
        message = Message.assistant(args["content"])
    else:
        message = _user_message(args)
    known = {"id": place, "timestamp": event.timestamp, "source": event.source}
    translated = MessageEvent(llm_message=message, **known)
    return [] if translated.is_blank else [translated]


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
    thoughts = [TextContent(text=thought)] if isinstance(thought, str) and action.record["action"] != "think" else []
    kind = result.record.get("observation")
    observation = RecordedResult.from_text(result.record.get("content", ""), is_error=kind == "error")
    return [
        ActionEvent(
            id=action_id,
            timestamp=action.timestamp,
            thought=thoughts,
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
        return _translated_call(name, args, call_id)
    except WireError:
        metadata = _object(record.get("tool_call_metadata"))
        made = _recorded_call(_object(metadata.get("model_response")), str(metadata.get("tool_call_id")))
    if made is not None:
        return made.model_copy(update={"id": call_id})
    arguments = {key: value for key, value in _object(args).items() if key not in ("thought", "security_risk")}
    return MessageToolCall(id=call_id, name=name, arguments=json.dumps(arguments, ensure_ascii=False))
