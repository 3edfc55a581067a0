"""``drydock run`` at a real server and without one: what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import sys
import time
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, fail, finish, say
from drydock_client import DrydockClient
from tests.contract.workspace.git_server import GitServer
from tests.integration.server.conftest import WAIT_SECONDS, ServerProcess, stored_events
from tests.integration.server.forks import ROOT, ForkedProcess, fork_program
from tests.integration.server.test_conversations_command import MAIN, PLAIN

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.bubblewrap]


def command(text: str) -> Turn:
    return call("terminal", {"command": text, "security_risk": "LOW"})


SCRIPTS = {
    "Note it.": [command("echo one | tee notes.txt"), finish("Noted.\x1b[2J")],
    "Ask me.": [say("Which one?")],
    "Go on and on.": [command(f"echo {number}") for number in range(9)],
    "Take your time.": [command("echo began; sleep 60"), finish("Late.")],
    "Across a death.": [command("echo before; sleep 3; echo after"), finish("Through.")],
    "Be refused.": [fail(401, "no such key")],
    "The user refuses this.": [finish("Not done.")],
}


def answer(request: ModelRequest) -> Turn:
    """The turn of the script for the last thing that was said, by how many have come since."""
    messages = request.json["messages"]
    said = [at for at, one in enumerate(messages) if one["role"] == "user"]
    turns = next(turns for text, turns in SCRIPTS.items() if text in str(messages[said[-1]]["content"]))
    turn: Turn = turns[sum(one["role"] == "assistant" for one in messages[said[-1] :])]
    return replace(turn, headers={"connection": "close"})  # none stays from test to test


@dataclass
class Places:
    """A server and a folder, both of which ask the scripted model."""

    server: ServerProcess
    environment: dict[str, str]
    folder: Path

    def start(self, name: str, *arguments: str, at_server: bool = True) -> Run:
        place = {"DRYDOCK_URL": self.server.url} if at_server else {}
        environment = {**PLAIN, **self.environment, **place, "DRYDOCK_HOME": str(self.folder / "home")}
        out, errors = self.folder / f"{name}.out", self.folder / f"{name}.errors"
        process = fork_program(["-c", MAIN, "run", *arguments], environment, ROOT, out, errors)
        return Run(process, out, errors)


@dataclass
class Run:
    """A process of the command."""

    process: ForkedProcess
    out: Path
    errors: Path

    async def until(self, text: str) -> None:
        """Wait until it has printed this."""
        async with asyncio.timeout(WAIT_SECONDS):
            while text not in self.out.read_text("utf-8") + self.errors.read_text("utf-8"):
                assert self.process.returncode is None, self.out.read_text("utf-8") + self.errors.read_text("utf-8")
                await asyncio.sleep(0.02)

    async def ended(self) -> tuple[int, str, str]:
        async with asyncio.timeout(WAIT_SECONDS):
            status = await self.process.wait()
        return status, self.out.read_text("utf-8"), self.errors.read_text("utf-8")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def places(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Places]:
    folder = tmp_path_factory.mktemp("runs")
    async with ModelServer(answer) as model:
        environment = {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "key-123456"}
        environment |= {"DRYDOCK_GENERATE_TITLES": "false"}
        server = ServerProcess(folder / "data", "--sandbox", "local", environment=environment)
        try:
            await server.start()
            yield Places(server, environment, folder)
        finally:
            await server.close()


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_a_task_at_a_server_its_answer_its_lines_and_its_files(places: Places) -> None:
    file = places.folder / "files.zip"
    plain = places.start("plain", "Note it.", "-o", str(file))
    told = places.start("json", "--json", "Note it.")
    quiet = places.start("quiet", "-q", "Note it.")
    status, out, errors = await plain.ended()
    assert (status, out) == (0, "Noted.\n"), "the last word alone, and nothing in it that moves a cursor"
    assert "\n$ echo one | tee notes.txt\n  one\n" in errors
    assert "drydock run --continue" in errors
    assert "\x1b" not in errors
    assert zipfile.ZipFile(file).read("notes.txt") == b"one\n"
    status, out, errors = await told.ended()
    assert (status, errors) == (0, "")
    first, *events, result = lines_of(out)
    assert (first["type"], first["server"]) == ("conversation", places.server.url)
    assert (result["type"], result["exit_status"], result["state"]) == ("result", 0, "finished")
    assert (result["answer"], result["actions"]) == ("Noted.", 1)
    assert result["prompt_tokens"] > 0
    events = [one for one in events if one.get("type") != "status"]
    stored = {one["id"]: one for one in await stored_events(places.server, first["conversation_id"])}
    assert events
    for event in events:
        kept = {**stored[event["id"]], "source": event["source"]}  # live, the environment's are the agent's
        assert event == {name: value for name, value in kept.items() if name in event}
    assert await quiet.ended() == (0, "Noted.\n", "")


async def test_each_end_has_its_status(places: Places) -> None:
    begun = {
        4: places.start("asks", "Ask me."),
        7: places.start("limit", "--max-steps", "2", "Go on and on."),
        3: places.start("refused", "Be refused."),
        5: places.start("confirm", "--confirm", "Note it."),
        124: places.start("late", "--timeout", "2", "Take your time."),
    }
    words = {
        4: "waits for an answer",
        7: "maximum iteration",
        3: "failed",
        5: "waits for confirmation",
        124: "time limit",
    }
    ends = {status: await one.ended() for status, one in begun.items()}
    assert {status: end[0] for status, end in ends.items()} == {status: status for status in begun}
    assert [status for status, end in ends.items() if words[status] not in end[2]] == []
    assert ends[4][1] == "Which one?\n"
    async with DrydockClient(places.server.url) as client:
        found = [one async for one in client.conversations()]
        assert "paused" in {one.agent_state for one in found}, "what was out of time was stopped"
    for arguments, status, problem in (
        (["--url", "http://127.0.0.1:9", "x"], 3, "No answer from http://127.0.0.1:9"),
        ([], 2, "say what is to be done"),
        (["--branch", "x", "y"], 2, "say of which repository"),
        (["--model", "none", "x"], 2, "--model: The model profile 'none' cannot be used"),
        (["--workspace", "/none", "x"], 2, "make it first"),
        (["--url", "http://127.0.0.1:9", "--workspace", ".", "x"], 2, "leave it or --url out"),
        (["--continue", "none", "x"], 2, "no conversation's id begins with 'none'"),
    ):
        end = await places.start(f"wrong {arguments}".replace("/", ""), *arguments).ended()
        assert end[0] == status
        assert problem in end[2]


async def test_a_signal_stops_the_agent_and_a_reader_that_goes_too(places: Places) -> None:
    interrupted = places.start("interrupted", "Take your time.")
    unread, reader = os.pipe()
    piped = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "server", "run", "--json", "Go on and on."),
        cwd=ROOT,
        env={**PLAIN, "DRYDOCK_URL": places.server.url},
        stdout=reader,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(reader)
    line = await asyncio.to_thread(os.read, unread, 100_000)
    os.close(unread)
    await interrupted.until("echo began")
    interrupted.process.send_signal(signal.SIGINT)
    status, _, errors = await interrupted.ended()
    assert status == 130
    assert "Ctrl-C: stopping the agent; once more leaves at once." in errors
    assert "the agent is paused" in errors
    async with asyncio.timeout(WAIT_SECONDS):
        _, errors_of_piped = await piped.communicate()
    assert (piped.returncode, errors_of_piped) == (141, b"")
    async with DrydockClient(places.server.url) as client:
        state = await client.wait(json.loads(line.splitlines()[0])["conversation_id"], limit_seconds=WAIT_SECONDS)
        assert state.state == "paused", "nobody sees it, so nobody pays for it"


async def test_a_server_that_dies_meanwhile_is_waited_for(places: Places, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", "--sandbox", "local", environment=places.environment)
    try:
        await server.start()
        server.options = (*server.options, "--port", server.url.rpartition(":")[2])
        other = replace(places, server=server)
        running = other.start("death", "--json", "Across a death.")
        await running.until('"command": "echo before')
        await server.stop()  # it tells its clients that the conversation is stopped, and means itself
        await server.start()
        await server.kill()
        await server.start()
        status, out, errors = await running.ended()
        assert (status, errors) == (0, "")
        *lines, result = lines_of(out)
        assert result["answer"] == "Through."
        ids = [one["id"] for one in lines if "id" in one and "type" not in one]
        assert sorted(set(ids)) == ids, "each event once, in order"
        assert [one["content"] for one in lines if one.get("observation") == "run"] == ["before\nafter\n"]
    finally:
        await server.close()


async def test_on_a_terminal_it_shows_what_goes_on_and_asks(places: Places) -> None:
    environment = {**PLAIN, "DRYDOCK_URL": places.server.url, "TERM": "xterm", "LANG": "C.UTF-8"}
    answers = [(b"Allow?", b"n\r"), (b"Not done.", b"")]
    status, shown = await asyncio.to_thread(_on_terminal, ["run", "--confirm", "Note it."], environment, answers)
    assert status == 0
    assert "\x1b[33masks (medium risk)\x1b[0m\r\n" in shown
    assert "\x1b[2K" in shown, "a line says what goes on"
    assert shown.count("Not done.") == 1, "the last word was seen"
    status, shown = await asyncio.to_thread(
        _on_terminal, ["run", "--confirm", "Note it."], environment, [(b"Allow?", b"\x03")]
    )
    assert status == 130
    conversation = shown.rpartition("--continue ")[2][:32]
    begin = ["run", "--continue", conversation[:20]]
    no_colour = {**environment, "NO_COLOR": "1"}
    status, shown = await asyncio.to_thread(_on_terminal, begin, no_colour, [(b"Allow?", b"y\r"), (b"Noted.", b"")])
    assert status == 0
    assert "\x1b[33m" not in shown
    assert "  one\r\n" in shown


def _on_terminal(
    arguments: list[str], environment: dict[str, str], answers: list[tuple[bytes, bytes]]
) -> tuple[int, str]:
    """The exit status and what a terminal shows of a command, to which is typed what stands behind each text."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-m", "server", *arguments], environment)  # noqa: S606
    shown, end = b"", time.monotonic() + WAIT_SECONDS
    try:
        while time.monotonic() < end:
            if answers and answers[0][0] in shown:
                os.write(terminal, answers.pop(0)[1])
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    shown += os.read(terminal, 10_000)
                except OSError:  # the other side has ended
                    break
        else:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    assert not answers, shown
    return os.waitstatus_to_exitcode(status), shown.decode()


async def test_without_a_server_a_repository_is_cloned_and_money_is_counted(places: Places, tmp_path: Path) -> None:
    git = GitServer(tmp_path / "repositories")
    try:
        git.publish("ann/boats", {"boat.txt": "It floats."})
        url = f"http://127.0.0.1:{git.url.rpartition(':')[2]}/ann/boats.git"
        here = ["--sandbox", "unconfined", "--budget", "0.000001", "--model", "openai/gpt-4o-mini"]
        file = tmp_path / "files.zip"
        repo = ["--repo", url, "-o", str(file)]
        status, out, errors = await places.start("budget", *here, *repo, "Go on and on.", at_server=False).ended()
        assert (status, out, "maximum budget" in errors) == (7, "", True), errors
        assert "without isolation" in errors
        assert zipfile.ZipFile(file).read("boats/boat.txt") == b"It floats."
        for name, problem in (("git@host:a/b", "has a user in it"), ("a/../b", "is no repository")):
            end = await places.start(f"repo {problem}", *here, "--repo", name, "x", at_server=False).ended()
            assert (end[0], problem in end[2]) == (2, True)
    finally:
        git.close()


async def test_without_a_server_a_task_is_done_in_a_folder_and_goes_on(places: Places) -> None:
    project = places.folder / "project"
    project.mkdir()
    here = ["--local", "--workspace", str(project)]
    status, out, errors = await places.start("here", *here, "Note it.", at_server=False).ended()
    assert (status, out) == (0, "Noted.\n")
    assert f"without a server, model openai/scripted, in {project}" in errors
    assert (project / "notes.txt").read_text("utf-8") == "one\n"
    conversation = errors.rpartition("--continue ")[2][:32]
    told = places.start("more", "--json", "--continue", conversation[:30], "Ask me.")  # whatever server there is
    terminated = places.start("ended", "--local", "Take your time.", at_server=False)
    asking = places.start("asking", "--local", "--confirm", "--json", "Note it.", at_server=False)
    status, out, errors = await told.ended()
    assert (status, errors) == (4, "")
    first, *events, result = lines_of(out)
    assert (first["conversation_id"], first["server"], first["workspace"]) == (conversation, None, str(project))
    assert (result["state"], result["answer"]) == ("awaiting_user_input", "Which one?")
    assert [one["args"]["content"] for one in events if one.get("action") == "message"] == ["Ask me.", "Which one?"]
    await terminated.until("echo began")
    terminated.process.send_signal(signal.SIGTERM)
    status, _, errors = await terminated.ended()
    assert (status, "SIGTERM: stopping the agent." in errors, "the agent is paused" in errors) == (143, True, True)
    status, out, _ = await asking.ended()
    assert (status, lines_of(out)[-1]["state"]) == (5, "awaiting_user_confirmation")
