"""Clients that behave badly, in HTTP and in the sockets: each stays until it is ended."""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import cycle

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from bench.client import CONNECT, EVENT, PING, PONG

HOST = "127.0.0.1"
LITTLE_ROOM = 4096
"""Bytes that a client which does not read takes before the server notices."""
PIECE_SECONDS = 1.0
PIPELINED = 200
DEEP = 200_000
PIECE = "x" * 8192
STATE = "agent_state_changed"
SAYS_FORM = "multipart/form-data; boundary=b"
FORM_BEGIN = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
UPLOAD_BYTES = 1_000_000


class BadClients:
    """Who comes to one server with its token, and to one of its conversations. `answers` counts statuses of HTTP."""

    def __init__(self, url: str, key: str, conversation_id: str) -> None:
        self.answers = Counter[int]()
        self._url = url
        self._port = int(url.rsplit(":", 1)[1])
        self._key = key
        self._id = conversation_id

    # --- the sockets ---

    async def storm(self, count: int, *, key: str | None = None, conversation: str | None = None) -> Counter[str]:
        """All connect at the same moment, read what there is, and go; returns how it ended for how many of them."""

        async def come() -> str:
            try:
                async with asyncio.timeout(60), self.joined(key=key, conversation=conversation) as client:
                    while True:
                        message = str(await client.recv())
                        if message == PING:
                            await client.send(PONG)
                        elif message.startswith("44"):
                            return "refused"
                        elif message.startswith(EVENT) and STATE in message:
                            return "served"
            except (OSError, TimeoutError, WebSocketException) as error:
                return type(error).__name__

        return Counter(await asyncio.gather(*(come() for _ in range(count))))

    async def again_and_again(self, count: int, *, key: str | None = None, conversation: str | None = None) -> None:
        """As `storm`, without an end and without a pause: pages that cannot understand what they are told."""

        async def come() -> None:
            while True:
                with suppress(OSError, TimeoutError, WebSocketException):
                    async with asyncio.timeout(60), self.joined(key=key, conversation=conversation) as client:
                        while not str(await client.recv()).startswith("44"):
                            pass

        await asyncio.gather(*(come() for _ in range(count)))

    async def flood(self) -> None:
        """As many messages as the connection takes: events that are none, and pings."""
        await self._say_without_end([EVENT + '["oh_user_action",{"action":"no such thing","args":{}}]', PONG])

    async def malformed_packets(self) -> None:
        """Packets that nobody can read: too deep, cut, binary, of no type, with lone surrogates."""
        deep = EVENT + '["oh_user_action",' + "[" * 20_000 + "]" * 20_000 + "]"
        odd = EVENT + '["oh_user_action",{"action":"\\ud800","args":{"content":"\\ud800"}}]'
        await self._say_without_end([deep, EVENT + '["oh_user_action",{', "43[]", "42[", EVENT + "[]", odd, PONG])

    async def half_messages(self, count: int, size: int) -> None:
        """Join, send most of a message in small frames, and never its end."""

        async def most() -> AsyncIterator[str]:
            for _ in range(size // len(PIECE)):
                yield PIECE
            await asyncio.Event().wait()

        async def come() -> None:
            with suppress(OSError, WebSocketException):
                async with self.joined() as client:
                    await client.send(most())

        await asyncio.gather(*(come() for _ in range(count)))

    async def silent(self, count: int) -> None:
        """Join, read, and never answer a ping."""

        async def come() -> None:
            with suppress(OSError, WebSocketException):
                async with self.joined() as client:
                    async for _ in client:
                        pass

        await asyncio.gather(*(come() for _ in range(count)))

    async def polled_once(self, count: int) -> None:
        """Transports of long polling that are opened and never asked for anything again."""
        path = f"/socket.io/?EIO=4&transport=polling&conversation_id={self._id}&session_api_key={self._key}"
        await self._requests(count, lambda: self._get(path))

    @asynccontextmanager
    async def joined(
        self, *, key: str | None = None, conversation: str | None = None
    ) -> AsyncIterator[ClientConnection]:
        query = f"conversation_id={conversation or self._id}&latest_event_id=-1&session_api_key={key or self._key}"
        address = f"{self._url.replace('http', 'ws', 1)}/socket.io/?EIO=4&transport=websocket&{query}"
        async with connect(address, compression=None, max_size=None, open_timeout=60, close_timeout=0.1) as client:
            await client.recv()
            await client.send(CONNECT)
            yield client

    async def _say_without_end(self, said: Sequence[str]) -> None:
        with suppress(OSError, WebSocketException):
            async with self.joined() as client:
                reading = asyncio.ensure_future(_read(client))
                try:
                    for message in cycle(said):
                        await client.send(message)
                finally:
                    reading.cancel()
                    client.transport.abort()  # the end of what it has said would not get through

    # --- HTTP ---

    async def unread(self, count: int, *paths: str) -> None:
        """Ask for something long, and read nothing of it."""
        kinds = cycle(paths)
        await self.open(count, lambda: self._get(next(kinds)), room=LITTLE_ROOM)

    async def unread_chats(self, count: int) -> None:
        """Have an agent answer through ``/v1``, and read nothing."""
        body = orjson.dumps({"model": "drydock", "stream": True, "messages": [{"role": "user", "content": "go"}]})
        await self.open(count, lambda: self._post("/v1/chat/completions", body), room=LITTLE_ROOM)

    async def unread_tools(self, count: int) -> None:
        """Call tools of the MCP door, and read nothing."""
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        accept = "Accept: application/json, text/event-stream\r\n"
        await self.open(count, lambda: self._post("/mcp/mcp", body, more=accept), room=LITTLE_ROOM)

    async def slow_bodies(self, count: int) -> None:
        """Say that much comes, and send a byte a second: to every kind of route that takes a body."""
        of_it = f"/api/conversations/{self._id}"
        kinds = cycle(
            [
                ("/api/conversations", "application/json", b"{"),
                (f"{of_it}/upload-files", SAYS_FORM, FORM_BEGIN),
                ("/api/conversations/import", "application/json", b"{"),
                ("/api/conversations/import/archive", "application/gzip", b"\x1f"),
                ("/v1/chat/completions", "application/json", b"{"),
                ("/mcp/mcp", "application/json", b"{"),
                ("/api/settings", "application/json", b"{"),
                (f"{of_it}/events", "application/json", b"{"),
            ]
        )

        def begin() -> bytes:
            path, kind, first = next(kinds)
            return self._head("POST", path, f"Content-Type: {kind}\r\nContent-Length: {UPLOAD_BYTES}\r\n") + first

        await self.open(count, begin, then=b"a")

    async def half_bodies(self, count: int) -> None:
        """All of a body but its last byte."""
        body = b'{"initial_user_msg":"' + b"x" * UPLOAD_BYTES
        post = self._post("/api/conversations", body + b'"}')
        await self.open(count, lambda: post[:-1])

    async def deep_bodies(self, count: int, size: int) -> None:
        """JSON that is nested as deeply as it is long, or has as many values, as fast as it is refused."""
        kinds = cycle([b"[" * size, b'{"a":' * (size // 5), b"[1," + b"1," * (size // 2) + b"1]", b"9" * size])
        await self._without_end(count, lambda: self._post("/api/conversations", next(kinds)))

    async def bombs(self, count: int, size: int) -> None:
        """Bodies that are small as they are sent and large when they are unpacked, as fast as they are answered."""
        bomb = await asyncio.to_thread(_packed, size)
        packed = "Content-Encoding: gzip\r\n"
        of_it = f"/api/conversations/{self._id}"
        kinds = cycle(
            [
                self._post("/api/conversations", bomb, more=packed),
                self._post("/v1/chat/completions", bomb, more=packed),
                self._post(f"{of_it}/upload-files", FORM_BEGIN + bomb + b"\r\n--b--\r\n", kind=SAYS_FORM, more=packed),
                self._post("/api/conversations/import/archive", bomb, kind="application/gzip"),
            ]
        )
        await self._without_end(count, lambda: next(kinds))

    async def cut_uploads(self, count: int, size: int) -> None:
        """Begin to upload a large file, and go in the middle, again and again."""
        head = self._head(
            "POST",
            f"/api/conversations/{self._id}/upload-files",
            f"Content-Type: {SAYS_FORM}\r\nContent-Length: {2 * size}\r\n",
        )

        async def upload() -> None:
            while True:
                with suppress(OSError):
                    async with self._connection(head + FORM_BEGIN + bytes(size), None) as raw:
                        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                self.answers[0] += 1

        await asyncio.gather(*(upload() for _ in range(count)))

    async def whole(self, count: int, *paths: str) -> None:
        """Download something large to its end, again and again."""
        kinds = cycle(paths)

        async def download() -> None:
            while True:
                reader, writer = await asyncio.open_connection(HOST, self._port)
                try:
                    writer.write(self._get(next(kinds), "Connection: close\r\n"))
                    self.answers[int((await reader.readline()).split()[1])] += 1
                    while await reader.read(1_000_000):
                        pass
                finally:
                    writer.close()

        await asyncio.gather(*(download() for _ in range(count)))

    async def slow_heads(self, count: int) -> None:
        """A byte of a head each second."""
        await self.open(count, lambda: b"GET /alive HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", then=b"a")

    async def malformed_requests(self, count: int) -> None:
        """Bodies that nobody can read, and what is no HTTP, as fast as they are answered."""
        of_it = f"/api/conversations/{self._id}"
        deep = b"[" * DEEP
        kinds = cycle(
            [
                self._post("/api/conversations", b"{"),
                self._post("/api/conversations", deep),
                self._post(f"{of_it}/events", b'{"action":"message","args":{"content":"\xff\xfe"}}'),
                self._post("/v1/chat/completions", deep),
                self._post("/mcp/mcp", deep),
                self._post("/mcp/mcp", b'{"jsonrpc":"2.0","id":1}'),
                self._post(f"{of_it}/upload-files", b"--c\r\n", kind=SAYS_FORM),
                self._post("/api/conversations/import/archive", b"\x1f\x8b\x08" + bytes(100), kind="application/gzip"),
                self._post("/api/conversations/import", b'{"events":[1,2,3]}'),
                self._get("/api/conversations/%ff%00/events"),
                self._get(f"{of_it}/events?limit=1e9&start_id=-{'9' * 400}"),
                self._head("POST", "/api/settings", f"Content-Length: {10**12}\r\n"),
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
                b"GET /alive HTTP/9.9\r\n\r\n",
                b"GET /alive HTTP/1.0\r\n\r\n",
            ]
        )
        await self._without_end(count, lambda: next(kinds))

    async def ranges(self, count: int, path: str) -> None:
        """Ask for parts of a file, sensible and not, as fast as they are answered."""
        asked = cycle(["0-0", "5-", "-7", "-0", "9999999999999-", "7-3", "0-1,5-6,9-10", "x", "0-" + "9" * 30])
        await self._without_end(count, lambda: self._get(path, f"Range: bytes={next(asked)}\r\n"))

    async def pipelined(self, count: int) -> None:
        """Hundreds of requests behind each other on each connection, and nothing read."""
        head = f"GET /alive HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
        await self.open(count, lambda: head * PIPELINED, room=LITTLE_ROOM)

    async def open(self, count: int, said: Callable[[], bytes], *, room: int | None = None, then: bytes = b"") -> None:
        """So many connections that stay; with `then` each goes on to say that each second, if it is still there."""
        async with AsyncExitStack() as stack:
            raw = [await stack.enter_async_context(self._connection(said(), room)) for _ in range(count)]
            while then:
                await asyncio.sleep(PIECE_SECONDS)
                for one in raw:
                    with suppress(OSError):
                        one.send(then)
            await asyncio.Event().wait()

    @asynccontextmanager
    async def _connection(self, said: bytes, room: int | None) -> AsyncIterator[socket.socket]:
        with socket.socket() as raw:
            raw.setblocking(False)
            if room is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(raw, (HOST, self._port))
            if said:
                await loop.sock_sendall(raw, said)
            yield raw

    async def _without_end(self, count: int, said: Callable[[], bytes]) -> None:
        async def go_on() -> None:
            while True:
                await self._request(said())

        await asyncio.gather(*(go_on() for _ in range(count)))

    async def _requests(self, count: int, said: Callable[[], bytes]) -> None:
        await asyncio.gather(*(self._request(said()) for _ in range(count)))
        await asyncio.Event().wait()

    async def _request(self, said: bytes) -> None:
        """One request on a connection of its own; its status is counted."""
        try:
            async with asyncio.timeout(60):
                reader, writer = await asyncio.open_connection(HOST, self._port)
                try:
                    writer.write(said)
                    line = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            line = b""
        words = line.split()
        self.answers[int(words[1]) if len(words) > 1 else 0] += 1

    def _get(self, path: str, more: str = "") -> bytes:
        return self._head("GET", path, more)

    def _post(self, path: str, body: bytes, *, kind: str = "application/json", more: str = "") -> bytes:
        return self._head("POST", path, f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}") + body

    def _head(self, method: str, path: str, more: str = "") -> bytes:
        return f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nX-Session-API-Key: {self._key}\r\n{more}\r\n".encode()


Misbehaviour = Callable[[], Awaitable[object]]


def _packed(size: int) -> bytes:
    packer, zeros = zlib.compressobj(9, zlib.DEFLATED, 31), bytes(1_000_000)
    return b"".join(packer.compress(zeros) for _ in range(size // len(zeros))) + packer.flush()


async def _read(client: ClientConnection) -> None:
    async for _ in client:
        pass
