"""The runner as a sandbox runs it: an unprivileged user without capabilities, and a limit on processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.runner.client import PACKAGE, Client, Runner

USER = 40_000 + os.getpid() % 20_000  # processes are counted per user: no other run may count among ours
PROCESSES = 120


@pytest.fixture
def runner(directory: Path) -> Iterator[Runner]:
    """Started through ``prlimit``, and when the tests run as root, as a user that nobody else is."""
    package = directory / "package"
    shutil.copytree(PACKAGE / "runner", package / "runner", ignore=shutil.ignore_patterns("__pycache__"))
    before: tuple[str, ...] = ("prlimit", f"--nproc={_processes() + PROCESSES}")
    if os.getuid() == 0:
        identity = (f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs")
        before = ("prlimit", f"--nproc={PROCESSES}", "setpriv", *identity, "--bounding-set=-all", "--inh-caps=-all")
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(directory)], check=True)
    python = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or "python3"
    (directory / "workspace").mkdir()
    os.chown(directory / "workspace", USER if os.getuid() == 0 else -1, -1)
    runner = Runner(directory, before=before, python=python, package=package)
    try:
        yield runner
    finally:
        runner.close()


def test_commands_and_files_work_for_an_unprivileged_user(client: Client, workspace: Path) -> None:
    assert client.output("cd /; kept=1; echo hello") == "hello\n"
    assert client.run("exit 3")["exit_code"] == 3
    assert client.output("pwd; echo $kept") == "/\n1\n"
    edit = client.call("file.edit", command="create", path=str(workspace / "file"), file_text="text").result
    assert edit["is_error"] is False
    refused = client.call("file.edit", command="create", path="/nowhere/file", file_text="text").result
    assert (refused["is_error"], "Permission denied" in refused["text"]) == (True, True)


def test_a_fork_bomb_is_stopped_and_the_terminal_goes_on(client: Client) -> None:
    client.run("cd /; kept=1")
    number = client.send("shell.run", command="echo begun; :() { : | : & : ; }; :", soft_timeout=60, max_output=1000)
    client.wait_for_output(number, "begun")
    time.sleep(0.5)  # let it fill the limit
    client.call("cancel", id=number)
    assert client.wait(number).result["status"] == "interrupted"
    assert client.output("echo fine") == "fine\n"


def test_without_a_free_process_the_answer_says_so(client: Client) -> None:
    client.output("echo first")
    hold = f"for n in {{1..{PROCESSES + 50}}}; do sleep 60 & done 2>/dev/null; echo full"
    number = client.send("shell.run", command=hold, timeout=2, max_output=1000)
    client.wait(number)
    for attempt in range(40):  # each shell that still starts takes a process more
        result = client.run("echo second", session=f"second{attempt}")
        if result["status"] != "completed":
            break
        time.sleep(0.1)
    if result["status"] == "completed":  # the limit counts for this user only where it is enforced at all
        pytest.fail(f"the limit on processes does not hold here: {result}")
    assert result["status"] == "shell_lost"
    assert "no shell can be started" in result["notice"] or "not become ready" in result["notice"]
    edit = client.call("file.edit", command="view", path="/").result
    assert edit["is_error"] is False
    client.call("shell.kill", session="default")
    for attempt in range(40):  # what was killed counts until its parent has seen it end
        result = client.run("echo third", session=f"third{attempt}")
        if result["status"] == "completed":
            break
        time.sleep(0.1)
    assert result["output"] == "third\n"


def _processes() -> int:
    """How many processes this user has; the table changes while it is read."""
    count = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += entry.name.isdigit() and entry.stat().st_uid == os.getuid()
    return count
