"""Exported trajectories, checked, and turned into what an agent can do again."""

from __future__ import annotations

from typing import Any, Final

from agent_core.controller.replay import ReplayedTurns
from agent_core.events.branches import Branches, Rewind
from agent_core.events.control import ForeignEvent
from agent_core.events.event import Event
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message, TextContent
from server.wire.breathing import breathing
from server.wire.errors import WireError
from server.wire.incoming import from_wire, modern_args
from server.wire.json_data import check_json, json_type
from server.wire.json_documents import read_document
from server.wire.recorded_calls import metadata_of, object_of, recorded_call, response_of, translated_call

MAX_VALUES: Final = 1_000_000
"""How many values a trajectory may hold."""

_MAX_CHARS: Final = 64 * 1024 * 1024
"""More than any request has: its size is the gate's business."""

# No sets: what is looked for in them may be a list or an object.
_UNDECIDED: Final = ("awaiting_confirmation", "rejected")
_WITHOUT_EFFECT: Final = (
    *("system", "change_agent_state", "recall", "loop_recovery", "null", "rewind"),
    *("condensation", "condensation_request"),
    *("initialize", "start", "pause", "resume", "stop", "summarize", "add_task", "modify_task"),  # once there were
)


async def trajectory_of(data: object) -> list[dict[str, Any]]:
    """The events of an exported trajectory: of the list itself, or of the object around it.

    Raises:
        WireError: it is none, or holds what could not be stored and sent on; the message names the event and the field.
    """
    items = data.get("trajectory") if isinstance(data, dict) else data
    if not isinstance(items, list):
        raise WireError(f"is {json_type(items)}, not a list of events; send an exported trajectory")
    if not items:
        raise WireError("has no events; send an exported trajectory")
    async for place, item in breathing(enumerate(items)):
        if not isinstance(item, dict):
            raise WireError(f"event {place} is {json_type(item)}; each event is an object")
        try:
            check_json(item, max_chars=_MAX_CHARS, max_values=MAX_VALUES)
        except WireError as error:
            raise WireError(f"event {place}: {error}") from error
    return items


async def read_trajectory(text: str) -> list[Message]:
    """The turns of a trajectory: what the user said and what the agent answered, without what rewinds have undone.

    Raises:
        WireError: it is no list of events, or holds an action that cannot be done here; the message says which.
    """
    try:
        document = await read_document(text.encode(), max_values=MAX_VALUES, is_strict=False)
        items = await trajectory_of(document)
    except WireError as error:
        raise WireError(f"replay_json: {error}") from error
    except (ValueError, RecursionError) as error:
        raise WireError(f"replay_json: is no valid JSON ({error}); send an exported trajectory") from error
    turns = ReplayedTurns()
    async for place, (item, counts) in breathing(enumerate(zip(items, counting(items), strict=True))):
        if "action" not in item or item.get("source") == "environment" or not counts:
            continue
        try:
            _take(item, place, turns)
        except WireError as error:
            raise WireError(f"replay_json: event {place}: {error}") from error
    if not turns.messages or turns.messages[0].role != "user":
        raise WireError("replay_json: does not begin with a message of the user; send it from its beginning")
    return turns.messages


def counting(items: list[dict[str, Any]]) -> list[bool]:
    """Which of the events no rewind has undone."""
    if all(item.get("action") != "rewind" for item in items):
        return [True] * len(items)
    branches, last = Branches(), -1
    ids: list[int] = []
    for item in items:
        given = item.get("id")
        last = given if isinstance(given, int) and given > last else last + 1
        ids.append(last)
        event: Event = ForeignEvent(id=last, name="null", is_action=False)
        if item.get("action") == "rewind":
            to = _args(item).get("to")
            event = Rewind(id=last, to=to if isinstance(to, int) and 0 <= to < last else -1)
        branches.fold(event)
    return [branches.has(event_id) for event_id in ids]


def _take(item: dict[str, Any], place: int, turns: ReplayedTurns) -> None:
    name, args = item["action"], _args(item)
    if name in _WITHOUT_EFFECT or args.get("confirmation_state") in _UNDECIDED:
        return
    if name == "message":
        if (message := _message(item, args)) is not None:
            turns.say(message)
        return
    metadata, response = metadata_of(item), response_of(item)
    call_id = str(metadata.get("tool_call_id") or f"call_{place}")
    call = recorded_call(response, call_id) or translated_call(name, args, call_id)
    thought = args.get("thought")
    said = [TextContent(text=thought)] if isinstance(thought, str) and thought.strip() and name != "think" else []
    response_id = str(response.get("id") or "")
    # Answers whose calls were told one by one only belong together when they say so.
    turns.call(call, said, response_id if metadata.get("total_calls_in_response", 1) != 1 else "")


def _message(item: dict[str, Any], args: dict[str, Any]) -> Message | None:
    """What was said; None: nothing."""
    content, images = args.get("content"), modern_args(args).get("image_urls")
    if isinstance(content, str) and not content.strip() and not images:
        return None
    event = from_wire({"action": "message", "args": {"content": content, "image_urls": images}})
    if not isinstance(event, MessageEvent):
        raise WireError("action: is no message")
    if item.get("source") == "user":
        return event.llm_message
    return Message.assistant(event.llm_message.text)


def _args(item: dict[str, Any]) -> dict[str, Any]:
    return object_of(item.get("args"))
