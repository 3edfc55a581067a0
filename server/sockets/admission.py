"""Admission to the sockets: who may use them at all, and what a connection asks for in its handshake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from server.auth.audit import Actor, actor_of
from server.auth.doorkeeper import Doorkeeper, NotLetIn, address_of
from server.auth.identity import Authenticator, Identity
from server.errors import ConversationNotFoundError, coded_page
from server.http.base_path import base_path_of
from server.http.turnstile import Turnstile
from server.settings.git_hosts import PROVIDERS
from server.sockets.conversations import JoinRefusedError
from server.sockets.polling import is_socket_path, refusal
from server.wire.json_data import MAX_INTEGER

ABSENT: Final = frozenset({"", "null", "undefined"})
"""What browser clients send for a key that they do not have."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}")
_CONVERSATION_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")

INVALID_KEY: Final = "invalid_session_api_key"
_INVALID: Final = "invalid_handshake"


@dataclass(frozen=True, slots=True)
class Handshake:
    """Parameters of a handshake: events after the id `after` (-1: all), at most `replay_limit` (None: no limit).

    `seen_at` is the timestamp that the event `after` has for the client; "": it does not say.
    """

    conversation_id: str
    after: int
    seen_at: str
    replay_limit: int | None
    identity: Identity
    actor: Actor


async def read_handshake(environ: Mapping[str, Any], authenticator: Authenticator) -> Handshake:
    """The handshake of a connection, its key checked; `JoinRefusedError` with the protocol's message for the case."""
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    latest = _first(query, "latest_event_id")
    after = min(max(int(latest), -1), MAX_INTEGER) if _INTEGER.fullmatch(latest.strip()) else -1
    _check_providers(query.get("providers_set", []))
    conversation_id = _first(query, "conversation_id")
    if not conversation_id:
        raise JoinRefusedError("No conversation_id in query params", code=_INVALID)
    key = _first(query, "session_api_key")
    identity = await _identity(environ, key, authenticator)
    if identity is None:
        raise JoinRefusedError(INVALID_KEY, code=NotLetIn(was_shown=True).code)
    if _CONVERSATION_ID.fullmatch(conversation_id) is None:
        raise JoinRefusedError(f"Conversation {conversation_id[:128]} not found", code=ConversationNotFoundError.code)
    seen_at, replay_limit = _first(query, "latest_event_timestamp"), _replay_limit(_first(query, "replay_limit"))
    scope, shown = environ.get("asgi.scope", {}), key if key not in ABSENT else ""
    actor = actor_of(identity, scope, _headers(environ), key=shown)
    return Handshake(conversation_id, after, "" if seen_at in ABSENT else seen_at, replay_limit, identity, actor)


def _first(query: Mapping[str, list[str]], name: str) -> str:
    return query.get(name, [""])[0]


def _replay_limit(text: str) -> int | None:
    if text in ABSENT:
        return None
    if not _INTEGER.fullmatch(text) or int(text) < 1:
        raise JoinRefusedError("replay_limit is no number of events; send 1 or more, or leave it out", code=_INVALID)
    return int(text)


def _check_providers(values: list[str]) -> None:
    names = [name for value in values for name in value.split(",") if name]
    for name in names:
        if name not in PROVIDERS:
            known = ", ".join(PROVIDERS)
            problem = f"providers_set names {name[:80]!r}, which is no provider; known are {known}"
            raise JoinRefusedError(problem, code=_INVALID)


async def _identity(environ: Mapping[str, Any], key: str, authenticator: Authenticator) -> Identity | None:
    if key not in ABSENT:
        return await authenticator.identify_token(key)
    # Programs may show their key as they do for HTTP.
    return await authenticator.identify(_headers(environ))


def _headers(environ: Mapping[str, Any]) -> dict[str, str]:
    return {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") and isinstance(value, str)
    }


_SEPARATOR: Final = "\x1e"
_NOBODY: Final = json.dumps(
    {"sid": "refused", "upgrades": [], "pingInterval": 25_000, "pingTimeout": 20_000, "maxPayload": 1024}
)
"""The greeting that clients want to hear first; there is no connection behind it."""


class Admission:
    """ASGI middleware before everything of the sockets: checks the key, then the connection that a request names.

    Who has no key is told so in the protocol's words before anything else is looked at. `knows` tells open transports.
    """

    def __init__(self, app: ASGIApp, keeper: Doorkeeper, knows: Callable[[str, Identity], bool]) -> None:
        self._app = app
        self._keeper = keeper
        self._knows = knows
        self._openings = Turnstile()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"} or not is_socket_path(scope["path"]):
            await self._app(scope, receive, send)
            return
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        judged = await self._judged(scope, query)
        is_new = "sid" not in query
        if scope["type"] == "websocket":
            if isinstance(judged, NotLetIn):
                await _greet_and_refuse(_connect_error(judged, scope), receive, send)
                return
        elif isinstance(judged, NotLetIn):
            if is_new and scope["method"] == "GET" and "j" not in query:
                await PlainTextResponse(f"0{_NOBODY}{_SEPARATOR}{_connect_error(judged, scope)}")(scope, receive, send)
            else:
                answer = refusal(judged.status, judged.code, _reason(judged), base_path_of(scope))
                answer.raw_headers.extend(judged.headers)
                await answer(scope, receive, send)
            return
        elif not is_new and not self._knows(query["sid"][0], judged):
            problem = json.dumps(f"Invalid session {query['sid'][0][:100]}")
            await PlainTextResponse(problem, 400)(scope, receive, send)
            return
        elif is_new:  # those of WebSockets are let in one after the other before they are here
            await self._openings.pass_through()
        await self._app(scope, receive, send)

    async def _judged(self, scope: Scope, query: Mapping[str, list[str]]) -> Identity | NotLetIn:
        address = address_of(scope)
        key = query.get("session_api_key", [""])[0]
        if key not in ABSENT:
            return await self._keeper.by_token(key, address, "a socket")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        return await self._keeper.by_headers(headers, address, "a socket")


def _reason(judged: NotLetIn) -> str:
    return INVALID_KEY if judged.retry_after is None else judged.text


def _connect_error(judged: NotLetIn, scope: Scope) -> str:
    data: dict[str, Any] = dict(coded_page(judged.code, base_path_of(scope)))
    if judged.retry_after is not None:
        data["retry_after"] = judged.retry_after
    return f"44{json.dumps({'message': _reason(judged), 'data': data})}"


async def _greet_and_refuse(connect_error: str, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    for packet in (f"0{_NOBODY}", connect_error):
        await send({"type": "websocket.send", "text": packet})
    await send({"type": "websocket.close", "code": 1008})
