"""`Gate`: what every request passes first, Socket.IO's too: host, origin, rate, token, size; headers of replies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import unquote_to_bytes

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_core.errors import EventStoreError
from agent_core.spans import Span
from agent_core.troubles import Trouble
from server.auth.audit import ACTOR, NOBODY, actor_of
from server.auth.doorkeeper import Doorkeeper, NotLetIn, RateLimiter, address_of
from server.auth.identity import IDENTITY, Authenticator, Identity, Permission, Role, refused_permission
from server.auth.origin import OriginPolicy, wrong_origin
from server.auth.shared_links import NOTHING_ELSE
from server.errors import (
    RETRY_SECONDS,
    EndingError,
    PermissionDeniedError,
    RefusedBodyError,
    code_of,
    coded_page,
    problems_body,
    refusal_body,
    status_of,
)
from server.http.sign_in import SIGN_IN
from server.settings.settings import Settings

METRICS: Final = "/metrics"
"""Path of what the server counts: for who shows the token, like the API."""

OPENAI_PREFIX: Final = "/v1/"
API_PREFIXES: Final = ("/api/", OPENAI_PREFIX, "/mcp/", "/docs", "/openapi.json", METRICS)
UPLOADS: Final = ("/upload-files", "/import/archive")
"""End of the paths whose bodies are passed on as they come, and may therefore be large."""

SOCKET_PREFIX: Final = "/socket.io"
OAUTH_PREFIX: Final = "/oauth/"
"""What is asked without a token by whoever comes back from a sign-in with an MCP server."""

OIDC_BEGIN: Final = "/api/auth/oidc/begin"
OIDC_FINISH: Final = "/api/auth/oidc/finish"
STRANGERS: Final = frozenset({"/api/auth/sign-in", "/api/auth/link", "/api/auth/link/use", OIDC_BEGIN, OIDC_FINISH})
"""What is asked by who is not signed in yet, where users have accounts."""
OWN_ACCOUNT: Final = "/api/auth/"
"""How the paths begin where all users, whatever their role, look after their accounts."""
ADMINISTRATION: Final = ("/api/admin/", "/api/docker-hosts")
"""How the paths begin that are for administrators alone."""

SERVER_INFO: Final = "/server_info"
"""Path that tells strangers what this is, and no more; with the token, how it does. A wrong one is refused."""

_LARGE: Final = 1024 * 1024
"""Bytes of all bodies after which it is looked whether there is memory for more, and again after as many more."""
_SMALL: Final = 64 * 1024
"""A body is not refused for that before it is larger: what is small ends things, too."""

_TOO_LARGE: Final = "request_too_large"
_FOR_GUESTS: Final = ("/api/conversations/", "/api/options/config", "/api/shared", SERVER_INFO)
"""How the paths begin that are answered to who has nothing but a link."""

_TOO_SLOW: Final = "The request did not come in time; send it again, over a faster connection or in smaller pieces."
_ENDED: Final = (
    "The server has ended before it could answer; when it is back, look whether this was done before you ask again."
)
_MAX_NAME: Final = 80
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PLAIN: Final = (SOCKET_PREFIX, "/mcp/mcp", "/docs", OAUTH_PREFIX)
"""How paths begin that are no routes of the API's."""
logger = logging.getLogger(__name__)


def forbidden(identity: Identity, method: str, path: str) -> str | None:
    """Why this user may not ask this, or not with this token; None: they may, if it is theirs."""
    if path.startswith(ADMINISTRATION):
        return refused_permission(identity, Permission.ADMIN)
    if path == METRICS and identity.role is not Role.ADMINISTRATOR:
        return "What the server counts is for administrators."
    if method in _READING:
        return refused_permission(identity, Permission.READ)
    if path.startswith(OWN_ACCOUNT) and Permission.WRITE in identity.scopes:
        return None
    return refused_permission(identity, Permission.WRITE)


class _Pace:
    """Time limit of a body: some time, and more with what has come of it."""

    seconds: ClassVar[float] = 30.0
    bytes_per_second: ClassVar[float] = 16 * 1024

    def __init__(self) -> None:
        self._waited = 0.0

    async def next(self, receive: Receive, received: int) -> Message:
        """The next piece; `TimeoutError` if late, not counting while the application did not ask."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.seconds + received / self.bytes_per_second - self._waited):
                return await receive()
        finally:
            self._waited += time.monotonic() - began


class Gate:
    """ASGI middleware around the whole server.

    `shortage` tells why there is no memory for a large body, or "". `scripts` are the policy's sources of the scripts
    that stand in the page itself.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        authenticator: Authenticator,
        origins: OriginPolicy,
        keeper: Doorkeeper | None = None,
        shortage: Callable[[], str] = str,
        scripts: Callable[[], str] = str,
    ) -> None:
        self._app = app
        self._shortage = shortage
        self._scripts = scripts
        self._keeper = keeper or Doorkeeper(authenticator)
        self._origins = origins
        self._base_path = settings.base_path
        self._unlooked = 0
        ways = ["password", *(["oidc"] if settings.oidc_issuer is not None else [])]
        self._how = {"sign_in": ways} if settings.users == "accounts" else {}
        self._strangers = STRANGERS if settings.users == "accounts" else frozenset()
        self._limiter = RateLimiter(settings.requests_per_second)
        self._max_body = ("max_request_bytes", settings.max_request_bytes)
        self._max_upload = ("max_upload_bytes", settings.max_upload_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            is_traced = scope["path"].startswith(API_PREFIXES) and scope["path"] != METRICS
            facts = {"is_traced": is_traced, "traced_by": _trace_headers(scope) if is_traced else {}}
            with Span("http_request", method=_method_of(scope), status="none", **facts) as span:
                try:
                    await self._http(scope, receive, _noting_status(send, span))
                finally:
                    span.facts["route"] = _route_of(scope)
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
        logger.debug("refused a websocket: %s", refusal.text)
        await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        path: str = scope["path"]
        guarded_send = _with_headers(send, self._policy(headers.get("host", "")))
        refusal = await self._refuse(scope, path, headers)
        if refusal is not None:
            status, body, extra = refusal
            response = JSONResponse(self._in_form_of(path, status, body), status)
            response.raw_headers.extend(extra)
            await response(scope, receive, guarded_send)
            return
        received = 0
        started = False
        is_whole = False
        pace = _Pace()

        async def counted_receive() -> Message:
            nonlocal received, is_whole
            if is_whole:
                return await receive()
            try:
                message = await pace.next(receive, received)
            except TimeoutError:
                raise RefusedBodyError(408, "request_too_slow", _TOO_SLOW, {"connection": "close"}) from None
            size = len(message.get("body", b""))
            received += size
            if received > self._limit(path)[1]:
                raise RefusedBodyError(413, _TOO_LARGE, self._too_large(path))
            self._unlooked += 0 if path.endswith(UPLOADS) else size
            if self._unlooked > _LARGE and received > _SMALL and not path.endswith(UPLOADS):
                self._unlooked = 0
                if problem := self._shortage():
                    headers = {"retry-after": "5", "connection": "close"}
                    raise RefusedBodyError(503, Trouble.MEMORY_CEILING, problem, headers)
            is_whole = not message.get("more_body", False)
            return message

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await guarded_send(message)

        try:
            await self._app(scope, counted_receive, watched_send)
        except RefusedBodyError as error:
            if started:
                raise
            body = self._body(error.code, error.detail)
            await JSONResponse(body, error.status_code, error.headers)(scope, receive, guarded_send)
        except asyncio.CancelledError:
            # So uvicorn breaks off, at its end, what is not answered in time; it would say that with a 500.
            if not started:
                body = self._in_form_of(path, 503, self._body(EndingError.code, _ENDED))
                await JSONResponse(body, 503, {"connection": "close"})(scope, receive, guarded_send)
            raise

    async def _refuse(
        self, scope: Scope, path: str, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]] | None:
        refusal = self._origins.refusal(headers.get("host"), headers.get("origin"))
        if refusal is not None:
            return 403, self._body(*refusal), []
        is_api = path.startswith(API_PREFIXES) or path == "/api"
        if (is_api or path.startswith(SOCKET_PREFIX)) and _is_embedded_elsewhere(headers):
            return 403, self._body(*wrong_origin("Pages of other origins may not use this server.")), []
        is_counted = is_api or path == SIGN_IN or path.startswith(OAUTH_PREFIX)
        if is_counted and not self._limiter.allows(address_of(scope), time.monotonic()):
            page = coded_page("rate_limit_exceeded", self._base_path)
            return 429, {"message": "Too many requests", **page}, [(b"retry-after", b"1")]
        ACTOR.set(actor_of(NOBODY, scope, {}))
        is_preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
        if (is_api or path == SERVER_INFO) and not is_preflight:
            try:
                judged = await self._keeper.by_headers(headers, address_of(scope), path.split("/")[1])
            except EventStoreError as error:
                body = self._body(code_of(error), str(error))
                return status_of(error, 503), body, [(b"retry-after", str(RETRY_SECONDS).encode())]
            if not isinstance(judged, NotLetIn):
                if (why := forbidden(judged, scope["method"], path)) is not None:
                    return 403, self._body(PermissionDeniedError.code, why), []
                if judged.is_guest and not path.startswith(_FOR_GUESTS):
                    return 403, self._body(PermissionDeniedError.code, NOTHING_ELSE), []
                scope[IDENTITY] = judged
                ACTOR.set(actor_of(judged, scope, headers))
            elif path not in self._strangers and (is_api or judged.was_shown):
                page = coded_page(judged.code, self._base_path)
                return judged.status, {**judged.body, **page, **self._how}, judged.headers
        if is_api and (problem := address_problem(scope)) is not None:
            return *problem, []
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limit(path)[1]:
            # The connection stays: closed under a client that still sends, it would never see the reply.
            return 413, self._body(_TOO_LARGE, self._too_large(path)), []
        return None

    def _policy(self, host: str) -> str:
        return content_security_policy(host, self._origins.previews.frame_sources(host), self._scripts())

    def _in_form_of(self, path: str, status: int, body: dict[str, Any]) -> dict[str, Any]:
        if not path.startswith(OPENAI_PREFIX):
            return body
        text = body.get("detail") or body.get("message")
        words = text if isinstance(text, str) else "; ".join(str(one["msg"]) for one in text or ())
        return refusal_body(status, words, code=body.get("code"), base_path=self._base_path)

    def _limit(self, path: str) -> tuple[str, int]:
        return self._max_upload if path.endswith(UPLOADS) else self._max_body

    def _too_large(self, path: str) -> str:
        if not path.startswith(API_PREFIXES):  # strangers get here
            return "The request is larger than this server takes."
        name, limit = self._limit(path)
        return f"The request is larger than the {limit} bytes that this server takes ({name})."

    def _body(self, code: str, text: str) -> dict[str, str]:
        """The body of a refusal that says what helps: `message` is what the protocol's clients show."""
        return {"detail": text, "message": text, **coded_page(code, self._base_path)}


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


def content_security_policy(host: str, frames: str = "'self'", scripts: str = "") -> str:
    """What the page may do, run of its own and frame. Sockets are named with their host, for older browsers."""
    return (
        f"default-src 'self'; script-src 'self'{scripts}; img-src 'self' data: blob:; "
        f"style-src 'self' 'unsafe-inline'; connect-src 'self' ws://{host} wss://{host}; object-src 'none'; "
        f"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; frame-src {frames}"
    )


def _method_of(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "other"


def _route_of(scope: Scope) -> str:
    """The template of the route that was asked; few words, whatever clients ask for."""
    if (route := scope.get("route")) is not None:
        return str(route.path)
    path: str = scope["path"]
    if plain := next((one for one in _PLAIN if path.startswith(one)), ""):
        return plain
    return "page" if "endpoint" in scope else "refused"


def _trace_headers(scope: Scope) -> dict[str, str]:
    """What the request says of the trace that it belongs to (W3C Trace Context)."""
    wanted = (b"traceparent", b"tracestate")
    return {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in wanted}


def _noting_status(send: Send, span: Span) -> Send:
    async def send_noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            span.facts["status"] = str(message["status"])
        await send(message)

    return send_noted


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
            added = [entry for entry in extra if entry[0] not in names]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return send_with_headers


def address_problem(scope: Scope) -> tuple[int, dict[str, Any]] | None:
    """The status and the body of the refusal of a request's path or query; None where there is nothing to refuse."""
    raw_path: bytes = scope.get("raw_path") or b""
    if b"%" in raw_path and _text(raw_path) is None:
        return 400, {"detail": "path: holds bytes that are no UTF-8; percent-encode text as UTF-8"}
    # A NUL in the id of a conversation has an answer of the protocol's own.
    if b"%00" in raw_path and b"%00" not in raw_path.removeprefix(b"/api/conversations/").split(b"/")[0]:
        return 400, {"detail": "path: holds a NUL character; leave it out"}
    query: bytes = scope.get("query_string", b"")
    if query.isascii() and b"%" not in query:
        return None
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        problem = _problem(name) or _problem(value)
        if problem is not None:
            shown = (_text(name) or "").replace("\0", "")[:_MAX_NAME]
            return 422, problems_body([{"type": "value_error", "loc": ["query", shown], "msg": problem}])
    return None


def _problem(raw: bytes) -> str | None:
    text = _text(raw)
    if text is None:
        return "holds bytes that are no UTF-8; percent-encode text as UTF-8"
    return "holds a NUL character; leave it out" if "\0" in text else None


def _text(raw: bytes) -> str | None:
    # Starlette would put replacement characters in, and go on with another text than the client meant.
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        return None
