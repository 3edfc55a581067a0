"""HTTP through a preview: everything that web servers and browsers do, and what broken or hostile ones do."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import socket

import pytest

from agent_core.runtime.channel.tunnels import MAX_TUNNELS
from server.doors.preview.http_proxy import PreviewLimits
from tests.contract.preview.conftest import Site
from tests.contract.runner.client import PATIENCE_SECONDS
from tests.listening import Handler

MEGABYTE = 1024 * 1024
OK = b"HTTP/1.1 200 OK\r\n"


async def read_request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def forever() -> None:
    await asyncio.Event().wait()


async def test_methods_paths_and_bodies_arrive_as_they_were_sent(site: Site) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_request(reader)
        body = b""
        if b"content-length: " in head.lower():
            body = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        whole = head.split(b"\r\n")[0] + b"|" + body
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(whole) + whole)

    port = await site.serve(handler)
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"):
        response = await site.get(port, "/a%20b/%2e/ä?q=%41&r", method=method, content=b"\x00\xff")
        assert response.content == f"{method} /a%20b/%2e/%C3%A4?q=%41&r HTTP/1.1|".encode() + b"\x00\xff"
    assert (await site.get(port, method="TRACE")).status_code == 405


async def test_an_answer_of_any_framing_comes_whole(site: Site) -> None:
    body = os.urandom(300_000)
    chunks = b"".join(
        b"%x;ext=1\r\n" % len(part) + part + b"\r\n" for part in (body[:1], body[1:200_000], body[200_000:])
    )
    framed = {
        "length": OK + b"Content-Length: 300000\r\n\r\n" + body,
        "chunked": OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nTrailer: x\r\n\r\n",
        "close": OK + b"\r\n" + body,
        "old": b"HTTP/1.0 200 OK\r\n\r\n" + body,
        "hinted": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK + b"Content-Length: 300000\r\n\r\n" + body,
    }
    for name, answer in framed.items():
        response = await site.get(await site.answering(answer))
        assert response.content == body, name
        assert "trailer" not in response.headers


@pytest.mark.parametrize(
    ("method", "head", "status"),
    [
        ("HEAD", OK + b"Content-Length: 1000\r\n\r\n", 200),
        ("HEAD", OK + b"Transfer-Encoding: chunked\r\n\r\n", 200),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: x\r\n\r\n", 304),
        ("GET", b"HTTP/1.1 404 Nope\r\nContent-Length: 0\r\n\r\n", 404),
        ("GET", b"HTTP/1.1 599 Odd\r\nContent-Length: 0\r\n\r\n", 599),
    ],
)
async def test_answers_without_a_body_end_at_once(site: Site, method: str, head: bytes, status: int) -> None:
    response = await site.get(await site.answering(head), method=method)
    assert (response.status_code, response.content) == (status, b"")
    if b"1000" in head:
        assert response.headers["content-length"] == "1000"


async def test_an_upload_of_unknown_length_streams_and_so_does_its_answer(site: Site) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await read_request(reader)).lower()
        assert b"transfer-encoding: chunked" in head
        assert b"content-length" not in head
        writer.write(OK + b"Content-Type: text/event-stream\r\n\r\n")
        while size := int(await reader.readline(), 16):
            writer.write(await reader.readexactly(size))
            await writer.drain()
            await reader.readline()

    port = await site.serve(echo)
    cookie = (await site.enter(port))["cookie"]
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    head = f"POST / HTTP/1.1\r\nHost: {site.host_of(port)}\r\nCookie: {cookie}\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(PATIENCE_SECONDS):
        for number in range(5):  # each part is sent only when the one before it has come back
            writer.write(b"6\r\npart %d\r\n" % number)
            await reader.readuntil(b"part %d\r\n" % number)
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"0\r\n\r\n")
    writer.close()


async def test_what_is_no_http_gives_a_page_that_says_so(site: Site) -> None:
    bad = {
        "garbage": b"SSH-2.0-OpenSSH_9.2\r\n",
        "nothing": b"",
        "half a head": b"HTTP/1.1 200 OK\r\nContent-",
        "a bad length": OK + b"Content-Length: -1\r\n\r\n",
        "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n12",
        "a strange coding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        "a bad name": OK + b"Bad Name: 1\r\nContent-Length: 0\r\n\r\n",
        "a sign that no field has": OK + b"X-A: a\x01b\r\nContent-Length: 0\r\n\r\n",
        "a status of its own": b"HTTP/1.1 999 Hm\r\nContent-Length: 0\r\n\r\n",
        "an upgrade nobody asked for": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "a huge head": OK + b"X: " + bytes(1).replace(b"\0", b"a") * (4 * MEGABYTE) + b"\r\n\r\n",
        "many fields": OK + b"".join(b"X-%d: 1\r\n" % number for number in range(20_000)) + b"\r\n",
    }
    for name, answer in bad.items():
        response = await site.get(await site.answering(answer))
        assert response.status_code == 502, name
        assert "does not answer" in response.text, name
        assert "frame-ancestors" in response.headers["content-security-policy"]
    response = await site.get(await site.answering(OK + b"A: 1\r\n b: 2\r\nContent-Length: 0\r\nC: x\rD: y\r\n\r\n"))
    assert "d" not in response.headers


async def test_an_answer_that_breaks_off_is_seen_to_be_incomplete(site: Site) -> None:
    short = (
        OK + b"Content-Length: 100\r\n\r\nhalf",
        OK + b"Transfer-Encoding: chunked\r\n\r\n64\r\nhalf",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    )
    for answer in short:
        port = await site.answering(answer)
        cookie = (await site.enter(port))["cookie"]
        request = f"GET / HTTP/1.1\r\nHost: {site.host_of(port)}\r\nCookie: {cookie}\r\n\r\n"
        got = await site.raw(request.encode())
        assert got.startswith(b"HTTP/1.1 200")
        assert not got.endswith(b"0\r\n\r\n")
        assert len(got.partition(b"\r\n\r\n")[2]) < 100


async def test_nothing_listens_or_the_conversation_does_not_run(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    response = await site.get(port)
    assert response.status_code == 502
    assert f"port {port}" in response.text
    site.sandboxes.found = None
    response = await site.get(port)
    assert response.status_code == 503
    assert "not running" in response.text


class TestImpatience:
    """With a short limit."""

    @pytest.fixture
    def limits(self) -> PreviewLimits:
        return PreviewLimits(answer_seconds=0.3, idle_seconds=1.0)

    async def test_a_program_that_never_answers_or_dribbles_is_given_up(self, site: Site) -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forever()

        async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                writer.write(b"H" if not reader.at_eof() else b"")
                await writer.drain()
                await asyncio.sleep(0.02)

        async def dribbling_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(OK)
            while True:
                writer.write(b"X: 1\r\n")
                await writer.drain()
                await asyncio.sleep(0.02)

        assert (await site.get(await site.serve(silent))).status_code == 504
        assert (await site.get(await site.serve(silent), method="POST", content=b"x")).status_code == 504
        assert (await site.get(await site.serve(dribbling_head))).status_code == 504
        assert (await site.get(await site.serve(dribble))).status_code in (502, 504)

    async def test_a_program_that_does_not_take_an_upload_is_given_up(self, site: Site) -> None:
        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forever()

        response = await site.get(await site.serve(deaf), method="POST", content=bytes(64 * MEGABYTE))
        assert response.status_code == 504


async def test_a_program_may_answer_before_it_has_read_an_upload(site: Site) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 413 Too much\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        await reader.read()  # until the proxy lets go

    port = await site.serve(refuse)
    response = await site.get(port, method="POST", content=bytes(8 * MEGABYTE))
    assert (response.status_code, response.text) == (413, "no")


async def test_a_gigabyte_to_a_slow_reader_costs_no_memory(site: Site) -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % (1024 * MEGABYTE))
        block = bytes(MEGABYTE)
        for sent in range(1024):  # noqa: B007 - counted for the test
            writer.write(block)
            await writer.drain()

    port = await site.serve(pour)
    headers = await site.enter(port)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with site.client.stream("GET", f"http://127.0.0.1:{site.port}/", headers=headers) as response:
        async for piece in response.aiter_raw():
            assert piece
            break
        for _ in range(20):  # others are served meanwhile
            assert (await site.ask(f"http://{site.host}/")).status_code == 200
        assert (await site.get(await site.answering(OK + b"Content-Length: 2\r\n\r\nok"))).text == "ok"
        assert sent < 64
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 * 1024


async def test_everything_that_flows_keeps_the_conversation_awake(site: Site) -> None:
    counts: list[int] = []

    async def program(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        for _ in range(4):
            before = site.sandboxes.touched
            writer.write(b"x")
            async with asyncio.timeout(PATIENCE_SECONDS):
                while site.sandboxes.touched == before:  # noqa: ASYNC110 - it is seen only by asking
                    await asyncio.sleep(0.005)
            counts.append(site.sandboxes.touched)

    port = await site.serve(program)
    before = site.sandboxes.touched
    assert (await site.get(port)).content == b"xxxx"
    assert counts == sorted(set(counts))
    assert counts[0] > before + 1, "the request counts, too"


async def test_when_the_browser_goes_the_program_is_told(site: Site) -> None:
    gone = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK + b"\r\ndata: 1\n\n")
        await reader.read()
        gone.set()

    port = await site.serve(stream)
    headers = await site.enter(port)
    async with site.client.stream("GET", f"http://127.0.0.1:{site.port}/", headers=headers) as response:
        async for _ in response.aiter_raw():
            break
    async with asyncio.timeout(PATIENCE_SECONDS):
        await gone.wait()


async def test_when_the_sandbox_goes_everybody_is_told(site: Site) -> None:
    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK + b"\r\ndata: 1\n\n")
        await forever()

    port = await site.serve(stream)
    cookie = (await site.enter(port))["cookie"]
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: {site.host_of(port)}\r\nCookie: {cookie}\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reader.readuntil(b"data: 1\n\n")
        site.runner.process.kill()
        site.runner.process.wait(PATIENCE_SECONDS)
        rest = await reader.read()
    assert b"0\r\n\r\n" not in rest
    writer.close()
    assert (await site.get(port)).status_code == 503


async def test_two_hundred_requests_at_once_are_all_answered_and_more_than_the_limit_are_told_so(site: Site) -> None:
    ready = asyncio.Event()
    waiting = 0

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal waiting
        head = await read_request(reader)
        waiting += 1
        if waiting == 200:
            ready.set()
        await ready.wait()
        path = head.split()[1]
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(path) + path)

    port = await site.serve(meet)
    cookie = (await site.enter(port))["cookie"]

    def get(path: str) -> bytes:
        own = f"Host: {site.host_of(port)}\r\nCookie: {cookie}\r\nConnection: close\r\n"
        return f"GET {path} HTTP/1.1\r\n{own}\r\n".encode()

    answers = await asyncio.gather(*(site.raw(get(f"/{number}")) for number in range(200)))
    assert [answer.partition(b"\r\n\r\n")[2] for answer in answers] == [b"/%d" % number for number in range(200)]
    ready.clear()
    waiting = -1000
    kept = [asyncio.create_task(site.raw(get("/"))) for _ in range(MAX_TUNNELS)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while waiting < MAX_TUNNELS - 1000:  # noqa: ASYNC110 - counted by the program
            await asyncio.sleep(0.005)
    assert (await site.raw(get("/"))).startswith(b"HTTP/1.1 503")
    ready.set()
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in await asyncio.gather(*kept))


async def test_smuggled_requests_and_split_headers_reach_nobody(site: Site) -> None:
    def recording(heads: list[bytes]) -> Handler:
        async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await read_request(reader)
            heads.append(head)
            writer.write(OK + b"Content-Length: 2\r\n\r\nok")
            await writer.drain()
            after = await reader.read()  # what comes behind the first head on the same connection
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            heads.extend([after] if len(after) > int(length[1] if length else 5) else [])

        return record

    # Each has a program of its own: one may still be hearing of an attack when the next one has begun.
    seen: dict[str, tuple[int, list[bytes]]] = {}
    for name in smuggled(b""):
        heads: list[bytes] = []
        port = await site.serve(recording(heads))
        cookie = (await site.enter(port))["cookie"]
        own = f"Host: {site.host_of(port)}\r\nCookie: {cookie}\r\nConnection: close\r\n".encode()
        await site.raw(smuggled(own)[name])
        seen[name] = (port, heads)
    for name, (port, heads) in seen.items():
        assert len(heads) <= 1, name
        for head in heads:
            lower = head.lower()
            assert b"/admin" not in head, name
            assert lower.count(b"\r\nhost: ") == 1, name
            assert f"\r\nhost: localhost:{port}\r\n".encode() in lower, name
            assert not (b"content-length" in lower and b"transfer-encoding" in lower), name
            assert b"evil" not in head, name


def smuggled(own: bytes) -> dict[str, bytes]:
    """Requests that may be two for somebody, or another one; `own` are the headers of an honest one."""
    inner = b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n"
    return {
        "length and chunks": b"POST / HTTP/1.1\r\n"
        + own
        + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + inner,
        "two lengths": b"POST / HTTP/1.1\r\n" + own + b"Content-Length: 0\r\nContent-Length: 40\r\n\r\n" + inner,
        "an odd coding": b"POST / HTTP/1.1\r\n" + own + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
        "a hidden coding": b"POST / HTTP/1.1\r\n" + own + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner,
        "two hosts": b"GET / HTTP/1.1\r\n" + own + b"Host: localhost\r\n\r\n",
        "a split target": b"GET /x\rX: 1 HTTP/1.1\r\n" + own + b"\r\n",
        "a NUL": b"GET / HTTP/1.1\r\n" + own + b"X: a\0b\r\n\r\n",
        "a bare line feed": b"GET / HTTP/1.1\r\n" + own + b"X: a\nContent-Length: 40\r\n\r\n" + inner,
        "an absolute target": b"GET http://evil.example/x HTTP/1.1\r\n" + own + b"\r\n",
        "a nominated cookie": b"GET / HTTP/1.1\r\n" + own.replace(b"close", b"close, cookie, host") + b"\r\n",
    }


async def test_huge_headers_of_a_browser_are_refused(site: Site) -> None:
    port = await site.answering(OK + b"Content-Length: 0\r\n\r\n")
    assert (await site.get(port, headers={"x-big": "a" * 60_000})).status_code == 200
    assert (await site.get(port, headers={"x-big": "a" * 70_000})).status_code == 431
