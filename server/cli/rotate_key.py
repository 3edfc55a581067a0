"""``drydock rotate-key``: another key for everything that is encrypted at rest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TextIO

from server.auth.secrets import SecretKeyError
from server.cli.audit import operator
from server.db.database import KEY_FILE, open_database
from server.db.engine import DatabaseSettings
from server.db.repositories.leases import LeaseRepository
from server.db.sealing_keys import Rotation
from server.db.sealing_keys import rotate_key as rotate
from server.settings.settings import Settings


def rotate_key(settings: Settings, out: TextIO) -> int:
    """Rotate the key of a server that does not run, and say what came of it; returns the exit status."""
    key_file = settings.data_dir.absolute() / KEY_FILE
    if not key_file.exists():
        raise SecretKeyError(f"there is no key file {key_file}; name the folder of the server's data with --data-dir")
    done = asyncio.run(_rotate(settings, key_file))
    out.write(f"A new key is in {key_file}; secrets that are encrypted with it: {done.sealed}.\n")
    if done.unreadable:
        out.write(f"Left as they were, since the old key could not read them: {done.unreadable}.\n")
    out.write("Keep a copy of the new key. The old one opens only copies of the database from before.\n")
    return 0


async def _rotate(settings: Settings, key_file: Path) -> Rotation:
    database_settings = DatabaseSettings(url=settings.database_url, synchronous=settings.database_synchronous)
    async with open_database(settings.data_dir, database_settings) as database:
        if there := await LeaseRepository(database.engines, database.writer).servers():
            which = ", ".join(sorted(there.values()))
            raise SecretKeyError(
                f"servers use this database, and could not read what they have stored ({which}): end all of them, "
                f"rotate the key, copy {key_file.name} into the data folder of each, and start them again"
            )
        return await rotate(database.writer, database.secrets, key_file, database.audit, operator())
