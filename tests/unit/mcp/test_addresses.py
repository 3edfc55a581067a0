"""MCP servers behind an address: streamable HTTP and server-sent events, made with the official library."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from mcp.server.mcpserver import Context, MCPServer

from agent_core.mcp import program
from agent_core.mcp.client import load
from agent_core.mcp.config import McpServer
from agent_core.mcp.servers import McpServers
from tests.listening import listening
from tests.serving import serving as serving_app
from tests.unit.mcp.conftest import call, running, servers, tool
from tests.waiting import LIMIT_SECONDS, until

Kind = Literal["http", "sse"]
App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


def made(slow_began: asyncio.Event) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("addressed")

    @server.tool()
    async def grow(context: Context[Any, Any]) -> str:
        """Adds a tool."""

        def more() -> str:
            return "more"

        server.add_tool(more)
        await context.session.send_tool_list_changed()
        return "grown"

    @server.tool()
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    @server.tool()
    def reflect(context: Context[Any, Any]) -> str:
        """Tells what it was shown."""
        return repr(dict(context.headers or {}))

    @server.tool()
    async def slow() -> str:
        """Takes for ever."""
        slow_began.set()
        await asyncio.Event().wait()
        return "never"

    return server


class Guard:
    """Notes the headers of each request, and lets those in that have the key, where there is one."""

    app: App

    def __init__(self, key: str) -> None:
        self.key = key
        self.seen: list[dict[str, str]] = []
        self.slow_began = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self.seen.append(headers)
            if self.key and headers.get("authorization") != self.key:
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await self.app(scope, receive, send)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@asynccontextmanager
async def serving(kind: Kind = "http", *, port: int = 0, key: str = "") -> AsyncIterator[tuple[str, Guard]]:
    """A server on loopback; gives its address and who guards it."""
    guard = Guard(key)
    server = made(guard.slow_began)
    guard.app = server.streamable_http_app() if kind == "http" else server.sse_app()
    async with serving_app(guard, port=port, abruptly=True, log_level="critical") as found:
        yield f"http://127.0.0.1:{found}/{'mcp' if kind == 'http' else 'sse'}", guard


def at(url: str, kind: Kind = "http", **more: Any) -> McpServers:
    return servers(far={"url": url, "transport": kind, **more})


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_behind_an_address_is_used_with_its_headers_and_its_key(kind: Kind) -> None:
    auth = {"type": "bearer", "token": "t-1234"}
    async with (
        serving(kind, key="Bearer t-1234") as (url, guard),
        running(at(url, kind, headers={"X-Mode": "fast"}, auth=auth)) as found,
    ):
        assert not found.problems()
        assert (await call(found, "add", a=1, b=2)).text.endswith("3")
        assert all(seen["x-mode"] == "fast" for seen in guard.seen)


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_wrong_key_is_told_as_what_it_is(kind: Kind) -> None:
    async with serving(kind, key="Bearer t-1234") as (url, _), running(at(url, kind)) as found:
        (problem,) = found.problems()["far"]
        assert problem == (
            "it cannot be used: it answered with the HTTP status 401; check its key, or what else it wants to be shown"
        )


async def test_an_address_without_a_server_is_told_as_what_it_is() -> None:
    async with serving() as (url, _), running(at(f"{url}/nothing")) as found:
        assert found.problems()["far"] == ["it cannot be used: it answered with the HTTP status 404; check its address"]


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_tools_that_are_added_are_taken_in(kind: Kind) -> None:
    async with serving(kind) as (url, _), running(at(url, kind)) as found:
        await call(found, "grow")
        await until(lambda: "more" in [one.name for one in found.tools()])
        assert (await call(found, "more")).text.endswith("more")


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_cancelled_call_ends_at_once_and_the_server_can_be_used_on(kind: Kind) -> None:
    async with serving(kind) as (url, guard), running(at(url, kind)) as found:
        calling = asyncio.create_task(call(found, "slow"))
        await guard.slow_began.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert (await call(found, "add", a=1, b=2)).text.endswith("3")


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_that_was_started_again_is_connected_to_again(kind: Kind) -> None:
    port = free_port()
    async with serving(kind, port=port) as (url, _):
        found = at(url, kind)
        found.start()
        await found.all_settled()
        assert (await call(found, "add", a=1, b=2)).text.endswith("3")
    try:
        gone = await call(found, "add", a=1, b=2)
        assert gone.is_error
        assert "nothing answers at its address" in gone.text
        assert tool(found, "add"), "its tools stay: it may come back"
        async with serving(kind, port=port):
            assert (await call(found, "add", a=1, b=2)).text.endswith("3")
    finally:
        await found.close()


async def test_a_call_is_made_again_where_the_server_knows_the_session_no_more() -> None:
    port = free_port()
    async with serving(port=port) as (url, _):
        found = at(url)
        found.start()
        await found.all_settled()
    try:
        async with serving(port=port):
            assert (await call(found, "add", a=1, b=2)).text.endswith("3")
    finally:
        await found.close()


@asynccontextmanager
async def answering_with(data: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A port that says this to everybody, and then nothing; gives its address and how each request began."""
    began: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began.append(await reader.read(1))
        writer.write(data)
        await asyncio.Event().wait()

    async with listening(answer) as port:
        yield f"http://127.0.0.1:{port}/mcp", began


HTML = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\nhello"
ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: no message\n\n"


@pytest.mark.parametrize("kind", ["http", "sse"])
@pytest.mark.parametrize("data", [b"", b"not HTTP at all\r\n\r\n", HTML, ENDLESS])
async def test_an_address_that_answers_nothing_or_nonsense_is_given_up(data: bytes, kind: Kind) -> None:
    async with answering_with(data) as (url, began):
        async with running(at(url, kind, timeout=0.2)) as found:
            (problem,) = found.problems()["far"]
            assert problem.startswith("it cannot be used: ")
        hanging = at(url, kind)
        before = len(began)
        hanging.start()
        await until(lambda: len(began) > before)
        async with asyncio.timeout(LIMIT_SECONDS):
            await hanging.close()
    assert not [task for task in asyncio.all_tasks() if "mcp" in task.get_name()]


MANY = b'{"jsonrpc":"2.0","id":%s,"result":{"x":[' + b"0," * program.MAX_VALUES + b"0]}}"
LARGE = b'{"jsonrpc":"2.0","id":%s,"result":{"x":"' + b"x" * program.MAX_BYTES + b'"}}'


class Lavish:
    """Answers every request with the same document, as it is or as an event of a stream."""

    def __init__(self, document: bytes, kind: str, encoding: str) -> None:
        self._document = document
        self._headers = [(b"content-type", kind.encode()), (b"content-encoding", encoding.encode())]

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        asked = json.loads((await receive())["body"] or b"{}")
        body = self._document.replace(b"%s", str(asked.get("id", 0)).encode(), 1)
        is_stream = b"event-stream" in self._headers[0][1]
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": b"data: " + body + b"\n\n" if is_stream else body})


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(
    ("document", "encoding", "problem"),
    [
        (MANY, "identity", program.TOO_MUCH),
        (LARGE, "identity", program.TOO_MUCH),
        (b"x", "gzip", program.COMPRESSED),
    ],
    ids=["many", "large", "compressed"],
)
async def test_an_answer_that_is_too_much_is_refused_before_it_is_parsed(
    kind: str, document: bytes, encoding: str, problem: str
) -> None:
    app = Lavish(document, kind, encoding)
    async with (
        serving_app(app, port=0, abruptly=True, log_level="critical") as port,
        running(at(f"http://127.0.0.1:{port}/mcp")) as found,
    ):
        told = found.problems()["far"][0]
        assert problem in told or f"event exceeded the {program.MAX_BYTES} byte limit" in told


async def test_whom_to_trust_is_read_once_and_not_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    await load()
    made: list[int] = []
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda self, *args, **options: made.append(1))
    five = {f"s{number}": McpServer(url="http://127.0.0.1:9/") for number in range(5)}
    async with running(McpServers(five)) as found:
        assert len(found.problems()) == 5
    assert made == []
