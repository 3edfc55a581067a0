"""Following a conversation: its history, then what happens live, across broken connections.

A live connection is Socket.IO over a WebSocket, as far as a reader needs it: it is opened (``0{…}``), joined (``40``;
refused: ``44{…}``), events come as ``42[name, argument]``, and a ping (``2``) wants its pong (``3``). Nothing is read
ahead of the program but what the transport holds: a slow program makes the server wait.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urlencode

from drydock_client.errors import (
    KEY_FIX,
    BusyError,
    ClientError,
    KeyRefusedError,
    NotDrydockError,
    NotFoundError,
    UnreachableError,
    spelled,
)
from drydock_client.events import Action, Connected, Live, Observation, Resync, State, read_frame
from drydock_client.http import Http

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""Far beyond what a server stores in one event."""
READ_AHEAD: Final = 16
"""Frames that the transport may hold before it makes the server wait."""
CLOSE_SECONDS: Final = 2.0
FIRST_DELAY: Final = 0.1
MAX_DELAY: Final = 3.0
CONNECT_SECONDS: Final = 20.0


class Connector(NamedTuple):
    """What a `Following` needs of its client.

    `open` connects behind an event, which had this timestamp ("": not known), within so many seconds; `check` asks for
    the conversation, so that whatever is wrong has a clear answer; `opened` are the followings that have, or may have,
    a connection.
    """

    open: Callable[[int, str, float], Awaitable[LiveConnection]]
    check: Callable[[], Awaitable[object]]
    opened: set[Following]


@spelled
class Following:
    """An async iterator over a conversation (see `DrydockClient.follow`); also an async context manager.

    Leave it early by leaving its ``async with``, or by `aclose`. One task at a time may iterate; a wait that is
    cancelled loses nothing. Its `position`, given as `after`, goes on here another time.
    """

    def __init__(
        self, conversation_id: str, connector: Connector, *, after: int, live: bool, reconnect_seconds: float
    ) -> None:
        self.conversation_id = conversation_id
        self.position = after
        self._seen_at = ""
        self._connector = connector
        self._live = live
        self._limit = reconnect_seconds
        self._connection: LiveConnection | None = None
        self._empty = 0
        self._lost_at = 0.0
        self._was_connected = False
        self._is_closed = False
        self._newest_state = after
        self._last_state: tuple[str, str] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def __anext__(self) -> Live:
        """The next item, until it was closed.

        Raises `UnreachableError` where the server was away for longer than `reconnect_seconds`, `NotFoundError`,
        `KeyRefusedError`.
        """
        while not self._is_closed:
            if self._connection is None:
                self._connection = await self._connected()
                again, self._was_connected = self._was_connected, True
                if self._live:
                    return Connected(again=again)
            frame = await self._connection.receive()
            if frame is None:
                if self._empty == 0:
                    self._lost_at = asyncio.get_running_loop().time()
                self._empty += 1
                await self._let_go()
                continue
            self._empty = 0
            item = read_frame(*frame)
            if isinstance(item, Resync):  # the log is another one than that which was followed
                self.position, self._seen_at = -1, ""
                self._newest_state = -1
                self._last_state = None
                await self._let_go()
            position = self.position
            taken = self._taken(item)
            if self.position > position:
                self._seen_at = str(frame[1].get("timestamp", ""))
            if taken is not None:
                return taken
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._is_closed = True
        self._connector.opened.discard(self)
        await self._let_go()

    async def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> LiveConnection:
        if not self._was_connected:
            await self._connector.check()
            self._connector.opened.add(self)
        loop = asyncio.get_running_loop()
        end = self._lost_at + self._limit if self._was_connected else 0.0
        delay = FIRST_DELAY
        if self._empty > 1:
            if loop.time() > end:
                raise UnreachableError("The server ends each live connection at once.", fix="Its log says why.")
            delay = min(FIRST_DELAY * 2 ** min(self._empty, 10), MAX_DELAY)
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311 - spreads clients, guards nothing
        while True:
            try:
                return await self._connector.open(self.position, self._seen_at, CONNECT_SECONDS)
            except (LiveConnectionRefused, UnreachableError) as error:
                problem = self._judged(error)
                if loop.time() + delay > end:
                    raise problem from error
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311 - spreads clients, guards nothing
            delay = min(delay * 2, MAX_DELAY)

    def _judged(self, error: LiveConnectionRefused | UnreachableError) -> ClientError:
        """The error to raise when there is no more time; raises at once what another attempt would not mend."""
        if isinstance(error, UnreachableError):
            return error
        message = str(error)
        if message == "invalid_session_api_key":
            raise KeyRefusedError("The server does not take this key.", status=401, fix=KEY_FIX) from error
        if message == f"Conversation {self.conversation_id} not found":
            raise NotFoundError(message, status=404) from error
        return BusyError(f"The live connection was refused: {message}", status=503)

    def _taken(self, item: Live) -> Live | None:
        """The item, if it is new and wanted.

        States do not move the position, because a server may tell a newer state before older actions.
        """
        match item:
            case Action() | Observation():
                if item.id <= self.position:
                    return None
                self.position = item.id
                return item
            case State():
                state = (str(item.state), item.reason)
                if state == self._last_state if item.id is None else item.id <= self._newest_state:
                    return None  # without its id it is said again on connecting
                self._newest_state = self._newest_state if item.id is None else item.id
                self._last_state = state
                return item
        return item if self._live else None


class LiveConnection:
    """A joined connection; `receive` it until it is over, and `close` it."""

    def __init__(self, socket: ClientConnection, silence: float) -> None:
        self._socket = socket
        self._silence = silence
        self._first: tuple[str, Any] | None = None

    @classmethod
    async def open(cls, http: Http, conversation_id: str, after: int, seen_at: str, seconds: float) -> Self:
        """Connect and join, to be told what came after the event `after`, which had the timestamp `seen_at`.

        Raises `LiveConnectionRefused`, `UnreachableError` where there is none in time, `NotDrydockError` for another
        server.
        """
        from websockets.asyncio.client import connect  # its home; imported late, like httpx
        from websockets.exceptions import InvalidHandshake, InvalidMessage, WebSocketException

        place = {"conversation_id": conversation_id, "latest_event_id": after, "latest_event_timestamp": seen_at}
        query = urlencode({**place, "providers_set": "", "EIO": "4", "transport": "websocket"})
        base_url = http.base_url
        url = f"ws{base_url.removeprefix('http')}/socket.io/?{query}"
        try:
            async with asyncio.timeout(seconds):
                socket = await connect(
                    url,
                    additional_headers=dict(http.headers),
                    ssl=(http.trust or True) if url.startswith("wss:") else None,
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
            raise LiveConnectionRefused(str(error)) from error
        except (OSError, WebSocketException) as error:
            raise UnreachableError(f"No live connection to {base_url}: {error}") from error

    @classmethod
    async def _joined(cls, socket: ClientConnection) -> Self:
        opening = await socket.recv()
        if not isinstance(opening, str) or not opening.startswith("0{"):
            raise NotDrydockError("The other side does not speak Socket.IO.")
        facts = json.loads(opening[1:])
        connection = cls(socket, (facts.get("pingInterval", 25_000) + facts.get("pingTimeout", 20_000)) / 1000)
        await socket.send("40")
        connection._first = await connection._next_frame(joining=True)
        return connection

    async def receive(self) -> tuple[str, Any] | None:
        """The next event's name and argument; None when the connection is over, in whatever way."""
        from websockets.exceptions import ConnectionClosed

        first, self._first = self._first, None
        if first is not None:
            return first
        try:
            return await self._next_frame()
        except (ConnectionClosed, TimeoutError, LiveConnectionRefused):
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
                body = json.loads(text[2:] or "{}")
                raise LiveConnectionRefused(str(body.get("message", "")) if isinstance(body, dict) else str(body))
            elif text.startswith("41") or text == "1" or (joining and text.startswith("40")):
                return None


class LiveConnectionRefused(Exception):  # noqa: N818 - not an error by itself: it may pass
    """The server refused the connection, with this message."""
