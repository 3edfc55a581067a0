"""Destinations of requests that are made for others: a server that sends them must not reach what only it can reach."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx

MAX_ADDRESSES: Final = 4
"""So many of a name's addresses are tried."""

PORTS: Final = {"http": 80, "https": 443}
_MAX_CONNECTIONS: Final = 20
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that was ever given out of the IPv6 addresses that everybody can reach."""

_SPECIAL: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
        *("2001::/23", "2001:db8::/32", "3fff::/20"),
        "168.63.129.16/32",
    )
)
"""Protocols, tunnels, benchmarks, groups, examples, and where a cloud serves its machines: Python's releases differ in
what they know of these."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class DestinationError(Exception):
    """A request may not be sent there; the message says why. `not_public`: the host is there, but not for everybody."""

    def __init__(self, message: str, *, not_public: bool = False) -> None:
        super().__init__(message)
        self.not_public = not_public


@dataclass(frozen=True, slots=True)
class Destination:
    """An address that was looked up: `url` has it in place of the host, so that nobody can change where the name leads.

    `host` is the header ``Host``; `name` is what the server's certificate has to be for.
    """

    url: str
    host: str
    name: str


class Destinations:
    """Decides by the addresses that a name has at the moment: public ones always, others where they are allowed."""

    def __init__(self, *, hosts: Collection[str] = (), loopback: bool = False) -> None:
        """``hosts`` may have any address (``*``: all may); ``loopback``: this machine may be asked."""
        self._hosts = {host.lower() for host in hosts}
        self._loopback = loopback

    async def find(self, url: str) -> list[Destination]:
        """Where requests for this address may go, the best place first; raises `DestinationError` for none."""
        try:
            parts = urlsplit(url)
            name = parts.hostname or ""
            port = parts.port or PORTS[parts.scheme]
        except (ValueError, KeyError):
            raise DestinationError("it is no address of HTTP") from None
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise DestinationError(
                f"the host {name} is not known: {getattr(error, 'strerror', None) or error}"
            ) from error
        addresses = list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))
        for address in addresses:
            if not self._may_be(name, address):
                raise DestinationError(f"{name} is {address}, which is no public address", not_public=True)
        host = parts.netloc.rpartition("@")[2]
        return [
            Destination(
                parts._replace(netloc=f"[{one}]:{port}" if one.version == 6 else f"{one}:{port}").geturl(), host, name
            )
            for one in addresses[:MAX_ADDRESSES]
        ]

    def _may_be(self, name: str, address: IpAddress) -> bool:
        is_loopback = (getattr(address, "ipv4_mapped", None) or address).is_loopback
        return bool({"*", name.lower()} & self._hosts) or is_public(address) or (self._loopback and is_loopback)


def is_loopback(host: str) -> bool:
    """Whether this name or address, of a URL or to bind to, says by itself that it is of this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_public(address: IpAddress) -> bool:
    """Whether everybody can reach it. What stands for an IPv4 address, and ends up there, is what that is."""
    if any(address in network for network in _SPECIAL):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global
    inner = address.ipv4_mapped or address.sixtofour
    if address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return is_public(inner) if inner is not None else address.is_global and address in _UNICAST


class DirectClient:
    """Asks the very addresses that were looked up. Close it in the end.

    It follows no redirect, knows no proxy and keeps no connection: each was looked up, and encrypted, for one name.
    """

    def __init__(self, destinations: Destinations, limit_seconds: float) -> None:
        self._destinations = destinations
        self._limit_seconds = limit_seconds
        self._client: httpx.AsyncClient | None = None

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes = b""
    ) -> AsyncIterator[httpx.Response]:
        """The unread answer of the first place that connects; raises `DestinationError` or ``httpx.HTTPError``."""
        import httpx  # a fifth of a second that who sends nothing need not spend

        places = await self._destinations.find(url)
        if self._client is None:
            made = await asyncio.to_thread(_new_client, self._limit_seconds)  # beside the loop: it reads certificates
            self._client = self._client or made
        timeout = httpx.Timeout(self._limit_seconds, connect=self._limit_seconds / len(places))
        for number, place in enumerate(places, 1):
            request = self._client.build_request(
                method,
                place.url,
                content=content,
                headers={"Host": place.host, **headers},
                timeout=timeout,
                extensions={"sni_hostname": place.name},
            )
            try:
                response = await self._client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if number == len(places):
                    raise
            else:
                break
        try:
            yield response
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _new_client(limit_seconds: float) -> httpx.AsyncClient:
    import httpx

    return httpx.AsyncClient(
        timeout=limit_seconds,
        limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=0),
        follow_redirects=False,
        trust_env=False,
    )
