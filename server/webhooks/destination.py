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
_PORTS: Final = {"http": 80, "https": 443}


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

    async def find(self, url: str) -> Destination:
        """Where requests for this address go.

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
        addresses = [ipaddress.ip_address(entry[4][0]) for entry in found]
        for address in addresses:
            if not self._may_be(name, address):
                raise DestinationError(
                    f"{name} is {address}, which is no public address; the setting webhook_hosts allows more"
                )
        chosen = addresses[0]
        literal = f"[{chosen}]" if chosen.version == 6 else str(chosen)
        return Destination(parts._replace(netloc=f"{literal}:{port}").geturl(), parts.netloc, name)

    def _may_be(self, name: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        plain = getattr(address, "ipv4_mapped", None) or address
        return (
            bool({"*", name.lower()} & self._hosts)
            or (plain.is_global and not plain.is_multicast)
            or (self._loopback and plain.is_loopback)
        )
