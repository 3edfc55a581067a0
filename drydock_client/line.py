"""One live connection to a conversation: Socket.IO over a WebSocket, as far as a reader needs it.

What this says of the protocols: a connection is opened (``0{…}``), joined (``40``; refused: ``44{…}``), events come as
``42[name, argument]``, and a ping (``2``) wants its pong (``3``). Nothing is read ahead of the program but what the
transport holds, so a slow program costs a bounded amount of memory here and makes the server wait.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlencode

from drydock_client.errors import NotDrydockError, UnreachableError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""A limit against nonsense, far beyond what a server stores in one event."""
READ_AHEAD: Final = 16
"""Frames that the transport may hold before it makes the server wait."""
CLOSE_SECONDS: Final = 2.0


class LineRefused(Exception):  # noqa: N818 - not an error by itself: it may pass
    """The server refused the connection, with this message."""


class Line:
    """A joined connection; `receive` it until it is over, and `close` it."""

    def __init__(self, socket: ClientConnection, silence: float) -> None:
        self._socket = socket
        self._silence = silence
        self._first: tuple[str, Any] | None = None

    @classmethod
    async def open(
        cls, base_url: str, conversation_id: str, after: int, headers: Mapping[str, str], seconds: float
    ) -> Self:
        """Connect and join, to be told what came after the event `after`.

        Raises:
            LineRefused: the server said no.
            UnreachableError: there was no connection, or not in time.
            NotDrydockError: there is no such server.
        """
        from websockets.asyncio.client import connect  # its home; imported late, like httpx
        from websockets.exceptions import InvalidHandshake, InvalidMessage, WebSocketException

        query = urlencode(
            {
                "conversation_id": conversation_id,
                "latest_event_id": after,
                "providers_set": "",
                "EIO": "4",
                "transport": "websocket",
            }
        )
        url = f"ws{base_url.removeprefix('http')}/socket.io/?{query}"
        try:
            async with asyncio.timeout(seconds):
                socket = await connect(
                    url,
                    additional_headers=dict(headers),
                    max_size=MAX_FRAME_BYTES,
                    max_queue=READ_AHEAD,
                    open_timeout=None,
                    ping_interval=None,  # the protocol above has its own
                    close_timeout=CLOSE_SECONDS,
                )
                try:
                    return await cls._joined(socket)
                except BaseException:
                    socket.transport.abort()
                    raise
        except TimeoutError as error:
            raise UnreachableError(f"No live connection to {base_url} within {seconds:g} s.") from error
        except InvalidMessage as error:
            raise UnreachableError(f"No live connection to {base_url}: {error}") from error
        except InvalidHandshake as error:
            raise LineRefused(str(error)) from error
        except (OSError, WebSocketException) as error:
            raise UnreachableError(f"No live connection to {base_url}: {error}") from error

    @classmethod
    async def _joined(cls, socket: ClientConnection) -> Self:
        opening = await socket.recv()
        if not isinstance(opening, str) or not opening.startswith("0{"):
            raise NotDrydockError("The other side does not speak Socket.IO.")
        facts = json.loads(opening[1:])
        line = cls(socket, (facts.get("pingInterval", 25_000) + facts.get("pingTimeout", 20_000)) / 1000)
        await socket.send("40")
        line._first = await line._next_frame(joining=True)
        return line

    async def receive(self) -> tuple[str, Any] | None:
        """The next event's name and argument; None when the connection is over, in whatever way."""
        from websockets.exceptions import ConnectionClosed

        first, self._first = self._first, None
        if first is not None:
            return first
        try:
            return await self._next_frame()
        except (ConnectionClosed, TimeoutError, LineRefused):
            return None

    async def close(self) -> None:
        """End it; returns within a few seconds even if the other side is silent."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._socket.close()
        except TimeoutError:
            self._socket.transport.abort()

    async def _next_frame(self, *, joining: bool = False) -> tuple[str, Any] | None:
        """The next event; None when the other side ends, or (`joining`) when it has let us in."""
        while True:
            async with asyncio.timeout(self._silence):
                text = await self._socket.recv()
            if not isinstance(text, str):
                continue
            if text == "2":
                await self._socket.send("3")
            elif text.startswith("42"):
                value = json.loads(text[2:])
                return str(value[0]), value[1] if len(value) > 1 else None
            elif text.startswith("44"):
                told = json.loads(text[2:] or "{}")
                raise LineRefused(str(told.get("message", "")) if isinstance(told, dict) else str(told))
            elif text.startswith("41") or text == "1" or (joining and text.startswith("40")):
                return None
