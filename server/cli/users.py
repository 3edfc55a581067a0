"""``drydock users``: who uses a server with accounts. It works on the database, also while the server runs."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TextIO

from server.accounts import LINK_PATH
from server.auth.identity import Permission, Role
from server.auth.passwords import Passwords, check_password
from server.cli.audit import operator
from server.db.database import KEY_FILE, open_beside
from server.db.engine import DatabaseSettings
from server.db.repositories.audit import AuditLog
from server.db.repositories.credentials import CredentialRepository
from server.db.repositories.users import FIRST_LINK_TIME, UnknownUserError, UserError, UserRecord, UserRepository
from server.settings.settings import Settings

_HERE: Final = "drydock users"
"""Who makes links here; those for the first administrator alone are nobody's."""


_RECORDED: Final = {
    "list": "listed",
    "add": "added",
    "invite": "invited",
    "link": "invited",
    "reset": "reset",
    "disable": "disabled",
    "enable": "enabled",
    "role": "changed",
    "token": "token_created",
    "revoke": "token_revoked",
}
"""What the audit log calls each of them; without a change there is no record."""


def users(settings: Settings, out: TextIO, *, action: str, options: Mapping[str, Any]) -> int:
    """Do one thing, and say what came of it; returns the exit status."""
    return asyncio.run(_act(settings, out, action, options))


async def _act(settings: Settings, out: TextIO, action: str, options: Mapping[str, Any]) -> int:
    database = DatabaseSettings(url=settings.database_url, synchronous=settings.database_synchronous)
    async with open_beside(settings.data_dir, database) as (engines, writer):
        desk = _Desk(settings, out, UserRepository(engines, writer), CredentialRepository(engines, writer))
        told = {name: str(options[name]) for name in ("role", "label") if options.get(name)}
        audit = AuditLog.of(engines, writer, settings.data_dir.absolute() / KEY_FILE)
        target = ("user", options.get("name") or "")
        async with audit.beside(f"user.{_RECORDED[action]}", target, told, actor=operator(), changes_here=True):
            await getattr(desk, action)(options)
    if settings.users != "accounts":
        sys.stderr.write(
            'drydock: the server has one user, so this has no effect yet; set users = "accounts" (DRYDOCK_USERS)\n'
        )
    return 0


class _Desk:
    """A method for each action."""

    def __init__(
        self, settings: Settings, out: TextIO, people: UserRepository, credentials: CredentialRepository
    ) -> None:
        self._settings = settings
        self._out = out
        self._users = people
        self._credentials = credentials

    async def list(self, options: Mapping[str, Any]) -> None:
        found = await self._users.all()
        if not found:
            self._say("There are no users yet; `drydock users link` prints the link for the first administrator.")
            return
        width = max(len(user.name) for user in found)
        for user in found:
            self._say(f"{user.name:{width}}  {user.role:13}  {_state(user):10}  {user.email or ''}".rstrip())

    async def add(self, options: Mapping[str, Any]) -> None:
        role, name, email = Role(options["role"]), options["name"], options["email"]
        if options["password"]:
            password = await _new_password(name)
            user = await self._users.add(name, role, email=email, password=password)
            self._say(f"{user.name} was added, as {role}.")
            return
        user = await self._users.add(name, role, email=email)
        link, ends = await self._users.make_link(name=user.name, made_by=_HERE)
        self._say(f"{user.name} was added, as {role}, and chooses a password here, once:")
        self._say_link(link, ends)

    async def invite(self, options: Mapping[str, Any]) -> None:
        link, ends = await self._users.make_link(role=Role(options["role"]), made_by=_HERE)
        self._say(f"Who opens this becomes a user, as {options['role']}, once:")
        self._say_link(link, ends)

    async def link(self, options: Mapping[str, Any]) -> None:
        if await self._users.has_administrator():
            raise UserError(
                "there is an administrator already; `drydock users reset NAME` prints a link for another password"
            )
        link, ends = await self._users.make_link(role=Role.ADMINISTRATOR, lasts=FIRST_LINK_TIME)
        self._say("Who opens this becomes the first administrator:")
        self._say_link(link, ends)

    async def reset(self, options: Mapping[str, Any]) -> None:
        link, ends = await self._users.make_link(name=options["name"], made_by=_HERE)
        self._say(f"{options['name']} chooses another password here, once; the present one counts until then:")
        self._say_link(link, ends)

    async def disable(self, options: Mapping[str, Any]) -> None:
        user = await self._users.change(options["name"], disabled=True)
        self._say(f"{user.name} is let in no more; what they have stays. `drydock users enable` takes that back.")

    async def enable(self, options: Mapping[str, Any]) -> None:
        user = await self._users.change(options["name"], disabled=False)
        self._say(f"{user.name} is let in again, and has to sign in anew; tokens count again.")

    async def role(self, options: Mapping[str, Any]) -> None:
        user = await self._users.change(options["name"], role=Role(options["role"]))
        self._say(f"{user.name} is {user.role} from now on.")

    async def token(self, options: Mapping[str, Any]) -> None:
        user = await self._users.named(options["name"])
        if user is None:
            raise UnknownUserError(options["name"])
        scopes = [Permission(one) for one in options["scopes"]]
        lasts = None if options["days"] is None else timedelta(days=options["days"])
        secret, made = await self._credentials.make_token(user.id, options["label"], scopes, lasts=lasts)
        until = "until it is revoked" if made.expires_at is None else f"until {_moment(made.expires_at)}"
        sys.stderr.write(f"A token of {user.name} ({', '.join(sorted(scopes))}), {until}. It is shown this once:\n")
        self._say(secret)

    async def revoke(self, options: Mapping[str, Any]) -> None:
        user = await self._users.named(options["name"])
        if user is None:
            raise UnknownUserError(options["name"])
        named = [one for one in await self._credentials.tokens(user.id) if one.name == options["label"]]
        if not named:
            raise UserError(f"{user.name} has no token {options['label']!r}")
        for one in named:
            await self._credentials.revoke(user.id, one.id)
        self._say(f"{len(named)} of {user.name}'s tokens {'counts' if len(named) == 1 else 'count'} no more.")

    def _say_link(self, link: str, ends: datetime) -> None:
        settings = self._settings
        host = "127.0.0.1" if settings.listens_on_all else settings.host
        scheme = "http" if settings.tls_certificate is None else "https"
        self._say(
            f"  {scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}{settings.base_path}{LINK_PATH}{link}"
        )
        self._say(f"It counts until {_moment(ends)}; put the name by which others reach this server in its place.")

    def _say(self, line: str) -> None:
        self._out.write(line + "\n")


async def _new_password(name: str) -> str:
    """The hash of a password that is typed, twice, or comes by standard input."""
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Once more: ") != password:
            raise UserError("these are two different passwords; nobody was added")
    else:
        password = sys.stdin.readline().rstrip("\n")
    check_password(password, name)
    return await Passwords().hash(password)


def _state(user: UserRecord) -> str:
    if user.disabled:
        return "disabled"
    return "invited" if user.password is None else "active"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
