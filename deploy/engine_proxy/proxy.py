"""Passes allowed calls on to the engine and its answers back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator
from typing import Final

from deploy.engine_proxy.calls import Call, find_call
from deploy.engine_proxy.errors import MalformedError, RefusedError
from deploy.engine_proxy.messages import HEAD_LIMIT, RequestHead, answer, read_head
from deploy.engine_proxy.rules import OWN_NAME, read_json

log: Final = logging.getLogger("engine_proxy")

CHUNK: Final = 64 * 1024
BODY_LIMIT: Final = 256 * 1024
HEAD_SECONDS: Final = 30.0
ENGINE_SECONDS: Final = 10.0
_PASSED_HEADERS: Final = ("content-type", "x-registry-auth", "user-agent", "accept")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")
_STREAM_SWITCH: Final = 101


class EngineProxy:
    """Serves clients of one engine.

    Args:
        engine_socket: path of the engine's unix socket.
        max_connections: how many clients are served at once; more wait.
    """

    def __init__(self, engine_socket: str, max_connections: int = 1024) -> None:
        self._engine_socket = engine_socket
        self._places = asyncio.Semaphore(max_connections)
        self._clients: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen, and yield the port; 0 takes a free one. Leaving ends all connections."""
        server = await asyncio.start_server(self._client_connected, host, port, limit=HEAD_LIMIT)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self._clients:
                task.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)

    def _client_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve_client(reader, writer), name="client of the engine proxy")
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._places:
            request = ""
            try:
                async with asyncio.timeout(HEAD_SECONDS):
                    head = await read_head(reader)
                if head is not None:
                    request = f"{head.method} {head.target.partition('?')[0]}"
                    await self._pass_on(head, reader, writer)
            except RefusedError as refusal:
                log.warning("refused %s: %s", request, refusal)
                writer.write(answer(403, f"refused by the engine proxy of Drydock: {refusal}"))
            except MalformedError as problem:
                log.warning("malformed %s: %s", request, problem)
                writer.write(answer(400, f"not understood by the engine proxy of Drydock: {problem}"))
            except TimeoutError:
                writer.write(answer(408, "the engine proxy of Drydock waited too long"))
            except OSError as error:
                log.debug("connection lost during %s: %s", request, error)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _pass_on(self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = find_call(head.method, head.target)
        body = await _checked_body(call, head, reader)
        try:
            async with asyncio.timeout(ENGINE_SECONDS):
                if call.unproven is not None:
                    await self._prove_ours(call, call.unproven)
                engine_reader, engine_writer = await asyncio.open_unix_connection(self._engine_socket, limit=HEAD_LIMIT)
        except (OSError, TimeoutError) as error:
            log.warning("the engine does not answer: %s", error)
            writer.write(answer(503, "the Docker engine does not answer the engine proxy of Drydock"))
            return
        try:
            upgrade = call.route.upgrade and head.wants_upgrade
            engine_writer.write(_request(call, head, body, upgrade))
            if call.route.body == "stream":
                await _copy_body(head, reader, engine_writer)
            await engine_writer.drain()
            if upgrade and await _is_switched(engine_reader, writer):
                await _join(reader, writer, engine_reader, engine_writer)
            else:
                await _copy_answer(reader, writer, engine_reader)
        finally:
            engine_writer.close()
            with contextlib.suppress(OSError):
                await engine_writer.wait_closed()

    async def _prove_ours(self, call: Call, reference: str) -> None:
        """Ask the engine for the name behind an id.

        Raises:
            RefusedError: it is not one of ours, or unknown.
        """
        owner = call.route.owner
        path = f"/containers/{reference}/json" if owner == "containers" else f"/networks/{reference}"
        reader, writer = await asyncio.open_unix_connection(self._engine_socket)
        try:
            writer.write(f"GET {call.version}{path} HTTP/1.0\r\nHost: docker\r\n\r\n".encode("ascii"))
            answered = await reader.read(-1)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        head, _, body = answered.partition(b"\r\n\r\n")
        name = ""
        if head.startswith((b"HTTP/1.0 200", b"HTTP/1.1 200")):
            with contextlib.suppress(ValueError):
                name = str(json.loads(body).get("Name", ""))
        if OWN_NAME.fullmatch(name.removeprefix("/")) is None:
            raise RefusedError("only things whose names begin with drydock- can be touched")


async def _checked_body(call: Call, head: RequestHead, reader: asyncio.StreamReader) -> bytes:
    """The JSON body to pass on, written anew; empty where the call has none or streams it."""
    rule = call.route.body
    if rule == "stream":
        return b""
    if head.is_chunked or head.content_length > BODY_LIMIT:
        raise RefusedError(f"the body must have a length of at most {BODY_LIMIT} bytes")
    if head.content_length == 0 and not callable(rule):
        return b""
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            body = await reader.readexactly(head.content_length)
    except asyncio.IncompleteReadError:
        raise MalformedError("the body breaks off") from None
    if not callable(rule):
        if body.strip() in (b"", b"null", b"{}"):
            return b""
        raise RefusedError("this call takes no body")
    if head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError("the body must be application/json")
    value = read_json(body)
    rule(value, "body")
    return json.dumps(value).encode("ascii")


def _request(call: Call, head: RequestHead, body: bytes, upgrade: bool) -> bytes:
    """The request for the engine. It closes its connection afterwards, so nothing can follow."""
    lines = [f"{call.method} {call.target} HTTP/1.1", "Host: docker"]
    lines += [f"{name}: {head.headers[name]}" for name in _PASSED_HEADERS if name in head.headers]
    lines += ["Connection: Upgrade, close", "Upgrade: tcp"] if upgrade else ["Connection: close"]
    if call.route.body != "stream":
        lines.append(f"Content-Length: {len(body)}")
    elif head.is_chunked:
        lines.append("Transfer-Encoding: chunked")
    else:
        lines.append(f"Content-Length: {head.content_length}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def _copy_body(head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy exactly the body that the head declares."""
    if not head.is_chunked:
        await _copy(reader, writer, head.content_length)
        return
    while True:
        try:
            line = await reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise MalformedError("a chunk of the body breaks off") from None
        if re.fullmatch(rb"[0-9a-fA-F]{1,8}\r\n", line) is None:
            raise MalformedError("a chunk of the body has no plain size")
        size = int(line, 16)
        writer.write(line)
        if size == 0:
            writer.write(b"\r\n")  # trailers, if any, are left out
            return
        await _copy(reader, writer, size)
        if await reader.readexactly(2) != b"\r\n":
            raise MalformedError("a chunk of the body is longer than it says")
        writer.write(b"\r\n")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> None:
    while count > 0:
        data = await reader.read(min(count, CHUNK))
        if not data:
            raise MalformedError("the body breaks off")
        writer.write(data)
        await writer.drain()
        count -= len(data)


async def _copy_answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine_reader: asyncio.StreamReader
) -> None:
    """Copy the engine's answer until it ends or the client has gone away, however long that takes."""
    answering = asyncio.create_task(_pump(engine_reader, writer), name="engine answer")
    leaving = asyncio.create_task(_until_gone(reader), name="client leaves")
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (answering, leaving):
            task.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """Return when the client has closed; what it sends after its request is thrown away."""
    while await reader.read(CHUNK):
        pass


async def _is_switched(engine_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Copy the head of the engine's answer; True when the connection has become a byte stream."""
    try:
        head = await engine_reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        writer.write(error.partial)
        return False
    writer.write(head)
    status = _STATUS_LINE.match(head)
    return status is not None and int(status[1]) == _STREAM_SWITCH


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    engine_reader: asyncio.StreamReader,
    engine_writer: asyncio.StreamWriter,
) -> None:
    """Let bytes through in both directions until both have ended, or the engine's has."""
    inward = asyncio.create_task(_pump(reader, engine_writer), name="client to engine")
    outward = asyncio.create_task(_pump(engine_reader, writer), name="engine to client")
    try:
        # The client may close its half (end of standard input) and still wait for output; once the engine has said
        # its last, there is nothing left to wait for.
        await asyncio.wait({outward}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (inward, outward):
            task.cancel()
        await asyncio.gather(inward, outward, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
