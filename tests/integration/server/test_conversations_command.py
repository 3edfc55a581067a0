"""``drydock conversations`` against a real server, as a person types it, and as a script does."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.server.conftest import WAIT_SECONDS, ServerProcess
from tests.integration.server.forks import ROOT, run_program
from tests.integration.server.test_recordings import RECORDING

MAIN = "import sys; from server.cli import main; sys.exit(main(sys.argv[1:]))"
PLAIN = {"PATH": os.environ["PATH"]}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("commands") / "data", "--sandbox", "unconfined")
    try:
        await server.start()
        yield server
    finally:
        await server.close()


async def drydock(server: ServerProcess, *arguments: str) -> tuple[int, str, str]:
    """Run the command where nothing is a terminal; its status, what it printed, and its errors."""
    environment = {**PLAIN, "DRYDOCK_URL": server.url}
    done = await asyncio.to_thread(run_program, ["-c", MAIN, *arguments], environment, ROOT)
    return done.returncode, done.stdout, done.stderr


async def imported(server: ServerProcess, title: str) -> str:
    """The id of a new conversation with a log."""
    status, out, error = await drydock(server, "conversations", "import", str(RECORDING), "--title", title)
    assert (status, error) == (0, "")
    return out.strip()


async def test_they_are_listed_found_shown_and_deleted(server: ServerProcess, tmp_path: Path) -> None:
    first = await imported(server, "Boats \x1b[2Jand\x07 rafts")
    second = await imported(server, "Trains")
    status, out, _ = await drydock(server, "conversations", "list")
    header, *rows = out.splitlines()
    assert (status, header.split()) == (0, ["ID", "AGENT", "CHANGED", "COST", "TITLE"])
    assert [row.split()[0] for row in rows] == [second, first]
    assert rows[1].endswith("Boats and rafts"), "whatever a title holds moves no cursor"
    assert (await drydock(server, "conversations", "list", "-q", "raFTS"))[1] == f"{first}\n"
    assert (await drydock(server, "conversations", "list", "-q", "--limit", "1"))[1] == f"{second}\n"
    assert (await drydock(server, "conversations", "list", "--state", "failed"))[:2] == (0, "")
    _, out, _ = await drydock(server, "conversations", "list", "--json", "Trains")
    assert json.loads(out)["conversation_id"] == second

    beginning = first[: next(at for at in range(1, 33) if first[:at] != second[:at])]
    status, out, error = await drydock(server, "conversations", "show", beginning)
    assert (status, error) == (0, "")
    assert out.startswith("Boats and rafts\n  id          " + first)
    assert "\nyou  " in out
    assert "\n$ " in out
    assert not [one for one in out if not one.isprintable() and one not in "\n\t"]
    status, out, _ = await drydock(server, "conversations", "show", first, "--json")
    facts, *events = map(json.loads, out.splitlines())
    recorded = json.loads(RECORDING.read_text("utf-8"))
    assert (facts["type"], facts["conversation_id"]) == ("conversation", first)
    assert [one["id"] for one in events] == [one["id"] for one in recorded]
    assert [one.get("action", one.get("observation")) for one in events] == [
        one.get("action", one.get("observation")) for one in recorded
    ]
    _, out, _ = await drydock(server, "conversations", "tail", first, "-n", "2", "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == [one["id"] for one in events[-2:]]
    _, out, _ = await drydock(server, "conversations", "tail", first, "--since", str(events[-3]["id"]), "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == [one["id"] for one in events[-2:]]

    file = tmp_path / "whole.tar"
    assert (await drydock(server, "conversations", "export", beginning, "--workspace", "-o", str(file)))[0] == 0
    assert tarfile.is_tarfile(file)
    status, out, _ = await drydock(server, "conversations", "export", beginning)
    assert (status, len(json.loads(out))) == (0, len(recorded))

    status, out, error = await drydock(server, "conversations", "delete", beginning)
    assert (status, out) == (2, "")
    assert "this is no terminal: add --yes" in error
    status, out, error = await drydock(server, "conversations", "delete", "--yes", "none", first, second)
    assert (status, out) == (1, f"{first} deleted\n{second} deleted\n")
    assert error.startswith("drydock: 'none' was not deleted: no conversation's id begins with 'none'")
    assert (await drydock(server, "conversations", "list", "-q"))[1] == ""


async def test_what_is_said_is_in_the_log_and_followed_also_across_the_servers_death(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", "--sandbox", "unconfined")
    try:
        await server.start()
        port = server.url.rpartition(":")[2]
        conversation = await imported(server, "Talk")
        tail = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "server", "conversations", "tail", "-f", "-n", "1", conversation, "--json"),
            cwd=ROOT,
            env={**PLAIN, "DRYDOCK_URL": server.url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert tail.stdout is not None
        assert tail.stderr is not None
        async with asyncio.timeout(WAIT_SECONDS):
            seen = [json.loads(await tail.stdout.readline())]
            await server.kill()
            assert (await tail.stderr.readline()).startswith(b"The server does not answer")
            server.options = (*server.options, "--port", port)
            await server.start()
            status, out, error = await drydock(server, "conversations", "send", conversation, "Hello, agent.")
            assert (status, error) == (0, "")
            while seen[-1].get("args", {}).get("content") != "Hello, agent.":
                seen.append(json.loads(await tail.stdout.readline()))
            assert seen[-1]["id"] == int(out)
            ids = [one["id"] for one in seen]
            assert ids == sorted(set(ids)), "none comes twice"
            tail.send_signal(signal.SIGINT)
            assert await tail.wait() == 130
            await tail.communicate()
        assert (await drydock(server, "conversations", "stop", conversation))[:2] == (0, f"{conversation} stopped\n")
    finally:
        await server.close()


async def test_no_server_and_no_reader_have_statuses_of_their_own(server: ServerProcess) -> None:
    away = ServerProcess(Path("unused"))
    away.url = "http://127.0.0.1:9"
    status, out, error = await drydock(away, "conversations", "list")
    assert (status, out) == (3, "")
    assert "Start a server with `drydock serve`" in error
    await imported(server, "Read by nobody")
    command = f"{sys.executable} -m server conversations list | true; exit ${{PIPESTATUS[0]}}"
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", command],
        cwd=ROOT,
        env={**PLAIN, "DRYDOCK_URL": server.url},
        capture_output=True,
        timeout=WAIT_SECONDS,
    )
    assert (done.returncode, done.stderr) == (141, b"")


async def test_on_a_terminal_it_asks_before_it_deletes(server: ServerProcess) -> None:
    conversation = await imported(server, "To be kept")
    for answer, expected in ((b"n\n", "Nothing was deleted."), (b"y\n", f"{conversation} deleted")):
        shown = await asyncio.to_thread(_typed, server, ["conversations", "delete", conversation], answer)
        assert "Delete this conversation, with all files? [y/N]" in shown
        assert expected in shown


def _typed(server: ServerProcess, arguments: list[str], answer: bytes) -> str:
    """What a terminal shows of a command that is answered so."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        environment = {**PLAIN, "DRYDOCK_URL": server.url, "TERM": "xterm"}
        os.execve(sys.executable, [sys.executable, "-m", "server", *arguments], environment)  # noqa: S606
    try:
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, answer)
        try:
            while piece := os.read(terminal, 1000):
                shown += piece
        except OSError:  # the other side has ended
            pass
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return shown.decode()


async def test_a_shell_completes_words_and_ids(server: ServerProcess, tmp_path: Path) -> None:
    conversation = await imported(server, "Completed")
    command = tmp_path / "drydock"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m server "$@"\n')
    command.chmod(0o755)
    asked = {
        "con": "_drydock",
        "conversations list --st": "_drydock",
        # On a busy computer the server may need more than the second that it is given.
        f"conversations delete {conversation[:6]}": 'until _drydock; [ -n "${COMPREPLY[*]}" ]; do :; done',
        "run -f ''": "_drydock",
    }
    script = 'eval "$(drydock completion bash)"'
    for typed, asking in asked.items():
        words = f"COMP_WORDS=(drydock {typed}); COMP_CWORD={len(typed.split())}"
        script = f'{script}\n{words}; {asking}; echo "${{COMPREPLY[*]}}"'
    environment = {"PATH": f"{tmp_path}:{PLAIN['PATH']}", "DRYDOCK_URL": server.url, "PYTHONPATH": str(ROOT)}
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "--norc", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert (done.stdout.splitlines(), done.stderr) == (["conversations", "--state", conversation, ""], "")
    assert (await drydock(server, "conversations", "delete", "-y", conversation))[0] == 0
