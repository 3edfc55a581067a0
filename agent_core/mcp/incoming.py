"""What a server's program writes, read as messages of the protocol."""

from __future__ import annotations

import json
from typing import Any

UNREADABLE = "its answer cannot be read: it is no message of the protocol"


def read_message(line: bytes) -> Any:
    """The message of a line, in the form that the client library wants.

    Raises:
        ValueError: it is none, and no answer that somebody waits for.
    """
    from mcp.shared.message import SessionMessage
    from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        # An answer that cannot be read is one all the same: nobody shall wait for another.
        if (request := _answered(line)) is None:
            raise
        error = ErrorData(code=PARSE_ERROR, message=UNREADABLE)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=error))


def _answered(line: bytes) -> int | str | None:
    """The id of the request that a line answers, if it seems to answer one."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or "method" in message or not ({"result", "error"} & message.keys()):
        return None
    request = message.get("id")
    return request if isinstance(request, int | str) else None
