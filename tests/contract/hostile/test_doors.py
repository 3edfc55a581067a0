"""A sandbox that lies, behind the doors of the server and the library: what people see, keep on their disk, and wait
for."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_core import LLM, Agent, Conversation, Tool
from agent_core.errors import SandboxError
from agent_core.runtime import transfers
from agent_core.runtime.channel.channel import RunnerChannel
from agent_core.runtime.sandbox import Sandbox, SandboxSpec
from agent_core.testing.fake_sandbox import FakeProvider, FakeSandbox
from agent_core.tools.terminal import MAX_OUTPUT_CHARS, TerminalAction, TerminalObservation
from server.app import Application, create_app
from server.routes.conversations.files import MAX_SHOWN_BYTES
from server.session.sandboxes import SandboxSelection, app_ports
from server.settings.settings import Settings
from tests.contract.hostile.answers import EXCHANGES
from tests.contract.hostile.conftest import eventually, lying_sandbox
from tests.contract.hostile.lying_runner import LyingRunner, honest
from tests.serving import serving

SECONDS = 60.0
TREE: list[Any] = [[[[]]]]
Answers = dict[str, Callable[[Mapping[str, Any]], list[bytes]]]


def opened(**changes: Any) -> Callable[[Mapping[str, Any]], list[bytes]]:
    """What is answered about a file that is asked for."""
    return lambda asked: [honest(asked, {**EXCHANGES["transfer.read"].result, **changes})]


def endless(asked: Mapping[str, Any]) -> list[bytes]:
    """A part as large as was asked for, and never the last one."""
    return [honest(asked, {"eof": False}, bytes(asked["args"]["limit"]))]


def lying(answers: Answers) -> LyingRunner:
    """A runner that lies about these operations only."""

    def lie(asked: Mapping[str, Any]) -> list[bytes]:
        if asked.get("op") in answers:
            return answers[asked["op"]](asked)
        if asked.get("op") in EXCHANGES:
            known = EXCHANGES[asked["op"]]
            result = known.result
            if asked["op"] == "workspace.restore":
                result = {"restored": None}
            return [honest(asked, result, known.blob)]
        return []

    return LyingRunner(lie)


class LyingProvider(FakeProvider):
    """Its sandboxes were all taken over by the same."""

    def __init__(self, runner: LyingRunner) -> None:
        super().__init__()
        self.runner = runner

    def create(self, spec: SandboxSpec) -> Sandbox:
        sandbox = FakeSandbox(spec, {})
        sandbox.runner = self.runner  # type: ignore[assignment] # it has what is used of one
        return sandbox


class Site:
    """A server over real HTTP, and a conversation in it."""

    def __init__(self, app: Application, client: httpx.AsyncClient, runner: LyingRunner, conversation_id: str) -> None:
        self.app = app
        self.client = client
        self.runner = runner
        self.id = conversation_id

    async def get(self, what: str, **query: Any) -> httpx.Response:
        return await self.client.get(f"/api/conversations/{self.id}/{what}", params=query)

    def asked(self, op: str) -> int:
        return sum(request.get("op") == op for request in self.runner.asked)


@asynccontextmanager
async def site(folder: Path, answers: Answers) -> AsyncIterator[Site]:
    runner = lying(answers)

    async def choose() -> SandboxSelection:
        return SandboxSelection(LyingProvider(runner), "for tests")

    app = create_app(Settings(data_dir=folder / "data", requests_per_second=0), choose=choose)
    async with (
        asyncio.timeout(SECONDS),
        serving(app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as client,
    ):
        made = (await client.post("/api/conversations", json={})).json()["conversation_id"]
        await eventually(lambda: app.services.manager.sandbox(made) is not None)
        yield Site(app, client, runner, made)
    await runner.close()


async def test_a_file_that_never_ends_is_as_long_as_was_said(tmp_path: Path) -> None:
    """20 GB behind a file of 3 bytes, and of none: no more is asked for, and no more is kept."""
    async with site(tmp_path, {"transfer.read": opened(), "transfer.next": endless}) as it:
        answer = await it.get("select-file", file="a")
        assert (answer.status_code, answer.json()) == (415, {"error": "Unable to open binary file: a"})
        assert it.asked("transfer.next") == 1
        assert [one["args"]["limit"] for one in it.runner.asked if one.get("op") == "transfer.next"] == [3]
        answer = await it.get("download", path="a")
        assert (answer.status_code, answer.content) == (200, bytes(3))
    async with site(tmp_path / "2", {"transfer.read": opened(size=0), "transfer.next": endless}) as it:
        assert (await it.get("select-file", file="a")).json() == {"code": ""}
        assert it.asked("transfer.next") == 0


async def test_a_file_may_claim_any_size_and_none_is_joined_over_the_limit(tmp_path: Path) -> None:
    for number, size in enumerate((MAX_SHOWN_BYTES + 1, 20 * 2**30)):
        async with site(tmp_path / str(number), {"transfer.read": opened(size=size), "transfer.next": endless}) as it:
            assert (await it.get("select-file", file="a")).status_code == 413
            assert it.asked("transfer.next") == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"size": -1},
        {"size": None},
        {"size": "3"},
        {"kind": "folder"},
        {"kind": "device"},
        {"tag": 'a"\r\nset-cookie: a=b'},
        {"tag": "\ud800"},
        {"id": "../x"},
        {"modified": "now"},
    ],
)
async def test_lies_about_a_file_are_errors_with_a_name(tmp_path: Path, changes: dict[str, Any]) -> None:
    async with site(tmp_path, {"transfer.read": opened(**changes)}) as it:
        for what, query in (("select-file", {"file": "a"}), ("download", {"path": "a"})):
            answer = await it.get(what, **query)
            assert answer.status_code == 500
            assert "no answer (" in answer.json()["error"]


async def test_a_name_that_the_sandbox_gives_is_no_header(tmp_path: Path) -> None:
    given = opened(name="../x\r\na: b", modified=2**62)
    async with site(tmp_path, {"transfer.read": given, "transfer.next": endless}) as it:
        answer = await it.get("download", path="docs/a.txt")
        assert answer.status_code == 200
        assert answer.headers["content-disposition"] == "attachment; filename=\"a.txt\"; filename*=UTF-8''a.txt"


LISTS: list[tuple[str, dict[str, Any], str, Any]] = [
    ("files", {"path": "src"}, "folder.list", {"path": "../x"}),
    ("files", {"path": "src"}, "folder.list", {"entries": [{"name": "../../x"}]}),
    ("list-files", {"path": "src"}, "folder.list", {"entries": [{"name": "a/b"}]}),
    ("workspace", {"path": "src"}, "folder.list", {"left_out": "<script>"}),
    ("workspace", {"path": "src"}, "folder.list", {"entries": [None] * 20}),
    ("git/status", {}, "git.status", {"repositories": [{"path": "/etc"}]}),
    ("git/changes", {}, "git.status", {"repositories": [{"path": "", "changes": [{"status": "X", "path": "a"}]}]}),
    ("git/changes", {}, "git.status", {"repositories": {}}),
    ("git/diff", {"path": "a"}, "git.diff", {"original": ["a"]}),
    ("git/log", {}, "git.log", {"commits": [{"hash": "--output=/etc/passwd"}]}),
    ("git/log", {}, "git.log", {"start": "HEAD; rm"}),
    ("git/log", {"limit": 1}, "git.log", {"commits": EXCHANGES["git.log"].result["commits"] * 2}),
]


@pytest.mark.parametrize(("what", "query", "op", "lie"), LISTS)
async def test_lies_in_lists_are_errors_with_a_name(
    tmp_path: Path, what: str, query: dict[str, Any], op: str, lie: Any
) -> None:
    answers: Answers = {op: lambda asked: [honest(asked, {**EXCHANGES[op].result, **lie})]}
    async with site(tmp_path, answers) as it:
        answer = await it.get(what, **query)
        assert answer.status_code == 500
        assert "no answer (" in answer.json()["error"]


@pytest.mark.parametrize("ports", [{}, None, [{"port": 0}, {"port": "80"}, None, {"port": 2**70}], [TREE] * 1000])
async def test_ports_that_can_be_none_are_left_out(tmp_path: Path, ports: Any) -> None:
    async with site(tmp_path, {"ports.list": lambda asked: [honest(asked, {"ports": ports})]}) as it:
        assert (await it.get("ports")).json()["ports"] == []
        hosts = (await it.get("web-hosts")).json()["hosts"]
        assert set(hosts.values()) == set(app_ports(it.id))


async def test_no_more_ports_are_listed_than_a_runner_tells_of(tmp_path: Path) -> None:
    many = [{"port": number % 65535 + 1, "addresses": ["\ud800"] * 9} for number in range(2_000)]
    async with site(tmp_path, {"ports.list": lambda asked: [honest(asked, {"ports": many})]}) as it:
        assert 500 <= len((await it.get("web-hosts")).json()["hosts"]) <= 502  # its own two beside them


@pytest.mark.parametrize(
    ("what", "query", "op"),
    [
        ("select-file", {"file": "a"}, "transfer.next"),
        ("select-file", {"file": "a"}, "transfer.read"),
        ("download", {"path": "a"}, "transfer.next"),
        ("zip-directory", {}, "transfer.next"),
        ("files", {}, "folder.list"),
        ("list-files", {}, "folder.list"),
        ("workspace", {}, "folder.list"),
        ("git/status", {}, "git.status"),
        ("git/changes", {}, "git.status"),
        ("git/diff", {"path": "a"}, "git.diff"),
        ("git/log", {}, "git.log"),
        ("ports", {}, "ports.list"),
        ("web-hosts", {}, "ports.list"),
    ],
)
async def test_what_is_asked_of_a_sandbox_ends_when_the_client_has_gone(
    tmp_path: Path, what: str, query: dict[str, Any], op: str
) -> None:
    answers: Answers = {op: lambda asked: []}
    if op != "transfer.read":
        is_folder = what == "zip-directory"
        answers["transfer.read"] = opened(**({"kind": "folder", "size": None} if is_folder else {}))
    async with site(tmp_path, answers) as it:
        asking = asyncio.create_task(it.get(what, **query))
        await eventually(lambda: it.asked(op) > 0)
        number = next(one["id"] for one in it.runner.asked if one.get("op") == op)
        asking.cancel()
        await asyncio.wait([asking])
        await eventually(
            lambda: any(one.get("op") == "cancel" and one["args"] == {"id": number} for one in it.runner.asked)
        )
        if op == "transfer.next":
            await eventually(lambda: it.asked("transfer.drop") == 1)


def download(target: Path, answers: Answers, path: str = "docs/report.txt", **options: Any) -> Path:
    """Have the library save a file of a sandbox that lies."""
    with Conversation(agent=Agent(llm=LLM()), workspace=lying_sandbox(lying(answers))) as conversation:
        return conversation.download(path, target, **options)


@pytest.mark.parametrize(
    "name", ["../stolen", "/tmp/drydock-stolen", ".bashrc", "..", ".", "", "a\0b", "C:\\stolen", "\ud800", "x" * 5000]
)
def test_a_sandbox_has_no_say_in_where_a_download_is_written(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("mine")
    given = opened(name=name, mode=0o6777)
    saved = download(home, {"transfer.read": given, "transfer.next": endless})
    assert saved == home / "report.txt"
    assert sorted(os.listdir(home)) == [".bashrc", "report.txt"]
    assert sorted(os.listdir(tmp_path)) == ["home"]
    assert (home / ".bashrc").read_text() == "mine"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert not Path("/tmp/drydock-stolen").exists()


def test_a_link_in_the_target_folder_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/report.txt").symlink_to(tmp_path / "mine")
    saved = download(tmp_path / "out", {"transfer.read": opened(), "transfer.next": endless})
    assert (saved.is_symlink(), saved.read_bytes()) == (False, bytes(3))
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_download_has_the_size_that_was_said_or_nothing_stays(tmp_path: Path) -> None:
    def short(asked: Mapping[str, Any]) -> list[bytes]:
        return [honest(asked, {"eof": True}, b"")]

    with pytest.raises(SandboxError, match="became shorter"):
        download(tmp_path, {"transfer.read": opened(), "transfer.next": short})
    with pytest.raises(SandboxError, match="more than 2 bytes"):
        download(tmp_path, {"transfer.read": opened(), "transfer.next": endless}, max_bytes=2)
    folder = opened(kind="folder", size=None)
    with pytest.raises(SandboxError, match="more than 9000000 bytes"):
        download(tmp_path, {"transfer.read": folder, "transfer.next": endless}, max_bytes=9_000_000)
    assert os.listdir(tmp_path) == []


def test_an_archive_that_does_not_go_on_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "STALLED_SECONDS", 0.2)
    asked_for = 0

    def nothing(asked: Mapping[str, Any]) -> list[bytes]:
        nonlocal asked_for
        asked_for += 1
        return [honest(asked, {"eof": False}, b"")]

    with pytest.raises(SandboxError, match="has not gone on"):
        download(tmp_path, {"transfer.read": opened(kind="folder", size=None), "transfer.next": nothing})
    assert asked_for < 20
    assert os.listdir(tmp_path) == []


def ran(result: dict[str, Any]) -> TerminalObservation:
    """What a command of a conversation comes to where the runner answers this."""
    answers: Answers = {"shell.run": lambda asked: [honest(asked, {**EXCHANGES["shell.run"].result, **result})]}
    agent = Agent(llm=LLM(), tools=[Tool(name="terminal")])
    with Conversation(agent=agent, workspace=lying_sandbox(lying(answers))) as conversation:
        observation = conversation.execute_tool("terminal", TerminalAction(command="ls"))
        assert isinstance(observation, TerminalObservation)
        return observation


def test_what_a_terminal_prints_is_cut_here_as_well() -> None:
    shown = ran({"output": "é" * 100_000, "notice": "n" * 50_000, "hostname": "h" * 9_000, "working_dir": "/\ud800"})
    assert len(shown.text) == MAX_OUTPUT_CHARS
    assert "characters were left out here" in shown.text
    assert (len(shown.notice), len(shown.hostname), shown.working_dir) == (16_000, 500, "/\ufffd")


def test_an_event_of_30_mb_is_none() -> None:
    with pytest.raises(SandboxError, match="no answer"):
        ran({"output": "x" * 30_000_000})


@pytest.mark.parametrize(
    "lie", [{"exit_code": "0"}, {"status": "done"}, {"status": None}, {"pid": 1.5}, {"omitted": -1}]
)
def test_a_result_of_a_wrong_form_is_an_error_with_a_name(lie: dict[str, Any]) -> None:
    with pytest.raises(SandboxError, match="no answer"):
        ran(lie)


async def test_greetings_are_not_believed_either() -> None:
    for hello in ({"boot": "b" * 10_000}, {"boot": 3}, {"protocol": "9" * 1_000}):
        runner = LyingRunner(lambda asked: [], hello)
        try:
            with pytest.raises(SandboxError):
                await RunnerChannel.open(await runner.connect())
        finally:
            await runner.close()
