"""Proxy of WebSockets to a preview."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.types import Receive, Scope, Send
from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from agent_core.errors import SandboxError
from server.doors.preview.headers import Headers, for_browser, for_sandbox
from server.doors.preview.http_proxy import PreviewProxy, UpstreamError
from server.http.user_header import HIDDEN_HEADERS
from server.http.uvicorn_protocols import CONTROL_KEY

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_Event = TypeVar("_Event")
_HANDSHAKE = (b"sec-websocket-", b"content-", b"date", b"server")
_SENDABLE = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})


@dataclass(slots=True)
class WebSocketProxy(PreviewProxy):
    """A WebSocket: two connections, and each message of one passed on to the other as it comes."""

    _protocol: ClientProtocol = field(init=False)
    _is_over: bool = field(init=False, default=False)
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    """The connection to the program is written by one task at a time."""
    _events: list[object] = field(init=False, default_factory=list)

    async def pass_on(self, target: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass messages on until a side closes; `UpstreamError`, before anything is accepted: no such protocol."""
        await receive()
        path, _, query = target.decode("latin-1").partition("?")
        uri = WebSocketURI(False, "localhost", self.place.port, path, query)
        protocols = [Subprotocol(name) for name in scope.get("subprotocols", [])]
        self._protocol = ClientProtocol(uri, subprotocols=protocols or None, max_size=MAX_MESSAGE_BYTES)
        response = await self._handshake(scope)
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items()]
        headers = for_browser(raw, self.place)
        if response.status_code != 101:
            await _deny(response, headers, scope, send)
            return
        passed = [(name, value) for name, value in headers if not name.startswith(_HANDSHAKE)]
        control = (scope.get("extensions") or {}).get(CONTROL_KEY)
        if control is not None:
            control.take(MAX_MESSAGE_BYTES)
        await send({"type": "websocket.accept", "subprotocol": self._protocol.subprotocol, "headers": passed})
        outward = asyncio.create_task(self._outward(send), name="preview-websocket-out")
        inward = asyncio.create_task(self._inward(receive), name="preview-websocket-in")
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

    async def _handshake(self, scope: Scope) -> Response:
        request, hidden = self._protocol.connect(), scope.get(HIDDEN_HEADERS, ())
        for name, value in for_sandbox(scope["headers"], self.place, self.keys, hidden):
            if name != b"host":
                request.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_request(request)
        try:
            async with asyncio.timeout(self.limits.answer_seconds):
                await self._flush()
                while True:
                    for event in await self._received(Response):
                        problem = self._protocol.handshake_exc
                        if event.status_code == 101 and problem is not None:
                            raise UpstreamError(f"The program did not open the WebSocket as it has to: {problem}.")
                        return event
                    if self._is_over or self._protocol.handshake_exc is not None:
                        raise UpstreamError("The program does not speak the WebSocket protocol.")
        except TimeoutError:
            raise UpstreamError("The program did not answer in time.", status=504) from None
        except SandboxError as error:
            raise UpstreamError(str(error)) from error

    async def _inward(self, receive: Receive) -> bool:
        while True:
            message = await receive()
            self.touch()
            if message["type"] == "websocket.disconnect":
                code = message.get("code", 1005)
                with contextlib.suppress(WebSocketException, SandboxError, TimeoutError):
                    self._protocol.send_close(code if _is_sendable(code) else None, message.get("reason") or "")
                    async with asyncio.timeout(self.limits.answer_seconds):
                        await self._flush()
                return True
            try:
                if message.get("text") is not None:
                    self._protocol.send_text(message["text"].encode())
                else:
                    self._protocol.send_binary(message.get("bytes") or b"")
                await self._flush()
            except WebSocketException:
                continue  # it is closing already
            except SandboxError:
                return False  # the other direction tells it

    async def _outward(self, send: Send) -> None:
        parts: list[bytes] = []
        kind = Opcode.BINARY
        code, reason = 1011, "the program in the sandbox broke the connection off"
        try:
            while self._events or not self._is_over:
                for event in await self._received(Frame):
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
            received = self._protocol.close_rcvd
            if received is not None:
                code, reason = (received.code if _is_sendable(received.code) else 1000), received.reason
        await send({"type": "websocket.close", "code": code, "reason": reason})

    async def _received(self, kind: type[_Event]) -> list[_Event]:
        """What the program has sent of this kind, waited for where nothing is there."""
        if not self._events:
            async with asyncio.timeout(self.limits.idle_seconds):
                data = await self.connection.read()
            if data:
                self._protocol.receive_data(data)
            else:
                self._is_over = True
                self._protocol.receive_eof()
            self._events += self._protocol.events_received()
            await self._flush()
            if self._protocol.close_rcvd is not None or self._protocol.parser_exc is not None:
                self._is_over = True
        events = [event for event in self._events if isinstance(event, kind)]
        self._events = [event for event in self._events if not isinstance(event, kind)]
        return events

    async def _flush(self) -> None:
        async with self._turn:
            for data in self._protocol.data_to_send():
                if data:
                    await self.connection.write(data)
                else:
                    self.connection.end()


async def _deny(response: Response, headers: Headers, scope: Scope, send: Send) -> None:
    status = response.status_code if 200 <= response.status_code <= 599 else 502
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    passed = [header for header in headers if header[0] not in (b"content-length", b"content-encoding")]
    await send({"type": "websocket.http.response.start", "status": status, "headers": passed})
    await send({"type": "websocket.http.response.body", "body": bytes(response.body or b"")})


def _is_sendable(code: int) -> bool:
    return code in _SENDABLE or 3000 <= code <= 4999
