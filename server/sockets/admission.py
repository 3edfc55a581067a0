"""Who may use the sockets at all: nothing that a stranger sends is read, kept or given to the library."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

from server.auth.guesses import Doorkeeper, NotLetIn, address_of
from server.auth.identity import Identity
from server.sockets.handshake import ABSENT
from server.sockets.polling import is_socket_path, refuse

INVALID_KEY: Final = "invalid_session_api_key"
_SEPARATOR: Final = "\x1e"
_NOBODY: Final = json.dumps(
    {"sid": "refused", "upgrades": [], "pingInterval": 25_000, "pingTimeout": 20_000, "maxPayload": 1024}
)
"""The greeting that clients want to hear before they listen to anything; there is no connection behind it."""


class Admission:
    """ASGI middleware before everything of the sockets: the key, then the connection that a request says it is of.

    Who has no key is told so in the protocol's own words, without a connection for it, and without a look at what else
    it sends. `knows` says whether there is a connection of this id at the transport.
    """

    def __init__(self, app: ASGIApp, keeper: Doorkeeper, knows: Callable[[str], bool]) -> None:
        self._app = app
        self._keeper = keeper
        self._knows = knows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"} or not is_socket_path(scope["path"]):
            await self._app(scope, receive, send)
            return
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        judged = self._judged(scope, query)
        is_new = "sid" not in query
        if scope["type"] == "websocket":
            if isinstance(judged, NotLetIn):
                await _greet_and_refuse(judged, receive, send)
                return
        elif isinstance(judged, NotLetIn):
            if is_new and scope["method"] == "GET" and "j" not in query:
                await _answer(send, f"0{_NOBODY}{_SEPARATOR}{_connect_error(judged)}")
            else:
                await refuse(send, judged.status, _reason(judged), judged.headers)
            return
        elif not is_new and not self._knows(query["sid"][0]):
            await _answer(send, json.dumps(f"Invalid session {query['sid'][0][:100]}"), status=400)
            return
        await self._app(scope, receive, send)

    def _judged(self, scope: Scope, query: Mapping[str, list[str]]) -> Identity | NotLetIn:
        address = address_of(scope)
        key = query.get("session_api_key", [""])[0]
        if key not in ABSENT:
            return self._keeper.by_token(key, address, "a socket")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        return self._keeper.by_headers(headers, address, "a socket")


def _reason(judged: NotLetIn) -> str:
    return INVALID_KEY if judged.retry_after is None else judged.text


def _connect_error(judged: NotLetIn) -> str:
    told: dict[str, Any] = {"message": _reason(judged)}
    if judged.retry_after is not None:
        told["data"] = {"retry_after": judged.retry_after}
    return f"44{json.dumps(told)}"


async def _greet_and_refuse(judged: NotLetIn, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    for packet in (f"0{_NOBODY}", _connect_error(judged)):
        await send({"type": "websocket.send", "text": packet})
    await send({"type": "websocket.close", "code": 1008})


async def _answer(send: Send, text: str, *, status: int = 200) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=UTF-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
