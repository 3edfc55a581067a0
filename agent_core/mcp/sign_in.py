"""The sign-ins of one user: tokens for each server of tools that wants some, kept, renewed and shown to that server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from agent_core.errors import DrydockError
from agent_core.mcp.config import McpServer
from agent_core.mcp.grants import Challenge, Grant, PendingSignIn, ServerSignIn, canonical, challenge_of
from agent_core.mcp.oauth import OAuthClient, SignInError, SignInOverError, shown

if TYPE_CHECKING:
    from httpx2 import Auth

logger = logging.getLogger(__name__)

EARLY_SECONDS: Final = 30.0
"""A token is renewed so long before it is over."""


class SignInStore(Protocol):
    """Keeps one user's `ServerSignIn`s, by the `canonical` addresses of servers. May raise `DrydockError`."""

    async def load(self, server: str) -> ServerSignIn | None: ...

    async def save(self, sign_in: ServerSignIn) -> None: ...

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Keeps other programs that use this store from changing it meanwhile."""


class SignInListener(Protocol):
    """Told of what happens to a user's sign-ins."""

    def signed_in(self, server: str) -> None:
        """There are tokens for a server now."""

    def hide(self, values: Iterable[str]) -> None:
        """These are tokens."""


class SignIns:
    """One user's sign-ins, for all who use them at the same time. `advice` says where to sign in.

    `hosts` and `loopback` are those of `OAuthClient`. A token is renewed by one at a time: renewing often ends the old
    one. Those who wait meanwhile have what that one has got, or why it got none.
    """

    def __init__(
        self,
        store: SignInStore,
        *,
        advice: str,
        hosts: Collection[str] = (),
        loopback: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.advice = advice
        self.listeners: set[SignInListener] = set()
        self._store = store
        self._hosts = hosts
        self._loopback = loopback
        self._now = now
        self._locks: dict[str, asyncio.Lock] = {}
        self._failures: dict[str, SignInError] = {}
        self._unsaved: dict[str, ServerSignIn] = {}
        """What was renewed and could not be kept yet: what it was before is no good any more."""

    async def begin(self, server: McpServer, *, redirect_uri: str, document_url: str | None = None) -> PendingSignIn:
        """Begin to sign in; raises `SignInError`."""
        address = canonical(server.url or "")
        known = await self._store.load(address) or ServerSignIn(server=address)
        async with self._client(address) as client:
            return await client.begin(
                redirect_uri=redirect_uri,
                auth=server.auth,
                challenge=known.challenge,
                known=known.grant,
                document_url=document_url,
            )

    async def finish(self, pending: PendingSignIn, answer: dict[str, str]) -> Grant:
        """Go on with what a browser came back with; raises `SignInError`."""
        async with self._client(pending.server) as client:
            grant = await client.finish(pending, answer)
        async with self._alone(pending.server):
            self._hide(grant)
            await self._save(ServerSignIn(server=pending.server, grant=grant))
        for listener in list(self.listeners):
            listener.signed_in(pending.server)
        return grant

    async def token(self, server: str, *, refused: str | None = None) -> str | None:
        """What to show to a server: a token that lasts for a while, and is another one than `refused`; None for none.

        Raises `SignInError` where a token may be had later.
        """
        address = canonical(server)
        if address in self._unsaved:
            async with self._alone(address):
                await self._save_again(address)
        sign_in = await self._load(address)
        if sign_in is None or sign_in.grant is None:
            return None
        grant: Grant | None = sign_in.grant
        if not self._is_fresh(sign_in.grant, refused):
            try:
                grant = await self._renewed(address, refused)
            except DrydockError:
                if not self._is_fresh(sign_in.grant, refused, early_seconds=0):
                    raise  # else it lasts for a moment yet
        if grant is None:
            return None
        self._hide(grant)
        return grant.access_token.get_secret_value()

    async def wanted(self, server: str, challenge: Challenge) -> None:
        """Note what a server wants of its user, for when they sign in."""
        address = canonical(server)
        async with self._alone(address):
            known = await self._load(address) or ServerSignIn(server=address)
            if (changed := known.wanting(challenge)) != known:
                await self._save(changed)

    async def sign_out(self, server: str) -> bool:
        """Forget the tokens, here and where they came from; False where there are none, or that is not offered.

        Raises `SignInError` where they are forgotten here only.
        """
        address = canonical(server)
        async with self._alone(address):
            known = await self._load(address)
            if known is None or known.grant is None:
                return False
            await self._save(ServerSignIn(server=address, is_wanted=True))
        async with self._client(address) as client:
            return await client.revoke(known.grant)

    def auth_for(self, server: McpServer, on_refusal: Callable[[Challenge | DrydockError], None]) -> Auth:
        """What shows the tokens to this server; `on_refusal` is told what the server wants where they do not do.

        Where a token cannot be had for now, it is told why.
        """
        from httpx2 import Auth, Request, Response

        address = canonical(server.url or "")

        async def note(challenge: Challenge) -> None:
            on_refusal(challenge)
            try:
                await self.wanted(address, challenge)
            except DrydockError as error:
                logger.warning("what the MCP server %s wants was not kept: %s", shown(address), error)

        class TokenAuth(Auth):
            async def async_auth_flow(_, request: Request) -> AsyncGenerator[Request, Response]:  # noqa: N805
                try:
                    token = await self.token(address)
                    if token is not None:
                        request.headers["Authorization"] = f"Bearer {token}"
                    response = yield request
                    fresh = await self.token(address, refused=token) if response.status_code == 401 and token else None
                except DrydockError as error:
                    logger.warning("no token for the MCP server %s: %s", shown(address), error)
                    on_refusal(error)
                    yield request  # without one: what the server says of that is what the caller gets
                    return
                if fresh is not None:
                    request.headers["Authorization"] = f"Bearer {fresh}"
                    response = yield request
                if (challenge := challenge_of(response.status_code, response.headers)) is not None:
                    await note(challenge)

        return TokenAuth()

    async def _renewed(self, address: str, refused: str | None) -> Grant | None:
        """Renew the token, unless somebody else has; one that cannot be renewed is forgotten."""
        before = self._failures.get(address)
        async with self._alone(address):
            sign_in = await self._load(address)
            if sign_in is None or sign_in.grant is None or self._is_fresh(sign_in.grant, refused):
                return sign_in.grant if sign_in is not None else None
            if (failure := self._failures.get(address)) is not None and failure is not before:
                raise SignInError(str(failure))
            # Where nothing can be kept at present, the old token is not given away for one that would be lost.
            await self._save(sign_in)
            try:
                async with self._client(address) as client:
                    fresh = await client.refresh(sign_in.grant)
            except SignInOverError as error:
                now = await self._store.load(address)
                if now is not None and now.grant is not None and now.grant != sign_in.grant:
                    return now.grant  # another program was faster
                logger.warning("the sign-in with the MCP server %s is over: %s", shown(address), error)
                await self._save(sign_in.model_copy(update={"grant": None, "is_wanted": True}))
                return None
            except SignInError as error:
                self._failures[address] = error
                raise
            self._hide(fresh)
            self._unsaved[address] = sign_in.model_copy(update={"grant": fresh})
            await self._save_again(address)
            return fresh

    async def _load(self, address: str) -> ServerSignIn | None:
        return self._unsaved.get(address) or await self._store.load(address)

    async def _save(self, sign_in: ServerSignIn) -> None:
        await self._store.save(sign_in)
        self._unsaved.pop(sign_in.server, None)

    async def _save_again(self, address: str) -> None:
        """Keep what could not be kept yet; where that fails it is known here alone, for now."""
        try:
            if (unsaved := self._unsaved.get(address)) is not None:
                await self._save(unsaved)
        except DrydockError as error:
            logger.warning("the token for the MCP server %s could not be kept yet: %s", shown(address), error)

    def _is_fresh(self, grant: Grant, refused: str | None, *, early_seconds: float = EARLY_SECONDS) -> bool:
        early = early_seconds if grant.refresh_token is not None else 0.0
        is_over = grant.expires_at is not None and self._now() > grant.expires_at - early
        return not is_over and grant.access_token.get_secret_value() != refused

    def _hide(self, grant: Grant) -> None:
        for listener in list(self.listeners):
            listener.hide(grant.secrets)

    def _client(self, address: str) -> OAuthClient:
        return OAuthClient(address, hosts=self._hosts, loopback=self._loopback, now=self._now)

    @asynccontextmanager
    async def _alone(self, address: str) -> AsyncIterator[None]:
        async with self._locks.setdefault(address, asyncio.Lock()), self._store.alone():
            yield
