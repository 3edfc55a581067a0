"""The page in Chromium against real server processes; one Chromium serves a module, a visit is a context in it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Call, Turn, say
from tests.integration.server.conftest import ServerProcess

ROOT = Path(__file__).parents[2]
CHROMIUM = "/usr/bin/chromium"
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 120_000

Script = Callable[[ModelRequest], Turn]


@dataclass
class Visit:
    """One page, with what went wrong in it."""

    page: Page
    context: BrowserContext
    problems: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings in the browser's console; a server that is away leaves some too."""
    foreign: list[str] = field(default_factory=list)


StartServer = Callable[..., Awaitable[ServerProcess]]
OpenPage = Callable[..., Awaitable[Visit]]
MakeModel = Callable[..., Awaitable[ModelServer]]
Play = Callable[..., ServerProcess]


def run(command: str) -> Turn:
    return Turn(calls=(Call("terminal", {"command": command}),))


def done(message: str = "All is done.") -> Turn:
    return Turn(calls=(Call("finish", {"message": message}),))


async def ask(page: Page, text: str) -> None:
    await page.get_by_test_id("composer-input").fill(text)
    await page.get_by_test_id("send-button").click()


async def until_phase(page: Page, *phases: str, patience: float = 120) -> None:
    selector = ", ".join(f'[data-testid="agent-status"][data-phase="{phase}"]' for phase in phases)
    await page.locator(selector).first.wait_for(timeout=patience * 1000)


async def overflow(page: Page) -> int:
    """How far the document is wider than the window, in pixels."""
    box = await page.locator("html").evaluate("e => [e.scrollWidth, e.clientWidth]")
    return int(box[0]) - int(box[1])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment_of(model: ModelServer) -> dict[str, str]:
    """What sends a server to this model."""
    return {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "sk-for-the-browser-tests"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    if not (ROOT / "frontend_stub/dist/index.html").exists():
        pytest.fail("the page is not built: make setup")
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield launched
        await launched.close()


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser) -> AsyncIterator[OpenPage]:
    contexts: list[BrowserContext] = []

    async def open_page(url: str, *, width: int = 1280, height: int = 860, dark: bool = False) -> Visit:
        context = await browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = await context.new_page()
        seen = Visit(page, context)
        page.on("pageerror", lambda error: seen.problems.append(str(error)))

        def hear(message: ConsoleMessage) -> None:
            # The machine's network changes when the sandbox of another test comes or goes: the browser asks again.
            if message.type in {"error", "warning"} and "net::ERR_NETWORK_CHANGED" not in message.text:
                seen.complaints.append(message.text)

        page.on("console", hear)
        own = url.split("/#")[0].rstrip("/")

        def note(address: str) -> None:
            if not address.startswith((own, own.replace("http", "ws", 1), "data:", "blob:")):
                seen.foreign.append(address)

        page.on("request", lambda request: note(request.url))
        page.on("websocket", lambda line: note(line.url))
        await page.goto(url)
        return seen

    yield open_page
    for context in contexts:
        await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def start_server(tmp_path: Path) -> AsyncIterator[StartServer]:
    started: list[ServerProcess] = []

    async def start(*options: str, model: ModelServer | None = None, **environment: str) -> ServerProcess:
        if model is not None:
            environment |= environment_of(model)
        # The port stays the same when the server is started again, as it does for a user.
        server = ServerProcess(
            tmp_path / f"data{len(started)}", "--port", str(free_port()), *options, environment=environment
        )
        started.append(server)
        await server.start()
        return server

    yield start
    for server in started:
        await server.close()


def answering(script: Iterable[Turn] | Script) -> Script:
    """The script as a function of the request, with a title for whoever asks for one."""
    turns = script if callable(script) else None
    listed = iter(()) if callable(script) else iter(script)

    def answer(request: ModelRequest) -> Turn:
        # The side call that asks for a title; one for a draft has none either, but a part of a file.
        if not request.json.get("tools") and b"<part>" not in request.content:
            return say("A title")
        return turns(request) if turns is not None else next(listed)

    return answer


@pytest_asyncio.fixture(loop_scope="module")
async def scripted() -> AsyncIterator[MakeModel]:
    servers: list[ModelServer] = []

    async def make(script: Iterable[Turn] | Script) -> ModelServer:
        server = ModelServer(answering(script))
        servers.append(await server.__aenter__())
        return server

    yield make
    for server in servers:
        await server.__aexit__(None, None, None)


class House:
    """A server and its model, whose script each test gives."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.script: Script = answering([])

    def play(self, script: Iterable[Turn] | Script) -> ServerProcess:
        """From now on the model answers so."""
        self.script = answering(script)
        return self.server

    async def clear(self) -> None:
        """Remove all conversations."""
        async with self.server.client() as client:
            for info in (await client.get("/api/conversations", params={"limit": 100})).json()["results"]:
                await client.delete(f"/api/conversations/{info['conversation_id']}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with ModelServer(lambda request: made.script(request)) as model:
        server = ServerProcess(
            tmp_path_factory.mktemp("house") / "data", "--port", str(free_port()), environment=environment_of(model)
        )
        made = House(server)
        try:
            await server.start()
            yield made
        finally:
            await server.close()


@pytest_asyncio.fixture(loop_scope="module")
async def play(house: House) -> AsyncIterator[Play]:
    """The server that tests share which leave its settings alone and do not kill it; without conversations."""
    yield house.play
    await house.clear()
