"""A real server on loopback around the gateway, conversations in memory, and two kinds of clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import socketio
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect

from agent_core.errors import DrydockError, EventStoreError
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import InMemoryEventStore, StoredEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from server.auth.identity import Identity, OneTokenAuthenticator
from server.db.repositories.shares import Access
from server.errors import ConversationNotFoundError
from server.sockets.connections import SocketLimits
from server.sockets.conversations import JoinRefusedError
from server.sockets.gateway import SocketGateway
from tests.serving import serving as serving_app

LIMIT = 60.0
Frame = dict[str, Any]


async def until(condition: Callable[[], object], *, seconds: float = LIMIT) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - any condition, of objects that signal nothing
            await asyncio.sleep(0.005)


class MemoryConversation:
    """A `JoinedConversation` whose sessions are opened and closed by the test."""

    def __init__(self, conversation_id: str, store: InMemoryEventStore) -> None:
        self.conversation_id = conversation_id
        self.stream: EventStream | None = None
        self.connections: set[str] = set()
        self._store = store
        self._changed = asyncio.Condition()
        self._deleted = False
        self.farewell: StatusNotice | None = None

    async def open(self) -> EventStream:
        async with self._changed:
            self.stream = await EventStream.open(self.conversation_id, self._store)
            self._changed.notify_all()
        return self.stream

    async def delete(self, farewell: StatusNotice | None = None) -> None:
        self.farewell = farewell
        async with self._changed:
            self._deleted = True
            if self.stream is not None:
                self.stream.close()
            self._changed.notify_all()

    async def next_stream(self, previous: EventStream | None) -> EventStream | None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._deleted or self.stream is not previous)
        return None if self._deleted else self.stream


class FlakyStore(InMemoryEventStore):
    """A store whose next `failures` reads fail."""

    failures = 0

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        if self.failures:
            self.failures -= 1
            raise EventStoreError("The disk does not answer.")
        return await super().read(conversation_id, after=after, limit=limit)


class MemoryConversations:
    """`Conversations` in memory: what clients send is appended as it is."""

    def __init__(self) -> None:
        self.known: dict[str, MemoryConversation] = {}
        self.refusal: Exception | None = None
        self.store = FlakyStore()
        self.sent: list[AnyEvent] = []

    async def create(self, conversation_id: str) -> EventStream:
        conversation = MemoryConversation(conversation_id, self.store)
        self.known[conversation_id] = conversation
        return await conversation.open()

    async def access(self, conversation_id: str, identity: Identity) -> Access:
        return Access.OWNER

    async def join(self, conversation_id: str, connection_id: str, identity: Identity) -> MemoryConversation:
        if self.refusal is not None:
            raise self.refusal
        conversation = self.known.get(conversation_id)
        if conversation is None:
            raise ConversationNotFoundError(conversation_id)
        conversation.connections.add(connection_id)
        return conversation

    async def send(self, conversation_id: str, event: AnyEvent) -> AnyEvent:
        if self.refusal is not None:
            raise self.refusal
        if conversation_id not in self.known:
            raise ConversationNotFoundError(conversation_id)
        stream = self.known[conversation_id].stream
        if stream is None:
            raise DrydockError("the conversation does not run")
        self.sent.append(await stream.add_event(event))
        return self.sent[-1]

    async def leave(self, connection_id: str) -> None:
        for conversation in self.known.values():
            conversation.connections.discard(connection_id)


class Loopback:
    """The server, and what tests need of it."""

    def __init__(self, gateway: SocketGateway, conversations: MemoryConversations, port: int) -> None:
        self.gateway = gateway
        self.conversations = conversations
        self.port = port

    def url(self, conversation_id: str | None = "c1", after: object = -1, **query: str) -> str:
        wanted = {"latest_event_id": str(after), "providers_set": "", **query}
        if conversation_id is not None:
            wanted["conversation_id"] = conversation_id
        return f"http://127.0.0.1:{self.port}?{urlencode(wanted)}"

    @asynccontextmanager
    async def client(self, conversation_id: str = "c1", after: object = -1, **query: str) -> AsyncIterator[Client]:
        async with Client() as client:
            await client.connect(self.url(conversation_id, after, **query))
            yield client

    @asynccontextmanager
    async def raw(self, query: str = "", **options: Any) -> AsyncIterator[ClientConnection]:
        """A bare WebSocket, with the engine's greeting read already."""
        url = f"ws://127.0.0.1:{self.port}/socket.io/?EIO=4&transport=websocket&{query}"
        async with connect(url, max_size=None, **options) as socket:
            greeting = await socket.recv()
            assert isinstance(greeting, str)
            assert greeting.startswith("0")
            yield socket

    @asynccontextmanager
    async def upgraded(self, transport_id: str) -> AsyncIterator[ClientConnection]:
        """A WebSocket that goes on where a polling client began."""
        url = f"ws://127.0.0.1:{self.port}/socket.io/?EIO=4&transport=websocket&sid={transport_id}"
        async with connect(url) as socket:
            await socket.send("2probe")
            assert await socket.recv() == "3probe"
            await socket.send("5")
            while await socket.recv() != "6":
                pass
            yield socket


async def _read_whole(_session: object, _context: object, ended: aiohttp.TraceRequestEndParams) -> None:
    """What the client posts it does not hear out: its connection would stay open until it is collected as garbage."""
    if ended.response.status != HTTPStatus.SWITCHING_PROTOCOLS:
        await ended.response.read()


class Client:
    """The public Socket.IO client, collecting what it gets."""

    def __init__(self, *, transports: tuple[str, ...] = ("websocket",)) -> None:
        tracing = aiohttp.TraceConfig()
        tracing.on_request_end.append(_read_whole)
        self._http = aiohttp.ClientSession(trace_configs=[tracing])
        self.socket = socketio.AsyncClient(reconnection=False, http_session=self._http, request_timeout=LIMIT)
        self.frames: list[Frame] = []
        self.goodbyes: list[str] = []
        self.deltas: list[Frame] = []
        self._transports = list(transports)
        self.socket.on("oh_event", self.frames.append)
        self.socket.on("oh_delta", self.deltas.append)
        self.calls: list[Frame] = []
        self.socket.on("oh_tool_call", self.calls.append)
        self.resyncs: list[Frame] = []
        self.socket.on("oh_resync", self.resyncs.append)
        self.socket.on("disconnect", self.goodbyes.append)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.socket.disconnect()
        finally:
            await self._http.close()

    async def connect(self, url: str, **options: Any) -> None:
        await self.socket.connect(url, transports=self._transports, wait_timeout=LIMIT, **options)

    async def send(self, data: Any, event: str = "oh_user_action") -> None:
        await self.socket.emit(event, data)

    @property
    def ids(self) -> list[int]:
        return [frame["id"] for frame in self.frames if isinstance(frame.get("id"), int)]

    @property
    def problems(self) -> list[str]:
        return [frame["message"] for frame in self.frames if frame.get("error")]

    async def until_id(self, event_id: int) -> None:
        await until(lambda: event_id in self.ids)


async def refusal_of(loopback: Loopback, url: str, **options: Any) -> object:
    """What a client is told when its connection is refused."""
    told: list[object] = []
    async with Client() as client:
        client.socket.on("connect_error", told.append)
        try:
            await client.connect(url, **options)
        except socketio.exceptions.ConnectionError:
            await until(lambda: told)
            return told[0]
    raise AssertionError("the connection was not refused")


async def _other(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("other")(scope, receive, send)


@asynccontextmanager
async def serving(
    limits: SocketLimits | None = None, token: str | None = None, **options: Any
) -> AsyncIterator[Loopback]:
    """A server with the conversation ``c1``; `options` are those of uvicorn."""
    conversations = MemoryConversations()
    await conversations.create("c1")
    gateway = SocketGateway(conversations, OneTokenAuthenticator(token), limits=limits)
    app = gateway.asgi_app(_other)
    chosen = {"log_level": "error", "timeout_graceful_shutdown": 2, "ws_per_message_deflate": False, **options}
    async with serving_app(app, lifespan="off", **chosen) as port, gateway:
        yield Loopback(gateway, conversations, port)


def packet(text: str | bytes) -> Frame:
    """The argument of an event as it came over a bare WebSocket."""
    assert isinstance(text, str)
    assert text.startswith("42")
    name, argument = json.loads(text[2:])
    assert name in ("oh_event", "oh_delta")
    assert isinstance(argument, dict)
    return argument


__all__ = ["Client", "Frame", "JoinRefusedError", "Loopback", "packet", "refusal_of", "serving", "until"]
