"""The rules of the packet filter themselves, with machines that play the host, its sandbox and the world."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from agent_core.runtime import network_border
from tests.machines import Machine, ip, machine, needs_root

pytestmark = needs_root

METADATA = "169.254.169.254"
CONNECT = """
import socket, sys
try:
    print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""
SEND = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
    try:
        sender.sendto(sys.argv[3].encode(), (sys.argv[1], int(sys.argv[2])))
    except OSError as error:
        print(type(error).__name__)
"""
SET = "import sys; sys.path.insert(0, sys.argv[1]); import network_border; network_border.keep_off_host(sys.argv[2:])"


class Three(NamedTuple):
    """A host with a bridge, a sandbox at it, and the world behind it."""

    host: Machine
    sandbox: Machine
    world: Machine

    def set_border(self, *resolvers: str) -> None:
        said = self.host.python(SET, str(Path(network_border.__file__).parent), *resolvers)
        assert said == "", said

    def reach(self, address: str, port: int = 80) -> str:
        """What a connection from the sandbox brings."""
        return self.sandbox.python(CONNECT, address, str(port)).strip()


@pytest.fixture
def three() -> Iterator[Three]:
    with machine() as host, machine() as sandbox, machine() as world:
        h, s, w = host.name, sandbox.name, world.name
        ip("-n", h, "link", "add", "drydock-0123456", "type", "bridge")
        ip("-n", h, "link", "add", "inner", "type", "veth", "peer", "name", "eth0", "netns", s)
        ip("-n", h, "link", "add", "outer", "type", "veth", "peer", "name", "eth0", "netns", w)
        ip("-n", h, "link", "set", "inner", "master", "drydock-0123456")
        for name, device, address, six in (
            (h, "drydock-0123456", "172.30.0.1/24", "fd77::1/64"),
            (h, "outer", "198.18.0.1/24", "fd78::1/64"),
            (s, "eth0", "172.30.0.2/24", "fd77::2/64"),
            (w, "eth0", "198.18.0.2/24", "fd78::2/64"),
        ):
            ip("-n", name, "addr", "add", address, "dev", device)
            ip("-n", name, "addr", "add", six, "dev", device, "nodad")
            ip("-n", name, "link", "set", device, "up")
        ip("-n", h, "link", "set", "inner", "up")
        ip("-n", s, "route", "add", "default", "via", "172.30.0.1")
        ip("-n", w, "route", "add", "default", "via", "198.18.0.1")
        ip("-n", w, "addr", "add", f"{METADATA}/32", "dev", "lo")
        ip("-n", h, "route", "add", f"{METADATA}/32", "via", "198.18.0.2")
        host.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        yield Three(host, sandbox, world)


def link_local(of: Machine, device: str) -> str:
    words = ip("-n", of.name, "-6", "-o", "addr", "show", "dev", device, "scope", "link").split()
    return words[words.index("inet6") + 1].partition("/")[0]


def test_the_host_and_its_cloud_are_out_of_reach_and_the_world_is_not(three: Three) -> None:
    three.host.listen(("AF_INET", "SOCK_STREAM", 80, "host"), ("AF_INET6", "SOCK_STREAM", 80, "host"))
    three.world.listen(("AF_INET", "SOCK_STREAM", 80, "world"))
    forbidden = {"172.30.0.1": "host", "198.18.0.1": "host", METADATA: "world", "fd77::1": "host"}
    forbidden[f"{link_local(three.host, 'drydock-0123456')}%eth0"] = "host"
    assert {address: three.reach(address) for address in forbidden} == forbidden  # so it is without a border
    three.set_border()
    three.set_border()  # done anew it is no different
    refused = {address: three.reach(address) for address in forbidden}
    assert set(refused.values()) <= {"OSError", "PermissionError", "TimeoutError"}, refused
    assert refused["172.30.0.1"] == refused[METADATA] == "OSError"  # at once, and not after a long wait
    assert three.reach("198.18.0.2") == "world"


def test_an_address_that_the_host_gets_later_is_out_of_reach_at_once(three: Three) -> None:
    three.host.listen(("AF_INET", "SOCK_STREAM", 80, "host"))
    three.set_border()
    ip("-n", three.host.name, "addr", "add", "198.18.9.9/32", "dev", "outer")
    assert three.reach("198.18.9.9") == "OSError"


def test_a_published_port_does_not_lead_around_the_border(three: Three) -> None:
    three.world.listen(("AF_INET", "SOCK_STREAM", 80, "published"))
    nat = ("-t", "nat", "-A", "PREROUTING", "-p", "tcp", "--dport", "8080", "-j", "DNAT", "--to", "198.18.0.2:80")
    assert three.host.run("iptables", *nat) == ""
    assert three.reach("172.30.0.1", 8080) == "published"
    three.set_border()
    assert three.reach("172.30.0.1", 8080) == "OSError"


def test_datagrams_to_many_do_not_arrive_either(three: Three) -> None:
    program = three.host.listen(("AF_INET", "SOCK_DGRAM", 5353, "host"))
    assert program.stdout
    three.sandbox.python(SEND, "172.30.0.255", "5353", "before")
    assert program.stdout.readline() == "before\n"
    three.set_border()
    for address in ("172.30.0.255", "255.255.255.255", "172.30.0.1", "198.18.0.1", "127.0.0.1"):
        three.sandbox.python(SEND, address, "5353", f"sandbox to {address}")
    three.world.python(SEND, "198.18.0.1", "5353", "world")
    assert program.stdout.readline() == "world\n"


def test_the_hosts_own_resolver_answers_for_names_and_for_nothing_else(three: Three) -> None:
    for there in (three.host, three.world):
        there.listen(("AF_INET", "SOCK_STREAM", 53, "names"), ("AF_INET", "SOCK_STREAM", 80, "pages"))
    three.set_border("198.18.0.1")
    assert [three.reach("198.18.0.1", port) for port in (53, 80)] == ["names", "OSError"]
    assert [three.reach(address, 53) for address in ("172.30.0.1", METADATA)] == ["OSError", "OSError"]
    three.set_border()  # whom it asks cannot be seen: it may be its cloud
    assert [three.reach(METADATA, port) for port in (53, 80)] == ["names", "OSError"]
    assert three.reach("198.18.0.1", 53) == "OSError"


@pytest.mark.parametrize(
    ("bridge", "expected"),
    [
        ("br-0123456789ab", "OSError"),
        ("docker0", "OSError"),
        ("drydock-89abcde", "OSError"),
        ("br-lan", "neighbour"),  # not Docker's: by these a host may lead out
        ("br0", "neighbour"),
    ],
)
def test_containers_at_other_bridges_are_out_of_reach_also_where_the_engine_does_not_see_to_it(
    three: Three, bridge: str, expected: str
) -> None:
    """Docker takes its own rules for that away for an instant, whenever it makes another network."""
    h = three.host.name
    with machine() as neighbour:
        ip("-n", h, "link", "add", bridge, "type", "bridge")
        ip("-n", h, "link", "add", "other", "type", "veth", "peer", "name", "eth0", "netns", neighbour.name)
        ip("-n", h, "link", "set", "other", "master", bridge, "up")
        ip("-n", h, "addr", "add", "172.31.0.1/24", "dev", bridge)
        ip("-n", h, "link", "set", bridge, "up")
        ip("-n", neighbour.name, "addr", "add", "172.31.0.2/24", "dev", "eth0")
        ip("-n", neighbour.name, "link", "set", "eth0", "up")
        ip("-n", neighbour.name, "route", "add", "default", "via", "172.31.0.1")
        neighbour.listen(("AF_INET", "SOCK_STREAM", 80, "neighbour"))
        assert three.reach("172.31.0.2") == "neighbour"
        three.set_border()
        assert three.reach("172.31.0.2") == expected  # refused at once


def test_the_host_still_reaches_what_runs_in_a_sandbox(three: Three) -> None:
    three.sandbox.listen(("AF_INET", "SOCK_STREAM", 80, "sandbox"))
    three.set_border()
    assert three.host.python(CONNECT, "172.30.0.2", "80").strip() == "sandbox"


def test_a_name_server_of_the_hosts_loopback_is_none_that_others_can_ask(tmp_path: Path) -> None:
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("# comment\nnameserver 127.0.0.53\nnameserver 192.0.2.1\noptions edns0\nnameserver\n")
    assert network_border.host_resolvers(str(resolv)) == ["192.0.2.1"]
    assert network_border.host_resolvers(str(tmp_path / "missing")) == []
