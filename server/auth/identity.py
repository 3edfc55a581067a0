"""`Authenticator`: whose request this is, in the one-token mode by a shared token or the cookie that stands for it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, Protocol, cast

from server.errors import ConfigurationError
from server.settings.settings import Settings
from server.settings.text_fields import AUTO_TOKEN, MIN_TOKEN_LENGTH, SHORT_TOKEN

TOKEN_HEADER = "x-session-api-key"  # noqa: S105 - the name of a header
TOKEN_FILE = "token"  # noqa: S105 - the name of a file
_BEARER = "bearer "
SESSION_SECONDS: Final = 30 * 24 * 3600

COOKIE_PREFIX: Final = "drydock_page_"
"""How the cookie's name begins; the rest tells servers on one host apart, to which a browser sends each other's."""


IDENTITY: Final = "drydock.identity"
"""Where the scope of a request that was let in says whose it is."""


FIRST: Final = ""
"""The id of a server's only user and, with accounts, of its first administrator: what was there stays theirs."""


class Role(StrEnum):
    """What a user is on this server."""

    ADMINISTRATOR = "administrator"
    USER = "user"
    VIEWER = "viewer"


class Permission(StrEnum):
    """What a token is good for, of what its user may do: to read, to change what is the user's, to administer."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


ALL_SCOPES: Final = frozenset(Permission)
_OF_ROLES: Final = {
    Role.ADMINISTRATOR: ALL_SCOPES,
    Role.USER: frozenset({Permission.READ, Permission.WRITE}),
    Role.VIEWER: frozenset({Permission.READ}),
}

_DOES: Final = {
    Permission.READ: "read anything",
    Permission.WRITE: "change anything",
    Permission.ADMIN: "administer this server",
}
_BY_ID: Final = cast(Role, "")


GUEST: Final = "guest:"
"""How the `user_id` of somebody begins who is no user, but has a link to a conversation."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, and by what they are known here: `scopes` are those of the token that was shown, all for a sign-in.

    Unless something else is said, the `FIRST` one administers the server and all others use it. `credential` names the
    token or the sign-in in the database; "" where there is none. `links` names the shares to which links were shown.
    """

    user_id: str = FIRST
    name: str = ""
    role: Role = _BY_ID
    scopes: frozenset[Permission] = ALL_SCOPES
    credential: str = ""
    links: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.role:
            object.__setattr__(self, "role", Role.ADMINISTRATOR if self.user_id == FIRST else Role.USER)

    @property
    def is_guest(self) -> bool:
        return self.user_id.startswith(GUEST)

    def may(self, permission: Permission) -> bool:
        """Whether both the user's role and what was shown allow it."""
        return permission in self.scopes and permission in _OF_ROLES[self.role]


def refused_permission(identity: Identity, permission: Permission) -> str | None:
    """Why this is not this identity's to do; None where it is."""
    if identity.may(permission):
        return None
    if permission not in identity.scopes:
        return f"This token may not {_DOES[permission]}: it has no scope {permission}. Show one that has it."
    return f"You may not {_DOES[permission]}: your role is {identity.role}. An administrator can change it."


Watch = Callable[[Identity, Callable[[], None]], Callable[[], None]]
"""Has the second one called, once, when the identity is not what it was; what is returned has that over."""


class Authenticator(Protocol):
    """Finds out who asks."""

    @property
    def required(self) -> bool: ...

    @property
    def opens_addresses(self) -> bool:
        """Whether a browser whose user may use the server is let in with nothing but an address."""

    async def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """The user behind an HTTP request (header names in lower case); None refuses it."""

    async def identify_token(self, token: str | None) -> Identity | None:
        """The user behind a bare token (the socket's ``session_api_key``); None refuses it."""

    def shown(self, headers: Mapping[str, str]) -> str | None:
        """What a request that was refused had shown that was wrong; None: it showed nothing."""


class OneTokenAuthenticator:
    """An `Authenticator` with one shared token (None: none). With `sessions` a browser is then known by its cookie."""

    def __init__(self, token: str | None, *, sessions: PageSessions | None = None) -> None:
        self._token = token
        self._sessions = sessions

    @property
    def required(self) -> bool:
        return self._token is not None

    @property
    def opens_addresses(self) -> bool:
        return self._token is None or self._sessions is not None

    async def identify(self, headers: Mapping[str, str]) -> Identity | None:
        presented = presented_token(headers)
        if presented is None and self._sessions is not None and self._sessions.holds(headers.get("cookie", "")):
            return Identity()
        return await self.identify_token(presented)

    async def identify_token(self, token: str | None) -> Identity | None:
        return Identity() if token_matches(self._token, token) else None

    def shown(self, headers: Mapping[str, str]) -> str | None:
        presented, cookie = presented_token(headers), headers.get("cookie", "")
        if presented is None and self._sessions is not None and self._sessions.is_forged(cookie):
            return cookie
        return presented


class OwnAuthenticator:
    """An operator's `Authenticator`, whose methods may answer at once instead of being awaited."""

    def __init__(self, own: Any) -> None:
        self._own = own

    @property
    def required(self) -> bool:
        return bool(self._own.required)

    @property
    def opens_addresses(self) -> bool:
        return bool(self._own.opens_addresses)

    async def identify(self, headers: Mapping[str, str]) -> Identity | None:
        return await _settled(self._own.identify(headers))

    async def identify_token(self, token: str | None) -> Identity | None:
        return await _settled(self._own.identify_token(token))

    def shown(self, headers: Mapping[str, str]) -> str | None:
        shown: str | None = self._own.shown(headers)
        return shown


async def _settled(answer: Identity | Awaitable[Identity | None] | None) -> Identity | None:
    return await answer if isawaitable(answer) else answer


class PageSessions:
    """Cookies of browsers that have shown the access `token` once; nothing is kept, and with another token all end.

    They are for what is below `path`.
    """

    def __init__(self, token: str, *, path: str = "/", now: Callable[[], float] = time.time) -> None:
        self._key = token.encode()
        self._path = path
        self._now = now
        self._name = COOKIE_PREFIX + self._seal("name")[:12]

    def begin(self, *, is_safe: bool) -> str:
        """The ``Set-Cookie`` value of a session of `SESSION_SECONDS`; `safe`: over TLS.

        Requests that another site causes come without it (``SameSite``), except that a link leads to a page.
        """
        ends = str(int(self._now()) + SESSION_SECONDS)
        return self._cookie(f"{ends}.{self._seal(ends)}", SESSION_SECONDS, is_safe=is_safe)

    def end(self, *, is_safe: bool) -> str:
        return self._cookie("", 0, is_safe=is_safe)

    def holds(self, header: str) -> bool:
        """Whether a ``Cookie`` header has a session that has not ended."""
        return any(self._is_sealed(value) and self._now() < int(value.partition(".")[0]) for value in self._in(header))

    def is_forged(self, header: str) -> bool:
        """Whether a ``Cookie`` header has something in a session's place that was never one."""
        return any(value and not self._is_sealed(value) for value in self._in(header))

    def _in(self, header: str) -> list[str]:
        pairs = (part.strip().partition("=") for part in header.split(";"))
        return [value for name, _, value in pairs if name == self._name]

    def _is_sealed(self, value: str) -> bool:
        ends, _, seal = value.partition(".")
        return hmac.compare_digest(seal.encode("utf-8", "surrogateescape"), self._seal(ends).encode())

    def _seal(self, text: str) -> str:
        # "ignore": what a client sends may be no text at all, and is then no end of ours either.
        return hmac.new(self._key, f"page session {text}".encode("utf-8", "ignore"), hashlib.sha256).hexdigest()

    def _cookie(self, value: str, seconds: int, *, is_safe: bool) -> str:
        secure = "; Secure" if is_safe else ""
        return f"{self._name}={value}; Path={self._path}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"


def resolve_token(settings: Settings) -> str | None:
    """The token that this server asks for, None for none; with ``auto`` one is made and kept in the data folder.

    Raises `ConfigurationError` where the kept token cannot be read or written, or is too short.
    """
    if settings.token is None:
        return None
    token = settings.token.get_secret_value()
    return _stored_token(settings.data_dir / TOKEN_FILE) if token == AUTO_TOKEN else token


def _stored_token(path: Path) -> str:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+", encoding="ascii") as file:
            token = file.read().strip()
            if not token:
                token = secrets.token_urlsafe(MIN_TOKEN_LENGTH)
                file.seek(0)
                file.write(token + "\n")
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"cannot keep the access token in {path}: {error}") from error
    if len(token) < MIN_TOKEN_LENGTH:
        raise ConfigurationError(f"the file {path}: {SHORT_TOKEN}; remove the file to have a new one made")
    return token


def presented_token(headers: Mapping[str, str]) -> str | None:
    """The token that a request's headers (names in lower case) carry, if any."""
    token = headers.get(TOKEN_HEADER)
    if token:
        return token
    authorization = headers.get("authorization", "")
    if authorization.lower().startswith(_BEARER):
        return authorization[len(_BEARER) :].strip() or None
    return None


def token_matches(expected: str | None, presented: str | None) -> bool:
    """Whether access is granted: no token is asked for, or the right one is given. Takes the same time either way."""
    if expected is None:
        return True
    return hmac.compare_digest(_digest(expected), _digest(presented or ""))


def _digest(token: str) -> bytes:
    # Of one length, so that the time that comparing takes says nothing about the token's.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
