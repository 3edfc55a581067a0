"""What a server's program writes, read as messages of the protocol."""

from __future__ import annotations

import json
from typing import Any, Final

MAX_BYTES: Final = 16 * 1024 * 1024
"""Of a line, of a document, or of one event of a stream."""

MAX_VALUES: Final = 100_000
"""In it: more would be parsed for so long that everybody else had to wait."""

TOO_MUCH: Final = f"it answered with more than {MAX_BYTES} bytes or {MAX_VALUES} JSON values at once"
COMPRESSED: Final = "it answered with something compressed, though it was asked not to"
UNREADABLE: Final = "its answer cannot be read: it is no message of the protocol"


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
