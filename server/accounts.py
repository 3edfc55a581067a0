"""Accounts: who asks, where users have names, passwords and tokens of their own (`users = "accounts"`)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, Self

from agent_core.errors import EventStoreError
from server.auth.audit import Actor, Means
from server.auth.doorkeeper import Doorkeeper, NotLetIn
from server.auth.identity import COOKIE_PREFIX, Identity, Role, presented_token, token_matches
from server.auth.names import look_of
from server.auth.passwords import Passwords, check_password
from server.db.database import Database
from server.db.repositories.credentials import CONFIGURED, OF_PROXY, SIGN_IN_TIME
from server.db.repositories.users import FIRST_LINK_TIME, UserRecord
from server.single_sign_on import ProxySignIn

NOTE_SECONDS: Final = 60.0
"""When a credential was used last is known to this."""
WATCH_SECONDS: Final = 1.0
"""So soon what is open ends when what opened it counts no more."""
_MAX_NOTED: Final = 10_000

LINK_PATH: Final = "/welcome#link="
"""Where the page takes one-time links: a fragment is sent to no server and written to no log."""

logger = logging.getLogger(__name__)


class Accounts:
    """An `Authenticator` for users in the database, and how they sign in. Used within its context.

    `token`, the one of the settings, is a key of the first administrator. Each look asks the database.
    """

    required = True
    opens_addresses = True

    def __init__(self, token: str | None, *, path: str = "/", passwords: Passwords | None = None) -> None:
        self._token = token
        self._path = path
        self._passwords = passwords or Passwords()
        self._database: Database
        self._keeper: Doorkeeper
        self._cookie_name = ""
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._used: set[str] = set()
        self._watched: dict[object, tuple[Identity, Callable[[], None]]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def over(self, database: Database, keeper: Doorkeeper, *, proxy: ProxySignIn | None = None) -> Self:
        """With the users of this database; `keeper` slows down who guesses passwords, `proxy` names who asks."""
        self._database = database
        self._proxy = proxy
        self._keeper = keeper
        self._cookie_name = COOKIE_PREFIX + database.instance_id[:12]
        return self

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._run(), name="accounts")]
        return self

    async def __aexit__(self, *details: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._note_uses()

    async def first_link(self) -> str | None:
        """The page where somebody becomes the first administrator, once; None where there is one."""
        people = self._database.users
        if await people.has_administrator():
            return None
        link, _ = await people.make_link(role=Role.ADMINISTRATOR, lasts=FIRST_LINK_TIME)
        return LINK_PATH + link

    # --- who asks ---

    async def identify(self, headers: Mapping[str, str]) -> Identity | None:
        presented = presented_token(headers)
        if presented is not None:
            return await self.identify_token(presented)
        if self._proxy is not None and (person := self._proxy.person(headers)) is not None:
            user = await self._proxy.user(person)
            if user is None:
                return None
            return Identity(user.id, user.name, user.role, credential=OF_PROXY + person.subject)
        for secret in self._in(headers.get("cookie", "")):
            if (found := await self._database.credentials.by_sign_in(secret)) is not None:
                return self._noting(found)
        return None

    async def identify_token(self, token: str | None) -> Identity | None:
        if not token:
            return None
        if self._token is not None and token_matches(self._token, token):
            return await self._database.credentials.first()
        found = await self._database.credentials.by_token(token)
        return None if found is None else self._noting(found)

    def shown(self, headers: Mapping[str, str]) -> str | None:
        # A browser whose sign-in has ended guesses nothing.
        return presented_token(headers)

    # --- signing in ---

    async def sign_in(self, name: str, password: str, address: str) -> UserRecord | NotLetIn:
        """The user of this name and password; whatever else is wrong is answered alike, and takes as long."""
        look = look_of(name[:_MAX_NOTED])
        if (refusal := self._keeper.try_password(look, address)) is not None:
            return refusal
        user = await self._database.users.named(name[:_MAX_NOTED])
        is_right = await self._passwords.matches(password, None if user is None else user.password)
        if user is None or user.password is None or not is_right or user.disabled:
            self._keeper.wrong_password(address)
            return NotLetIn(was_shown=True)
        self._keeper.was_right(look, address)
        if self._passwords.is_outdated(user.password):
            await self._database.users.renew_hash(user, await self._passwords.hash(password))
        return user

    async def begin(
        self, user: UserRecord, *, address: str, browser: str, is_safe: bool, lasts: timedelta = SIGN_IN_TIME
    ) -> str:
        """Sign the browser in; returns the ``Set-Cookie`` value by which it is known. `is_safe`: over TLS."""
        actor = Actor(user.id, user.name, Means.SESSION, address)
        async with self._database.audit.beside("sign_in.begun", ("user", user.name), actor=actor):
            secret = await self._database.credentials.begin(user.id, address=address, browser=browser, lasts=lasts)
        return self._cookie(secret, int(lasts.total_seconds()), is_safe=is_safe)

    def forgotten(self, *, is_safe: bool) -> str:
        """The ``Set-Cookie`` value that has a browser forget its sign-in."""
        return self._cookie("", 0, is_safe=is_safe)

    async def hash(self, password: str, name: str) -> str:
        """What is kept of a new password; `PasswordRefusedError`."""
        check_password(password, name)
        return await self._passwords.hash(password)

    # --- what stays open ---

    async def is_active(self, user_id: str) -> bool:
        """Whether the user is let in; asked for what was handed out to them, such as links to previews."""
        user = await self._database.users.get(user_id)
        return user is not None and not user.disabled

    def watch(self, identity: Identity, end: Callable[[], None]) -> Callable[[], None]:
        """Have `end` called, once, when the identity is not what it was; call what is returned to have that over."""
        if identity.is_guest:  # whose links are looked at where they open something
            return lambda: None
        key = object()
        self._watched[key] = (identity, end)
        return lambda: self._watched.pop(key, None) and None

    async def _run(self) -> None:
        noted = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._look()
                if time.monotonic() - noted >= NOTE_SECONDS:
                    noted = time.monotonic()
                    await self._note_uses()
            except EventStoreError as error:
                logger.warning("whether sign-ins still count could not be looked up: %s", error)
            except Exception:
                logger.exception("the look whether sign-ins still count failed")

    async def _look(self) -> None:
        if not self._watched:
            return
        still = await self._database.credentials.still({identity.credential for identity, _ in self._watched.values()})
        for key, (identity, end) in list(self._watched.items()):
            if still.get(identity.credential) != identity and self._watched.pop(key, None) is not None:
                end()

    def _noting(self, identity: Identity) -> Identity:
        """Note, soon and not each time, that the credential was used."""
        now, last = time.monotonic(), self._noted.get(identity.credential)
        if last is None or now - last >= NOTE_SECONDS:
            self._noted[identity.credential] = now
            self._noted.move_to_end(identity.credential)
            if len(self._noted) > _MAX_NOTED:
                self._noted.popitem(last=False)
            if len(self._used) < _MAX_NOTED:
                self._used.add(identity.credential)
        return identity

    async def _note_uses(self) -> None:
        used, self._used = self._used - {CONFIGURED}, set()
        if not used:
            return
        try:
            await self._database.credentials.note_use(used)
        except EventStoreError as error:
            logger.warning("when tokens and sign-ins were used last could not be noted: %s", error)

    def _in(self, header: str) -> list[str]:
        pairs = (part.strip().partition("=") for part in header.split(";"))
        return [value for name, _, value in pairs if name == self._cookie_name and value][:4]

    def _cookie(self, value: str, seconds: int, *, is_safe: bool) -> str:
        secure = "; Secure" if is_safe else ""
        name, path = self._cookie_name, self._path
        return f"{name}={value}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"
