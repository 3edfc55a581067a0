"""A Socket.IO client that costs little: what it is late with, the server was late with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect

WAIT_SECONDS = 120.0
OPEN, PING, PONG, CONNECT, EVENT = "0", "2", "3", "40", "42"


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event and when it came: seconds since the epoch."""

    frame: dict[str, Any]
    at: float

    @property
    def age(self) -> float:
        """Seconds since the event's own timestamp."""
        return self.at - timestamp(self.frame)


class Client:
    """One client in one conversation; keeps all stored events that came, in order."""

    def __init__(self, socket: ClientConnection) -> None:
        self.arrivals: list[Arrival] = []
        self._socket = socket

    async def send(self, action: str, **args: Any) -> None:
        """Send a user's action."""
        body = orjson.dumps(["oh_user_action", {"action": action, "args": args}]).decode()
        await self._socket.send(EVENT + body)

    def vanish(self) -> None:
        """Cut the connection without a word."""
        self._socket.transport.abort()

    async def say(self, text: str) -> None:
        """Send a user's message."""
        await self.send("message", content=text)

    async def until(self, done: Callable[[dict[str, Any]], bool], *, limit_seconds: float = WAIT_SECONDS) -> Arrival:
        """Take what comes until an event fulfils the condition; returns that one."""
        async with asyncio.timeout(limit_seconds):
            while True:
                message = await self._socket.recv()
                at = time.time()
                if message == PING:
                    await self._socket.send(PONG)
                elif isinstance(message, str) and message.startswith(EVENT):
                    name, frame = orjson.loads(message[len(EVENT) :])
                    if name == "oh_event" and "timestamp" in frame:
                        arrival = Arrival(frame, at)
                        self.arrivals.append(arrival)
                        if done(frame):
                            return arrival

    async def until_state(self, *states: str) -> Arrival:
        """Take what comes until the agent is in one of these states."""
        return await self.until(lambda frame: state_of(frame) in states)


@asynccontextmanager
async def following(url: str, conversation_id: str, *, after: int = -1, key: str = "") -> AsyncIterator[Client]:
    """A client that has joined a conversation, behind the event `after`."""
    query = f"EIO=4&transport=websocket&conversation_id={conversation_id}&latest_event_id={after}&providers_set="
    query += f"&session_api_key={key}" if key else ""
    address = f"{url.replace('http', 'ws', 1)}/socket.io/?{query}"
    async with connect(address, compression=None, max_size=None, max_queue=64) as socket:
        opened = await socket.recv()
        assert isinstance(opened, str)
        assert opened.startswith(OPEN), opened[:200]
        await socket.send(CONNECT)
        joined = await socket.recv()
        assert isinstance(joined, str)
        assert joined.startswith(CONNECT), joined[:200]
        yield Client(socket)


def timestamp(frame: dict[str, Any]) -> float:
    """An event's own time, seconds since the epoch."""
    return datetime.fromisoformat(str(frame["timestamp"])).timestamp()


def state_of(frame: dict[str, Any]) -> str | None:
    """The state that the agent has entered, where the event says so."""
    if frame.get("observation") != "agent_state_changed":
        return None
    return str(frame["extras"]["agent_state"])


def is_command(frame: dict[str, Any]) -> bool:
    """Whether the agent runs a command."""
    return frame.get("action") == "run"


def is_result(frame: dict[str, Any]) -> bool:
    """Whether a command ended."""
    return frame.get("observation") == "run"
