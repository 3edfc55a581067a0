"""What is frozen does nothing, sees nothing of it, and has somebody who ends it: the runner stays awake."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.runner.client import Client, Runner, processes_with, until

MARK = "sleep 986532"


def states(text: str) -> set[str]:
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in processes_with(text)}


@pytest.fixture(autouse=True)
def nothing_stays() -> None:
    assert not processes_with(MARK)


def test_what_forks_all_the_time_is_stopped_and_goes_on(client: Client, workspace: Path) -> None:
    client.run("(while :; do date +%s%N >> ticks; done) & (setsid python3 -c 'while True: pass' &)")
    until((workspace / "ticks").exists, "the loop has begun")
    assert client.call("processes.freeze").result == {"frozen": True}
    size = (workspace / "ticks").stat().st_size
    time.sleep(0.2)
    assert (workspace / "ticks").stat().st_size == size
    client.call("processes.freeze")
    client.call("processes.thaw")
    until(lambda: (workspace / "ticks").stat().st_size > size, "the loop goes on")
    assert client.run("echo $?; jobs | grep -c Stopped")["output"].split() == ["0", "0"]
    assert client.run("kill %1; pkill -f 'while True: pass'; wait; echo over")["output"].strip().endswith("over")


def test_a_command_at_work_sees_nothing_of_it_and_what_was_stopped_stays_so(client: Client, workspace: Path) -> None:
    client.run(f"{MARK} &")
    until(lambda: states(MARK) == {"S"}, "it sleeps")
    client.run("kill -STOP %1")
    until(lambda: states(MARK) == {"T"}, "it is stopped")
    script = (
        "import subprocess,sys; p=subprocess.Popen(['sh','-c','echo $$ >up; read x; exit 7'],stdin=0); print(p.wait())"
    )
    running = client.send("shell.run", key="c:1", command=f'python3 -c "{script}"', timeout=20, session="other")
    until((workspace / "up").exists, "the command waits for its child")
    for _ in range(20):
        client.call("processes.freeze")
        client.call("processes.thaw")
    client.run("go", session="other", is_input=True)
    answer = client.wait(running).result
    assert (answer["exit_code"], answer["output"].split()[-1]) == (0, "7")
    assert states(MARK) == {"T"}
    client.run("kill -KILL %1")


def test_whoever_attaches_finds_it_at_work(connect: Callable[[], Client], runner: Runner) -> None:
    first = connect()
    first.run(f"{MARK} &")
    first.call("processes.freeze")
    assert states(MARK) == {"T"}
    second = connect()
    assert second.run("echo here")["output"].strip() == "here"
    assert states(MARK) <= {"S", "R"}
    assert second.run("kill %1; wait; echo ended")["output"].strip().endswith("ended")


def test_a_shell_that_dies_meanwhile_is_noticed(client: Client) -> None:
    shell = int(client.run("echo $$")["output"])
    client.call("processes.freeze")
    os.kill(shell, signal.SIGKILL)
    client.call("processes.thaw")
    assert client.run("echo again")["output"].strip() == "again"


def test_it_ends_by_itself_with_all_that_is_frozen_when_nobody_comes_back(directory: Path) -> None:
    runner = Runner(directory, options=("--idle-exit-seconds", "0.3"))
    try:
        client = runner.connect()
        client.run(f"{MARK} & (setsid {MARK} &)")
        client.call("processes.freeze")
        time.sleep(0.5)
        assert runner.process.poll() is None  # somebody is there
        client.close()
        assert runner.process.wait(60) == 0
        until(lambda: not processes_with(MARK), "what was frozen has ended")
    finally:
        runner.close()
