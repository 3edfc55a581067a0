"""Tests that leave something, each another thing: `test_audit.py` has pytest run them, and nothing else does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_core.runtime.loop_thread import library_loop
from tests.integration import audit

audit.PATIENCE = audit.Patience(0.1)
_SLEEP = (sys.executable, "-S", "-c", "import time; time.sleep(60)")
_kept: list[object] = []


@pytest.fixture(scope="module")
def pids() -> Iterator[set[int]]:
    """Of processes that are killed in the end."""
    made = set[int]()
    yield made
    for pid in made:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def shared(pids: set[int]) -> Iterator[subprocess.Popen[str]]:
    """A server of several tests, without a mark: it starts a program for each folder that it is told."""
    start = "print(subprocess.Popen(sys.argv[1:], stdout=2, env={'TMPDIR': line.strip()}).pid, flush=True)"
    code = f"import subprocess, sys\nfor line in sys.stdin: {start}"
    command = [sys.executable, "-S", "-c", code, *_SLEEP]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}, text=True) as server:
        yield server


async def test_task() -> None:
    _kept.append(asyncio.create_task(asyncio.sleep(60), name="sleeps for ever"))


def test_task_of_the_library() -> None:
    async def start() -> None:
        _kept.append(asyncio.create_task(asyncio.sleep(60), name="sleeps for ever, too"))

    library_loop().run(start())


def test_thread() -> None:
    threading.Thread(target=threading.Event().wait, name="waits for ever", daemon=True).start()


def test_descriptor(tmp_path: Path) -> None:
    os.open(tmp_path, os.O_RDONLY)


def test_connection() -> None:
    _kept.extend(socket.socketpair())


async def test_child(pids: set[int]) -> None:
    process = await asyncio.create_subprocess_exec(*_SLEEP)
    pids.add(process.pid)
    _kept.append(process)


def test_child_that_nobody_has_waited_for() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    _kept.append(process)


@pytest.mark.parametrize("mark", ["command line", "environment"])
def test_process_whose_parent_has_gone(mark: str, pids: set[int], tmp_path: Path) -> None:
    places = (f"{tmp_path}/data",) if mark == "command line" else ()
    environment = {"TMPDIR": os.environ["TMPDIR"]} if mark == "environment" else {}
    parent = f"import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=2, env={environment!r}).pid)"
    printed = subprocess.check_output([sys.executable, "-S", "-c", parent, *_SLEEP, *places], text=True)
    pids.add(int(printed))


def test_temporary_file() -> None:
    Path(tempfile.mkdtemp(prefix="drydock-half-"))


def test_nothing_but_what_a_shared_server_has(shared: subprocess.Popen[str], pids: set[int]) -> None:
    assert shared.stdin is not None
    assert shared.stdout is not None
    print(os.environ["TMPDIR"], file=shared.stdin, flush=True)
    pids.add(int(shared.stdout.readline()))


def test_nothing_in_the_end() -> None:
    audit.PATIENCE = audit.Patience()
    threading.Timer(0.2, lambda: None).start()
