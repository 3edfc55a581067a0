"""A server that does as a test says, on loopback: the client is real, and so are its connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from drydock_client import DrydockClient, Live
from tests.serving import serving

LIMIT = 60.0
INFO = {"conversation_id": "c1", "title": "One", "status": "RUNNING", "runtime_status": "STATUS$READY"}
OPENING = '0{"sid":"s","upgrades":[],"pingInterval":25000,"pingTimeout":20000}'
JOINED = '40{"sid":"s"}'

Answer = Response | Callable[[Request], Awaitable[Response]]


def frame(name: str, data: object) -> str:
    """An event of a socket."""
    return f"42{json.dumps([name, data])}"


def event(number: int, **fields: Any) -> str:
    """A stored event as a frame."""
    whole = {"id": number, "timestamp": "2026-01-02T03:04:05.000006Z", "source": "agent", "message": "", **fields}
    return frame("oh_event", whole if {"action", "observation"} & whole.keys() else {**whole, "action": "think"})


def state(number: int | None, name: str) -> str:
    """A state as a frame."""
    facts = {"observation": "agent_state_changed", "content": "", "extras": {"agent_state": name, "reason": ""}}
    return frame("oh_event", {**facts, "message": ""}) if number is None else event(number, **facts)


class Played:
    """The server. What is not told otherwise is answered as by a server with the conversation ``c1``.

    Attributes:
        answers: for requests by ``METHOD /path``, in turn; the last one stays.
        lines: what each live connection is sent, in turn; the last one then stays open, the others are cut.
        asked: the requests, and ``LINE after`` for each live connection.
        pongs: how often a ping was answered.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.lines: list[list[str]] = []
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.pongs = 0
        self.open_lines = 0
        self.url = ""

    def count(self, asked: str) -> int:
        return self.asked.count(asked)

    async def say(self, text: str) -> None:
        """Send something over the last line."""
        await self._socket.send_text(text)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._live(WebSocket(scope, receive, send))
        elif scope["type"] == "http":
            request = Request(scope, receive)
            self.bodies.append(await request.body())
            self.headers.append(dict(request.headers))
            name = f"{request.method} {scope['path']}"
            self.asked.append(name)
            answers = self.answers.get(name)
            answer: Answer = JSONResponse(INFO)
            if answers:
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
            found = answer if isinstance(answer, Response) else await answer(request)
            await found(scope, receive, send)

    async def _live(self, socket: WebSocket) -> None:
        self.asked.append(f"LINE {socket.query_params['latest_event_id']}")
        self.headers.append(dict(socket.headers))
        is_last = len(self.lines) == 1
        frames = self.lines[0] if is_last else self.lines.pop(0)
        await socket.accept()
        self.open_lines += 1
        self._socket = socket
        try:
            for number, one in enumerate(frames):
                await socket.send_text(one)
                if number == 0:
                    assert await socket.receive_text() == "40"
            while is_last:
                self.pongs += await socket.receive_text() == "3"
            await socket.close(1001)
        except WebSocketDisconnect:
            pass
        finally:
            self.open_lines -= 1


@asynccontextmanager
async def playing() -> AsyncIterator[Played]:
    """The server, running."""
    played = Played()
    async with serving(played, log_level="error", lifespan="off", timeout_graceful_shutdown=0) as port:
        played.url = f"http://127.0.0.1:{port}"
        yield played


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - any condition, of objects that signal nothing
            await asyncio.sleep(0.005)


async def taken(items: AsyncIterator[Live], count: int) -> list[Live]:
    """The next items."""
    async with asyncio.timeout(LIMIT):
        return [await anext(items) for _ in range(count)]


@pytest.fixture
async def played() -> AsyncIterator[Played]:
    async with playing() as server:
        yield server


@pytest.fixture
async def client(played: Played) -> AsyncIterator[DrydockClient]:
    async with DrydockClient(played.url, "a-key", timeout=LIMIT) as client:
        yield client
