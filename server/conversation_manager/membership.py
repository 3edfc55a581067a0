"""`Membership`: this server as one of several over one database; it lives as long as the database hears of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from agent_core.errors import DrydockError, SandboxError
from agent_core.troubles import Trouble
from server.conversation_manager.standalone import to_its_end
from server.db.repositories.leases import LeaseRepository
from server.metrics import ServerMetrics

RENEWALS: Final = 4
"""In the time after which a server that is not heard of counts as gone."""
AGAIN_SECONDS: Final = 0.5
COMES_BACK_SECONDS: Final = 3.0
"""So long who wants something waits for a server that was lost, and is about to begin anew."""

logger = logging.getLogger(__name__)


class Membership:
    """Registers this server, renews that, and, where it was too late, registers it anew; an async context manager.

    Before that `lost` ends what runs here, which others carry on by then: also where the database, or the way to it,
    stands still and says nothing. Meanwhile `server_id` is empty. Leaving the context gives everything back.
    """

    def __init__(
        self,
        leases: LeaseRepository,
        *,
        url: str,
        seconds: float,
        lost: Callable[[], Awaitable[None]],
        metrics: ServerMetrics,
    ) -> None:
        self.server_id = ""
        self._leases = leases
        self.url = url
        self._seconds = seconds
        self._lost = lost
        self._metrics = metrics
        self._until = 0.0
        self._registered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_there(self) -> bool:
        """Whether, as far as this server knows, no other may have taken over what it runs."""
        return _now() < self._until

    def check(self) -> None:
        """Raise `SandboxError` where another may have taken over what it runs: sandboxes are that one's to reach."""
        if not self.is_there:
            raise SandboxError(
                "The database has not heard of this server in time: another one goes on with the conversation.",
                code="lease_lost",
            )

    async def id_after(self, former: str = "") -> str:
        """The id of this server, other than that `former` one whose time is over; "": it is lost for now.

        One that was lost a moment ago may be there again in a moment.
        """
        try:
            async with asyncio.timeout(COMES_BACK_SECONDS):
                while self.server_id in ("", former):
                    self._registered.clear()
                    await self._registered.wait()
        except TimeoutError:
            return ""
        return self.server_id

    async def __aenter__(self) -> Self:
        await self._register()
        self._task = asyncio.create_task(to_its_end(self._renew, "membership"), name="membership")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            await self._leases.retire(self.server_id)
        except DrydockError as error_of_storage:
            logger.warning(
                "that this server ends could not be said; others find out by themselves: %s", error_of_storage
            )

    async def _register(self, former: str = "") -> None:
        began = _now()
        self.server_id = await self._leases.register(self.url, self._seconds, former=former)
        self._until = began + self._seconds
        self._registered.set()
        logger.info("this server is %s of those that share the database, and is asked at %s", self.server_id, self.url)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._seconds / RENEWALS)
            if await self._renewed():
                continue
            text = "the database has not heard of this server in time: what it ran is carried on by others"
            self._metrics.trouble(Trouble.LEASE_LOST, text)
            former, self.server_id = self.server_id, ""
            await self._lost()
            await self._begin_anew(former)

    async def _renewed(self) -> bool:
        """Have the database hear of this server; False: others carry on what it ran, or may from now on."""
        began = _now()
        try:
            async with asyncio.timeout(self._until - began):
                is_there = await self._leases.renew(self.server_id, self._seconds)
        except TimeoutError:
            return False
        except DrydockError as error:
            logger.warning("the database does not hear of this server for now: %s", error)
            return self.is_there
        if is_there:
            self._until = began + self._seconds
        return is_there

    async def _begin_anew(self, former: str) -> None:
        while True:
            try:
                return await self._register(former)
            except DrydockError as error:
                logger.warning("this server cannot be one of them again yet: %s", error)
            await asyncio.sleep(AGAIN_SECONDS)


def _now() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
