"""Previews as ASGI middleware before everything else, so that no route of Drydock is reached from a preview's name."""

from __future__ import annotations

import html
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from agent_core.errors import EventStoreError, SandboxError
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.runtime.channel.tunnels import PortError
from server.auth.doorkeeper import Doorkeeper, address_of
from server.auth.identity import Authenticator, presented_token
from server.auth.origin import OriginPolicy
from server.auth.preview_addresses import LOCAL_DOMAIN, PATH_PREFIX, mark_of, ticket_in, without_ticket
from server.doors.preview.access import PASS_SECONDS, AccessKind, PreviewLinks, PreviewPass, cookies_in
from server.doors.preview.headers import Headers, PreviewPlace, guards, path_of_this_host
from server.doors.preview.http_proxy import (
    ClientGoneError,
    HttpProxy,
    IncompleteAnswerError,
    PreviewLimits,
    UpstreamError,
)
from server.doors.preview.other_servers import ABSENT, ELSEWHERE, PortStream, RemotePort
from server.doors.preview.websocket_proxy import WebSocketProxy
from server.errors import broke_off
from server.http.base_path import base_path_of

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>{title}</title><body style="font: 16px/1.5 system-ui; margin: 15vh auto; max-width: 34em; padding: 0 1em">
<h1 style="font-size: 1.3em">{title}</h1><p>{text}</p></body></html>
"""

TITLES = {
    400: "This request cannot be passed on",
    403: "This preview is not open to you",
    405: "This cannot be asked of a preview",
    429: "Too many wrong addresses",
    431: "This request cannot be passed on",
    502: "The preview does not answer",
    503: "The sandbox is not running",
    504: "The preview does not answer in time",
}


logger = logging.getLogger(__name__)

_NOT_NOW = frozenset({ABSENT, "busy", ELSEWHERE, "sandbox"})
"""Codes of failures that say nothing of the program."""
_NOT_OPEN = "Open it from its conversation, under Ports. If it was open before, its time is over: open it there again."
_GUESSED = "Too many addresses were tried that no preview has. Try again in"
_FOREIGN = "Another page asked for it. Only the preview's own pages may."


class PreviewSandboxes(Protocol):
    """The sandboxes of running conversations; `server.conversation_manager` has them."""

    url_of: Callable[[str], Awaitable[str | None]] | None
    """The address of another server that runs a conversation, where there are others."""

    def sandbox(self, conversation_id: str) -> ConversationSandbox | None:
        """The sandbox of a conversation; None while it does not run."""

    def touch(self, conversation_id: str) -> None:
        """Note that it is in use."""


class _RefusedError(Exception):
    """The request gets this answer, and nothing is asked of the sandbox."""

    def __init__(self, status: int, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = [] if retry_after is None else [(b"retry-after", str(retry_after).encode())]


class Preview:
    """ASGI middleware around the whole server."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        links: PreviewLinks,
        manager: PreviewSandboxes,
        authenticator: Authenticator,
        origins: OriginPolicy,
        keeper: Doorkeeper | None = None,
        is_active: Callable[[str], Awaitable[bool]] | None = None,
        limits: PreviewLimits | None = None,
    ) -> None:
        self._app = app
        self._addresses = links.addresses
        self._passes = links.passes
        self._manager = manager
        self._authenticator = authenticator
        self._keeper = keeper or Doorkeeper(authenticator)
        self._origins = origins
        self._is_active = is_active
        self._limits = limits or PreviewLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if self._addresses.parse(host) is not None:
            await self._at_host(scope, headers, receive, send)
        elif scope["path"].startswith(PATH_PREFIX) and self._origins.refusal(host, None) is None:
            await self._under_path(scope, headers, receive, send)
        else:
            await self._app(scope, receive, send)

    # --- a host of its own ---

    async def _at_host(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        scheme = _scheme(scope)
        origin = f"{scheme}://{headers['host'].lower()}"
        place = PreviewPlace(0, origin)
        try:
            sealed = ticket_in(scope["query_string"].decode("latin-1"))
            ticket = None if sealed is None else self._for_host(self._passes.read("ticket", sealed), headers["host"])
            if ticket is not None and scope["type"] == "http" and "origin" not in headers:
                await self._let_in(scope, ticket, scheme, send)
                return
            allowed = ticket or self._allowed(scope, headers, sealed)
            # A page of another origin may ask with a ticket, which it could not have without being told.
            if ticket is None and headers.get("origin", origin).lower() != origin:
                raise _RefusedError(403, _FOREIGN)
            place = PreviewPlace(allowed.port, origin, page=allowed.page, is_open=ticket is not None)
            await self._pass_on(scope, allowed, place, _target(scope), receive, send)
        except _RefusedError as refusal:
            await self._refuse(scope, refusal, place, send)

    def _allowed(self, scope: Scope, headers: Mapping[str, str], ticket: str | None) -> PreviewPass:
        cookies = cookies_in(headers.get("cookie", ""))
        for sealed in cookies:
            allowed = self._for_host(self._passes.read("cookie", sealed), headers["host"])
            if allowed is not None:
                return allowed
        shown: list[tuple[AccessKind, str]] = [("cookie", sealed) for sealed in cookies]
        raise self._not_open(scope, shown if ticket is None else [*shown, ("ticket", ticket)])

    def _not_open(self, scope: Scope, shown: Sequence[tuple[AccessKind, str]]) -> _RefusedError:
        """What is answered to whoever has no pass; one that was never made here is counted as a wrong token is."""
        retry_after = None
        if forged := [sealed for kind, sealed in shown if self._passes.is_forged(kind, sealed)]:
            retry_after = self._keeper.wrong(" ".join(forged), address_of(scope), "a preview").retry_after
        if retry_after is None:
            return _RefusedError(403, _NOT_OPEN)
        return _RefusedError(429, f"{_GUESSED} {retry_after} s.", retry_after=retry_after)

    def _for_host(self, found: PreviewPass | None, host: str) -> PreviewPass | None:
        is_its_own = found and self._addresses.parse(host) == (found.port, mark_of(found.conversation_id))
        return found if is_its_own else None

    async def _let_in(self, scope: Scope, ticket: PreviewPass, scheme: str, send: Send) -> None:
        is_safe = scheme == "https" or self._addresses.domain == LOCAL_DOMAIN
        cookie = self._passes.cookie(self._passes.make("cookie", ticket, seconds=PASS_SECONDS), is_safe=is_safe)
        headers = [
            (b"location", path_of_this_host(_target(scope))),
            (b"set-cookie", cookie.encode("latin-1")),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"content-length", b"0"),
        ]
        await _respond(send, 303, headers)

    # --- a path ---

    async def _under_path(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        sealed, _, rest = raw.decode("latin-1")[len(PATH_PREFIX) :].partition("/")
        prefix = f"{base_path_of(scope)}{PATH_PREFIX}{sealed}"
        origin = f"{_scheme(scope)}://{headers.get('host', '').lower()}"
        place = PreviewPlace(0, origin, prefix)
        try:
            allowed = self._passes.read("path", sealed)
            if allowed is None:
                raise self._not_open(scope, [("path", sealed)])
            if headers.get("origin", "null").lower() not in {"null", origin}:
                raise _RefusedError(403, _FOREIGN)
            place = PreviewPlace(allowed.port, origin, prefix, is_open=True)
            if "access-control-request-method" in headers and scope["method"] == "OPTIONS":
                requested = headers.get("access-control-request-headers", "*")
                allowing = [
                    (b"access-control-allow-methods", headers["access-control-request-method"].encode("latin-1")),
                    (b"access-control-allow-headers", requested.encode("latin-1")),
                    (b"access-control-max-age", b"600"),
                ]
                await _respond(send, 204, [*allowing, *guards(place)])
                return
            # Clients that take the address for an origin put a slash behind it, although there is one.
            target = _target(scope, f"/{rest.lstrip('/')}")
            await self._pass_on(scope, allowed, place, target, receive, send)
        except _RefusedError as refusal:
            await self._refuse(scope, refusal, place, send)

    # --- both ---

    async def _pass_on(
        self, scope: Scope, allowed: PreviewPass, place: PreviewPlace, target: bytes, receive: Receive, send: Send
    ) -> None:
        if scope["type"] == "http" and scope["method"] in {"CONNECT", "TRACE"}:
            raise _RefusedError(405, f"A preview takes no {scope['method']}.")
        if self._is_active is not None and not await self._still(self._is_active(allowed.user_id)):
            raise _RefusedError(403, _NOT_OPEN)
        connection = await self._connect(allowed)
        touch = partial(self._manager.touch, allowed.conversation_id)
        try:
            kind = WebSocketProxy if scope["type"] == "websocket" else HttpProxy
            proxy = kind(place, connection, self._limits, touch, await self._keys(scope))
            await proxy.pass_on(target, scope, receive, send)
        except UpstreamError as error:
            raise _RefusedError(error.status, str(error)) from error
        except IncompleteAnswerError as error:
            logger.debug("preview of port %d: %s", allowed.port, error)
            broke_off.set(True)
        except ClientGoneError:
            return
        finally:
            connection.close()

    async def _connect(self, allowed: PreviewPass) -> PortStream:
        conversation_id = allowed.conversation_id
        self._manager.touch(conversation_id)
        sandbox, url_of = self._manager.sandbox(conversation_id), self._manager.url_of
        url = await url_of(conversation_id) if sandbox is None and url_of is not None else None
        try:
            if url is not None:
                return await RemotePort.open(url, self._passes.box, conversation_id, allowed.port)
            if sandbox is None:
                raise _RefusedError(503, "Open its conversation, or send it a message; then load this page again.")
            return await sandbox.connect_port(allowed.port)
        except PortError as error:
            raise _RefusedError(503 if error.code in _NOT_NOW else 502, str(error)) from error
        except SandboxError as error:
            raise _RefusedError(503, str(error)) from error

    async def _still(self, looked_up: Awaitable[bool]) -> bool:
        try:
            return await looked_up
        except EventStoreError as error:
            raise _RefusedError(503, str(error)) from error

    async def _keys(self, scope: Scope) -> frozenset[bytes]:
        """What the request shows as its ``Authorization`` that opens Drydock."""
        if not self._authenticator.required:
            return frozenset()
        shown = {value for name, value in scope["headers"] if name.lower() == b"authorization"}
        tokens = {value: presented_token({"authorization": value.decode("latin-1")}) for value in shown}
        known = self._authenticator.identify_token
        return frozenset([value for value, token in tokens.items() if token and await known(token) is not None])

    async def _refuse(self, scope: Scope, refusal: _RefusedError, place: PreviewPlace, send: Send) -> None:
        if scope["type"] == "websocket":
            if "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": 1008, "reason": str(refusal)[:100]})
                return
            body = str(refusal).encode()
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
            await _respond(send, refusal.status, headers, body, kind="websocket.http")
            return
        title = TITLES.get(refusal.status, TITLES[502])
        body = _PAGE.format(title=title, text=html.escape(str(refusal))).encode()
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await _respond(send, refusal.status, [*headers, *refusal.headers, *guards(place)], body)


async def _respond(send: Send, status: int, headers: Headers, body: bytes = b"", *, kind: str = "http") -> None:
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})


def _scheme(scope: Scope) -> str:
    return {"ws": "http", "wss": "https"}.get(scope["scheme"], str(scope["scheme"]))


def _target(scope: Scope, path: str | None = None) -> bytes:
    raw = path if path is not None else (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    return without_ticket(raw, scope["query_string"].decode("latin-1")).encode("latin-1")
