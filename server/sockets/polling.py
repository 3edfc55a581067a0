"""Long polling where engine.io leaves it open: how many packets one request takes, and what is no packet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import coded_page
from server.http.base_path import base_path_of
from server.wire.errors import WireError

MAX_PACKETS: Final = 16
"""In one request or reply: engine.io's Python library, at either end, reads no more and drops the connection."""

MAX_POSTED: Final = 5_000
"""Packets in one request of a client."""

_PATH: Final = "/socket.io/"
_SEPARATOR: Final = "\x1e"
_BEGINNINGS: Final = frozenset("1345b")
"""First characters of what clients may post: close, pong, message, upgrade, a binary message."""

_NO_TEXT: Final = "the packets are no UTF-8; send text, and binary data as files"
_NO_PACKET: Final = "packet {} of the request is none of Engine.IO's that a client posts; send messages, such as 42[…]"
_TOO_MANY: Final = "the request has more than the {} packets that this server takes; send less at once"
_LARGE: Final = "request_too_large"
_TOO_LARGE: Final = "the request is larger than the {} bytes that this server takes; send less at once"


class PacketQueue(asyncio.Queue[Any]):
    """What waits for one client; without waiting it gives no more at once than a client reads from one reply."""

    _taken = 0
    _is_shut = False

    def shut(self) -> None:
        """Let go of everything, wake up who waits, and take nothing more."""
        while not self.empty():
            super().get_nowait()
            self.task_done()
        super().put_nowait(None)
        self._is_shut = True

    def put_nowait(self, item: Any) -> None:
        if not self._is_shut:
            super().put_nowait(item)

    async def get(self) -> Any:
        self._taken = 0
        return await super().get()

    def get_nowait(self) -> Any:
        if self._taken >= MAX_PACKETS:
            raise asyncio.QueueEmpty
        packet = super().get_nowait()
        self._taken += 1
        return packet


class PayloadKeeper:
    """ASGI middleware: engine.io gets no more packets at once than it reads, and none that it would drop with a 200.

    `max_bytes` gives how much one request of a transport may have.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: Callable[[str], int]) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not is_socket_path(scope["path"]):
            await self._app(scope, receive, send)
            return
        base = base_path_of(scope)
        transport_id = parse_qs(scope["query_string"].decode("latin-1")).get("sid", [""])[0]
        max_bytes = self._max_bytes(transport_id)
        if _length(scope) > max_bytes:
            await refusal(413, _LARGE, _TOO_LARGE.format(max_bytes), base)(scope, receive, send)
            return
        body = await _read(receive, max_bytes)
        if body is None:
            return
        if len(body) > max_bytes:
            await refusal(413, _LARGE, _TOO_LARGE.format(max_bytes), base)(scope, receive, send)
            return
        try:
            text = body.decode()
        except UnicodeDecodeError:
            await refusal(400, WireError.code, _NO_TEXT, base)(scope, receive, send)
            return
        if text.startswith("d="):  # as a form, which browsers without other means send
            text = parse_qs(text).get("d", [""])[0]
        if text.count(_SEPARATOR) >= MAX_POSTED:
            await refusal(413, _LARGE, _TOO_MANY.format(MAX_POSTED), base)(scope, receive, send)
            return
        packets = text.split(_SEPARATOR)
        for number, packet in enumerate(packets, start=1):
            if packet[:1] not in _BEGINNINGS:
                await refusal(400, WireError.code, _NO_PACKET.format(number), base)(scope, receive, send)
                return
        await self._pass_on(scope, receive, send, packets)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, packets: list[str]) -> None:
        for index in range(0, len(packets), MAX_PACKETS):
            part = _SEPARATOR.join(packets[index : index + MAX_PACKETS]).encode()
            reply = _Reply()
            await asyncio.sleep(0)  # pongs and the like are answered without a pause in which others had their turn
            await self._app(_with_length(scope, len(part)), _Body(part, receive), reply)
            if reply.status >= 400:
                break
        for message in reply.messages:
            await send(message)


class _Body:
    """Receives a whole body, and then what else comes over the connection."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._messages: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])
        self._receive = receive

    async def __call__(self) -> Message:
        message = next(self._messages, None)
        return await self._receive() if message is None else message


class _Reply:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.status = 0

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)
        if message["type"] == "http.response.start":
            self.status = message["status"]


async def _read(receive: Receive, limit: int) -> bytearray | None:
    """The body, up to the first piece beyond the limit; None when the client has gone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        piece: bytes = message.get("body", b"")
        body += piece
        if not message.get("more_body", False) or len(body) > limit:
            return body


def _with_length(scope: Scope, length: int) -> Scope:
    headers = [header for header in scope["headers"] if header[0] not in (b"content-length", b"transfer-encoding")]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


def _length(scope: Scope) -> int:
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(length) if length.isdigit() else 0


def is_socket_path(path: str) -> bool:
    """Whether a request to this path is Socket.IO's."""
    return path.startswith(_PATH) or path == _PATH.rstrip("/")


def refusal(status: int, code: str, problem: str, base_path: str) -> JSONResponse:
    """The answer with a problem in words, and with its code, whose page is below `base_path`."""
    return JSONResponse({"detail": problem, "message": problem, **coded_page(code, base_path)}, status)
