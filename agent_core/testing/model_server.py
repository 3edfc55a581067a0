"""A scriptable OpenAI-compatible model server on loopback: real sockets, for tests.

In a test::

    async with ModelServer([call("terminal", {"command": "ls"}), say("Done.")]) as server:
        llm = LLM(model="openai/scripted", base_url=server.url, api_key=SecretStr("k"))
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agent_core.testing.model_turns import Turn, error_body, fail, response_events, stream_parts

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}
_END_OF_STREAM = b"data: [DONE]\n\n"
_END_OF_BODY = b"0\r\n\r\n"
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
_RESPONSES = "/responses"
_PATHS = ("/chat/completions", "/messages", ":streamGenerateContent", _RESPONSES)


@dataclass(frozen=True)
class ModelRequest:
    """One request. Header names are lower-case."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes

    @cached_property
    def json(self) -> dict[str, Any]:
        body = json.loads(self.content) if self.content else {}
        if not isinstance(body, dict):
            raise ValueError(f"{self.method} {self.path}: the body is no JSON object")
        return body

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.json.get("messages", [])
        return messages

    @property
    def model(self) -> str:
        return str(self.json.get("model", ""))

    @property
    def api_key(self) -> str | None:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else None


Script = Callable[[ModelRequest], Turn]


class ModelServer:
    """Answers ``POST …/chat/completions``, ``…/responses`` and (turns in raw form) ``…/messages`` from a script.

    The script is a sequence of turns, one per request (beyond the last: a 500 that says so), or a function from request
    to turn. `requests` holds the last `keep_requests`; `open_streams` counts slow answers being sent; `stream_dropped`
    is set when a client has left one. `connections` are those now open.
    """

    def __init__(
        self, script: Iterable[Turn] | Script, *, host: str = "127.0.0.1", port: int = 0, keep_requests: int = 1000
    ) -> None:
        self._host = host
        self._port = port
        self._function: Script = script if callable(script) else _in_turn(script)
        self._server: asyncio.Server | None = None
        self.connections: set[_Connection] = set()
        self.requests: deque[ModelRequest] = deque(maxlen=keep_requests)
        self.request_count = 0
        self.open_streams = 0
        self.stream_dropped = asyncio.Event()

    @property
    def origin(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def url(self) -> str:
        """The base URL to configure: origin and ``/v1``."""
        return f"{self.origin}/v1"

    @property
    def last_request(self) -> ModelRequest:
        return self.requests[-1]

    async def __aenter__(self) -> ModelServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), self._host, self._port)
        self._port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *details: object) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.abort()
        tasks = [connection.task for connection in self.connections if connection.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def answer(self, request: ModelRequest) -> Turn:
        self.request_count += 1
        self.requests.append(request)
        if request.method != "POST" or not request.path.partition("?")[0].endswith(_PATHS):
            return fail(404, f"no such route: {request.method} {request.path}")
        return self._function(request)

    @property
    def connection_count(self) -> int:
        return len(self.connections)


class _Connection(asyncio.Protocol):
    """One client: requests one after the other, each answered before the next is looked at."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._head: tuple[str, str, dict[str, str]] | None = None
        self._transport: asyncio.Transport | None = None
        self._is_chat = True
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("the model server speaks TCP only")
        self._transport = transport
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.task is not None:
            self.task.cancel()
        self._server.connections.discard(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self.task is None:
            self._next()

    def _next(self) -> None:
        while self.task is None and self._transport is not None:
            request = self._take_request()
            if request is None:
                return
            turn = self._server.answer(request)
            self._is_chat = not request.path.partition("?")[0].endswith(_RESPONSES)
            if turn.delay or turn.token_delay or turn.fault == "hang":
                self.task = asyncio.create_task(self._answer_slowly(turn), name="model-server-answer")
                self.task.add_done_callback(self._answered)
            else:
                self._write(b"".join(self._pieces(turn)))
                self._end(turn)

    def _take_request(self) -> ModelRequest | None:
        if self._head is None:
            self._head = self._take_head()
        if self._head is None:
            return None
        method, path, headers = self._head
        length = int(headers.get("content-length", "0"))
        if len(self._buffer) < length:
            return None
        with memoryview(self._buffer) as view:
            content = bytes(view[:length])
        del self._buffer[:length]
        self._head = None
        return ModelRequest(method=method, path=path, headers=headers, content=content)

    def _take_head(self) -> tuple[str, str, dict[str, str]] | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        method, path, _ = lines[0].split(" ", 2)
        return method, path, headers

    def _pieces(self, turn: Turn) -> Iterable[bytes]:
        if turn.fault == "reset":
            return
        extra = "".join(f"{name}: {value}\r\n" for name, value in turn.headers.items()).encode()
        if turn.status != 200 or turn.body is not None:
            body = error_body(turn)
            reason = _REASONS.get(turn.status, "Status")
            head = f"HTTP/1.1 {turn.status} {reason}\r\ncontent-type: {turn.content_type}\r\n"
            yield head.encode() + extra + f"content-length: {len(body)}\r\n\r\n".encode() + body
            return
        yield _STREAM_HEAD + extra + b"\r\n"
        parts = stream_parts(turn, "scripted") if self._is_chat else response_events(turn, "scripted")
        for part in parts:
            yield _chunked(part)
        if turn.fault not in ("cut", "hang"):
            yield (_chunked(_END_OF_STREAM) if self._is_chat else b"") + _END_OF_BODY

    async def _answer_slowly(self, turn: Turn) -> None:
        server = self._server
        server.open_streams += 1
        complete = False
        try:
            await asyncio.sleep(turn.delay)
            for piece in self._pieces(turn):
                self._write(piece)
                await asyncio.sleep(turn.token_delay)
            if turn.fault == "hang":
                await asyncio.get_running_loop().create_future()
            complete = True
        finally:
            server.open_streams -= 1
            if not complete:
                server.stream_dropped.set()
        self._end(turn)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self.task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        self._next()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    def _end(self, turn: Turn) -> None:
        if turn.fault in ("cut", "reset") and self._transport is not None:
            self._transport.close()


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _in_turn(turns: Iterable[Turn]) -> Callable[[ModelRequest], Turn]:
    left = deque(turns)

    def script(request: ModelRequest) -> Turn:
        return left.popleft() if left else fail(500, "the script of the model server is at its end")

    return script
