"""Other machines for tests of what sandboxes may reach: network namespaces of this host, which root can make."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces")

_LISTEN = """
import socket, sys
listeners = []
times, *wanted = sys.argv[1:]
for family, kind, port, word in map(eval, wanted):
    listener = socket.socket(getattr(socket, family), getattr(socket, kind))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == "AF_INET6":
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(("::" if family == "AF_INET6" else "0.0.0.0", port))
    if kind == "SOCK_STREAM":
        listener.listen()
    listeners.append((listener, word.encode() * int(times)))
print("listening", flush=True)
import select
while True:
    for ready in select.select([listener for listener, _ in listeners], [], [])[0]:
        word = dict(listeners)[ready]
        if ready.type == socket.SOCK_STREAM:
            peer, _ = ready.accept()
            with peer:
                peer.sendall(word)
        else:
            data, sender = ready.recvfrom(100)
            print(data.decode(), flush=True)
            ready.sendto(word, sender)
"""


def ip(*words: str) -> str:
    """Run ``ip``; what it says."""
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


class Machine:
    """A network namespace with programs in it."""

    def __init__(self) -> None:
        self.name = f"ddtest-{secrets.token_hex(4)}"
        self._programs: list[subprocess.Popen[str]] = []

    def run(self, *words: str) -> str:
        """Run a program there; what it says, whatever becomes of it."""
        argv = ["ip", "netns", "exec", self.name, *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    def python(self, program: str, *words: str) -> str:
        """Run a program of Python there; what it says, whatever becomes of it."""
        return self.run(sys.executable, "-c", program, *words)

    def listen(self, *sockets: tuple[str, str, int, str], times: int = 1) -> subprocess.Popen[str]:
        """Answer there with a word, so many times, at each of ``(family, kind, port, word)``; prints datagrams."""
        argv = ["ip", "netns", "exec", self.name, sys.executable, "-c", _LISTEN, str(times), *map(repr, sockets)]
        program = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self._programs.append(program)
        assert program.stdout
        assert program.stdout.readline() == "listening\n"
        return program

    def close(self) -> None:
        """End it, with its devices."""
        for program in self._programs:
            program.kill()
            program.communicate()
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("netns", "del", self.name)


@contextlib.contextmanager
def machine() -> Iterator[Machine]:
    """A machine that is connected with nothing yet."""
    made = Machine()
    ip("netns", "add", made.name)
    try:
        ip("-n", made.name, "link", "set", "lo", "up")
        yield made
    finally:
        made.close()


class Outside:
    """A machine that this host has a cable to.

    Attributes:
        host: this host's address on that cable.
        address: the machine's.
        link_local: another of the machine's, as a cloud's metadata has them.
    """

    def __init__(self, there: Machine) -> None:
        self.machine = there
        first, second = secrets.randbelow(256), secrets.randbelow(63) * 4
        self.host, self.address = f"198.19.{first}.{second + 1}", f"198.19.{first}.{second + 2}"
        self.link_local = f"169.254.{200 + secrets.randbelow(50)}.{1 + secrets.randbelow(250)}"


@contextlib.contextmanager
def outside() -> Iterator[Outside]:
    """A machine beyond this host, to which sandboxes with a way out get."""
    with machine() as there:
        made = Outside(there)
        device = f"dd{secrets.token_hex(4)}"
        ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", there.name)
        try:
            ip("addr", "add", f"{made.host}/30", "dev", device)
            ip("link", "set", device, "up")
            ip("-n", there.name, "addr", "add", f"{made.address}/30", "dev", "eth0")
            ip("-n", there.name, "addr", "add", f"{made.link_local}/32", "dev", "lo")
            ip("-n", there.name, "link", "set", "eth0", "up")
            ip("-n", there.name, "route", "add", "default", "via", made.host)
            ip("route", "add", f"{made.link_local}/32", "via", made.address)
            yield made
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("link", "del", device)
