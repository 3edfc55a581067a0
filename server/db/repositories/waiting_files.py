"""Files that wait for the first start of their conversation: in rows of a database that servers share."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from sqlalchemy import delete, insert, select

from server.db.engine import Engines
from server.db.storage_health import file_error
from server.db.tables import waiting_files
from server.db.writer import TableRepository, Writer

PIECE_BYTES: Final = 1024 * 1024


class WaitingFileRepository(TableRepository):
    """Keeps what is in a file of the data folder, in PostgreSQL alone; with SQLite the file stays where it is."""

    def __init__(self, engines: Engines, writer: Writer) -> None:
        super().__init__(engines, writer)
        self._is_shared = engines.kind == "postgresql"

    async def keep(self, conversation_id: str, file: Path) -> None:
        """Keep what is in this file, if it is there, for all servers, and remove it. Raises `EventStoreError`."""
        if not self._is_shared:
            return
        try:
            opened: BinaryIO = await asyncio.to_thread(file.open, "rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise file_error("Its files cannot be read", error) from error
        try:
            number = 0
            while data := await asyncio.to_thread(opened.read, PIECE_BYTES):
                row = {"conversation_id": conversation_id, "number": number, "data": data}
                await self._writer.execute(insert(waiting_files), row)
                number += 1
        finally:
            opened.close()
        await asyncio.to_thread(file.unlink, missing_ok=True)

    async def fetch(self, conversation_id: str, file: Path) -> Path:
        """The file with what waits: a copy of what is kept for all, or else `file`; neither need be there."""
        if not self._is_shared:
            return file
        copy, number = file.with_suffix(".copy.tar"), 0
        try:
            await asyncio.to_thread(copy.unlink, missing_ok=True)  # it may have been started elsewhere since
            while (data := await self._piece(conversation_id, number)) is not None:
                await asyncio.to_thread(_append, copy, data)
                number += 1
        except OSError as error:
            with suppress(OSError):
                await asyncio.to_thread(copy.unlink, missing_ok=True)
            raise file_error("Its files cannot be written", error) from error
        return copy if number else file

    async def forget(self, conversation_id: str) -> None:
        """They are in its workspace."""
        if self._is_shared and await self._piece(conversation_id, 0) is not None:
            await self._writer.execute(delete(waiting_files).where(waiting_files.c.conversation_id == conversation_id))

    async def _piece(self, conversation_id: str, number: int) -> bytes | None:
        same = (waiting_files.c.conversation_id == conversation_id) & (waiting_files.c.number == number)
        rows = await self._engines.select(select(waiting_files.c.data).where(same))
        return rows[0].data if rows else None


def _append(file: Path, data: bytes) -> None:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    with file.open("ab") as opened:
        opened.write(data)
