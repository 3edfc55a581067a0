"""Handshakes of WebSockets that do not come to their end: no fault of the server, and no end of it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from starlette.types import Receive, Scope, Send

from server.auth.doorkeeper import Doorkeeper
from server.auth.identity import OneTokenAuthenticator
from server.http.uvicorn_protocols import CONTROL_KEY, BoundedHttpProtocol, BoundedWebSocketProtocol
from server.sockets.admission import Admission
from tests.serving import serving

PROTOCOLS: dict[str, Any] = {"http": BoundedHttpProtocol, "ws": BoundedWebSocketProtocol, "lifespan": "off"}
HANDSHAKE = b"\r\n".join(
    [
        b"GET /socket.io/?EIO=4&transport=websocket&session_api_key=wrong HTTP/1.1",
        *(b"Host: 127.0.0.1", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13"),
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    ]
)


async def test_a_client_that_hangs_up_in_its_handshake_is_no_fault_of_the_server() -> None:
    ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    keeper = Doorkeeper(OneTokenAuthenticator("a-key-of-more-than-24-characters"))

    async def nobody(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("a stranger was let in")

    admission = Admission(nobody, keeper, lambda *_: False)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"][CONTROL_KEY].abort()  # seen by the transport, and not told yet
        try:
            await admission(scope, receive, send)
        except BaseException as error:
            ended.set_result(error)
            raise
        ended.set_result(None)

    async with serving(app, **PROTOCOLS) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(HANDSHAKE)
            assert isinstance(await ended, OSError)  # what says that a client has gone, of which nobody makes a line


async def test_a_handshake_that_has_failed_does_not_keep_the_server_from_its_end() -> None:
    came, over = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        scope["extensions"][CONTROL_KEY].send_500_response()
        came.set()
        await over.wait()

    async with serving(app, **PROTOCOLS) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(HANDSHAKE)
            await came.wait()
            asyncio.get_running_loop().call_later(0.3, over.set)
        # Leaving ends the server in order: what fails for one connection would be raised here.
