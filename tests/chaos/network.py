"""Network namespaces: a machine for each server, on one bridge with this process, and cuts of what they say."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

HOME: Final = "10.213.0.1"
"""The address of this process, which has PostgreSQL, the proxy, the model and the clients."""
PORT: Final = 3000
"""Each server's, on its own machine."""

Other = Literal["database", "servers", "proxy"]
Way = Literal["both", "in", "out"]

_ENDING_SECONDS: Final = 60.0
_CLONE_NEWNET: Final = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def leave_the_network() -> None:
    """Put this process, which has one thread, into a network of its own: what it starts is there, too."""
    _unshare()
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "cluster", "type", "bridge")
    _run("ip", "address", "add", f"{HOME}/24", "dev", "cluster")
    _run("ip", "link", "set", "cluster", "up")


def begin() -> None:
    """A new server's first work: it goes to its machine, ``CHAOS_NETWORK``, and to its wrong clock, and is armed."""
    descriptor = os.open(os.environ.pop("CHAOS_NETWORK"), os.O_RDONLY)
    _checked(_libc.setns(descriptor, _CLONE_NEWNET))
    os.close(descriptor)
    if seconds := int(os.environ.pop("CHAOS_CLOCK", "0")):
        _set_clock(seconds)
    if "FAULT_TRACE" in os.environ:
        import_module("tests.chaos.points").arm()


def _set_clock(seconds: int) -> None:
    """Have this process believe that it is so much later, but where it asks how old a file of its machine is."""
    wrong = timedelta(seconds=seconds)

    class WrongDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + wrong

    for name in ("agent_core.events.event", "server.clock"):
        vars(import_module(name))["datetime"] = WrongDatetime
    clock = import_module("server.clock")
    vars(clock)["_BEGAN_AT"] += wrong


class Machine:
    """A network namespace with one address on the bridge; `close` has it go with its last process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.address = f"10.213.0.{10 + number}"
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _unshare()
            self._descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        finally:
            _checked(_libc.setns(home, _CLONE_NEWNET))
            os.close(home)
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        inside = f"inside{number}"
        _run("ip", "link", "add", f"server{number}", "master", "cluster", "up", "type", "veth", "peer", "name", inside)
        _run("ip", "link", "set", inside, "netns", self.path)
        self._inside("ip", "link", "set", "lo", "up")
        self._inside("ip", "address", "add", f"{self.address}/24", "dev", inside)
        self._inside("ip", "link", "set", inside, "up")

    def cut(self, other: Other, way: Way, database_port: int, others: Iterable[Machine]) -> None:
        """Have nothing come from there, or go to there; whoever waits for it is told nothing."""
        rules = []
        match other:
            case "database":
                rules = [(HOME, "--dport", "--sport", database_port)]
            case "proxy":
                rules = [(HOME, "--sport", "--dport", PORT)]
            case "servers":
                rules = [(one.address, "", "", 0) for one in others if one is not self]
        for address, out_port, in_port, port in rules:
            if way != "in":
                self._drop("OUTPUT", "-d", address, out_port, port)
            if way != "out":
                self._drop("INPUT", "-s", address, in_port, port)

    def heal(self) -> None:
        self._inside("iptables", "-w", "-F")

    def clear(self) -> list[str]:
        """Kill what still runs there after a moment; returns the command lines of that."""
        deadline = time.monotonic() + _ENDING_SECONDS
        while (left := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return list(left.values())

    def _processes(self) -> dict[int, str]:
        here, found = os.fstat(self._descriptor).st_ino, dict[int, str]()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if os.stat(f"/proc/{pid}/ns/net").st_ino == here:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(pid)] = line.decode("utf-8", "replace")[:100]
        return found

    def close(self) -> None:
        os.close(self._descriptor)

    def _drop(self, chain: str, end: str, address: str, port_option: str, port: int) -> None:
        ports = [port_option, str(port)] if port_option else []
        self._inside("iptables", "-w", "-A", chain, end, address, "-p", "tcp", *ports, "-j", "DROP")

    def _inside(self, *command: str) -> None:
        _run("nsenter", f"--net={self.path}", *command)


def _run(*command: str) -> None:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    ran = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=30)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ran.stderr.strip() or ran.stdout.strip()}")


def _unshare() -> None:
    _checked(_libc.unshare(_CLONE_NEWNET))


def _checked(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: networks of their own need root")
