"""What every request passes first, Socket.IO's too: host, origin, rate, token, size; and the headers of replies."""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.auth.identity import Authenticator
from server.auth.origin import OriginPolicy
from server.chat.replies import refusal_body
from server.settings import Settings
from server.sign_in import SIGN_IN
from server.strict_address import address_problem

OPENAI_PREFIX: Final = "/v1/"
API_PREFIXES: Final = ("/api/", OPENAI_PREFIX, "/mcp/", "/docs", "/openapi.json")
UPLOADS: Final = "/upload-files"
"""How the paths end whose bodies are passed on as they come, and may therefore be large."""

SOCKET_PREFIX: Final = "/socket.io"
BURST_SECONDS: Final = 4.0
MAX_TRACKED_CLIENTS: Final = 10_000
logger = logging.getLogger(__name__)


class RateLimiter:
    """A token bucket for each client address; the least recently seen addresses are forgotten first."""

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._size = max(per_second * BURST_SECONDS, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str, now: float) -> bool:
        """Whether one more request of `client` may pass at the monotonic time `now`."""
        if self._rate == 0:
            return True
        filled, last = self._buckets.pop(client, (self._size, now))
        filled = min(self._size, filled + (now - last) * self._rate)
        allowed = filled >= 1.0
        self._buckets[client] = (filled - 1.0 if allowed else filled, now)
        if len(self._buckets) > MAX_TRACKED_CLIENTS:
            self._buckets.popitem(last=False)
        return allowed


class _BodyTooLargeError(HTTPException):
    """The body grew over the limit while it was read; an application that handles it answers by itself."""


class Gate:
    """ASGI middleware around the whole server."""

    def __init__(
        self, app: ASGIApp, *, settings: Settings, authenticator: Authenticator, origins: OriginPolicy
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._origins = origins
        self._limiter = RateLimiter(settings.requests_per_second)
        self._max_body = ("max_request_bytes", settings.max_request_bytes)
        self._max_upload = ("max_upload_bytes", settings.max_upload_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        refusal = self._origins.refusal(headers.get("host"), headers.get("origin"))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        await receive()
        # Before it was accepted, this is a plain 403.
        logger.info("refused a websocket: %s", refusal)
        await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        path: str = scope["path"]
        guarded_send = _with_headers(send, self._policy(headers.get("host", "")))
        refusal = self._refuse(scope, path, headers)
        if refusal is not None:
            status, body, extra = refusal
            await _reply(guarded_send, status, _in_form_of(path, status, body), extra)
            return
        received = 0
        started = False

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit(path)[1]:
                raise _BodyTooLargeError(413, self._too_large(path)["detail"])
            return message

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await guarded_send(message)

        try:
            await self._app(scope, counted_receive, watched_send)
        except _BodyTooLargeError:
            if started:
                raise
            await _reply(guarded_send, 413, self._too_large(path), [])

    def _refuse(
        self, scope: Scope, path: str, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]] | None:
        refusal = self._origins.refusal(headers.get("host"), headers.get("origin"))
        if refusal is not None:
            return 403, _told(refusal), []
        is_api = path.startswith(API_PREFIXES) or path == "/api"
        if (is_api or path.startswith(SOCKET_PREFIX)) and _is_embedded_elsewhere(headers):
            return 403, _told("Pages of other origins may not use this server."), []
        if is_api or path == SIGN_IN:
            client = scope.get("client")
            if not self._limiter.allows(client[0] if client else "", time.monotonic()):
                return 429, {"message": "Too many requests"}, [(b"retry-after", b"1")]
        is_preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
        if is_api and not is_preflight and self._authenticator.identify(headers) is None:
            return 401, {"detail": "Unauthorized"}, [(b"www-authenticate", b"Bearer")]
        if is_api and (problem := address_problem(scope)) is not None:
            return *problem, []
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limit(path)[1]:
            # The connection stays: closed under a client that still sends, it would never see the reply.
            return 413, self._too_large(path), []
        return None

    def _policy(self, host: str) -> str:
        return content_security_policy(host, self._origins.previews.frame_sources(host))

    def _limit(self, path: str) -> tuple[str, int]:
        """The setting that bounds the body of a request, and its value."""
        return self._max_upload if path.endswith(UPLOADS) else self._max_body

    def _too_large(self, path: str) -> dict[str, str]:
        name, limit = self._limit(path)
        return _told(f"The request is larger than the {limit} bytes that this server takes ({name}).")


def _told(text: str) -> dict[str, str]:
    """The body of a refusal that says what helps: `message` is what the protocol's clients show."""
    return {"detail": text, "message": text}


def _in_form_of(path: str, status: int, body: dict[str, Any]) -> dict[str, Any]:
    """The refusal in the form that the route's clients read."""
    if not path.startswith(OPENAI_PREFIX):
        return body
    text = body.get("detail") or body.get("message")
    return refusal_body(status, text if isinstance(text, str) else "; ".join(str(one["msg"]) for one in text or ()))


def _is_embedded_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a browser asks for another site's page without saying whose: as a script or a picture of it."""
    is_foreign = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
    return is_foreign and "origin" not in headers and headers.get("sec-fetch-mode") != "navigate"


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        # Several are one list (RFC 9110), so that none of them is checked in another's place.
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _json(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _json_headers(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]


async def _reply(send: Send, status: int, body: object, headers: list[tuple[bytes, bytes]]) -> None:
    content = _json(body)
    await send({"type": "http.response.start", "status": status, "headers": [*_json_headers(content), *headers]})
    await send({"type": "http.response.body", "body": content})


def content_security_policy(host: str, frames: str = "'self'") -> str:
    """What the page may do, and what it may show in frames (sources of previews).

    Sockets are named with their host: older browsers do not count them as ``'self'``.
    """
    return (
        "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
        f"connect-src 'self' ws://{host} wss://{host}; object-src 'none'; base-uri 'none'; form-action 'self'; "
        f"frame-ancestors 'none'; frame-src {frames}"
    )


def _with_headers(send: Send, policy: str) -> Send:
    """Adds what protects each reply, and keeps it from being stored, where it says nothing else itself."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in message["headers"]}
            extra = [
                (b"cache-control", b"no-store"),
                (b"x-content-type-options", b"nosniff"),
                (b"referrer-policy", b"no-referrer"),
                (b"content-security-policy", policy.encode("latin-1")),
            ]
            message = {
                **message,
                "headers": [*message["headers"], *(entry for entry in extra if entry[0] not in names)],
            }
        await send(message)

    return send_with_headers
