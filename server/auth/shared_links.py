"""Links that open one conversation to whoever has them: their tokens, by cookie or in the place of an access token."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from server.auth.identity import GUEST, Authenticator, Identity, presented_token

LINK_PREFIX: Final = "share_"
"""What the token of a link begins with."""

LINK_COOKIE: Final = "drydock_share_"
"""How a cookie's name begins; the rest tells links apart, so that a browser may have several."""

NOTHING_ELSE: Final = "A link opens one conversation, and nothing else of this server."
"""What somebody is told who has nothing but links, and asks for something else."""

MAX_LINKS: Final = 20
"""So many of a request are looked at."""


class SharedLink(Protocol):
    """A share that a link gives."""

    @property
    def id(self) -> str: ...


class LinkAuthenticator:
    """An `Authenticator` that also knows links: with them one is whoever one is, else a guest, and has `links`.

    `find` gives the shares of tokens that have not ended.
    """

    def __init__(
        self, inner: Authenticator, find: Callable[[Collection[str]], Awaitable[Sequence[SharedLink]]]
    ) -> None:
        self._inner = inner
        self._find = find

    @property
    def required(self) -> bool:
        return self._inner.required

    @property
    def opens_addresses(self) -> bool:
        return self._inner.opens_addresses

    async def identify(self, headers: Mapping[str, str]) -> Identity | None:
        token = presented_token(headers)
        if token is not None and token.startswith(LINK_PREFIX):
            return await self._with_links(None, [token])
        identity, tokens = await self._inner.identify(headers), _tokens_in(headers.get("cookie", ""))
        return await self._with_links(identity, tokens) if tokens else identity

    async def identify_token(self, token: str | None) -> Identity | None:
        if token is not None and token.startswith(LINK_PREFIX):
            return await self._with_links(None, [token])
        return await self._inner.identify_token(token)

    def shown(self, headers: Mapping[str, str]) -> str | None:
        return self._inner.shown(headers)

    async def _with_links(self, identity: Identity | None, tokens: Collection[str]) -> Identity | None:
        links = tuple(one.id for one in await self._find(tokens))
        if not links:
            return identity
        return replace(identity or Identity(GUEST + links[0]), links=links)


def link_cookie(token: str, *, seconds: int, path: str, is_safe: bool) -> str:
    """The ``Set-Cookie`` value that lets a browser in with a link; `is_safe`: over TLS."""
    secure = "; Secure" if is_safe else ""
    name = LINK_COOKIE + hashlib.sha256(token.encode()).hexdigest()[:12]
    return f"{name}={token}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"


def _tokens_in(header: str) -> list[str]:
    if LINK_COOKIE not in header:
        return []
    pairs = (part.strip().partition("=") for part in header.split(";"))
    found = [value for name, _, value in pairs if name.startswith(LINK_COOKIE) and value.startswith(LINK_PREFIX)]
    return found[:MAX_LINKS]
