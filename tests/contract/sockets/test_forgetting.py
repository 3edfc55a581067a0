"""Nothing is left of a connection that has ended, however it ended: no place, no queue, no task. The web server is
played here, so that no buffer of the system has a say in when a client takes nothing more."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from engineio.async_socket import AsyncSocket
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.auth.identity import OneTokenAuthenticator
from server.http.uvicorn_protocols import CONTROL_KEY
from server.sockets.connections import SocketLimits
from server.sockets.gateway import SocketGateway
from server.sockets.outlet import Outlet
from tests.contract.sockets.loopback import MemoryConversations, until

LARGE = b'"%b"' % (b"x" * 20_000)
QUICK = SocketLimits(stall_seconds=0.2, handshake_seconds=0.3, ping_interval_seconds=0.3, ping_timeout_seconds=0.3)
PATIENT = SocketLimits(stall_seconds=0.2)


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("nothing else is asked for")


@dataclass
class Browser:
    """The other end of a WebSocket, which takes so many messages and no more."""

    takes: int = 1_000_000
    taken: list[Message] = field(default_factory=list)
    says: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    aborted: bool = False
    limit: int = 0

    def take(self, max_bytes: int) -> None:
        self.limit = max_bytes

    def abort(self) -> None:
        self.aborted = True

    def say(self, text: str) -> None:
        self.says.put_nowait({"type": "websocket.receive", "text": text})

    def leave(self) -> None:
        self.says.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def receive(self) -> Message:
        return await self.says.get()

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.send" and len(self.texts) >= self.takes:
            await asyncio.Event().wait()
        self.taken.append(message)

    @property
    def texts(self) -> list[str]:
        return [message["text"] for message in self.taken if message["type"] == "websocket.send"]


@dataclass
class House:
    """The gateway between conversations in memory and whoever a test plays."""

    gateway: SocketGateway
    app: ASGIApp
    conversations: MemoryConversations
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def sockets(self) -> dict[str, AsyncSocket]:
        found: dict[str, AsyncSocket] = self.gateway._server.eio.sockets
        return found

    def open(self, browser: Browser, query: str) -> asyncio.Task[None]:
        browser.says.put_nowait({"type": "websocket.connect"})
        scope = {**_scope("websocket", query), "extensions": {CONTROL_KEY: browser}}
        self.tasks.append(asyncio.create_task(self._run(scope, browser), name="a websocket of the test"))
        return self.tasks[-1]

    async def _run(self, scope: Scope, browser: Browser) -> None:
        await self.app(scope, browser.receive, browser.send)

    async def ask(self, method: str, query: str, body: bytes = b"") -> str:
        """One request of a client that polls."""
        answer: list[bytes] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            answer.append(message.get("body", b""))

        await self.app({**_scope("http", query), "method": method}, receive, send)
        return b"".join(answer).decode()

    async def announce(self, count: int) -> None:
        """Queue so much for every client, without waiting for room."""
        for connection in list(self.gateway._connections.values()):
            for _ in range(count):
                await connection.outlet.send_now("oh_event", LARGE)

    async def until_nothing_is_left(self) -> None:
        """Of all connections, in the gateway and in the library."""
        self.tasks = [task for task in self.tasks if not task.done()]
        await until(lambda: not self.sockets)
        await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "engine.io"])
        await until(lambda: _alive() == 0)
        assert self.gateway.connection_count == 0
        kept = vars(self.gateway._transports)
        assert [name for name, value in kept.items() if isinstance(value, dict) and value] == []


def _scope(kind: str, query: str) -> dict[str, Any]:
    return {"type": kind, "path": "/socket.io/", "query_string": f"EIO=4&{query}".encode(), "headers": HEADERS[kind]}


HEADERS: dict[str, list[tuple[bytes, bytes]]] = {
    "http": [(b"host", b"localhost")],
    "websocket": [(b"host", b"localhost"), (b"connection", b"Upgrade"), (b"upgrade", b"websocket")],
}
WEBSOCKET = "transport=websocket&conversation_id=c1&latest_event_id=-1"
POLLING = "transport=polling&conversation_id=c1&latest_event_id=-1"


def _alive() -> int:
    gc.collect()
    return sum(1 for thing in gc.get_objects() if type(thing) in (Outlet, AsyncSocket))


@asynccontextmanager
async def house(limits: SocketLimits) -> AsyncIterator[House]:
    conversations = MemoryConversations()
    await conversations.create("c1")
    async with SocketGateway(conversations, OneTokenAuthenticator(None), limits=limits) as gateway:
        found = House(gateway, gateway.asgi_app(nothing), conversations)
        try:
            yield found
        finally:
            for task in found.tasks:
                task.cancel()
            await asyncio.gather(*found.tasks, return_exceptions=True)


async def joined_by_polling(found: House) -> str:
    opened = await found.ask("GET", POLLING)
    address = f"transport=polling&sid={json.loads(opened[1:])['sid']}"
    assert await found.ask("POST", address, b"40") == "OK"
    await until(lambda: found.gateway.connection_count == 1)
    return address


async def test_a_client_that_takes_nothing_more_leaves_nothing_behind() -> None:
    async with house(PATIENT) as found:
        browser = Browser(takes=3)
        ended = found.open(browser, WEBSOCKET)
        browser.say("40")
        await until(lambda: found.gateway.connection_count == 1)
        assert browser.limit == PATIENT.max_transport_bytes
        await found.announce(100)
        await until(ended.done)
        assert browser.aborted
        del ended
        await found.until_nothing_is_left()


async def test_a_client_that_goes_in_the_middle_leaves_nothing_behind() -> None:
    async with house(PATIENT) as found:
        browser = Browser()
        ended = found.open(browser, WEBSOCKET)
        browser.say("40")
        await until(lambda: found.gateway.connection_count == 1)
        browser.leave()
        await until(ended.done)
        del ended
        await found.until_nothing_is_left()


async def test_a_client_that_polls_no_more_leaves_nothing_behind() -> None:
    async with house(QUICK) as found:
        await joined_by_polling(found)
        await found.announce(100)
        await found.until_nothing_is_left()


async def test_a_client_that_polls_and_says_goodbye_leaves_nothing_behind() -> None:
    async with house(SocketLimits(ping_timeout_seconds=0.2)) as found:
        address = await joined_by_polling(found)
        await found.announce(100)
        await found.ask("POST", address, b"1")
        await found.until_nothing_is_left()


@pytest.mark.parametrize("said", [[], ["2probe"], ["2probe", "5"], ["4nonsense"]])
async def test_a_client_that_goes_while_it_changes_over_can_go_on_or_leaves_nothing_behind(said: list[str]) -> None:
    async with house(PATIENT) as found:
        address = await joined_by_polling(found)
        browser = Browser()
        ended = found.open(browser, address.replace("polling", "websocket"))
        for text in said:
            browser.say(text)
        if said == ["2probe", "5"]:
            await until(lambda: next(iter(found.sockets.values())).upgraded)
        browser.leave()
        await until(ended.done)
        if said != ["2probe", "5"]:
            polled = await found.ask("GET", address)
            while "40{" not in polled:
                polled = await found.ask("GET", address)
            assert await found.ask("POST", address, b"1") == "OK"
            await found.gateway._transports.aclose()
        del ended
        await found.until_nothing_is_left()


async def test_a_websocket_that_takes_over_and_then_takes_nothing_leaves_nothing_behind() -> None:
    async with house(PATIENT) as found:
        address = await joined_by_polling(found)
        browser = Browser(takes=3)
        ended = found.open(browser, address.replace("polling", "websocket"))
        browser.say("2probe")
        browser.say("5")
        await until(lambda: next(iter(found.sockets.values())).upgraded)
        await found.announce(100)
        await until(ended.done)
        assert browser.aborted
        del ended
        await found.until_nothing_is_left()
