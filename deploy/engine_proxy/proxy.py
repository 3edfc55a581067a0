"""Passes allowed calls on to the engine and its answers back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from deploy.engine_proxy.calls import EngineCall, find_call
from deploy.engine_proxy.http import (
    HEAD_LIMIT,
    STATUS_LINE,
    Engine,
    EngineAnswerError,
    MalformedError,
    RequestHead,
    answer,
    error_answer,
    read_head,
)
from deploy.engine_proxy.ownership import Ownership, ServedInstance, full_id
from deploy.engine_proxy.rules import ForbiddenCallError, read_json

log: Final = logging.getLogger("engine_proxy")

CHUNK: Final = 64 * 1024
BODY_LIMIT: Final = 256 * 1024
HEAD_SECONDS: Final = 30.0
ENGINE_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 60.0
_PASSED_HEADERS: Final = ("content-type", "x-registry-auth", "user-agent", "accept")
_STREAM_SWITCH: Final = 101


class EngineProxy:
    """Serves clients of one engine, at most ``max_connections`` at once; more wait."""

    def __init__(self, engine_socket: str, instance: ServedInstance, max_connections: int = 1024) -> None:
        self._engine = Engine(engine_socket)
        self._ownership = Ownership(self._engine, instance)
        self._places = asyncio.Semaphore(max_connections)
        self._clients: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen, and yield the port (0: a free one). Leaving ends all connections."""
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
            except ForbiddenCallError as refusal:
                log.warning("refused %s: %s", request, refusal)
                writer.write(error_answer(403, f"refused by the engine proxy of Drydock: {refusal}"))
            except MalformedError as problem:
                log.warning("malformed %s: %s", request, problem)
                writer.write(error_answer(400, f"not understood by the engine proxy of Drydock: {problem}"))
            except EngineAnswerError as error:
                writer.write(error_answer(error.status, str(error)))
            except TimeoutError:
                writer.write(error_answer(408, "the engine proxy of Drydock waited too long"))
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
                if call.route.step in ("create", "list"):
                    writer.write(await self._create_or_list(call, body or {}))
                    return
                if call.route.step == "pull" and await self._ownership.is_here(
                    call.query["fromImage"], call.query["tag"], call.version
                ):
                    writer.write(answer(200, b'{"status": "The image is here already"}\r\n'))
                    return
                target = await self._proven(call, body)
                engine_reader, engine_writer = await asyncio.open_unix_connection(
                    self._engine.socket_path, limit=HEAD_LIMIT
                )
        except (OSError, TimeoutError) as error:
            log.warning("the engine does not answer: %s", error)
            writer.write(error_answer(503, "the Docker engine does not answer the engine proxy of Drydock"))
            return
        try:
            upgrade = call.route.upgrade and head.wants_upgrade
            engine_writer.write(_request(call, target, head, body, upgrade))
            if call.route.body == "stream":
                await _copy_body(head, reader, engine_writer)
            await engine_writer.drain()
            if upgrade and await _is_switched(engine_reader, writer):
                await _pump_both(reader, writer, engine_reader, engine_writer)
            else:
                await _pump_both(reader, writer, engine_reader, None)
        finally:
            engine_writer.close()
            with contextlib.suppress(OSError):
                await engine_writer.wait_closed()

    async def _proven(self, call: EngineCall, body: dict[str, object] | None) -> str:
        """Path and query for the engine, once everything in the call is shown to be ours.

        Ids replace names, so that what was checked is what is used. Volumes have nothing but names.
        """
        version, own, kind = call.version, call.own, call.route.kind
        if call.route.step == "forget":
            await self._ownership.derived_image(call.target().partition("?")[0].rpartition("/images/")[2], version)
        if call.route.step == "commit":
            if await self._ownership.derived_image(f"{call.query['repo']}:{call.query['tag']}", version):
                raise ForbiddenCallError("an image of this name is there already")
            container = full_id(await self._ownership.container(call.query["container"], version))
            return replace(call, query={**call.query, "container": container}).target()
        if kind == "container":
            found = await self._ownership.container(own, version)
            if call.route.step == "start":
                await self._ownership.check_start(found, version)
            own = full_id(found)
            if body is not None:
                body.pop("Container", None)  # as Docker's own client repeats it for an exec
        elif kind == "network":
            own = await self._ownership.network(own, version)
            if call.route.step == "connect" and body is not None:
                body["Container"] = full_id(await self._ownership.container(str(body["Container"]), version))
        elif kind == "volume":
            await self._ownership.volume(own, version)
        elif kind == "exec":
            await self._ownership.exec_in_ours(own, version)
        return call.target(own)

    async def _create_or_list(self, call: EngineCall, body: dict[str, object]) -> bytes:
        ownership, kind = self._ownership, call.route.kind
        if call.route.step == "list":
            ownership.claim_filters(call.filters)
            listed = await self._engine.ask("GET", call.target())
            if not listed.succeeded:
                return answer(listed.status, listed.content)
            return answer(listed.status, json.dumps(ownership.only_ours(listed.parsed(), kind)).encode("ascii"))
        await ownership.fit(kind, body, call.version)
        response = await self._engine.ask("POST", call.target(), body)
        if response.succeeded:
            await ownership.settle(kind, body, response, call.version)
        return answer(response.status, response.content)


async def _checked_body(call: EngineCall, head: RequestHead, reader: asyncio.StreamReader) -> dict[str, object] | None:
    """A call's JSON body; None where it has none or streams it."""
    rule = call.route.body
    if rule == "stream":
        return None
    if head.is_chunked or head.content_length > BODY_LIMIT:
        raise ForbiddenCallError(f"the body must have a length of at most {BODY_LIMIT} bytes")
    if head.content_length == 0 and not callable(rule):
        return None
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            body = await reader.readexactly(head.content_length)
    except asyncio.IncompleteReadError:
        raise MalformedError("the body breaks off") from None
    if not callable(rule):
        if body.strip() in (b"", b"null", b"{}"):
            return None
        raise ForbiddenCallError("this call takes no body")
    if head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ForbiddenCallError("the body must be application/json")
    value = read_json(body)
    rule(value, "body")
    return value


def _request(call: EngineCall, target: str, head: RequestHead, body: dict[str, object] | None, upgrade: bool) -> bytes:
    """The engine's request; its connection closes afterwards, so nothing can follow."""
    content = b"" if body is None else json.dumps(body).encode("ascii")
    lines = [f"{call.method} {target} HTTP/1.1", "Host: docker"]
    lines += [f"{name}: {head.headers[name]}" for name in _PASSED_HEADERS if name in head.headers]
    lines += ["Connection: Upgrade, close", "Upgrade: tcp"] if upgrade else ["Connection: close"]
    if call.route.body != "stream":
        lines.append(f"Content-Length: {len(content)}")
    elif head.is_chunked:
        lines.append("Transfer-Encoding: chunked")
    else:
        lines.append(f"Content-Length: {head.content_length}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content


async def _copy_body(head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if not head.is_chunked:
        await _copy(reader, writer, head.content_length)
        return
    while True:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
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
        async with asyncio.timeout(IDLE_SECONDS):
            data = await reader.read(min(count, CHUNK))
        if not data:
            raise MalformedError("the body breaks off")
        writer.write(data)
        await writer.drain()
        count -= len(data)


async def _is_switched(engine_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Copy the answer's head; True when the connection has become a byte stream."""
    try:
        head = await engine_reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        writer.write(error.partial)
        return False
    writer.write(head)
    status = STATUS_LINE.match(head)
    return status is not None and int(status[1]) == _STREAM_SWITCH


async def _pump_both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    engine_reader: asyncio.StreamReader,
    engine_writer: asyncio.StreamWriter | None,
) -> None:
    """Copy what the engine says to the client, however long that takes, and what the client says to the engine.

    Without `engine_writer` that is thrown away, and all is over when the client has gone. Otherwise it may close its
    half (end of standard input) and still wait for output: only once the engine has said its last nothing is left to
    wait for.
    """
    inward = asyncio.create_task(_pump(reader, engine_writer), name="client to engine")
    outward = asyncio.create_task(_pump(engine_reader, writer), name="engine to client")
    try:
        ending = {outward} if engine_writer is not None else {inward, outward}
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (inward, outward):
            task.cancel()
        await asyncio.gather(inward, outward, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None) -> None:
    while data := await reader.read(CHUNK):
        if writer is not None:
            writer.write(data)
            await writer.drain()
    if writer is not None and writer.can_write_eof():
        writer.write_eof()
