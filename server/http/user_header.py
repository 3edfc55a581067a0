"""`UserHeader`: the header by which a proxy says who asks counts from that proxy alone, and from nobody else."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

PEER: Final = "drydock.peer"
"""Where the scope of a request has who is connected, whatever a proxy says for whom it asks."""

HIDDEN_HEADERS: Final = "drydock.hidden_headers"
"""Where it has the names of headers that no program in a sandbox is shown."""


class KnownPeer:
    """ASGI middleware before all that takes a proxy's word for whom it asks: notes who is connected."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, PEER: scope.get("client")}, receive, send)


class UserHeader:
    """ASGI middleware around the whole server. The headers `names` stay where they come once, from one of `proxies`.

    From everybody else they are taken out, as if they had not been sent, and `refused` is told why. So are those that
    differ from them by an underscore, for which some programs take them.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        names: Collection[str],
        proxies: Collection[str],
        refused: Callable[[str], object],
    ) -> None:
        self._app = app
        self._names = frozenset(name.lower().encode() for name in names)
        self._proxies = [ipaddress.ip_network(one) for one in proxies]
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            scope = {**scope, "headers": self._believed(scope), HIDDEN_HEADERS: self._names}
        await self._app(scope, receive, send)

    def _believed(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        sent = [name.lower() for name, _ in headers if name.lower().replace(b"_", b"-") in self._names]
        if not sent:
            return headers
        peer = scope.get(PEER, scope.get("client"))
        address = peer[0] if peer else "an unknown address"
        problem = ""
        if not self._is_proxy(address):
            problem = f"{address} is none of the proxies whose word counts (user_header_from)"
        elif len(set(sent)) < len(sent) or not self._names.issuperset(sent):
            problem = f"{address} sent it twice, or under another name too; have the proxy replace what clients send"
        if not problem:
            return headers
        name = sent[0].decode("latin-1")
        self._refused(f"the header {name}, which says who asks, was left out of a request: {problem}")
        return [(name, value) for name, value in headers if name.lower().replace(b"_", b"-") not in self._names]

    def _is_proxy(self, text: Any) -> bool:
        try:
            address = ipaddress.ip_address(str(text).partition("%")[0])
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._proxies)


def header_text(value: str, most: int = 255) -> str | None:
    """The text of a header as ASGI gives it, which proxies send as UTF-8; None where it can name nobody."""
    try:
        text = value.encode("latin-1").decode("utf-8").strip()
    except UnicodeError:
        return None
    return text if text.isprintable() and 0 < len(text) <= most else None
