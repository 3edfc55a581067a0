"""Servers and programs, without the seconds of processor time in which each would import the same modules.

``python -m tests.integration.server.forks`` imports what they import, and then becomes one at each request: a forked
process that runs the command line as the interpreter would, with its own arguments, environment and output. It can be
signalled and killed like any other; where starting itself is what a test is about, it starts one plainly.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from pydantic import BaseModel

ROOT = Path(__file__).parents[3]
MOULDS: dict[int, int] = {}
"""The processes that others are forked from, with the descriptor of the line to each: they stay from test to test."""
_MESSAGE = 1_000_000
_LOST = -1
_IMPORTED = (
    "server.cli",
    "server.settings.loading",
    "server.cli.serve",
    "agent_core.llm.transport.client",
    "agent_core.library.conversation",
    "agent_core.testing.model_server",
    "drydock_client",
    # What servers load when they first need it.
    "server.conversation_manager.clustered",
    "server.conversation_manager.standalone",
    "fastapi.telemetry._runtime",
    "greenlet",
    "jinja2",
    "uvicorn.lifespan.on",
)


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

    def wait_blocking(self, limit_seconds: float) -> int:
        """Wait for its end, `TimeoutError` after the limit; returns its exit status."""
        if self.returncode is None and not select.select([self._told], [], [], limit_seconds)[0]:
            raise TimeoutError(f"process {self.pid} still runs after {limit_seconds:g} s")
        status = self.returncode
        assert status is not None
        return status

    async def wait(self) -> int:
        """Wait for its end; returns its exit status."""
        while (status := self.returncode) is None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            told = os.dup(self._told)  # a loop tells only one of several who wait for the same descriptor
            loop.add_reader(told, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(told)
                os.close(told)
        return status


def fork_server(arguments: list[str], environment: dict[str, str], log: Path) -> ForkedProcess:
    """Start ``python -m server`` with these arguments; what it prints is appended to the log."""
    log.touch()
    order = {"arguments": ["drydock", *arguments], "out": str(log), "errors": str(log), "folder": str(ROOT)}
    return _fork({**order, "environment": environment})


def run_program(
    arguments: list[str], environment: dict[str, str], folder: Path, *, limit_seconds: float = 180.0
) -> subprocess.CompletedProcess[str]:
    """Run ``python SCRIPT …`` or ``python -c CODE`` in a folder, as `subprocess.run` would, which raises the same."""
    with tempfile.TemporaryDirectory() as place:
        out, errors = Path(place, "out"), Path(place, "errors")
        order = {"arguments": arguments, "out": str(out), "errors": str(errors), "folder": str(folder)}
        process = _fork({**order, "environment": environment, "is_program": True})
        try:
            status = process.wait_blocking(limit_seconds)
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            process.wait_blocking(limit_seconds)
            raise subprocess.TimeoutExpired(arguments, limit_seconds, out.read_bytes(), errors.read_bytes()) from None
        return subprocess.CompletedProcess(arguments, status, out.read_text("utf-8"), errors.read_text("utf-8"))


def fork_program(
    arguments: list[str], environment: dict[str, str], folder: Path, out: Path, errors: Path
) -> ForkedProcess:
    """Start ``python SCRIPT …`` or ``python -c CODE`` in a folder, with files for what it prints."""
    out.touch()
    errors.touch()
    files = {"out": str(out), "errors": str(errors), "folder": str(folder)}
    return _fork({**files, "arguments": arguments, "environment": environment, "is_program": True})


def _fork(order: dict[str, Any]) -> ForkedProcess:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    _, line = _mould(order["environment"].get("LD_PRELOAD", ""))
    socket.send_fds(line, [json.dumps(order).encode()], [theirs])
    os.close(theirs)
    return ForkedProcess(int(line.recv(100)), ours)


@cache
def _mould(preload: str = "") -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process that becomes servers with these preloaded libraries, which ends with this one; and the line to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(300)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": preload},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    MOULDS[process.pid] = ours.fileno()
    atexit.register(_end, process, ours)
    return process, ours


def _end(process: subprocess.Popen[bytes], line: socket.socket) -> None:
    line.close()
    process.wait(60)


def _serve_forks(line: socket.socket) -> dict[str, Any]:
    """Fork at each order; returns only in a fork, with its order."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which whoever ordered the forks has, too
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
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
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
    for descriptor, name in ((1, "out"), (2, "errors")):
        file = os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = list(order["arguments"])
    if first := os.environ.pop("RUN_FIRST", ""):  # ``module:function``
        module, _, function = first.partition(":")
        getattr(import_module(module), function)()
    if order.get("is_program"):
        _run(sys.argv)
    sys.exit(import_module("server.cli").main())


def _run(arguments: list[str]) -> NoReturn:
    main = ModuleType("__main__")
    if arguments[0] == "-c":
        code, name = arguments.pop(1), "<string>"
    else:
        code, name = Path(arguments[0]).read_text("utf-8"), arguments[0]
        main.__file__ = name
        sys.path.insert(0, str(Path(name).parent))
    sys.modules["__main__"] = main  # where classes that are defined in a program are looked up
    exec(compile(code, name, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - the test's own program
    sys.exit()


def _import_all() -> None:
    quick = import_module("server.cli").quick_imports
    with quick():
        import_module("server.cli.partly_loaded").load_partly()
        for name in _IMPORTED:
            import_module(name)
    import_module("docker.api.client")
    import_module("agent_core.llm.transport.connections").HttpLibrary()
    import_module("agent_core.runtime.injection").runner_files()
    _build_models()
    gc.collect()
    gc.freeze()


def _build_models() -> None:
    """Give our models their validators, which else each server would make when it first uses them."""
    left: list[type[BaseModel]] = [BaseModel]
    while left:
        for model in left.pop().__subclasses__():
            left.append(model)
            if model.__module__.startswith(("agent_core.", "server.")) and not model.__pydantic_complete__:
                model.model_rebuild(raise_errors=False)


if __name__ == "__main__":
    _import_all()
    _become(_serve_forks(socket.socket(fileno=int(sys.argv[1]))))
