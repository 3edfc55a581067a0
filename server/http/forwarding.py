"""`Forwarding`: requests about a conversation that another server runs are passed on to that one."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    import httpx

MARK: Final = b"x-drydock-forwarded"
"""A request that has come from another server is not passed on again."""
CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 30.0
"""How long the other server may be silent, before and within its answer."""

_ABOUT_ONE: Final = re.compile(rb"/api/conversations/([^/?]+)(/[^?]*)?")
_ANSWERED_BY_ALL: Final = frozenset({b"/events", b"/log", b"/log/live", b"/message", b"/trajectory"})
"""What is read from the log, or goes by way of the inbox: answered also while the other server is frozen."""
_OF_ONE_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
)
_SCHEME: Final = b"x-forwarded-proto"

logger = logging.getLogger(__name__)


class Forwarding:
    """ASGI middleware. `url_of` says which server runs a conversation; None: this one answers.

    It keeps connections to the others, which `aclose` ends.
    """

    def __init__(self, app: ASGIApp, url_of: Callable[[str], Awaitable[str | None]]) -> None:
        self._app = app
        self._url_of = url_of
        self._client: httpx.AsyncClient | None = None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        url = await self._target(scope) if scope["type"] == "http" else None
        if url is None:
            await self._app(scope, receive, send)
        elif any(name == MARK for name, _ in scope["headers"]):
            await _refuse("the conversation has changed its server in this moment; ask again")(scope, receive, send)
        else:
            await self._pass_on(url, scope, receive, send)

    async def _target(self, scope: Scope) -> str | None:
        found = _ABOUT_ONE.fullmatch(scope.get("raw_path") or b"")
        if found is None or found[2] in _ANSWERED_BY_ALL or (found[2] is None and scope["method"] == "GET"):
            return None
        return await self._url_of(unquote(found[1].decode("latin-1")))

    async def _pass_on(self, url: str, scope: Scope, receive: Receive, send: Send) -> None:
        import httpx  # a fifth of a second that a server without others need not spend

        if self._client is None:
            limits = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
            self._client = httpx.AsyncClient(timeout=limits, trust_env=False, follow_redirects=False)
        headers = [(name, value) for name, value in scope["headers"] if name not in _OF_ONE_HOP | {_SCHEME}]
        headers.append((_SCHEME, scope["scheme"].encode()))  # of addresses in its answer: this one may end the TLS
        client = scope.get("client")
        if client is not None:
            headers.append((b"x-forwarded-for", client[0].encode("latin-1")))
        headers.append((MARK, b"1"))
        target = url.rstrip("/").encode() + scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
        started = False
        try:
            request = self._client.build_request(
                scope["method"], target.decode("latin-1"), headers=headers, content=_body(receive) if has_body else None
            )
            async with aclosing(await self._client.send(request, stream=True)) as answer:
                kept = [(name, value) for name, value in answer.headers.raw if name.lower() not in _OF_ONE_HOP]
                started = True
                await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
                async for piece in answer.aiter_raw():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except httpx.TransportError as error:
            logger.warning("the server at %s, which runs the conversation, does not answer: %r", url, error)
            if started:
                raise
            text = "the server that runs this conversation does not answer; another one goes on with it in some seconds"
            await _refuse(text)(scope, receive, send)


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the client went away before its request was whole")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


def _refuse(text: str) -> JSONResponse:
    return JSONResponse({"detail": text, "message": text}, 503, {"retry-after": "1"})
