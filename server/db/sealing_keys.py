"""The key that everything is encrypted with at rest: checked at the start, and exchanged as a whole."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.event import utc_now
from server.auth.audit import SYSTEM, Actor, AuditEntry, Head
from server.auth.secrets import SEALED, SecretBox, SecretKeyError, SecretUnreadableError
from server.auth.signing import SigningKey, fingerprint_of
from server.db.blobs import sync_folder
from server.db.engine import Engines
from server.db.repositories.audit import AuditLog
from server.db.repositories.leases import NOW
from server.db.repositories.mcp_sign_ins import purpose_of_pending, purpose_of_sign_in
from server.db.repositories.user_secrets import purpose_of_secret
from server.db.repositories.user_settings import purpose_of_setting, sealed_fields
from server.db.repositories.webhooks import is_sealed_address, purpose_of_address, purpose_of_webhook
from server.db.tables import conversations, mcp_sign_ins, sealing_keys, secrets, settings, webhooks
from server.db.writer import Writer

_SUFFIX: Final = ".next"
_PAGE: Final = 1000
_log = logging.getLogger(__name__)


async def check_key(engines: Engines, writer: Writer, box: SecretBox, key_file: Path) -> None:
    """Note the key of a new database; refuse one that is not the database's own, unless it was just made.

    So a wrong key file is noticed before anything is stored under it. The `SecretKeyError` says what to do.
    """
    known = {row.key_id for row in await engines.select(select(sealing_keys.c.key_id))}
    if box.key_id in known:
        return
    if known and not box.is_new:
        raise SecretKeyError(
            f"the key file {key_file} is not the one that this database's secrets were encrypted with; restore that "
            "one from a backup, or remove this file to begin with a new key (stored secrets must then be entered again)"
        )
    if known and await others_are_there(engines):
        raise SecretKeyError(
            f"the key file {key_file} was missing, and other servers use the database: copy that file from one of them"
        )
    if known:
        _log.warning(
            "the key file %s was missing, so a new key was made: secrets that are stored cannot be read any more "
            "and count as not set; enter them again, or end the server and restore the old file",
            key_file,
        )
    row = {"key_id": box.key_id, "first_used_at": utc_now()}
    await writer.execute(insert(sealing_keys), row)


async def others_are_there(engines: Engines) -> bool:
    """Whether other servers use this database just now."""
    statement = f"SELECT 1 FROM servers WHERE expires_at > {NOW[engines.kind]}"  # noqa: S608 - our own words
    return bool(await engines.fetch(statement))


class Rotation(NamedTuple):
    """What became of the secrets: those that are under the new key, and those that the old one could not read."""

    sealed: int
    unreadable: int


async def rotate_key(
    writer: Writer, box: SecretBox, key_file: Path, audit: AuditLog, actor: Actor = SYSTEM
) -> Rotation:
    """Seal everything that `box` can read with a new key, and put that into `key_file`; what is unreadable stays.

    The audit log says who did so, and its end is signed with the new key.

    All or nothing, even if the process is killed (see `finish_rotation`). Boxes that are open keep the old key: close
    and reopen the database. Raises `SecretKeyError` or `DatabaseError`; nothing has changed then, or the error says
    that the next start finishes it.
    """
    fresh_file = next_key_file(key_file)
    fresh = SecretBox.open(fresh_file)
    key = SigningKey(fresh)
    keys = {"from": fingerprint_of(audit.key.public), "to": fingerprint_of(key.public)}

    async def apply(connection: AsyncConnection) -> tuple[Rotation, Head]:
        done = await _Resealing(box, fresh).apply(connection)
        return done, await audit.append(connection, AuditEntry("key.rotated", actor, details=keys), key=key)

    done, head = await writer.change(apply)
    audit.stored(head)
    _take(fresh_file, key_file)
    return done


async def finish_rotation(engines: Engines, box: SecretBox, key_file: Path) -> SecretBox:
    """The box to use: that of a new key which a killed rotation has sealed everything with, else `box`."""
    fresh_file = next_key_file(key_file)
    if not fresh_file.exists():
        return box
    fresh = SecretBox.open(fresh_file)
    if fresh.key_id not in {row.key_id for row in await engines.select(select(sealing_keys.c.key_id))}:
        with suppress(OSError):  # it seals nothing, and is taken by the next rotation
            fresh_file.unlink()
        return box
    _take(fresh_file, key_file)
    return fresh


class _Resealing:
    def __init__(self, box: SecretBox, fresh: SecretBox) -> None:
        self._box = box
        self._fresh = fresh
        self._sealed = self._unreadable = 0

    async def apply(self, connection: AsyncConnection) -> Rotation:
        await self._replace(connection, settings.c.document, self._document)
        await self._replace(
            connection, secrets.c.sealed, lambda user, name, sealed: self._anew(sealed, purpose_of_secret(user, name))
        )
        await self._replace(
            connection, webhooks.c.secret, lambda webhook, sealed: self._anew(sealed, purpose_of_webhook(webhook))
        )
        await self._replace(
            connection,
            webhooks.c.url,
            lambda webhook, url: self._anew(url, purpose_of_address(webhook)) if is_sealed_address(url) else url,
        )
        await self._replace(
            connection,
            mcp_sign_ins.c.sealed,
            lambda user, name, sealed: self._anew(sealed, purpose_of_sign_in(user, name)),
        )
        await self._replace(
            connection,
            mcp_sign_ins.c.pending,
            lambda user, name, sealed: sealed and self._anew(sealed, purpose_of_pending(user, name)),
        )
        await self._conversations(connection)
        await connection.execute(delete(sealing_keys).where(sealing_keys.c.key_id == self._box.key_id))
        await connection.execute(insert(sealing_keys), {"key_id": self._fresh.key_id, "first_used_at": utc_now()})
        return Rotation(self._sealed, self._unreadable)

    async def _replace(self, connection: AsyncConnection, column: Column[Any], make: Callable[..., Any]) -> None:
        """Replace the values of a column by what `make` makes of each row's key and value."""
        keys = list(column.table.primary_key)
        for *key, value in (await connection.execute(select(*keys, column))).all():
            row = update(column.table).where(*(one == part for one, part in zip(keys, key, strict=True)))
            await connection.execute(row.values({column: make(*key, value)}))

    def _document(self, user_id: str, document: dict[str, Any]) -> dict[str, Any]:
        fields = sealed_fields(document)
        return document | {name: self._anew(document[name], purpose_of_setting(user_id, name)) for name in fields}

    async def _conversations(self, connection: AsyncConnection) -> None:
        """Options that are sealed are bound to their name and the conversation."""
        columns = select(conversations.c.id, conversations.c.options).order_by(conversations.c.id).limit(_PAGE)
        last = ""
        while rows := (await connection.execute(columns.where(conversations.c.id > last))).all():
            for conversation_id, options in rows:
                anew = {
                    name: self._anew(value, f"conversation/{name}/{conversation_id}")
                    for name, value in options.items()
                    if isinstance(value, str) and value.startswith(SEALED)
                }
                if anew:
                    row = update(conversations).where(conversations.c.id == conversation_id)
                    await connection.execute(row.values(options={**options, **anew}))
            last = rows[-1].id

    def _anew(self, sealed: Any, purpose: str) -> Any:
        try:
            text = self._box.decrypt(sealed, purpose=purpose)
        except SecretUnreadableError:
            self._unreadable += 1
            return sealed
        self._sealed += 1
        return self._fresh.encrypt(text, purpose=purpose)


def next_key_file(key_file: Path) -> Path:
    """Where a new key is until it takes the place of `key_file`."""
    return key_file.with_name(key_file.name + _SUFFIX)


def _take(fresh_file: Path, key_file: Path) -> None:
    try:
        fresh_file.replace(key_file)
        sync_folder(key_file.parent)
    except OSError as error:
        raise SecretKeyError(
            f"everything is sealed with a new key, but that could not be put into its place, from {fresh_file} to"
            f" {key_file} ({error.strerror or error}): see to that disk, and start the server, which finishes it"
        ) from error
