"""`SharedQueue`: this server's part of the one queue of all servers over a database."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from agent_core.errors import DrydockError
from server.db.repositories.leases import Lease, LeaseRepository
from server.db.repositories.turns import SharedTurn, TurnRepository, read_turn
from server.session.run_queue import LOOK_SECONDS, RunQueue

AGAIN_SECONDS: Final = 0.5
"""After so long it is tried again, where the database did not take it."""
READINGS: Final = 3
"""So often the database's clock is read."""
BUSY_SECONDS: Final = 0.005
"""So long it waits, more or less, while another server is at it."""

logger = logging.getLogger(__name__)


class SharedQueue:
    """Settles with the other servers who may begin, so that limits and order hold for all of them together.

    Each lets in only conversations of its own, and only while no other does so: what they have then is stored in the
    same transaction. What a server has that is gone does not count; who takes its conversations over waits for their
    turns anew, at the places that they had. `notify` tells the others what comes to their `heard`.
    """

    def __init__(
        self,
        queue: RunQueue,
        turns: TurnRepository,
        *,
        server_id: Callable[[], str],
        notify: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._queue = queue
        self._turns = turns
        self._server_id = server_id
        self._notify = notify
        self._told: dict[str, SharedTurn | None] = {}
        """What is stored of each conversation here; a `SharedTurn` without a conversation: that is not known."""
        self._told_as = ""
        self._news = asyncio.Event()
        self._wanted: asyncio.Queue[bool] = asyncio.Queue(1)

    async def begin(self, leases: LeaseRepository) -> None:
        """Have the queue shared, before anybody is in it."""
        readings = []
        for _ in range(READINGS):
            before = time.monotonic()
            now = await leases.now()
            readings.append((time.monotonic() - before, now, before))
        seconds, now, before = min(readings)  # the one that is known best
        self._queue.share(self._news.set, self._ask_for_room, _numbers(now, before + seconds / 2))

    def see(self, others: Iterable[Lease]) -> None:
        """Know these leases of the other servers."""
        self._queue.see([read_turn(one.conversation_id, one.owner, one.turn) for one in others if one.turn is not None])

    def heard(self, message: Mapping[str, Any]) -> None:
        """Another server has changed something, or needs room."""
        match message:
            case {"room": str(server), "to_work": bool(to_work)}:
                if server == self._server_id() and self._wanted.empty():
                    self._wanted.put_nowait(to_work)
            case _ if self._queue.waits:
                self._news.set()

    def forget(self, conversation_ids: Collection[str]) -> None:
        """Their leases were given back."""
        for one in conversation_ids:
            self._told.pop(one, None)

    async def run(self) -> None:
        """Settle whenever something has changed, and from time to time while somebody waits; until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if self._queue.waits else None):
                    await self._news.wait()
            self._news.clear()
            began = time.monotonic()
            try:
                if not await self._settle():
                    self._news.set()
                    await asyncio.sleep(BUSY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
                await asyncio.sleep(time.monotonic() - began)  # where thousands wait, all else goes between
            except DrydockError as error:
                logger.info("it cannot be settled with the other servers yet who may begin: %s", error)
                self._news.set()
                await asyncio.sleep(AGAIN_SECONDS)

    async def make_room(self) -> None:
        """Stop sandboxes here that conversations of other servers need the places of; until cancelled."""
        while True:
            await self._queue.free_for_others(to_work=await self._wanted.get())

    async def _settle(self) -> bool:
        server_id = self._server_id()
        if server_id != self._told_as:
            self._told, self._told_as = {}, server_id  # a new server has nothing
        told, now = self._told, dict[str, SharedTurn]()

        def decide(others: Sequence[SharedTurn]) -> dict[str, SharedTurn | None]:
            nonlocal now
            chosen = self._queue.settle(others)
            now = {**self._queue.turns(), **chosen}
            return {one: now.get(one) for one in now.keys() | told.keys() if now.get(one) != told.get(one)}

        try:
            was_alone = await self._turns.exchange(server_id, decide)
        except BaseException:
            self._told = dict.fromkeys(now.keys() | told.keys(), SharedTurn(""))
            raise
        if was_alone:
            self._queue.let_in()
            if self._queue.others_wait and any(_is_less(now.get(one), was) for one, was in told.items()):
                self._notify({"queue": "less"})
            self._told = dict(now)
        return was_alone

    def _ask_for_room(self, server_id: str, to_work: bool) -> None:
        self._notify({"queue": "full", "room": server_id, "to_work": to_work})


def _is_less(now: SharedTurn | None, before: SharedTurn | None) -> bool:
    """Whether there is something for others to have by now."""
    if before is None or now is None:
        return before is not now
    return now.works < before.works or now.has_sandbox < before.has_sandbox


def _numbers(now: int, began: float) -> Iterator[int]:
    """Moments of the database's clock, in microseconds, each later than the one before; `began` was `now`."""
    last = 0
    while True:
        last = max(last + 1, now + int((time.monotonic() - began) * 1e6))
        yield last
