"""Server processes without the seconds of processor time in which each would import the same modules.

``python -m tests.integration.server.forks`` imports what a server imports, and then becomes a server at each request:
a forked process that runs the command line as the interpreter would, with its own arguments, environment and output.
It can be signalled and killed like any other; where starting itself is what a test is about, it starts one plainly.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[3]
_MESSAGE = 1_000_000
_LOST = -1


class ForkedProcess:
    """A server process: what tests use of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, told: int) -> None:
        self.pid = pid
        self._told = told
        self._status: int | None = None

    @property
    def returncode(self) -> int | None:
        """Its exit status, -N if signal N has ended it; None while it runs."""
        if self._status is None:
            with contextlib.suppress(BlockingIOError):
                told = os.read(self._told, 100)
                self._status = os.waitstatus_to_exitcode(int(told)) if told else _LOST
                os.close(self._told)
        return self._status

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait for its end; returns its exit status."""
        while (status := self.returncode) is None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(self._told, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._told)
        return status


def fork_server(arguments: list[str], environment: dict[str, str], log: Path) -> ForkedProcess:
    """Start ``python -m server`` with these arguments; what it prints is appended to the log."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    order = json.dumps({"arguments": arguments, "environment": environment, "log": str(log)}).encode()
    _, line = _mould()
    log.touch()
    socket.send_fds(line, [order], [theirs])
    os.close(theirs)
    return ForkedProcess(int(line.recv(100)), ours)


@cache
def _mould() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process that becomes servers, which ends with this one, and the line to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(90)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    atexit.register(_end, process, ours)
    return process, ours


def _end(process: subprocess.Popen[bytes], line: socket.socket) -> None:
    line.close()
    process.wait(10)


def _serve_forks(line: socket.socket) -> dict[str, Any]:
    """Fork at each order; returns only in a fork, with its order."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, descriptors, _, _ = socket.recv_fds(line, _MESSAGE, 1)
        if not order:
            os._exit(0)
        if os.fork() == 0:
            _keep(line, descriptors[0])
            wanted: dict[str, Any] = json.loads(order)
            return wanted
        os.close(descriptors[0])


def _keep(line: socket.socket, told: int) -> None:
    """Fork once more, and tell how that ends; returns in the last fork alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        line.close()
        os.close(told)
        return
    line.send(str(pid).encode())
    line.close()
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    os.write(told, str(status).encode())
    os._exit(0)


def _become(order: dict[str, Any]) -> NoReturn:
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["drydock", *order["arguments"]]
    sys.exit(import_module("server.cli").main())


def _import_all() -> None:
    quick = import_module("server.cli").quick_imports
    with quick():
        for name in ("server.cli", "server.settings.loading", "server.cli.serve", "agent_core.llm.transport.client"):
            import_module(name)
    import_module("agent_core.llm.transport.client")._Library()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _import_all()
    _become(_serve_forks(socket.socket(fileno=int(sys.argv[1]))))
