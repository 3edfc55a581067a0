"""TCP ports that something in the sandbox listens on: from /proc, with the program where it can be seen."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set

from ..core import processes

OWN_MARK = "DRYDOCK_OWN"
"""Variable of the runner's helper programs (the browser), whose ports are hidden."""

SHARED_MARK = "DRYDOCK_SANDBOX"
"""Variable of a runner that shares its host's network: only what it started is this sandbox's."""

_OWN = f"{OWN_MARK}=".encode()
_LOOPBACK = ("127.0.0.1", "::1")
_ENGINE = "127.0.0.11"
"""Address of Docker's name server in a container's network, which is outside of the container."""
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, and connected to as loopback


class Listener(NamedTuple):
    """One listening socket."""

    port: int
    address: str
    inode: int


class Owner(NamedTuple):
    """The program that holds a socket."""

    pid: int
    name: str
    command: str


class SandboxPorts:
    """The ports of one sandbox; ``mark`` begins the marks of its terminals (see ``core.processes``)."""

    def __init__(self, mark: str) -> None:
        self._terminals = f"{processes.MARK}={mark}.".encode()

    def listening(self) -> Dict[str, Any]:
        """The ports, lowest first, with ``addresses``, and ``pid``, ``process``, ``command``, null where not seen."""
        found = _listeners()
        owners = _owners({listener.inode for listener in found})
        ports: Dict[int, Dict[str, Any]] = {}
        for listener in found:
            owner = owners.get(listener.inode)
            if not self._is_shown(owner) or (owner is None and listener.address == _ENGINE):
                continue
            entry = ports.setdefault(
                listener.port,
                {"port": listener.port, "addresses": [], "pid": None, "process": None, "command": None},
            )
            if listener.address not in entry["addresses"]:
                entry["addresses"].append(listener.address)
            if owner is not None and entry["pid"] is None:
                entry.update(pid=owner.pid, process=owner.name, command=owner.command)
        return {"ports": [ports[port] for port in sorted(ports)][:500]}

    def addresses_of(self, port: int, tried: Sequence[str] = ()) -> List[str]:
        """Addresses at which to try the port, but for ``tried``; loopback comes first, without a look-up."""
        if not tried and SHARED_MARK not in os.environ:
            return list(_LOOPBACK)
        found = [listener for listener in _listeners() if listener.port == port]
        if found and SHARED_MARK in os.environ:
            owners = _owners({listener.inode for listener in found})
            found = [listener for listener in found if self._is_shown(owners.get(listener.inode))]
        addresses = {_EVERYWHERE.get(listener.address, listener.address) for listener in found}
        return sorted(addresses - set(tried), key=lambda address: (address not in _LOOPBACK, address))

    def _is_shown(self, owner: Optional[Owner]) -> bool:
        is_shared = SHARED_MARK in os.environ
        if owner is None:
            return not is_shared
        environment = processes.read_file(owner.pid, "environ", processes.ENVIRONMENT_LIMIT).split(b"\0")
        if owner.pid == os.getpid() or any(entry.startswith(_OWN) for entry in environment):
            return False
        if not is_shared or any(entry.startswith(self._terminals) for entry in environment):
            return True
        return processes.descends(owner.pid, os.getpid())


def _listeners() -> List[Listener]:
    found: List[Listener] = []
    for path, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        try:
            with open(path, "rb") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue  # no IPv6 here
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == b"0A":  # it listens
                address, _, port = fields[1].partition(b":")
                words = [int(address[n : n + 8], 16).to_bytes(4, sys.byteorder) for n in range(0, len(address), 8)]
                packed, kind = b"".join(words), family
                if family == socket.AF_INET6 and packed.startswith(b"\0" * 10 + b"\xff\xff"):
                    packed, kind = packed[12:], socket.AF_INET
                found.append(Listener(int(port, 16), socket.inet_ntop(kind, packed), int(fields[9])))
    return found


def _owners(inodes: Set[int]) -> Dict[int, Owner]:
    """The holders of these sockets; of several processes (workers of one server) the first."""
    links = {f"socket:[{inode}]": inode for inode in inodes if inode}
    found: Dict[int, Owner] = {}
    if not links:
        return found
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        for inode in _sockets_of(pid, links):
            if inode not in found:
                name, command = (
                    processes.read_file(pid, name, limit).decode("utf-8", "replace").rstrip("\n")
                    for name, limit in (("comm", 64), ("cmdline", 4096))
                )
                found[inode] = Owner(pid, name, command.replace("\0", " ").strip()[:500])
        if len(found) == len(links):
            break
    return found


def _sockets_of(pid: int, links: Dict[str, int]) -> Iterable[int]:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return []  # another user's, or gone
    found = []
    for descriptor in descriptors:
        with contextlib.suppress(OSError, KeyError):
            found.append(links[os.readlink(f"{folder}/{descriptor}")])
    return found
