"""How the proxy treats connections: against an engine that notes what it receives and answers as it is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from deploy.engine_proxy.ownership import ServedInstance
from deploy.engine_proxy.proxy import BODY_LIMIT, EngineProxy
from tests.unit.deploy.fake_engine import OK, OURS, FakeEngine

LIMIT = 60.0
NAME = "drydock-a"
GOOD_BODY = json.dumps(
    {
        "Image": "x",
        "Labels": OURS,
        "HostConfig": {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "NetworkMode": "none"},
    }
).encode()
END = b"}"


@pytest.fixture
def container(engine: FakeEngine) -> str:
    """The id of a container of ours."""
    return engine.add_container(NAME, OURS)


@pytest.fixture
def exec_id(engine: FakeEngine, container: str) -> str:
    """An exec in it."""
    return engine.add_exec(container)


async def answer_after_everything(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: FakeEngine
) -> None:
    end = b"0\r\n\r\n" if b"chunked" in engine.received[-1] else END
    while not engine.received[-1].endswith(end):
        engine.received[-1] += await reader.read(1000)
    writer.write(OK)


async def echo_after_switching(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: FakeEngine) -> None:
    engine.received[-1] += await reader.readexactly(2)
    writer.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly ")
    while data := await reader.read(1000):
        writer.write(data)
    writer.write(b"|end of input seen")


async def refuse_to_switch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: FakeEngine) -> None:
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
    await writer.drain()
    writer.write_eof()
    engine.received[-1] += await reader.read(-1)


async def ask(port: int, request: bytes, *, then_close_half: bool = False) -> bytes:
    async with asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        await writer.drain()
        if then_close_half:
            writer.write_eof()
        try:
            return await reader.read(-1)
        finally:
            writer.close()
            await writer.wait_closed()


def create_request(body: bytes, *headers: str) -> bytes:
    lines = ["POST /v1.41/containers/create?name=drydock-a HTTP/1.1", "Host: x", "Content-Type: application/json"]
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n" + body


def start_exec(exec_id: str, *headers: str) -> bytes:
    lines = [f"POST /v1.41/exec/{exec_id}/start HTTP/1.1", "Host: x", "Content-Type: application/json"]
    return "\r\n".join([*lines, "Content-Length: 2", *headers]).encode() + b"\r\n\r\n{}"


async def test_an_allowed_call_is_passed_on_and_answered(port: int, engine: FakeEngine) -> None:
    answer = await ask(port, b"GET /v1.41/version HTTP/1.1\r\nHost: evil\r\nX-Evil: 1\r\n\r\n")
    assert answer == OK
    assert b"evil" not in engine.received[0].lower()
    assert b"Connection: close" in engine.received[0]


async def test_a_refused_call_never_reaches_the_engine(port: int, engine: FakeEngine) -> None:
    answer = await ask(port, b"POST /v1.41/build HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert "refused by the engine proxy" in json.loads(answer.partition(b"\r\n\r\n")[2])["message"]
    assert engine.received == []


async def test_a_checked_body_is_written_anew(port: int, engine: FakeEngine) -> None:
    engine.behaviour = answer_after_everything
    engine.add_container(NAME, OURS)
    spaced = b'{ "Cmd" \t:\r\n ["i\\u0064"] }'
    head = f"POST /v1.41/containers/{NAME}/exec HTTP/1.1\r\nContent-Type: application/json\r\n"
    assert await ask(port, f"{head}Content-Length: {len(spaced)}\r\n\r\n".encode() + spaced) == OK
    assert engine.received[0].endswith(b'\r\n\r\n{"Cmd": ["id"]}')


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], b"403"),  # no length
        (["Transfer-Encoding: chunked"], b"403"),
        (["Content-Length: 99999999"], b"403"),
        (["Content-Length: 5", "Transfer-Encoding: chunked"], b"400"),
        (["Content-Length: 5", "Content-Length: 6"], b"400"),
        (["Content-Length: +5"], b"400"),
        (["Transfer-Encoding: identity"], b"400"),
        ([" folded: 1"], b"400"),
        (["Content-Length : 5"], b"400"),
    ],
)
async def test_a_body_whose_end_is_unclear_is_refused(
    port: int, engine: FakeEngine, headers: list[str], status: bytes
) -> None:
    answer = await ask(port, create_request(GOOD_BODY, *headers))
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert (engine.received, engine.asked) == ([], [])


async def test_a_body_over_the_limit_is_refused(port: int, engine: FakeEngine) -> None:
    answer = await ask(port, create_request(b"", f"Content-Length: {BODY_LIMIT + 1}"))
    assert answer.startswith(b"HTTP/1.1 403 ")


async def test_a_call_without_a_body_carries_none(port: int, engine: FakeEngine, container: str) -> None:
    request = (
        b'POST /v1.41/containers/drydock-a/start HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\n\r\n{"Privileged":true}'
    )
    assert (await ask(port, request)).startswith(b"HTTP/1.1 403 ")
    assert engine.received == []


async def test_a_second_request_on_the_connection_is_not_passed_on(port: int, engine: FakeEngine) -> None:
    first = b"GET /v1.41/version HTTP/1.1\r\nHost: x\r\n\r\n"
    second = b"POST /v1.41/build HTTP/1.1\r\nHost: x\r\n\r\n"
    assert await ask(port, first + second) == OK
    assert len(engine.received) == 1
    assert b"build" not in engine.received[0]


async def test_an_archive_is_streamed_with_its_length(port: int, engine: FakeEngine, container: str) -> None:
    engine.behaviour = answer_after_everything
    data = b"x" * 300_000 + END
    head = (
        f"PUT /v1.41/containers/drydock-a/archive?path=%2F HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    assert await ask(port, head.encode() + data + b"GET / HTTP/1.1\r\n\r\n") == OK
    assert engine.received[0].endswith(b"\r\n\r\n" + data)


async def test_an_archive_in_chunks_is_streamed_to_its_end_and_no_further(
    port: int, engine: FakeEngine, container: str
) -> None:
    engine.behaviour = answer_after_everything
    head = b"PUT /v1.41/containers/drydock-a/archive?path=%2F HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
    assert await ask(port, head + chunks + b"GET /v1.41/build HTTP/1.1\r\n\r\n") == OK
    assert engine.received[0].endswith(b"\r\n\r\n" + chunks)


async def test_an_exec_becomes_a_stream_in_both_directions(port: int, engine: FakeEngine, exec_id: str) -> None:
    engine.behaviour = echo_after_switching
    request = start_exec(exec_id, "Connection: Upgrade", "Upgrade: tcp") + b"hello"
    answer = await ask(port, request, then_close_half=True)
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert answer.endswith(b"\r\n\r\nearly hello|end of input seen")


async def test_nothing_follows_an_exec_that_the_engine_did_not_start(
    port: int, engine: FakeEngine, exec_id: str
) -> None:
    engine.behaviour = refuse_to_switch
    smuggled = b"POST /v1.41/build HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = await ask(port, start_exec(exec_id, "Connection: Upgrade", "Upgrade: tcp") + smuggled)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"build" not in engine.received[0]


async def test_an_exec_without_a_stream_passes_no_input(port: int, engine: FakeEngine, exec_id: str) -> None:
    answer = await ask(port, start_exec(exec_id) + b"POST /v1.41/build HTTP/1.1\r\n\r\n")
    assert answer == OK
    assert b"Upgrade" not in engine.received[0]
    assert b"build" not in engine.received[0]


async def test_an_engine_that_is_down_is_named_as_the_cause(tmp_path: Path) -> None:
    instance = ServedInstance(tmp_path / "instance")
    async with EngineProxy(str(tmp_path / "nothing.sock"), instance).serving("127.0.0.1", 0) as port:
        answer = await ask(port, b"GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"engine does not answer" in answer


async def test_a_client_that_leaves_lets_go_of_the_engine(port: int, engine: FakeEngine, container: str) -> None:
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: FakeEngine) -> None:
        asked.set()
        await reader.read(-1)
        let_go.set()

    engine.behaviour = never_answer
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1.41/containers/drydock-a/wait HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.wait_for(asked.wait(), LIMIT)
    writer.close()
    await writer.wait_closed()
    await asyncio.wait_for(let_go.wait(), LIMIT)
