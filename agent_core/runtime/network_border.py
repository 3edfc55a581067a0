"""Program that keeps sandboxes off the host and off its cloud's addresses, with rules of the kernel's packet filter.

It runs where the rules are: in a container in the network of the engine's host, and in the network namespace of a local
sandbox. It speaks nf_tables over netlink itself: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Rules = list[list[bytes]]
    Chain = tuple[int, int, Rules, Rules, Rules]  # hook, priority, what is let through, refused, dropped

BRIDGES = "drydock-"
"""Names of bridges whose sandboxes are kept off the host begin so; no network with host access has such a name."""

METADATA = ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32")
"""Link-local addresses, and those under which clouds tell their machines about themselves."""

TABLE = "drydock"
_KEEP_SECONDS = 30.0
_ANSWER_SECONDS = 10.0

_NETFILTER = 12
_INET = 1
_NFT = 10 << 8
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE = _NFT | 0, _NFT | 2, _NFT | 3, _NFT | 6
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_NESTED = 0x8000
_ERROR = 0x2
_PREROUTING, _FORWARD, _OUTPUT = 0, 2, 3
_BEFORE_NAT = -150  # behind connection tracking, before a published port leads elsewhere
_FIRST = -300
_EQUAL, _NOT_EQUAL = 0, 1
_META_IN, _META_OUT, _META_FAMILY, _META_PROTOCOL = 6, 7, 15, 16
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_DROP, _ACCEPT = 0, 1
_PROHIBITED = 3
_UNICAST = 1
_REPLY = 1
_UDP, _TCP = 17, 6
_DNS = 53


def keep_off_host(resolvers: Sequence[str], prefix: str = BRIDGES) -> None:
    """In the network of an engine's host: refuse what sandboxes send to it, to its cloud and to other containers.

    That is any address of the host, also a later one, one of a published port, and IPv6; what answers a connection of
    the host's is let through, and `resolvers` may be asked for names. Done anew it replaces the former rules at once.
    Raises `OSError` where the kernel does not do it.
    """
    ours = [_meta(_META_IN), _compare(prefix.encode())]
    rules: Rules = [
        [*ours, _expression("ct", (1, _word(1)), (2, _word(1))), _compare(bytes([_REPLY])), _verdict(_ACCEPT)]
    ]
    known = [address for address in map(_version_4, resolvers) if address is not None]
    for address in known or METADATA:
        rules += [[*ours, *_names_at(address, protocol), _verdict(_ACCEPT)] for protocol in (_UDP, _TCP)]
    refused = [[*ours, *_to(network)] for network in METADATA]
    not_unicast = _compare(struct.pack("=I", _UNICAST), _NOT_EQUAL)
    refused.append([*ours, _expression("fib", (1, _word(1)), (2, _word(3)), (3, _word(2))), not_unicast])
    silent = [[*ours, *_family(socket.AF_INET6), _verdict(_DROP)]]
    # Docker keeps its networks apart too, but not in the instant in which it makes another one.
    others = [[*ours, _meta(_META_OUT), _compare(name)] for name in (prefix.encode(), b"docker", b"br-")]
    last_letter = _masked(bytes(14) + b"\xff\0")  # what br-0123456789ab has, and br-lan has not
    others[-1] += [last_letter, _compare(bytes(16), _NOT_EQUAL)]
    _replace_table((_PREROUTING, _BEFORE_NAT, rules, refused, silent), (_FORWARD, _FIRST, [], others, []))


def keep_in(resolver: str, refused: Iterable[str]) -> None:
    """In a sandbox's own network: refuse what goes to these networks, to its cloud's, and everything over IPv6."""
    rules: Rules = [[_meta(_META_OUT), _compare(b"lo\0"), _verdict(_ACCEPT)]]
    rules += [[*_names_at(resolver, protocol), _verdict(_ACCEPT)] for protocol in (_UDP, _TCP)]
    never = ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3")
    networks = [_to(network) for network in dict.fromkeys([*never, *METADATA, *refused])]
    _replace_table((_OUTPUT, _FIRST, rules, [*networks, _family(socket.AF_INET6)], []))


def host_resolvers(path: str = "/etc/resolv.conf") -> list[str]:
    """The name servers of this host that can be asked from elsewhere; empty where it asks one of its own."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = [line.split() for line in file]
    except OSError:
        return []
    found = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
    return [name for name in found if not name.startswith("127.")]


def main(words: Sequence[str]) -> None:
    """Set the rules of an engine's host; with ``keep`` again and again, in case somebody empties the filter."""
    keep_off_host(host_resolvers())
    while "keep" in words:
        time.sleep(_KEEP_SECONDS)
        keep_off_host(host_resolvers())


# --- rules ---


def _version_4(address: str) -> str | None:
    try:
        return str(ipaddress.IPv4Address(address))
    except ValueError:
        return None


def _names_at(network: str, protocol: int) -> list[bytes]:
    port = _expression("payload", (1, _word(1)), (2, _word(_TRANSPORT_HEADER)), (3, _word(2)), (4, _word(2)))
    return [
        *_to(network),
        _meta(_META_PROTOCOL),
        _compare(bytes([protocol])),
        port,
        _compare(struct.pack("!H", _DNS)),
    ]


def _to(network: str) -> list[bytes]:
    subnet = ipaddress.IPv4Network(network)
    address = _expression("payload", (1, _word(1)), (2, _word(_NETWORK_HEADER)), (3, _word(16)), (4, _word(4)))
    return [*_family(socket.AF_INET), address, _masked(subnet.netmask.packed), _compare(subnet.network_address.packed)]


def _masked(mask: bytes) -> bytes:
    return _expression(
        "bitwise",
        (1, _word(1)),
        (2, _word(1)),
        (3, _word(len(mask))),
        (4 | _NESTED, _attribute(1, mask)),
        (5 | _NESTED, _attribute(1, bytes(len(mask)))),
    )


def _family(family: int) -> list[bytes]:
    return [_meta(_META_FAMILY), _compare(bytes([family]))]


def _meta(key: int) -> bytes:
    return _expression("meta", (1, _word(1)), (2, _word(key)))


def _compare(value: bytes, operator: int = _EQUAL) -> bytes:
    return _expression("cmp", (1, _word(1)), (2, _word(operator)), (3 | _NESTED, _attribute(1, value)))


def _verdict(code: int) -> bytes:
    verdict = _attribute(2 | _NESTED, _attribute(1, _word(code)))
    return _expression("immediate", (1, _word(0)), (2 | _NESTED, verdict))


# --- netlink ---


def _replace_table(*chains: Chain) -> None:
    """Replace our table; refused packets are answered where the kernel can."""
    refusal = _expression("reject", (1, _word(2)), (2, bytes([_PROHIBITED])))
    try:
        _send(chains, refusal)
    except OSError:
        _send(chains, _verdict(_DROP))


def _send(chains: Iterable[Chain], refusal: bytes) -> None:
    name = _attribute(1, TABLE.encode() + b"\0")
    messages = [(_NEW_TABLE, _CREATE, name), (_DELETE_TABLE, 0, name), (_NEW_TABLE, _CREATE, name)]
    for hook, priority, rules, refused, dropped in chains:
        chain = b"sandboxes-%d\0" % hook
        place = _attribute(1, _word(hook)) + _attribute(2, struct.pack("!i", priority))
        shape = _attribute(4 | _NESTED, place) + _attribute(5, _word(_ACCEPT)) + _attribute(7, b"filter\0")
        messages.append((_NEW_CHAIN, _CREATE, name + _attribute(3, chain) + shape))
        for rule in [*rules, *([*rule, refusal] for rule in refused), *dropped]:
            steps = b"".join(_attribute(1 | _NESTED, step) for step in rule)
            content = name + _attribute(2, chain) + _attribute(4 | _NESTED, steps)
            messages.append((_NEW_RULE, _CREATE | _APPEND, content))
    batch = _message(_BATCH_BEGIN, 0, 0, b"", 10)
    for number, (kind, flags, content) in enumerate(messages, 1):
        batch += _message(kind, flags | _ACK, number, content)
    batch += _message(_BATCH_END, 0, 0, b"", 10)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as netlink:
        netlink.settimeout(_ANSWER_SECONDS)
        netlink.bind((0, 0))
        netlink.send(batch)
        _await_answers(netlink, len(messages))


def _await_answers(netlink: socket.socket, last: int) -> None:
    while True:
        answer = netlink.recv(1 << 16)
        while len(answer) >= 20:
            length, kind, _, number, _, error = struct.unpack_from("=IHHIIi", answer)
            if kind == _ERROR and error:
                raise OSError(-error, "the kernel's packet filter refuses a rule: " + os.strerror(-error))
            if kind == _ERROR and number == last:
                return
            answer = answer[(length + 3) & ~3 :]


def _message(kind: int, flags: int, number: int, content: bytes, subject: int = 0) -> bytes:
    body = struct.pack("!BBH", 0 if subject else _INET, 0, subject) + content
    return struct.pack("=IHHII", 16 + len(body), kind, flags | _REQUEST, number, 0) + body


def _expression(name: str, *attributes: tuple[int, bytes]) -> bytes:
    content = b"".join(_attribute(kind, value) for kind, value in attributes)
    return _attribute(1, name.encode() + b"\0") + _attribute(2 | _NESTED, content)


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def _word(value: int) -> bytes:
    return struct.pack("!I", value)


if __name__ == "__main__":
    main(sys.argv[1:])
