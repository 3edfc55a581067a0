"""The schemas of all that goes over a socket, made from the models of the code: what is promised to clients.

What is taken is what the models say. What is sent has all fields of its type, always; what is left out at times is
listed here, as are the fields that are added to a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent_core.events.control import AgentState
from server.wire.fields import ACTIONS, ADDITIONS, OBSERVATIONS, Fields

Schema = dict[str, Any]

STRING: Final[Schema] = {"type": "string"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}
CONFIRMATION: Final[Schema] = {"enum": ["confirmed", "rejected", "awaiting_confirmation"]}
STATE: Final[Schema] = {"enum": [state.value for state in AgentState]}

REFUSED: Final = frozenset({"call_tool_mcp", "delegate"})
"""Actions that are never taken."""
LEFT_OUT: Final[Mapping[str, frozenset[str]]] = {
    "action change_agent_state": frozenset({"remember"}),
    "observation read": frozenset({"image_urls"}),
    "observation agent_state_changed": frozenset({"detail"}),
    "observation error": frozenset({"sign_in"}),
}
"""Fields that are sent where there is something to say."""


def maybe(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def record(properties: Schema, *, optional: frozenset[str] = frozenset()) -> Schema:
    """An object that has all these fields, but for the optional ones, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


USAGE: Final = record(
    {
        "model": STRING,
        "prompt_tokens": INTEGER,
        "completion_tokens": INTEGER,
        "cache_read_tokens": INTEGER,
        "cache_write_tokens": INTEGER,
        "context_window": INTEGER,
        "per_turn_token": INTEGER,
        "response_id": STRING,
    }
)
METRICS: Final = record(
    {
        "accumulated_cost": NUMBER,
        "max_budget_per_task": maybe(NUMBER),
        "accumulated_token_usage": USAGE,
        "costs": {"type": "array"},
        "response_latencies": {"type": "array"},
        "token_usages": {"type": "array"},
    }
)
METADATA: Final = record(
    {
        "function_name": STRING,
        "tool_call_id": STRING,
        "model_response": OBJECT,
        "total_calls_in_response": INTEGER,
    }
)
SENT_ADDITIONS: Final[dict[str, Schema]] = {
    "action rewind": record(
        {"to": maybe(INTEGER), "note": STRING, "thought": STRING, "forked_from": STRING},
        optional=frozenset({"forked_from"}),
    ),
    "observation rewind": record({"files_of": maybe(INTEGER)}),
}
"""Types of ours that no model is made for, since clients do not send them in that form."""

FRAMES: Final[dict[str, Schema]] = {
    "oh_event status": record(
        {
            "status_update": {"const": True},
            "type": {"enum": ["info", "error"]},
            "id": STRING,
            "message": STRING,
            "source": {"const": "environment"},
            "timestamp": STRING,
            "code": STRING,
            "docs": STRING,
        },
        optional=frozenset({"source", "timestamp", "code", "docs"}),
    ),
    "oh_event title": record(
        {
            "status_update": {"const": True},
            "type": {"const": "info"},
            "message": STRING,
            "conversation_title": STRING,
        }
    ),
    "oh_event error": record(
        {"error": {"const": True}, "message": STRING, "code": STRING, "docs": STRING},
        optional=frozenset({"code", "docs"}),
    ),
    "oh_event closed": record(
        {
            "message": {"const": ""},
            "observation": {"const": "agent_state_changed"},
            "content": {"const": ""},
            "extras": record({"agent_state": {"const": "stopped"}, "reason": {"const": ""}}),
        }
    ),
    "oh_delta text": record({"kind": {"enum": ["message", "reasoning"]}, "response_id": STRING, "text": STRING}),
    "oh_delta discard": record({"kind": {"const": "discard"}, "response_id": STRING}),
    "oh_delta output": record({"kind": {"const": "output"}, "cause": INTEGER, "text": STRING}),
    "oh_tool_call due": record(
        {
            "call_id": INTEGER,
            "name": STRING,
            "arguments": OBJECT,
            "deadline": maybe(STRING),
            "is_over": {"const": False},
        }
    ),
    "oh_resync": record(
        {
            "reason": {"enum": ["too_far_behind", "unknown_position"]},
            "latest_event_id": INTEGER,
            "start_id": INTEGER,
            "end_id": INTEGER,
        }
    ),
    "oh_tool_call over": record({"call_id": INTEGER, "name": STRING, "is_over": {"const": True}}),
}


def sent_schema(name: str, *, is_action: bool) -> Schema:
    """The schema of an event of the log as clients are sent it."""
    family = "action" if is_action else "observation"
    known = ACTIONS if is_action else OBSERVATIONS
    fields = SENT_ADDITIONS.get(f"{family} {name}") or _as_sent(known[name], LEFT_OUT.get(f"{family} {name}"))
    optional = {"tool_call_metadata", "llm_metrics", "timeout", "cause", "idempotency_key"}
    envelope: Schema = {
        "id": INTEGER,
        "timestamp": STRING,
        "source": {"enum": ["agent", "user", "environment"]},
        "message": STRING,
    }
    if is_action:
        fields = {**fields, "properties": {**fields["properties"], **_added_args(name)}}
        envelope |= {"action": {"const": name}, "tool_call_metadata": METADATA, "llm_metrics": METRICS}
        envelope |= {"args": fields, "timeout": NUMBER}
    else:
        envelope |= {"cause": INTEGER, "observation": {"const": name}, "content": STRING, "extras": fields}
        if name in ("run", "run_ipython"):
            envelope["success"] = BOOLEAN
    if name == "agent_state_changed":
        fields["properties"]["agent_state"] = STATE
        optional.add("id")  # the state that ends a replay
    return record({**envelope, "idempotency_key": STRING}, optional=frozenset(optional))


def sent_schemas() -> dict[str, Schema]:
    """All that the server sends, by the name of the socket's event and that of the type."""
    actions = [*(name for name in ACTIONS if name != "null"), "rewind"]
    observations = [*(name for name in OBSERVATIONS if name != "null"), "rewind"]
    return {
        **{f"oh_event action {name}": sent_schema(name, is_action=True) for name in actions},
        **{f"oh_event observation {name}": sent_schema(name, is_action=False) for name in observations},
        **FRAMES,
    }


def taken_schemas() -> dict[str, Schema]:
    """All that a client may send."""
    found: dict[str, Schema] = {}
    for name, model in {**ACTIONS, **ADDITIONS}.items():
        if name not in REFUSED:
            around: Schema = {
                "action": {"const": name},
                "args": _inlined(model.model_json_schema(), is_sent=False),
                "timeout": maybe(NUMBER),
            }
            found[f"action {name}"] = _taken(around, "action", has_fields=_has_required(model), where="args")
    for name, model in OBSERVATIONS.items():
        if name != "agent_state_changed":
            around = {
                "observation": {"const": name},
                "content": STRING,
                "extras": _inlined(model.model_json_schema(), is_sent=False),
            }
            around["cause"] = maybe(INTEGER)
            found[f"observation {name}"] = _taken(
                around, "observation", has_fields=_has_required(model), where="extras"
            )
            if name != "null":
                found[f"observation {name}"]["required"].append("content")
    return found


def _taken(properties: Schema, kind: str, *, has_fields: bool, where: str) -> Schema:
    # Keys at the top that nobody reads are ignored.
    required = [kind, where] if has_fields else [kind]
    properties = {**properties, "idempotency_key": maybe(STRING)}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": True}


def _has_required(model: type[Fields]) -> bool:
    return any(field.is_required() for field in model.model_fields.values())


def _as_sent(model: type[Fields], left_out: frozenset[str] | None) -> Schema:
    properties = _inlined(model.model_json_schema(), is_sent=True).get("properties", {})
    return record(properties, optional=left_out or frozenset())


_AT_TIMES: Final[Mapping[str, Schema]] = {"run": {"terminal": STRING}, "message": {"thought": STRING}}


def _added_args(name: str) -> Schema:
    # Whatever awaits a decision has the field, whether its type has it or not.
    added: Schema = (
        {} if "confirmation_state" in ACTIONS.get(name, Fields).model_fields else {"confirmation_state": CONFIRMATION}
    )
    return added | _AT_TIMES.get(name, {})


def _inlined(schema: Any, *, is_sent: bool, definitions: Schema | None = None) -> Any:
    """The schema with what it refers to in its place; objects in it that are sent are sent whole."""
    if isinstance(schema, list):
        return [_inlined(item, is_sent=is_sent, definitions=definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    definitions = schema.get("$defs", definitions)
    if "$ref" in schema:
        found = (definitions or {})[schema["$ref"].rpartition("/")[2]]
        inlined = _inlined(found, is_sent=is_sent, definitions=definitions)
        return record(inlined["properties"]) if is_sent else inlined
    dropped = {"$defs", "title", "description", "discriminator", *(["default"] if is_sent else [])}
    whole: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            fields = value.items()
            whole[key] = {name: _inlined(field, is_sent=is_sent, definitions=definitions) for name, field in fields}
        elif key not in dropped:
            whole[key] = _inlined(value, is_sent=is_sent, definitions=definitions)
    return whole
