"""Ports of sandboxes that another server has: that one passes the bytes on over a WebSocket between the two.

A message of bytes is what goes over the connection to the port, the text ``end`` its end in one direction. Who asks
shows what only a server with the same key can have sealed.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from agent_core.errors import SandboxError
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.runtime.channel.tunnels import PortConnection, PortError
from server.auth.secrets import SecretBox, SecretUnreadableError
from server.http.uvicorn_protocols import CONTROL_KEY

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

PATH: Final = "/between-servers/port"
HEADER: Final = "x-drydock-port"
OPEN_SECONDS: Final = 10.0
"""How long the other server has for its answer, and its sandbox for its own."""
PASS_SECONDS: Final = 600.0
"""So long what was sealed counts: longer than clocks are apart."""
MAX_MESSAGE_BYTES: Final = 1024 * 1024
END: Final = "end"
ABSENT: Final = "absent"
"""Code of an error: the sandbox does not run."""
ELSEWHERE: Final = "elsewhere"
"""Code of an error: the server that has the sandbox does not answer."""
_PURPOSE: Final = "port between servers"


class PortStream(Protocol):
    """A connection to a port in a sandbox, here or elsewhere: see `PortConnection`."""

    async def read(self) -> bytes: ...

    async def write(self, data: bytes) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


class OwnSandboxes(Protocol):
    """The sandboxes of conversations that this server runs."""

    def sandbox(self, conversation_id: str) -> ConversationSandbox | None: ...

    def touch(self, conversation_id: str) -> None: ...


class RemotePort:
    """A `PortStream` to a sandbox of another server; `open` it, and `close` it in the end."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str, box: SecretBox, conversation_id: str, port: int) -> RemotePort:
        """Raises `PortError`, of the code `ELSEWHERE` where it is that server which does not answer."""
        from websockets.asyncio.client import connect  # memory that a server without others need not have
        from websockets.exceptions import InvalidStatus, WebSocketException

        sealed = box.encrypt(json.dumps([conversation_id, port, time.time() + PASS_SECONDS]), purpose=_PURPOSE)
        opening = connect(
            "ws" + url.removeprefix("http").rstrip("/") + PATH,
            additional_headers={HEADER: sealed},
            compression=None,
            proxy=None,
            open_timeout=2 * OPEN_SECONDS,
            ping_interval=None,
            max_size=MAX_MESSAGE_BYTES,
        )
        try:
            return cls(await opening)
        except InvalidStatus as error:
            with suppress(ValueError, LookupError, TypeError):
                told = json.loads(error.response.body or b"")
                raise PortError(str(told["detail"]), code=str(told["code"])) from error
            raise PortError("The server that has the sandbox refused the connection.", code=ELSEWHERE) from error
        except (OSError, WebSocketException) as error:
            raise PortError("The server that has the sandbox does not answer.", code=ELSEWHERE) from error

    async def read(self) -> bytes:
        from websockets.exceptions import ConnectionClosed

        try:
            message = await self._socket.recv()
        except ConnectionClosed as error:
            raise PortError(error.rcvd.reason if error.rcvd and error.rcvd.reason else _BROKEN, code="reset") from error
        return message if isinstance(message, bytes) else b""

    async def write(self, data: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        view = memoryview(data)
        try:
            for start in range(0, len(view), MAX_MESSAGE_BYTES):
                await self._socket.send(view[start : start + MAX_MESSAGE_BYTES])
        except ConnectionClosed as error:
            raise PortError(_BROKEN, code="reset") from error

    def end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="remote-port-end")

    def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._socket.transport.abort()

    async def _end(self) -> None:
        from websockets.exceptions import ConnectionClosed

        with suppress(ConnectionClosed):
            await self._socket.send(END)


_BROKEN: Final = "The connection to the server that has the sandbox broke off."


class PortDoor:
    """ASGI middleware around the whole server: connects other servers with ports of the sandboxes here."""

    def __init__(self, app: ASGIApp, box: SecretBox, sandboxes: OwnSandboxes) -> None:
        self._app = app
        self._box = box
        self._sandboxes = sandboxes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        sealed = next((value for name, value in scope["headers"] if name == HEADER.encode()), b"")
        await receive()
        asked = self._opened(sealed.decode("latin-1"))
        if asked is None:
            await _deny(send, 403, "another key", "This is for servers that share a database.")
            return
        conversation_id, port = asked
        try:
            connection = await self._connect(conversation_id, port)
        except SandboxError as error:
            await _deny(send, 503, getattr(error, "code", "") or "sandbox", str(error))
            return
        try:
            control = (scope.get("extensions") or {}).get(CONTROL_KEY)
            if control is not None:
                control.take(MAX_MESSAGE_BYTES)
            await send({"type": "websocket.accept"})
            await self._pass_on(conversation_id, connection, receive, send)
        finally:
            connection.close()

    def _opened(self, sealed: str) -> tuple[str, int] | None:
        try:
            conversation_id, port, until = json.loads(self._box.decrypt(sealed, purpose=_PURPOSE))
        except (SecretUnreadableError, UnicodeEncodeError):
            return None
        return (conversation_id, port) if time.time() < until else None

    async def _connect(self, conversation_id: str, port: int) -> PortConnection:
        self._sandboxes.touch(conversation_id)
        sandbox = self._sandboxes.sandbox(conversation_id)
        if sandbox is None:
            raise SandboxError("Open its conversation, or send it a message; then load this page again.", code=ABSENT)
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return await sandbox.connect_port(port)
        except TimeoutError:
            raise PortError("The sandbox does not answer.", code="sandbox") from None

    async def _pass_on(self, conversation_id: str, connection: PortConnection, receive: Receive, send: Send) -> None:
        outward = asyncio.create_task(self._outward(conversation_id, connection, send), name="port-out")
        inward = asyncio.create_task(self._inward(conversation_id, connection, receive), name="port-in")
        try:
            await asyncio.wait({outward, inward}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (outward, inward):
                task.cancel()
            await asyncio.wait({outward, inward})

    async def _inward(self, conversation_id: str, connection: PortConnection, receive: Receive) -> None:
        """From the other server to the port, until that server closes."""
        with suppress(SandboxError):
            while (message := await receive())["type"] != "websocket.disconnect":
                self._sandboxes.touch(conversation_id)
                if (data := message.get("bytes")) is not None:
                    await connection.write(data)
                else:
                    connection.end()
            return
        await asyncio.Event().wait()  # the other direction tells it

    async def _outward(self, conversation_id: str, connection: PortConnection, send: Send) -> None:
        """From the port to the other server, which closes when it has the end."""
        try:
            while data := await connection.read():
                self._sandboxes.touch(conversation_id)
                await send({"type": "websocket.send", "bytes": data})
            await send({"type": "websocket.send", "text": END})
        except SandboxError as error:
            await send({"type": "websocket.close", "code": 1011, "reason": str(error)[:100]})
            return
        await asyncio.Event().wait()


async def _deny(send: Send, status: int, code: str, text: str) -> None:
    body = json.dumps({"code": code, "detail": text}).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
