"""Exported trajectories, back into the turns that an agent can do again (wire-protocol 4.3, agent-core 8.11)."""

from __future__ import annotations

import json
from typing import Any

from agent_core.controller.replay import Turns, call_of
from agent_core.events.branches import Branches, Rewind
from agent_core.events.control import ForeignEvent
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.tools.finish import FinishTool
from server.wire.errors import WireError
from server.wire.incoming import from_wire
from server.wire.json_data import check_json

_UNDECIDED = frozenset({"awaiting_confirmation", "rejected"})
_WITHOUT_EFFECT = frozenset({"system", "change_agent_state", "recall", "loop_recovery", "null", "rewind"}) | frozenset(
    {"condensation", "condensation_request"}
)


def read_trajectory(text: str, *, max_chars: int) -> list[Message]:
    """The turns of a trajectory: what the user said and what the agent answered, without what rewinds have undone.

    Raises:
        WireError: it is no list of events, or holds an action that cannot be done here; the message says which.
    """
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"replay_json: is no valid JSON ({error}); send an exported trajectory") from error
    if isinstance(items, dict) and isinstance(items.get("trajectory"), list):
        items = items["trajectory"]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise WireError("replay_json: is no list of events; send an exported trajectory")
    check_json(items, max_chars=max_chars)
    turns = Turns()
    for place, (item, counts) in enumerate(zip(items, _counting(items), strict=True)):
        if "action" not in item or item.get("source") == "environment" or not counts:
            continue
        try:
            _take(item, place, turns)
        except WireError as error:
            raise WireError(f"replay_json: event {place}: {error}") from error
    if not turns.messages or turns.messages[0].role != "user":
        raise WireError("replay_json: does not begin with a message of the user; send it from its beginning")
    return turns.messages


def _counting(items: list[dict[str, Any]]) -> list[bool]:
    """Which of the events no rewind has undone."""
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


def _take(item: dict[str, Any], place: int, turns: Turns) -> None:
    name, args = item["action"], _args(item)
    if name in _WITHOUT_EFFECT or args.get("confirmation_state") in _UNDECIDED:
        return
    if name == "message":
        turns.say(_message(item, args))
        return
    metadata = item.get("tool_call_metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    response = metadata.get("model_response")
    response = response if isinstance(response, dict) else {}
    call_id = str(metadata.get("tool_call_id") or f"call_{place}")
    call = _recorded_call(response, call_id) or _translated_call(name, args, call_id)
    thought = args.get("thought")
    said = [TextContent(text=thought)] if isinstance(thought, str) and thought.strip() and name != "think" else []
    response_id = str(response.get("id") or "")
    # Answers whose calls were told one by one only belong together when they say so.
    turns.call(call, said, response_id if metadata.get("total_calls_in_response", 1) != 1 else "")


def _message(item: dict[str, Any], args: dict[str, Any]) -> Message:
    event = from_wire({"action": "message", "args": {k: args.get(k) for k in ("content", "image_urls")}})
    if not isinstance(event, MessageEvent):
        raise WireError("action: is no message")
    if item.get("source") == "user":
        return event.llm_message
    return Message.assistant(event.llm_message.text)


def _recorded_call(response: dict[str, Any], call_id: str) -> MessageToolCall | None:
    """The call as the model made it, where the trajectory has its whole answer."""
    for choice in _list(response.get("choices")):
        for call in _list(_object(choice.get("message")).get("tool_calls")):
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
    event = from_wire({"action": name, "args": {key: args[key] for key in args if key != "cwd" or args[key]}})
    if not isinstance(event, ActionEvent) or event.action is None:
        raise WireError(f"action {name!r} cannot be done again by this server")
    return call_of(call_id, event.tool_name, event.action)


def _args(item: dict[str, Any]) -> dict[str, Any]:
    return _object(item.get("args"))


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
