"""The calls of tools that a trajectory records, as a model made them or would make them here."""

from __future__ import annotations

import json
from typing import Any

from agent_core.controller.replay import call_of
from agent_core.events.llm_events import ActionEvent
from agent_core.events.messages import MessageToolCall
from agent_core.tools.finish import FinishTool
from server.wire.errors import WireError
from server.wire.incoming import from_wire
from server.wire.recorded import known_args


def metadata_of(item: dict[str, Any]) -> dict[str, Any]:
    """What an action's ``tool_call_metadata`` say, if it has any."""
    return object_of(item.get("tool_call_metadata"))


def response_of(item: dict[str, Any]) -> dict[str, Any]:
    """The answer of the model that an action came from, if it is recorded."""
    return object_of(metadata_of(item).get("model_response"))


def recorded_call(response: dict[str, Any], call_id: str) -> MessageToolCall | None:
    """The call as the model made it, where the trajectory has its whole answer."""
    for choice in list_of(response.get("choices")):
        for call in list_of(object_of(choice.get("message")).get("tool_calls")):
            function = object_of(call.get("function"))
            if call.get("id") == call_id and isinstance(function.get("name"), str):
                arguments = function.get("arguments")
                arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
                return MessageToolCall(id=call_id, name=function["name"], arguments=arguments)
    return None


def translated_call(name: object, args: dict[str, Any], call_id: str) -> MessageToolCall:
    """The call of a tool here that does what this action did.

    Raises:
        WireError: there is none.
    """
    if name == "finish":
        message = str(args.get("final_thought") or args.get("thought") or "")
        return MessageToolCall(id=call_id, name=FinishTool.tool_name, arguments=json.dumps({"message": message}))
    if name == "call_tool_mcp":
        return MessageToolCall(
            id=call_id, name=str(args.get("name", "")), arguments=json.dumps(object_of(args.get("arguments")))
        )
    known = known_args(name, args)
    event = from_wire({"action": name, "args": {key: known[key] for key in known if key != "cwd" or known[key]}})
    if not isinstance(event, ActionEvent) or event.action is None:
        raise WireError(f"action {name!r} cannot be done again by this server")
    return call_of(call_id, event.tool_name, event.action)


def object_of(value: object) -> dict[str, Any]:
    """The value, or an empty object where it is none."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
