"""`Notices`: short messages among the servers of one PostgreSQL, which may be lost, and which nobody waits for."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.pool import NullPool

from server.db.engine import Engines
from server.db.errors import explain, is_database_failure

CHANNEL: Final = "drydock"
MAX_BYTES: Final = 7_900
"""PostgreSQL takes fewer than 8,000."""
MAX_WAITING: Final = 10_000
AGAIN_SECONDS: Final = 1.0

_SEND: Final = text("SELECT pg_notify(:channel, :message)")
_log = logging.getLogger(__name__)


async def notify(connection: AsyncConnection, message: Mapping[str, Any]) -> None:
    """Send it when this connection's transaction is committed, where the database has such a thing."""
    if connection.dialect.name == "postgresql":
        await connection.execute(_SEND, {"channel": CHANNEL, "message": _line_of(message)})


class Notices:
    """Sends and hears them over one connection of its own (``LISTEN``), an async context manager.

    `heard` gets each message, the own ones too, on the event loop; `connected` is called whenever some may have been
    missed. With a database that has no such thing nothing is sent or heard: whoever uses it looks from time to time.
    """

    def __init__(
        self, engines: Engines, *, heard: Callable[[Mapping[str, Any]], None], connected: Callable[[], None]
    ) -> None:
        self._engines = engines
        self._heard = heard
        self._connected = connected
        self._waiting: deque[str] = deque(maxlen=MAX_WAITING)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def are_there(self) -> bool:
        """Whether this database has them."""
        return self._engines.another is not None

    async def __aenter__(self) -> Self:
        if self.are_there:
            self._task = asyncio.create_task(self._run(), name="notices")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send it soon; False: it is too long, or there are none."""
        line = _line_of(message)
        if not self.are_there or len(line.encode("utf-8", "replace")) > MAX_BYTES or "\0" in line:
            return False
        self._waiting.append(line)
        self._wake.set()
        return True

    async def _run(self) -> None:
        if (another := self._engines.another) is None:
            return
        engine = another(poolclass=NullPool, isolation_level="AUTOCOMMIT")
        while True:
            try:
                async with engine.connect() as connection:
                    await self._serve(connection)
            except Exception as error:
                if not is_database_failure(error):
                    raise
                _log.info("messages of other servers are not heard for now: %s", explain(error))
            await asyncio.sleep(AGAIN_SECONDS)

    async def _serve(self, connection: AsyncConnection) -> None:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        driver.add_termination_listener(lambda _: self._wake.set())
        await driver.add_listener(CHANNEL, self._hear)
        self._connected()
        while not driver.is_closed():
            self._wake.clear()
            while self._waiting:
                await connection.execute(_SEND, {"channel": CHANNEL, "message": self._waiting[0]})
                self._waiting.popleft()
            await self._wake.wait()

    def _hear(self, connection: object, process: int, channel: str, payload: str) -> None:
        with suppress(ValueError):
            message = json.loads(payload)
            if isinstance(message, dict):
                self._heard(message)


def _line_of(message: Mapping[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)
