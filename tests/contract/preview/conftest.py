"""Previews as a browser meets them: a real HTTP server before a real runner, with programs that a test scripts."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from agent_core.runtime.channel.connection import ConversationSandbox
from server.auth.identity import OneTokenAuthenticator
from server.auth.origin import OriginPolicy
from server.auth.preview_addresses import PreviewAddresses, mark_of
from server.auth.secrets import SecretBox
from server.doors.preview.access import COOKIE_NAMES, Passes, PreviewLinks
from server.doors.preview.http_proxy import PreviewLimits
from server.doors.preview.preview import Preview
from server.http.base_path import BasePath
from server.http.user_header import UserHeader
from server.settings.settings import Settings
from tests.contract.runner.client import PATIENCE_SECONDS, Runner, attached, ports_and_programs
from tests.listening import Handler, listening
from tests.serving import serving

CONVERSATION = "c0ffee"
TOKEN = "a token of eight words or so"


async def drydock(scope: Scope, receive: Receive, send: Send) -> None:
    """What stands behind previews: everything that is none."""
    if scope["type"] == "http":
        await PlainTextResponse("this is Drydock")(scope, receive, send)
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4000})


@dataclass
class Sandboxes:
    """The sandboxes of one conversation that runs, or does not."""

    found: ConversationSandbox | None
    touched: int = 0
    url_of: Callable[[str], Awaitable[str | None]] | None = None

    def sandbox(self, conversation_id: str) -> ConversationSandbox | None:
        return self.found if conversation_id == CONVERSATION else None

    def touch(self, conversation_id: str) -> None:
        self.touched += 1


@dataclass
class Site:
    """The server under test."""

    port: int
    links: PreviewLinks
    sandboxes: Sandboxes
    runner: Runner
    client: httpx.AsyncClient
    programs: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    def host_of(self, port: int) -> str:
        """The host of a preview."""
        return f"{port}-{mark_of(CONVERSATION)}.{self.host}"

    def link(self, port: int, *, host: str | None = None) -> str:
        return self.links.link("http", host or self.host, CONVERSATION, port, "")

    async def serve(self, handler: Handler) -> int:
        """Run a program that does this with each connection; returns its port."""

        return await self.programs.enter_async_context(listening(handler))

    async def answering(self, answer: bytes) -> int:
        """Run a program that gives each request this answer and closes."""

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

        return await self.serve(handler)

    async def enter(self, port: int) -> dict[str, str]:
        """Use a link as a browser does; returns the headers of later requests."""
        response = await self.ask(self.link(port))
        assert response.status_code == 303, response.text
        pair = response.headers["set-cookie"].split(";")[0]
        assert pair.split("=")[0] in COOKIE_NAMES
        return {"cookie": pair, "host": self.host_of(port)}

    async def ask(self, url: str, method: str = "GET", **options: Any) -> httpx.Response:
        """Ask this server whatever the name in the address is; like a browser, which knows where localhost is."""
        parsed = httpx.URL(url)
        headers = {"host": parsed.netloc.decode(), **options.pop("headers", {})}
        target = parsed.copy_with(host="127.0.0.1", port=self.port, scheme="http")
        return await self.client.request(method, target, headers=headers, **options)

    async def get(self, port: int, path: str = "/", method: str = "GET", **options: Any) -> httpx.Response:
        """Ask a preview, having been let in."""
        headers = {**await self.enter(port), **options.pop("headers", {})}
        return await self.client.request(method, f"http://127.0.0.1:{self.port}{path}", headers=headers, **options)

    async def raw(self, request: bytes) -> bytes:
        """The whole answer to some bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            answer = b""
            # Who is refused before everything was read may find the connection reset.
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while data := await reader.read(65536):
                        answer += data
            return answer
        finally:
            writer.close()


@pytest.fixture(scope="module")
def lasting_runner() -> Iterator[Runner]:
    with tempfile.TemporaryDirectory(prefix="preview-") as folder:
        runner = Runner(Path(folder))
        try:
            yield runner
        finally:
            runner.close()


@pytest.fixture
def runner(lasting_runner: Runner) -> Runner:
    """The module's runner; another one where a test before has ended it."""
    if lasting_runner.process.poll() is not None:
        lasting_runner.restart()
    return lasting_runner


@pytest.fixture
def limits() -> PreviewLimits:
    return PreviewLimits(answer_seconds=PATIENCE_SECONDS, idle_seconds=PATIENCE_SECONDS)


@pytest.fixture
def base_path() -> str:
    """Below which the server is found."""
    return ""


@pytest.fixture
async def site(runner: Runner, limits: PreviewLimits, base_path: str) -> AsyncIterator[Site]:
    channel = await attached(runner.socket)
    links = PreviewLinks(PreviewAddresses("localhost"), Passes(SecretBox(bytes(32)), TOKEN), base_path)
    sandboxes = Sandboxes(ports_and_programs(channel))
    preview = Preview(
        drydock,
        links=links,
        manager=sandboxes,
        authenticator=OneTokenAuthenticator(TOKEN),
        origins=OriginPolicy.from_settings(Settings(allowed_hosts=("drydock.example.com",))),
        limits=limits,
    )
    base = BasePath(preview, base_path, elsewhere=lambda host: links.addresses.parse(host) is not None)
    app = UserHeader(base, names=["Remote-User"], proxies=["127.0.0.1", "10.1.2.3"], refused=pytest.fail)
    options: dict[str, Any] = {"http": "httptools", "ws_per_message_deflate": False, "server_header": False}
    try:
        async with (
            serving(app, lifespan="off", log_config=None, **options) as port,
            httpx.AsyncClient(timeout=PATIENCE_SECONDS, limits=httpx.Limits(max_connections=None)) as client,
        ):
            site = Site(port, links, sandboxes, runner, client)
            async with site.programs:
                yield site
    finally:
        await channel.close()
