"""Sees that the key file is one that this database's secrets were encrypted with."""

from __future__ import annotations

import logging
from pathlib import Path

from sqlalchemy import insert, select

from agent_core.events.event import utc_now
from server.auth.secrets import SecretBox, SecretKeyError
from server.db.engine import Engines
from server.db.tables import sealing_keys
from server.db.writer import Writer

_log = logging.getLogger(__name__)


async def check_key(engines: Engines, writer: Writer, box: SecretBox, key_file: Path) -> None:
    """Note the key of a new database; one that the database does not know is refused unless it was just made.

    So a key file of another server is noticed before anything is stored under it, and before what is stored seems to
    be gone; where the file was lost there is a way to go on.

    Raises:
        SecretKeyError: it is another key than the one that was in use; the message says what to do.
        DatabaseError: the database cannot be read or written.
    """
    known = {row.key_id for row in await engines.select(select(sealing_keys.c.key_id))}
    if box.key_id in known:
        return
    if known and not box.is_new:
        raise SecretKeyError(
            f"the key file {key_file} is not the one that this database's secrets were encrypted with; restore that "
            "one from a backup, or remove this file to begin with a new key (stored secrets must then be entered again)"
        )
    if known:
        _log.warning(
            "the key file %s was missing, so a new key was made: secrets that are stored cannot be read any more "
            "and count as not set; enter them again, or end the server and restore the old file",
            key_file,
        )
    row = {"key_id": box.key_id, "first_used_at": utc_now()}
    await writer.change(lambda connection: connection.execute(insert(sealing_keys), row))
