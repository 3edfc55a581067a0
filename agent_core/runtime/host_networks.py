"""What a local sandbox must not reach of this host: its own addresses, and networks that are nobody's but its own."""

from __future__ import annotations

import ipaddress
import socket
import struct
from pathlib import Path

_OWN = "/32 host LOCAL"


def host_networks(proc: Path = Path("/proc/self/net"), devices: Path = Path("/sys/class/net")) -> list[str]:
    """All addresses of this host's interfaces, and networks on bridges without a network card (engines' and VMs').

    Of version 4 only: local sandboxes send nothing over the other.
    """
    return list(dict.fromkeys([*_addresses(proc), *_inner_networks(proc, devices)]))


def _addresses(proc: Path) -> list[str]:
    found: list[str] = []
    place = ""
    for line in (proc / "fib_trie").read_text().splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            place = words[1]
        elif line.strip() == _OWN:
            found.append(f"{place}/32")
    return found


def _inner_networks(proc: Path, devices: Path) -> list[str]:
    found: list[str] = []
    for line in (proc / "route").read_text().splitlines()[1:]:
        device, network, gateway, *_, mask = line.split()[:8]
        if gateway != "00000000" or network == "00000000" or not _leads_nowhere(devices / device):
            continue
        bits = bin(int(mask, 16)).count("1")
        address = socket.inet_ntoa(struct.pack("=I", int(network, 16)))
        found.append(str(ipaddress.IPv4Network(f"{address}/{bits}")))
    return found


def _leads_nowhere(device: Path) -> bool:
    """A bridge between programs of this host."""
    ports = device / "brif"
    return ports.is_dir() and not any((port / "device").exists() for port in ports.iterdir())
