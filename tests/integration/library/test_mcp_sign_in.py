"""A program signs in with an MCP server, and its conversations use the tokens."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import httpx
import pytest

from agent_core import sign_in_to_mcp_server
from agent_core.library.mcp_sign_in import ADVICE, SignInFile, SignInFileError, user_sign_ins
from agent_core.mcp.config import McpServer
from agent_core.mcp.grants import ServerSignIn
from agent_core.mcp.oauth import SignInError
from agent_core.mcp.servers import McpServers
from tests.authorization_server import ToolServer, guarded_tools
from tests.unit.mcp.conftest import call, running

LIMIT_SECONDS = 60.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRYDOCK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class Browser:
    """Opens a page as somebody who allows everything, tries something else first, and shows what it ends with."""

    def __init__(self, *detours: str) -> None:
        self.detours = detours
        self.statuses: list[int] = []
        self.shown = ""
        self.opened: list[str] = []
        self._thread: threading.Thread | None = None

    def open(self, url: str) -> None:
        self.opened.append(url)
        self._thread = threading.Thread(target=self._visit, args=(url,))
        self._thread.start()

    def _visit(self, url: str) -> None:
        with httpx.Client(trust_env=False, timeout=LIMIT_SECONDS) as client:
            back = client.get(url).headers["location"]
            for detour in self.detours:
                self.statuses.append(client.get(httpx.URL(back).join(detour)).status_code)
            self.shown = client.get(back).text

    def close(self) -> None:
        assert self._thread is not None
        self._thread.join(LIMIT_SECONDS)


def everything_in(folder: Path) -> list[Path]:
    return [folder, *folder.iterdir()]


async def signed_in(tools: ToolServer, browser: Browser) -> None:
    """Blocking, as programs do it, in a thread of its own."""
    told: list[str] = []
    await asyncio.to_thread(sign_in_to_mcp_server, tools.url, tell=told.append, open_page=browser.open)
    await asyncio.to_thread(browser.close)
    assert browser.opened[0] in told[0]


async def test_a_program_signs_in_with_a_browser_and_its_conversations_use_the_tokens(home: Path) -> None:
    browser = Browser()
    async with guarded_tools() as tools:
        await signed_in(tools, browser)
        assert "You are signed in" in browser.shown
        async with running(McpServers({"g": McpServer(url=tools.url)}, sign_ins=user_sign_ins())) as servers:
            assert "whoami with" in str((await call(servers, "whoami")).content)
    modes = {path.name: path.stat().st_mode & 0o777 for path in await asyncio.to_thread(everything_in, home)}
    assert modes == {
        "home": 0o700,
        "mcp-sign-ins.json": 0o600,
        "mcp-sign-ins.lock": 0o600,
        "mcp-sign-ins.renewing": 0o600,
    }


async def test_strangers_on_this_machine_are_sent_away() -> None:
    browser = Browser("/", "/callback", "/callback?state=x&code=y", "/callback?state=&code=y")
    async with guarded_tools() as tools:
        await signed_in(tools, browser)
        assert browser.statuses == [404] * 4
        assert len(tools.tokens.asked_at("token")) == 1


async def test_a_refusal_is_raised_and_shown() -> None:
    browser = Browser()
    async with guarded_tools(consent="refuse") as tools:
        with pytest.raises(SignInError, match="refused there: access_denied"):
            await signed_in(tools, browser)
        await asyncio.to_thread(browser.close)
        assert "did not succeed" in browser.shown


async def test_a_conversation_that_needs_a_sign_in_says_how(home: Path) -> None:
    async with (
        guarded_tools() as tools,
        running(McpServers({"g": McpServer(url=tools.url)}, sign_ins=user_sign_ins())) as servers,
    ):
        ((_, text),) = servers.wanted_sign_ins().values()
        assert ADVICE in text


@pytest.mark.parametrize(
    "server", [McpServer(command="x"), McpServer(url="https://h.example", headers={"Authorization": "a"})]
)
def test_what_nobody_signs_in_to_is_refused(server: McpServer) -> None:
    with pytest.raises(SignInError, match="nothing to sign in to"):
        sign_in_to_mcp_server(server)


async def test_programs_that_write_at_the_same_time_lose_nothing(home: Path) -> None:
    names = [f"https://h.example/{number}" for number in range(20)]
    await asyncio.gather(*(SignInFile().save(ServerSignIn(server=name)) for name in names))
    for name in names:
        assert (await SignInFile().load(name)) == ServerSignIn(server=name)


def test_a_file_that_is_broken_is_told_by_name_and_left_as_it_is(home: Path) -> None:
    home.mkdir()
    file = home / "mcp-sign-ins.json"
    file.write_text("{broken")
    with pytest.raises(SignInFileError, match=r"mcp-sign-ins\.json is not what it was written as"):
        asyncio.run(SignInFile().save(ServerSignIn(server="https://h.example/")))
    assert file.read_text() == "{broken"


async def test_programs_renew_a_token_at_once_and_none_loses_it() -> None:
    async with guarded_tools() as tools:
        await signed_in(tools, Browser())
        token = await user_sign_ins().token(tools.url)
        tools.tokens.end_tokens()
        await asyncio.gather(*(user_sign_ins().token(tools.url, refused=token) for _ in range(8)))
        now = await user_sign_ins().token(tools.url)
        assert now is not None
        assert not tools.tokens.tokens[now].is_over
