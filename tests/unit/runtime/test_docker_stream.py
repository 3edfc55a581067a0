"""Streams of Docker execs: headers in whatever pieces they arrive, and answers of engines that refuse."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import SandboxError
from agent_core.runtime.docker.engine import Demultiplexer, open_exec
from agent_core.runtime.docker.heartbeat import EngineAddress
from runtime_images.runner import wire
from tests.listening import listening_at

UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

FRAME = wire.encode({"hello": {}})

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def piece(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(data)) + data


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8), st.data())
def test_pieces_come_out_whole_however_they_are_cut(sent: list[tuple[int, bytes]], data: st.DataObject) -> None:
    wire = b"".join(piece(stream, content) for stream, content in sent)
    demultiplexer = Demultiplexer()
    got: dict[int, bytes] = {1: b"", 2: b""}
    while wire:
        cut = data.draw(st.integers(min_value=1, max_value=len(wire)))
        for stream, content in demultiplexer.feed(wire[:cut]):
            got[stream] += content
        wire = wire[cut:]
    for stream in (1, 2):
        assert got[stream] == b"".join(content for number, content in sent if number == stream)


@asynccontextmanager
async def engine(folder: Path, answer: Answer) -> AsyncIterator[EngineAddress]:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"POST /v1.41/exec/abc/start HTTP/1.1\r\n")
            await answer(reader, writer)
        finally:
            ended.set()

    async with listening_at(folder / "engine.sock", serve) as path:
        yield EngineAddress(socket_path=str(path))
        async with asyncio.timeout(30):
            await ended.wait()


async def test_bytes_that_arrive_with_the_upgrade_are_not_lost(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(UPGRADED + piece(1, FRAME[:3]) + piece(2, b"warning") + piece(1, FRAME[3:]))
        await writer.drain()
        await reader.read()

    async with engine(tmp_path, answer) as address:
        stream = await open_exec(address, "/v1.41/exec/abc/start", 5)
        assert await stream.first_word()
        assert await stream.reader.readexactly(len(FRAME)) == FRAME
        assert bytes(stream.errors) == b"warning"
        stream.abort()


async def test_an_answer_in_single_bytes_is_understood(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in UPGRADED + piece(1, FRAME):
            writer.write(bytes([byte]))
            await writer.drain()
        await reader.read()

    async with engine(tmp_path, answer) as address:
        stream = await open_exec(address, "/v1.41/exec/abc/start", 5)
        assert await stream.reader.readexactly(len(FRAME)) == FRAME
        stream.abort()


async def test_a_refusal_carries_the_engines_words(tmp_path: Path) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 409 Conflict\r\nContent-Length: 27\r\n\r\n{"message":"is not running"}')
        await writer.drain()

    async with engine(tmp_path, answer) as address:
        with pytest.raises(SandboxError, match="is not running") as caught:
            await open_exec(address, "/v1.41/exec/abc/start", 5)
        assert caught.value.code == "exec_refused"


async def test_an_engine_that_does_not_answer_is_given_up_in_time(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with engine(tmp_path, answer) as address:
        with pytest.raises(SandboxError, match="no answer within") as caught:
            await open_exec(address, "/v1.41/exec/abc/start", 0.05)
        assert caught.value.code == "engine_unavailable"


async def test_an_engine_that_hangs_up_is_reported(tmp_path: Path) -> None:
    async def answer(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        return

    async with engine(tmp_path, answer) as address:
        with pytest.raises(SandboxError, match="closed the connection"):
            await open_exec(address, "/v1.41/exec/abc/start", 5)


async def test_no_engine_is_reported_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="No such file") as caught:
        await open_exec(EngineAddress(socket_path=str(tmp_path / "none.sock")), "/exec", 5)
    assert caught.value.code == "engine_unavailable"


async def test_a_stream_that_ends_without_a_word_says_so(tmp_path: Path) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(UPGRADED + piece(2, b"no such module"))
        await writer.drain()

    async with engine(tmp_path, answer) as address:
        stream = await open_exec(address, "/v1.41/exec/abc/start", 5)
        assert not await stream.first_word()
        assert stream.ended
        stream.abort()


async def test_an_engines_error_on_the_stream_is_no_word_of_a_runner(tmp_path: Path) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(UPGRADED + piece(1, b"OCI runtime exec failed: executable file not found in $PATH"))
        await writer.drain()

    async with engine(tmp_path, answer) as address:
        stream = await open_exec(address, "/v1.41/exec/abc/start", 5)
        assert not await stream.first_word()
        assert b"not found in $PATH" in stream.stray
        stream.abort()
