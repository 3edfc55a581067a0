"""Programs that the server speaks to over their standard input and output, each carried by a tunnel (see `tunnels`).

Such a tunnel is opened with ``{"program": {"command": [...], "env": {...}, "cwd": "..."}}``. Its ``end`` from the
program has ``last_words``, the end of what the program wrote to its standard error. A program ends with its tunnel, and
so with its server; whatever it has started in its session ends with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from typing import Any, Dict, List, Mapping, Optional

from ..core import processes
from ..core.connection import Connection
from ..core.loop import Loop
from .ports import SandboxPorts
from .tunnel import Ended, Tunnel

_WORDS_LIMIT = 2000
_ARGUMENTS_LIMIT = 1000
_READ = 64 * 1024


class ProgramTunnel(Tunnel):
    """One program: what comes from the server is its input, what it prints goes to the server."""

    def __init__(self, loop: Loop, connection: Connection, number: int, ended: Ended, workspace: str) -> None:
        """``workspace`` is where programs run that are given no other place."""
        super().__init__(loop, connection, number, ended)
        self._workspace = workspace
        self._pid = 0
        self._errors = -1
        self._last_words = b""

    def begin(self, given: Mapping[str, Any], ports: SandboxPorts) -> None:
        """Start the program; what comes of it is told the server."""
        del ports
        order = given.get("program")
        problem = _problem(order)
        if problem or not isinstance(order, dict):
            self.fail("bad_request", problem)
            return
        command: List[str] = order["command"]
        environment = dict(os.environ, **(order.get("env") or {}))
        found = shutil.which(command[0], path=environment.get("PATH", os.defpath))
        if found is None:
            self.fail("not_found", f"there is no program {command[0]!r} in the sandbox")
            return
        try:
            ours = self._start([found, *command[1:]], environment, order.get("cwd") or self._workspace)
        except (OSError, ValueError) as error:
            self.fail("failed", f"the program {command[0]!r} cannot be started: {error}")
            return
        self.carry(ours)

    def close(self) -> None:
        """Close, and end the program with all that it has started."""
        super().close()
        if self._errors >= 0:
            self._loop.remove_reader(self._errors)
            os.close(self._errors)
            self._errors = -1
        pid, self._pid = self._pid, 0
        if pid:
            processes.kill_family(pid)
            processes.signal_group(pid, signal.SIGKILL)

    def _broke(self, error: OSError, *, is_reading: bool) -> None:
        """What was meant for a program that reads no more is nobody's; what it has printed still counts."""
        del error
        self._grant(sum(map(len, self._out)))
        self._out.clear()
        if is_reading:
            self._said_all()

    def _ending(self) -> Dict[str, Any]:
        if self._errors >= 0:
            self._listen()
        return {"end": True, "last_words": self._last_words.decode("utf-8", "replace")}

    def _start(self, command: List[str], environment: Dict[str, str], cwd: str) -> socket.socket:
        import subprocess  # only here: the runner starts faster without it

        ours, its = socket.socketpair()
        errors, its_errors = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=its_errors,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(errors)
            raise
        finally:
            its.close()
            os.close(its_errors)
        process.returncode = 0  # the runner collects all its dead children itself
        self._pid, self._errors = process.pid, errors
        os.set_blocking(errors, False)
        self._loop.add_reader(errors, self._listen)
        ours.setblocking(False)
        return ours

    def _listen(self) -> None:
        try:
            data = os.read(self._errors, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._errors)
        self._last_words = (self._last_words + data)[-_WORDS_LIMIT:]


def _problem(order: Any) -> str:
    """Return what is wrong with an order for a program; empty: nothing."""
    if not isinstance(order, dict):
        return "program must be an object"
    command, cwd = order.get("command"), order.get("cwd")
    environment: Optional[object] = order.get("env")
    if not isinstance(command, list) or not 0 < len(command) <= _ARGUMENTS_LIMIT or not all(map(_is_text, command)):
        return f"command must be a list of 1 to {_ARGUMENTS_LIMIT} texts"
    if environment is not None and not (
        isinstance(environment, dict)
        and all(_is_text(text) for pair in environment.items() for text in pair)
        and all(name and "=" not in name for name in environment)
    ):
        return "env must be an object of texts"
    if cwd is not None and not _is_text(cwd):
        return "cwd must be a path"
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value
