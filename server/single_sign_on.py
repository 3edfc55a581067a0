"""Users for whom others vouch: an OpenID provider where they sign in, or a proxy that names them in a header."""

from __future__ import annotations

import hashlib
import logging
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final, NamedTuple

from pydantic import ValidationError

from agent_core.troubles import Trouble
from server.auth.audit import SYSTEM
from server.auth.identity import Role
from server.auth.names import MAX_NAME_CHARS, NameRefusedError, checked_email, checked_name
from server.auth.oidc import SIGN_IN_SECONDS, BegunAtProvider, OidcClient, OidcError, OidcProvider, Person
from server.auth.secrets import SecretBox, SecretUnreadableError
from server.db.repositories.audit import AuditLog
from server.db.repositories.identities import BY_PROXY, IdentityRepository
from server.db.repositories.users import UserError, UserRecord, UserRepository
from server.http.user_header import header_text
from server.settings.settings import Settings

_KEEP: Final = "._-+"
_FURTHER: Final = 50
_RANKS: Final = (Role.ADMINISTRATOR, Role.USER, Role.VIEWER)

_Tell = Callable[[Trouble, str], object]
"""Counts trouble, and writes its sentence to the log."""

logger = logging.getLogger(__name__)


class NotAdmittedError(OidcError):
    """The person is known to be who they say, and may not use this server."""

    status = 403


class Newcomers:
    """Decides whom the server lets in of those for whom others vouch, and as what."""

    def __init__(
        self, settings: Settings, users: UserRepository, identities: IdentityRepository, audit: AuditLog
    ) -> None:
        self._roles = {group: Role(role) for group, role in settings.group_roles.items()}
        self._default = Role(settings.default_role) if settings.default_role is not None else None
        self._creates = settings.create_users
        self._users = users
        self._identities = identities
        self._audit = audit

    async def admit(self, person: Person) -> UserRecord:
        """The user that this person is, who may be new, with the role that their groups give; `NotAdmittedError`.

        The last administrator stays one.
        """
        role = self._role(person.groups)
        if role is None:
            raise NotAdmittedError("none of your groups may use this server; ask whoever runs it (group_roles)")
        user = await self._identities.find(person.issuer, person.subject)
        if user is None:
            if not self._creates:
                raise NotAdmittedError("you have no account here, and get none by this; ask whoever runs the server")
            user = await self._add(person, role)
        if user.disabled:
            raise NotAdmittedError("your account here is disabled; ask an administrator")
        if self._roles and user.role is not role:
            details = {"role": role, "by": person.issuer}
            try:
                async with self._audit.beside("user.changed", ("user", user.name), details, actor=SYSTEM):
                    return await self._users.change(user.name, role=role)
            except UserError as error:
                logger.warning("%s keeps a role that their groups do not give: %s", user.name, error)
        return user

    def _role(self, groups: frozenset[str]) -> Role | None:
        """The highest that a group gives, else the one of everybody."""
        given = {self._roles[group] for group in groups if group in self._roles}
        return next((role for role in _RANKS if role in given), self._default)

    async def _add(self, person: Person, role: Role) -> UserRecord:
        email: str | None = None
        with suppress(NameRefusedError):
            email = checked_email(person.email)
        try:
            user = await self._identities.add(
                person.issuer, person.subject, list(dict.fromkeys(names_for(person))), role, email
            )
        except UserError as error:
            raise NotAdmittedError(str(error)) from error
        details = {"role": user.role, "by": person.issuer, "subject": person.subject}
        await self._audit.record("user.added", ("user", user.name), details, actor=SYSTEM)
        logger.info("%s is a new user, as %s, by the word of %s", user.name, user.role, person.issuer)
        return user


def names_for(person: Person) -> Iterator[str]:
    """What the person may be called here: as elsewhere, or like that, or else like nobody."""
    first = ""
    for text in person.names:
        # Of an address what is before the host: users are looked for by address, too, and this may be another one's.
        plain = unicodedata.normalize("NFKC", text).partition("@")[0]
        kept = "".join(char if char in _KEEP or unicodedata.category(char)[0] in "LMN" else " " for char in plain)
        with suppress(NameRefusedError):
            name = checked_name(".".join(kept.split())[: MAX_NAME_CHARS - 3])
            first = first or name
            yield name
    digest = hashlib.sha256(f"{person.issuer} {person.subject}".encode()).hexdigest()
    first = first or f"user-{digest[:8]}"
    yield first
    yield from (f"{first}-{number}" for number in range(2, _FURTHER))


class ProxySignIn:
    """Who asks by the word of a proxy: the headers that `server.http.user_header` has left."""

    def __init__(self, settings: Settings, newcomers: Newcomers, tell: _Tell) -> None:
        self._tell = tell
        self._header = (settings.user_header or "").lower()
        self._groups_header = (settings.user_groups_header or "").lower()
        self._newcomers = newcomers

    def person(self, headers: Mapping[str, str]) -> Person | None:
        """Whom the proxy names; None for nobody."""
        name = header_text(headers.get(self._header, "")) if self._header else None
        if name is None:
            return None
        listed = header_text(headers.get(self._groups_header, ""), 16 * 1024) if self._groups_header else None
        groups = (group.strip() for group in (listed or "").replace("|", ",").split(","))
        email = name if "@" in name else ""
        return Person(BY_PROXY, name, (name,), email, frozenset(group for group in groups if group))

    async def user(self, person: Person) -> UserRecord | None:
        """The user whom it means; None, with a line in the log, for one who is not admitted."""
        try:
            return await self._newcomers.admit(person)
        except NotAdmittedError as error:
            self._tell(Trouble.SIGN_IN_FAILED, f"{person.subject}, whom a proxy names, is not let in: {error}")
            return None


class WayToProvider(NamedTuple):
    """Where a browser is sent to sign in, and the cookie that it has to come back with."""

    url: str
    cookie_name: str
    cookie: str


class ProviderSignIn:
    """How a browser signs in at the OpenID provider of the settings. `aclose` ends its connections.

    What was begun is sealed in a cookie of that browser, so that strangers fill nothing here; each counts once.
    """

    def __init__(
        self, settings: Settings, newcomers: Newcomers, identities: IdentityRepository, box: SecretBox, tell: _Tell
    ) -> None:
        self._tell = tell
        self.lasts = timedelta(hours=settings.oidc_sign_in_hours)
        self._provider = OidcProvider(
            OidcClient(
                settings.oidc_issuer or "",
                settings.oidc_client_id or "",
                settings.oidc_client_secret,
                scope=" ".join(settings.oidc_scopes),
                groups_claim=settings.oidc_groups_claim,
                needs_groups=bool(settings.group_roles),
            )
        )
        self._newcomers = newcomers
        self._identities = identities
        self._box = box

    async def aclose(self) -> None:
        await self._provider.aclose()

    async def begin(self, redirect_uri: str, then: str) -> WayToProvider:
        """Begin; `then` is where the person wanted to be. `OidcError`."""
        with self._telling():
            url, begun = await self._provider.begin(redirect_uri, then)
        sealed = self._box.encrypt(begun.model_dump_json(), purpose=_purpose(begun.state))
        return WayToProvider(url, cookie_name(begun.state), sealed)

    async def finish(self, answer: Mapping[str, str], cookies: Mapping[str, str]) -> tuple[UserRecord, str]:
        """Who has signed in, and where they wanted to be; `OidcError`."""
        with self._telling():
            begun = self._begun(answer.get("state", ""), cookies)
            if not await self._identities.take(begun.state, timedelta(seconds=2 * SIGN_IN_SECONDS)):
                raise OidcError("this sign-in was gone on with already; sign in again")
            person = await self._provider.finish(begun, answer)
            try:
                return await self._newcomers.admit(person), begun.then
            except NotAdmittedError as error:
                name = person.names[0] if person.names else "a person"
                self._tell(Trouble.SIGN_IN_FAILED, f"{name} ({person.subject} at the provider) is not let in: {error}")
                raise

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Context that has the log tell of a sign-in that does not succeed, and why."""
        try:
            yield
        except NotAdmittedError:
            raise  # told already, with a name
        except OidcError as error:
            self._tell(Trouble.SIGN_IN_FAILED, f"a sign-in with the OpenID provider failed: {error}")
            raise

    def _begun(self, state: str, cookies: Mapping[str, str]) -> BegunAtProvider:
        try:
            text = self._box.decrypt(cookies.get(cookie_name(state), ""), purpose=_purpose(state))
            return BegunAtProvider.model_validate_json(text)
        except (SecretUnreadableError, ValidationError):
            raise OidcError(
                "this sign-in was not begun in this browser, or took too long, or cookies are not kept; sign in again"
            ) from None


def cookie_name(state: str) -> str:
    """Of the cookie that says that a browser has begun the sign-in of this state."""
    return f"drydock_oidc_{hashlib.sha256(state.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _purpose(state: str) -> str:
    return f"oidc sign-in/{hashlib.sha256(state.encode('utf-8', 'replace')).hexdigest()}"
