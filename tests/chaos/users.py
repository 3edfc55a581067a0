"""Users of several servers behind a proxy: each says numbered things in a conversation of its own, and keeps a log."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any, Final, NamedTuple

import httpx
import socketio
from socketio.exceptions import SocketIOError

ANSWER_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = (0.1, 0.4)
"""So soon who was refused, or cut off, comes back."""
_PASSING: Final = {409, 502, 503, 504}
"""Statuses that say: ask again. (409: the first of two same requests goes on.)"""


class Front(NamedTuple):
    """Where all servers are reached."""

    url: str
    token: str

    def client(self) -> httpx.AsyncClient:
        headers = {"X-Session-API-Key": self.token}
        # It speaks no TLS, and to load the certificates of all authorities takes longer than most requests.
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=ANSWER_SECONDS, verify=False)  # noqa: S501

    async def done(self, method: str, path: str, chance: random.Random, **options: Any) -> httpx.Response:
        """The answer to a request, which is made again for as long as nobody can answer it."""
        while True:
            with suppress(httpx.HTTPError):
                async with self.client() as client:
                    answer = await client.request(method, path, **options)
                if answer.is_success:
                    return answer
                if answer.status_code not in _PASSING:
                    raise RefusedForGoodError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
            await asyncio.sleep(chance.uniform(*AGAIN_SECONDS))


class RefusedForGoodError(AssertionError):
    """A client was told that what it wants will never be, which is not so."""


class User:
    """A conversation with a socket client that comes back by itself; `words` are what is said in it, in their order."""

    def __init__(self, front: Front, name: str, words: int, chance: random.Random) -> None:
        self.name = name
        self.words = [f"{name}-m{number}" for number in range(words)]
        self.conversation_id = ""
        self.frames: list[tuple[float, dict[str, Any]]] = []
        """What the client was shown, with the moment."""
        self.findings: list[str] = []
        self.connections = 0
        self._front = front
        self._chance = chance
        self._socket: Any = None
        self._changed = asyncio.Event()
        self._staying: asyncio.Task[None] | None = None

    @property
    def events(self) -> dict[int, dict[str, Any]]:
        return {frame["id"]: frame for _, frame in self.frames if isinstance(frame.get("id"), int)}

    @property
    def state(self) -> str:
        """The last state that the client was shown."""
        states = (frame["extras"]["agent_state"] for _, frame in reversed(self.frames) if _is_state(frame))
        return next(states, "")

    async def live(self) -> None:
        """Begin a conversation, and say everything; returns when all of it was taken."""
        made = await self._front.done(
            "POST", "/api/conversations", self._chance, json={}, headers={"Idempotency-Key": f"new-{self.name}"}
        )
        self.conversation_id = made.json()["conversation_id"]
        self.stay()
        for word in self.words:
            await (self.say_by_socket(word) if self._chance.random() < 0.5 else self._say_by_request(word))
            if self._chance.random() < 0.5:
                await self.until_answered([word])
            else:
                await asyncio.sleep(self._chance.uniform(0, 0.5))

    def stay(self) -> None:
        """Have a socket at the conversation from now on, until `leave`."""
        self._staying = asyncio.create_task(self._stay(), name=f"socket of {self.name}")

    async def until_answered(self, words: list[str]) -> None:
        """Wait until the client was shown an answer to each of these, and that the agent rests."""
        while not (self.state == "finished" and all(self.is_answered(one) for one in words)):
            await self._until_more()

    def is_answered(self, word: str) -> bool:
        return any(word in answered(frame) for frame in self.events.values())

    async def leave(self) -> None:
        if self._staying is not None:
            if self._staying.done():
                self.findings.append(f"{self.name}: its client comes back no more: {self._staying.exception()!r}")
            self._staying.cancel()
            await asyncio.wait([self._staying])
        await self._disconnect()

    # --- saying ---

    async def _say_by_request(self, word: str) -> None:
        path = f"/api/conversations/{self.conversation_id}/message"
        try:
            await self._front.done(
                "POST", path, self._chance, json={"message": word}, headers={"Idempotency-Key": word}
            )
        except RefusedForGoodError as error:
            self.findings.append(str(error))

    async def say_by_socket(self, word: str) -> None:
        said = {"action": "message", "args": {"content": word}, "idempotency_key": word}
        while True:
            with suppress(SocketIOError, TimeoutError):
                if self._socket is not None and self._socket.connected:
                    answer = await _answer_of(self._socket, said)
                    if answer["success"]:
                        return
                    if answer["error"].startswith("no_conversation"):
                        self.findings.append(f"{word} was refused for good: {answer}")
            await asyncio.sleep(self._chance.uniform(*AGAIN_SECONDS))

    # --- listening ---

    async def _stay(self) -> None:
        while True:
            if self._socket is None or not self._socket.connected:
                await self._disconnect()
                # Where a server goes between the upgrade and its greeting, the library takes the end for a packet.
                with suppress(SocketIOError, TimeoutError, OSError, TypeError, ValueError):
                    async with asyncio.timeout(2 * CONNECT_SECONDS):  # for the greeting it has no limit
                        await self._connect()
            await asyncio.sleep(self._chance.uniform(*AGAIN_SECONDS))

    async def _connect(self) -> None:
        connection = socketio.AsyncClient(reconnection=False)
        self.connections += 1

        def take(frame: dict[str, Any]) -> None:
            if connection is self._socket:
                self._take(frame)

        connection.on("oh_event", take)
        connection.on("oh_resync", lambda frame: self.findings.append(f"{self.name} has to read elsewhere: {frame}"))
        connection.on("connect_error", self._refused)
        self._socket = connection
        latest = max(self.events, default=-1)
        query = f"conversation_id={self.conversation_id}&latest_event_id={latest}&session_api_key={self._front.token}"
        url = f"{self._front.url}?{query}&providers_set="
        await connection.connect(url, transports=["websocket"], wait_timeout=CONNECT_SECONDS)

    async def _disconnect(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            with suppress(SocketIOError, TimeoutError, OSError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await connection.disconnect()
                    await connection.eio.disconnect(abort=True)

    def _refused(self, data: Any = None) -> None:
        if "NOT_FOUND" in str(data):
            self.findings.append(f"{self.name} was told when it connected that there is no such conversation: {data}")

    def _take(self, frame: dict[str, Any]) -> None:
        self.frames.append((asyncio.get_running_loop().time(), frame))
        if "NOT_FOUND" in str(frame.get("id")):
            self.findings.append(f"{self.name} was told that there is no such conversation: {frame}")
        self._changed.set()

    async def _until_more(self) -> None:
        self._changed.clear()
        await self._changed.wait()


async def _answer_of(connection: Any, said: dict[str, Any]) -> dict[str, Any]:
    """What is answered; `TimeoutError` where that connection is lost, which the library does not tell who waits."""
    asking = asyncio.create_task(connection.call("oh_user_action", said, timeout=ANSWER_SECONDS))
    try:
        while connection.connected and not asking.done():
            await asyncio.wait([asking], timeout=0.1)
        if not asking.done():
            raise TimeoutError
        answer: dict[str, Any] = asking.result()
        return answer
    finally:
        asking.cancel()


def _is_state(frame: dict[str, Any]) -> bool:
    return frame.get("observation") == "agent_state_changed"


def answered(event: dict[str, Any]) -> list[str]:
    """The words that this event, as clients see it, is the answer to."""
    if event.get("action") != "finish":
        return []
    said = str(event.get("args", {}).get("final_thought", ""))
    return said.removeprefix("Answered ").split() if said.startswith("Answered ") else []
