"""`McpSignIns`: users sign in with MCP servers from the page, and their conversations use the tokens."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict

from agent_core.destinations import DestinationError, Destinations, is_loopback
from agent_core.errors import DrydockError
from agent_core.mcp.config import McpServer
from agent_core.mcp.grants import PendingSignIn, ServerSignIn, sign_in_id
from agent_core.mcp.oauth import SignInError
from agent_core.mcp.sign_in import SignIns
from server.db.database import Database
from server.settings.mcp_config import McpConfig, agent_servers, read_config
from server.settings.settings import Settings
from server.settings.text_fields import shown_address

logger = logging.getLogger(__name__)

CALLBACK: Final = "/oauth/callback"
"""Where browsers come back to. It asks for no access token: who comes is known by what the beginning left with it."""

CLIENT_DOCUMENT: Final = "/oauth/client.json"
"""Where this server describes itself to servers of tokens."""

ADVICE: Final = "there is a button for that here, and one in the settings"
SignInState = Literal["signed_in", "wanted", "unknown"]


class SignInUnknownError(DrydockError):
    """No MCP server of this user is known by that id."""


class SignInEntry(NamedTuple):
    """A sign-in as its user sees it; `server` is without what may be secret in an address."""

    id: str
    server: str
    state: SignInState
    scope: str | None = None


class Beginning(NamedTuple):
    """What a browser is to open, and what it keeps until it comes back."""

    url: str
    cookie_name: str
    cookie: str


class Ending(NamedTuple):
    """What came of it: to whom it matters, the conversation that it was begun in, and what went wrong."""

    user_id: str
    conversation_id: str | None
    problem: str = ""


class _Begun(BaseModel):
    """What is kept between the two."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    pending: str
    cookie_digest: str
    conversation_id: str | None


class McpSignIns:
    """The sign-ins of all users. `hide` is told tokens, which the process's log must not show."""

    def __init__(self, database: Database, settings: Settings, *, hide: Callable[[Iterable[str]], None]) -> None:
        self._database = database
        self._own_servers = settings.mcp_config
        self._hosts = settings.mcp_oauth_hosts
        self._loopback = is_loopback(settings.host)
        self._log = _LogListener(hide)
        self._by_user: WeakValueDictionary[str, SignIns] = WeakValueDictionary()

    def of(self, user_id: str) -> SignIns:
        """Those of a user: one object for all who use them at the same time."""
        found = self._by_user.get(user_id)
        if found is None:
            store = _UserStore(self._database, user_id)
            found = SignIns(store, advice=ADVICE, hosts=self._hosts, loopback=self._loopback)
            found.listeners.add(self._log)
            self._by_user[user_id] = found
        return found

    async def entries(self, user_id: str) -> list[SignInEntry]:
        """The user's servers where one may sign in, and others where they have, or were to."""
        servers = await self._configured(user_id)
        known = {sign_in_id(one.server): one for one in await self._database.mcp_sign_ins.all(user_id)}
        found = [_entry(name, server.url or "", known.get(name)) for name, server in servers.items()]
        return found + [_entry(name, one.server, one) for name, one in known.items() if name not in servers]

    async def begin(self, user_id: str, name: str, *, base: str, conversation_id: str | None = None) -> Beginning:
        """Begin a sign-in that leads back to this address of the server.

        Raises `SignInUnknownError`, or `SignInError` where it cannot begin.
        """
        server = (await self._configured(user_id)).get(name) or await self._met(user_id, name)
        if server is None:
            raise SignInUnknownError("there is no such MCP server among yours; see GET /api/mcp-sign-ins")
        parts = urlsplit(base)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise SignInError(f"it does not lead back to {base}, which is not encrypted; open this page over https")
        pending = await self.of(user_id).begin(
            server, redirect_uri=base + CALLBACK, document_url=await self._document_url(base)
        )
        cookie = secrets.token_urlsafe(32)
        begun = _Begun(pending=pending.to_text(), cookie_digest=_digest(cookie), conversation_id=conversation_id)
        await self._database.mcp_sign_ins.begin(
            ServerSignIn(server=pending.server, is_wanted=True),
            pending.state.get_secret_value(),
            begun.model_dump_json(),
            user_id,
        )
        return Beginning(pending.url, cookie_name(name), cookie)

    async def finish(
        self, answer: Mapping[str, str], *, cookies: Mapping[str, str], user_id: str | None
    ) -> Ending | None:
        """Go on with what a browser came back with; None where nothing was begun that is for it.

        It shows that it is of the user who began (`user_id`) or, where it shows no user, has the cookie that it was
        given then. It counts once.
        """
        state = answer.get("state", "")
        found = await self._database.mcp_sign_ins.begun(state) if state else None
        if found is None:
            return None
        begun = _Begun.model_validate_json(found.pending)
        shown = cookies.get(cookie_name(found.id), "")
        has_begun = hmac.compare_digest(_digest(shown), begun.cookie_digest)
        if not (has_begun if user_id is None else user_id == found.user_id):
            return None
        if not await self._database.mcp_sign_ins.take(state):
            return None
        pending = PendingSignIn.model_validate_json(begun.pending)
        try:
            await self.of(found.user_id).finish(pending, dict(answer))
        except SignInError as error:
            where = shown_address(pending.server)
            logger.warning("the sign-in of user %r at %s did not succeed: %s", found.user_id, where, error)
            return Ending(found.user_id, begun.conversation_id, f"The sign-in at {where} did not succeed: {error}.")
        return Ending(found.user_id, begun.conversation_id)

    async def sign_out(self, user_id: str, name: str) -> bool:
        """Forget the tokens, and with them a server that is none of the user's any more.

        Returns whether they were revoked where they came from. Raises `SignInUnknownError`, or `SignInError` where they
        are forgotten here only.
        """
        kept = await self._database.mcp_sign_ins.all(user_id)
        known = next((one for one in kept if sign_in_id(one.server) == name), None)
        is_users = name in await self._configured(user_id)
        if known is None or (known.grant is None and is_users):
            raise SignInUnknownError("you are not signed in there")
        try:
            return await self.of(user_id).sign_out(known.server)
        finally:
            if not is_users:
                await self._database.mcp_sign_ins.save(ServerSignIn(server=known.server), user_id)

    async def _configured(self, user_id: str) -> dict[str, McpServer]:
        user = await self._database.settings.get(user_id)
        users = read_config(user.mcp_config) if user is not None else McpConfig()
        servers = agent_servers(self._own_servers, users).servers.values()
        return {sign_in_id(one.url): one for one in servers if one.url is not None and one.may_sign_in}

    async def _met(self, user_id: str, name: str) -> McpServer | None:
        """A server that a conversation of the user has met: configured there, or with references in its address."""
        known = await self._database.mcp_sign_ins.all(user_id)
        return next((McpServer(url=one.server) for one in known if sign_in_id(one.server) == name), None)

    async def _document_url(self, base: str) -> str | None:
        """Where servers of tokens can read who we are; None where only some can reach this server."""
        if not base.startswith("https://"):
            return None
        try:
            await Destinations().find(base)
        except DestinationError:
            return None
        return base + CLIENT_DOCUMENT


class _UserStore:
    """A `SignInStore`."""

    def __init__(self, database: Database, user_id: str) -> None:
        self._repository = database.mcp_sign_ins
        self._user_id = user_id

    async def load(self, server: str) -> ServerSignIn | None:
        return await self._repository.get(server, self._user_id)

    async def save(self, sign_in: ServerSignIn) -> None:
        await self._repository.save(sign_in, self._user_id)

    def alone(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()  # no other server has this database


class _LogListener:
    """A `SignInListener`."""

    def __init__(self, hide: Callable[[Iterable[str]], None]) -> None:
        self.hide = hide

    def signed_in(self, server: str) -> None:
        pass


def cookie_name(name: str) -> str:
    """Of the cookie that says that a browser began the sign-in of this id."""
    return f"drydock_oauth_{name[:16]}"


def _entry(name: str, server: str, known: ServerSignIn | None) -> SignInEntry:
    state: SignInState = "unknown"
    if known is not None:
        state = "wanted" if known.is_wanted else "signed_in"
    grant = known.grant if known is not None else None
    return SignInEntry(name, shown_address(server), state, grant.scope if grant is not None else None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
