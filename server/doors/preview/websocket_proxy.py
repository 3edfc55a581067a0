"""Proxy of WebSockets to a preview."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send
from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from agent_core.errors import SandboxError
from agent_core.runtime.channel.tunnels import PortConnection
from server.doors.preview.headers import for_browser, for_sandbox
from server.doors.preview.http_proxy import PreviewLimits, PreviewProxy, UpstreamError
from server.sockets.connections import WIRE_KEY

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
Event = TypeVar("Event")
_HANDSHAKE = (b"sec-websocket-", b"content-", b"date", b"server")
_SENDABLE = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})


class WebSocketProxy(PreviewProxy):
    """A WebSocket: two connections, and each message of one passed on to the other as it comes."""

    async def pass_on(self, target: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass messages on until a side closes; `UpstreamError`, before anything is accepted: no such protocol."""
        inner = _Inner(self.connection, self._protocol(scope, target), self.limits)
        response = await self._handshake(inner, scope)
        if response.status_code != 101:
            await self._deny(response, scope, send)
            return
        kept = [(name, value) for name, value in self._answered(response) if not name.startswith(_HANDSHAKE)]
        protocol = inner.protocol.subprotocol
        wire = (scope.get("extensions") or {}).get(WIRE_KEY)
        if wire is not None:
            wire.take(MAX_MESSAGE_BYTES)
        await send({"type": "websocket.accept", "subprotocol": protocol, "headers": kept})
        outward = asyncio.create_task(self._outward(inner, send), name="preview-websocket-out")
        inward = asyncio.create_task(self._inward(inner, receive), name="preview-websocket-in")
        try:
            await asyncio.wait({outward, inward}, return_when=asyncio.FIRST_COMPLETED)
            if inward.done() and not inward.result():
                await outward
        finally:
            for task in (outward, inward):
                task.cancel()
            await asyncio.wait({outward, inward})
        for task in (inward, outward):
            if not task.cancelled():
                task.result()

    def _protocol(self, scope: Scope, target: str) -> ClientProtocol:
        path, _, query = target.partition("?")
        uri = WebSocketURI(False, "localhost", self.place.port, path, query)
        wanted = [Subprotocol(name) for name in scope.get("subprotocols", [])]
        return ClientProtocol(uri, subprotocols=wanted or None, max_size=MAX_MESSAGE_BYTES)

    async def _handshake(self, inner: _Inner, scope: Scope) -> Response:
        request = inner.protocol.connect()
        for name, value in for_sandbox(scope["headers"], self.place, self.is_drydocks):
            if name != b"host":
                request.headers[name.decode("latin-1")] = value.decode("latin-1")
        inner.protocol.send_request(request)
        try:
            async with asyncio.timeout(self.limits.answer_seconds):
                await inner.flush()
                while True:
                    for event in await inner.receive(Response):
                        problem = inner.protocol.handshake_exc
                        if event.status_code == 101 and problem is not None:
                            raise UpstreamError(f"The program did not open the WebSocket as it has to: {problem}.")
                        return event
                    if inner.is_over or inner.protocol.handshake_exc is not None:
                        raise UpstreamError("The program does not speak the WebSocket protocol.")
        except TimeoutError:
            raise UpstreamError("The program did not answer in time.", status=504) from None
        except SandboxError as error:
            raise UpstreamError(str(error)) from error

    async def _deny(self, response: Response, scope: Scope, send: Send) -> None:
        status = response.status_code if 200 <= response.status_code <= 599 else 502
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        dropped = {b"content-length", b"content-encoding"}
        headers = [header for header in self._answered(response) if header[0] not in dropped]
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": bytes(response.body or b"")})

    def _answered(self, response: Response) -> list[tuple[bytes, bytes]]:
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items()]
        return for_browser(raw, self.place)

    async def _inward(self, inner: _Inner, receive: Receive) -> bool:
        while True:
            message = await receive()
            self.touch()
            if message["type"] == "websocket.disconnect":
                code = message.get("code", 1005)
                await inner.close(code if _is_sendable(code) else None, message.get("reason") or "")
                return True
            try:
                await inner.send(message)
            except SandboxError:
                return False  # the other direction tells it

    async def _outward(self, inner: _Inner, send: Send) -> None:
        parts: list[bytes] = []
        kind = Opcode.BINARY
        code, reason = 1011, "the program in the sandbox broke the connection off"
        try:
            while not inner.is_done:
                for event in await inner.receive(Frame):
                    if event.opcode in (Opcode.PING, Opcode.PONG):
                        continue
                    if event.opcode is Opcode.CLOSE:
                        break
                    if event.opcode is not Opcode.CONT:
                        kind = event.opcode
                    parts.append(bytes(event.data))
                    if event.fin:
                        whole, parts = b"".join(parts), []
                        self.touch()
                        async with asyncio.timeout(self.limits.idle_seconds):
                            body = {"text": whole.decode()} if kind is Opcode.TEXT else {"bytes": whole}
                            await send({"type": "websocket.send", **body})
        except UnicodeDecodeError:
            code, reason = 1007, "the program in the sandbox sent a text that is no UTF-8"
        except (SandboxError, TimeoutError):
            reason = "the sandbox broke the connection off"
        else:
            received = inner.protocol.close_rcvd
            if received is not None:
                code, reason = (received.code if _is_sendable(received.code) else 1000), received.reason
        await send({"type": "websocket.close", "code": code, "reason": reason})


class _Inner:
    """The connection to the program: the protocol and the bytes, written by one task at a time."""

    def __init__(self, connection: PortConnection, protocol: ClientProtocol, limits: PreviewLimits) -> None:
        self.protocol = protocol
        self.is_over = False
        self._connection = connection
        self._limits = limits
        self._turn = asyncio.Lock()
        self._events: list[object] = []

    @property
    def is_done(self) -> bool:
        return self.is_over and not self._events

    async def receive(self, kind: type[Event]) -> list[Event]:
        if not self._events:
            await self._receive()
        events = [event for event in self._events if isinstance(event, kind)]
        self._events = [event for event in self._events if not isinstance(event, kind)]
        return events

    async def _receive(self) -> None:
        async with asyncio.timeout(self._limits.idle_seconds):
            data = await self._connection.read()
        if data:
            self.protocol.receive_data(data)
        else:
            self.is_over = True
            self.protocol.receive_eof()
        self._events += self.protocol.events_received()
        await self.flush()
        if self.protocol.close_rcvd is not None or self.protocol.parser_exc is not None:
            self.is_over = True

    async def send(self, message: Any) -> None:
        try:
            if message.get("text") is not None:
                self.protocol.send_text(message["text"].encode())
            else:
                self.protocol.send_binary(message.get("bytes") or b"")
        except WebSocketException:
            return  # it is closing already
        await self.flush()

    async def close(self, code: int | None, reason: str) -> None:
        try:
            self.protocol.send_close(code, reason)
            async with asyncio.timeout(self._limits.answer_seconds):
                await self.flush()
        except (WebSocketException, SandboxError, TimeoutError):
            return

    async def flush(self) -> None:
        async with self._turn:
            for data in self.protocol.data_to_send():
                if data:
                    await self._connection.write(data)
                else:
                    self._connection.end()


def _is_sendable(code: int) -> bool:
    return code in _SENDABLE or 3000 <= code <= 4999
