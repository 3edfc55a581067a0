"""Where webhooks may be sent: a server that sends requests for others must not reach what only it can reach."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

MAX_URL_CHARS: Final = 2_000
MAX_ADDRESSES: Final = 4
"""So many of a name's addresses are tried."""

_PORTS: Final = {"http": 80, "https": 443}
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that was ever given out of the IPv6 addresses that everybody can reach."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class DestinationError(Exception):
    """A webhook may not be sent there; the message says why, and what would have to change."""


@dataclass(frozen=True, slots=True)
class Destination:
    """An address that was looked up and may be sent to.

    Attributes:
        url: with the looked-up address in place of the host, so that nobody can change where the name leads.
        host: as it was written, with the port: the header ``Host``.
        name: the host alone, which the server's certificate has to be for.
    """

    url: str
    host: str
    name: str


def url_problem(url: str) -> str | None:
    """Why this cannot be a webhook's address; None when it can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no address; write it as https://host/path"
    if len(url) > MAX_URL_CHARS:
        return f"is longer than {MAX_URL_CHARS} characters"
    if parts.scheme not in _PORTS or not parts.hostname:
        return "is no address for HTTP; write it as https://host/path"
    if parts.username is not None or parts.password is not None:
        return "holds a name or a password, which anybody who sees it could read; the signature proves who sends"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "holds characters that no address has; write them as %XX"
    return "has a fragment, which is never sent; leave it out" if parts.fragment else _port_problem(port)


def _port_problem(port: int | None) -> str | None:
    return "has the port 0, to which nothing can be sent" if port == 0 else None


class Destinations:
    """Decides by the addresses that a name has at the moment: public ones always, others where they are allowed."""

    def __init__(self, *, hosts: Collection[str], loopback: bool) -> None:
        """``hosts`` may have any address (``*``: all may); ``loopback``: this machine may be told."""
        self._hosts = {host.lower() for host in hosts}
        self._loopback = loopback

    async def find(self, url: str) -> list[Destination]:
        """Where requests for this address may go: at least one place, the best one first.

        Raises:
            DestinationError: they may not, or there is no such host.
        """
        parts = urlsplit(url)
        name = parts.hostname or ""
        port = parts.port or _PORTS[parts.scheme]
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise DestinationError(
                f"the host {name} is not known: {getattr(error, 'strerror', None) or error}"
            ) from error
        addresses = list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))
        for address in addresses:
            if not self._may_be(name, address):
                raise DestinationError(
                    f"{name} is {address}, which is no public address; the setting webhook_hosts allows more"
                )
        return [
            Destination(parts._replace(netloc=f"{_literal(one)}:{port}").geturl(), parts.netloc, name)
            for one in addresses[:MAX_ADDRESSES]
        ]

    def _may_be(self, name: str, address: Address) -> bool:
        return (
            bool({"*", name.lower()} & self._hosts) or is_public(address) or (self._loopback and _is_loopback(address))
        )


def is_public(address: Address) -> bool:
    """Whether everybody can reach it. What stands for an IPv4 address, and ends up there, is what that is."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    inner = address.ipv4_mapped or address.sixtofour
    if address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return is_public(inner) if inner is not None else address.is_global and address in _UNICAST


def _is_loopback(address: Address) -> bool:
    plain = getattr(address, "ipv4_mapped", None) or address
    return plain.is_loopback


def _literal(address: Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)
