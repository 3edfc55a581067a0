"""What went wrong with a server, told apart and put in words."""

from __future__ import annotations

from agent_core.mcp.incoming import COMPRESSED, TOO_MUCH, UNREADABLE
from agent_core.mcp.program import McpServerError


def is_refused_session(error: BaseException) -> bool:
    """Whether an HTTP server did not look at the request because it does not know the session (any more)."""
    from mcp import MCPError

    codes = (-32600, -32000, -32001)
    return isinstance(error, MCPError) and error.code in codes and "session" in error.message.lower()


def is_closed(error: BaseException) -> bool:
    """Whether the connection ended while an answer was waited for."""
    from anyio import BrokenResourceError, ClosedResourceError
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED

    cause = cause_of(error)
    if isinstance(cause, BrokenResourceError | ClosedResourceError):
        return True
    words = ("closed", "ended", "failed")  # servers use the same code for errors of their own
    return (
        isinstance(cause, MCPError)
        and cause.code == CONNECTION_CLOSED
        and any(word in cause.message.lower() for word in words)
    )


def was_reached(error: BaseException) -> bool:
    """Whether there was anything at the server's address that may have got the request."""
    from httpx2 import ConnectError, ConnectTimeout

    return not isinstance(cause_of(error), ConnectError | ConnectTimeout)


def cause_of(error: BaseException) -> BaseException:
    """What the library's groups of errors are about: the first of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException) -> str:
    """What went wrong, in words."""
    from httpx2 import ConnectError, HTTPStatusError, RemoteProtocolError, SSEError, TimeoutException
    from mcp import MCPError

    cause = cause_of(error)
    match cause:
        case McpServerError():
            return str(cause)
        case HTTPStatusError():
            status = cause.response.status_code
            return f"it answered with the HTTP status {status}{advice_on(status)}"
        case ConnectError():
            return "nothing answers at its address"
        case TimeoutException():
            return "it took too long to answer"
        case RemoteProtocolError():
            return "what is at its address does not speak HTTP; check the address"
        case SSEError():
            return "what is at its address sends no stream of events; check the address and the transport"
        case MCPError(code=-32700):  # whose text would be that of our own parser
            return next((why for why in (TOO_MUCH, COMPRESSED) if why in cause.message), UNREADABLE)
        case MCPError():
            return f"it answered with an error: {' '.join(cause.message.split())[:500]}"
        case _:
            return f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}".rstrip(": ")


def advice_on(status: int) -> str:
    """What to do about an HTTP status; begins with a semicolon, empty where there is nothing to say."""
    if status in (401, 403):
        return "; check its key, or what else it wants to be shown"
    return "; check its address" if status in (404, 405) else ""
