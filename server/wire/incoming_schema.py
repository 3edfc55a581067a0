"""The JSON schema of what clients send, as far as it is one for all types."""

from __future__ import annotations

from typing import Any

from server.wire.action_fields import ACTIONS, ADDITIONS
from server.wire.message_keys import CLIENT_KEY, MAX_KEY_CHARS, MAX_TIMEOUT_SECONDS
from server.wire.observation_fields import OBSERVATIONS


def event_schema() -> dict[str, Any]:
    """An object that names an action or an observation; which args or extras those have is not part of it."""
    fields = {"type": "object", "additionalProperties": True}
    return {
        "title": "ClientEvent",
        "description": "An action, or an observation; `args` and `extras` have the fields of its type.",
        "type": "object",
        "properties": {
            "id": {"enum": [None, -1], "description": "The server numbers the events."},
            "action": {"type": "string", "enum": sorted({*ACTIONS, *ADDITIONS})},
            "args": {**fields, "description": "The fields of an action."},
            "timeout": {
                "anyOf": [
                    {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_SECONDS},
                    {"type": "null"},
                ],
                "description": "Seconds; only read of actions.",
            },
            "observation": {"type": "string", "enum": sorted(OBSERVATIONS.keys() - {"agent_state_changed"})},
            "content": {"type": "string", "description": "The text of an observation."},
            "extras": {**fields, "description": "The fields of an observation."},
            "cause": {"description": "The id of the action that an observation is about."},
            CLIENT_KEY: {
                "anyOf": [
                    {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS, "pattern": "^[!-~]+$"},
                    {"type": "null"},
                ],
                "description": "The same once more is not stored again, like `Idempotency-Key`.",
            },
        },
        "oneOf": [{"required": ["action"]}, {"required": ["observation"]}],
    }
