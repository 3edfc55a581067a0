"""`Retention`: conversations that nobody uses any more are deleted, as far as the operator's limits say so."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Self

from agent_core.errors import DrydockError
from agent_core.events.control import AgentState
from agent_core.events.store import parent_of
from agent_core.troubles import Trouble
from server.clock import careful_now
from server.conversation_manager.conversation_manager import ConversationManager, ConversationStatus
from server.db.database import Database
from server.db.engine import Engines
from server.db.event_store import log_sizes
from server.db.repositories.conversations import ConversationUse, conversations_by_use
from server.metrics import ServerMetrics
from server.session.recorder import BUSY_STATES
from server.settings.settings import MEGABYTE, Settings

MOST_AT_ONCE: Final = 50
"""Conversations that one round deletes; where there are more, the next one follows soon."""
PAUSE_SECONDS: Final = 2.0
GRACE_SECONDS: Final = 3600.0
"""What was used within this time is never deleted."""
"""Counter of what was deleted."""

_KEPT_STATES: Final = frozenset(state.value for state in BUSY_STATES | {AgentState.AWAITING_USER_CONFIRMATION})
"""Its agent works, or waits for an answer."""
_DAY: Final = 86_400.0

logger = logging.getLogger(__name__)


class RetentionLimits(NamedTuple):
    """How long, how many and how large; 0: any. Sizes are bytes of logs, their large payloads and sub-agents'."""

    days: float = 0
    user_conversations: int = 0
    user_bytes: int = 0
    bytes_in_all: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            settings.retention_days,
            settings.retention_user_conversations,
            settings.retention_user_mb * MEGABYTE,
            settings.retention_total_mb * MEGABYTE,
        )

    @property
    def need_sizes(self) -> bool:
        return bool(self.user_bytes or self.bytes_in_all)

    def __str__(self) -> str:
        parts = (
            f"unused for {self.days:g} days" if self.days else "",
            f"beyond {self.user_conversations} of a user" if self.user_conversations else "",
            f"beyond {self.user_bytes // MEGABYTE} MiB of a user" if self.user_bytes else "",
            f"beyond {self.bytes_in_all // MEGABYTE} MiB in all" if self.bytes_in_all else "",
        )
        return ", ".join(filter(None, parts))


class Doomed(NamedTuple):
    """A conversation that is to be deleted, and why."""

    id: str
    reason: str


def doomed(
    uses: Sequence[ConversationUse], sizes: Mapping[str, int], limits: RetentionLimits, now: datetime
) -> list[Doomed]:
    """What has to go, oldest use first, by the limit that it is beyond; what works or waits stays, whatever it takes.

    `uses` has all conversations, oldest use first, and `sizes` those of logs, if they count.
    """
    size = _with_sub_agents(sizes, {use.id for use in uses})
    counts = Counter(use.user_id for use in uses)
    of_users: defaultdict[str, int] = defaultdict(int)
    for use in uses:
        of_users[use.user_id] += size[use.id]
    in_all = sum(of_users.values())
    found = []
    for use in uses:
        age = (now - use.used_at).total_seconds()
        if age < GRACE_SECONDS:
            break
        if use.agent_state in _KEPT_STATES or use.waits:
            continue
        if limits.days and age > limits.days * _DAY:
            reason = f"unused for {limits.days:g} days"
        elif limits.user_conversations and counts[use.user_id] > limits.user_conversations:
            reason = f"beyond {limits.user_conversations} of a user"
        elif limits.user_bytes and of_users[use.user_id] > limits.user_bytes:
            reason = f"beyond {limits.user_bytes // MEGABYTE} MiB of a user"
        elif limits.bytes_in_all and in_all > limits.bytes_in_all:
            reason = f"beyond {limits.bytes_in_all // MEGABYTE} MiB in all"
        else:
            continue
        counts[use.user_id] -= 1
        of_users[use.user_id] -= size[use.id]
        in_all -= size[use.id]
        found.append(Doomed(use.id, reason))
    return found


async def find_doomed(engines: Engines, limits: RetentionLimits) -> list[Doomed]:
    """What would be deleted now, as far as the database knows; raises `DatabaseError`."""
    uses = await conversations_by_use(engines)
    sizes = await log_sizes(engines) if limits.need_sizes else {}
    return await asyncio.to_thread(doomed, uses, sizes, limits, careful_now())


class Retention:
    """Deletes, round by round, what is beyond the limits; an async context manager. Without limits it does nothing.

    What has a session or a client is passed over. A round that is killed is taken up by the next one: a conversation
    is in the list until its last row is gone.
    """

    def __init__(
        self, settings: Settings, database: Database, manager: ConversationManager, metrics: ServerMetrics
    ) -> None:
        self._limits = RetentionLimits.of(settings)
        self._interval = settings.retention_interval_seconds
        self._database = database
        self._manager = manager
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if any(self._limits):
            self._task = asyncio.create_task(self._run(), name="retention")
        return self

    async def __aexit__(self, *_exception: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            has_more = False
            try:
                has_more = await self._round()
            except DrydockError as error:
                self._metrics.trouble(Trouble.RETENTION_FAILED, f"old conversations could not be deleted: {error}")
            except Exception:
                logger.exception("old conversations could not be deleted; the next round tries again")
            await asyncio.sleep(PAUSE_SECONDS if has_more else self._interval)

    async def _round(self) -> bool:
        """Delete the first of what has to go; returns whether there is more."""
        reasons = Counter[str]()
        in_use = 0
        await self._database.conversations.flush()  # of what was used just now
        found = await find_doomed(self._database.engines, self._limits)
        for one in found:
            if reasons.total() == MOST_AT_ONCE:
                break
            if self._is_used(one.id):
                in_use += 1
            elif await self._manager.delete(one.id, unless_used=True):
                reasons[one.reason] += 1
                self._metrics.count(Trouble.RETENTION_REMOVED)
        if reasons:
            why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
            kept = f"; {in_use} that are in use stay" if in_use else ""
            logger.info("deleted %d conversations: %s%s", reasons.total(), why, kept)
        return len(found) > reasons.total() + in_use and bool(reasons)

    def _is_used(self, conversation_id: str) -> bool:
        live = self._manager.live(conversation_id)
        return live.status is not ConversationStatus.STOPPED or bool(live.num_connections)


def _with_sub_agents(sizes: Mapping[str, int], conversations: Iterable[str]) -> defaultdict[str, int]:
    """The sizes of conversations, with those of the logs below them."""
    known = frozenset(conversations)
    found: defaultdict[str, int] = defaultdict(int)
    for log, size in sizes.items():
        owner: str | None = log
        while owner is not None and owner not in known:
            owner = parent_of(owner)
        if owner is not None:
            found[owner] += size
    return found
