"""`Retention`: conversations that nobody uses any more are deleted, as far as the operator's limits say so."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
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
MOST_FAILURES: Final = 3
"""After so many a round ends; what could not be deleted comes last in the next one."""
LONGEST_ABSENCE: Final = 7 * 86_400.0
"""Where a server was away for longer than this, its days begin anew."""
LAST_SEEN: Final = "last-seen.json"
"""The file of the data folder that says when its server was there last."""

_KEPT_STATES: Final = frozenset(state.value for state in BUSY_STATES | {AgentState.AWAITING_USER_CONFIRMATION})
"""Its agent works, or waits for an answer."""
_DAY: Final = 86_400.0
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

_BEGINS_ANEW: Final = (
    "this server was away for long, or its clock was set meanwhile: no conversation counts as unused for longer than "
    "since this start"
)

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
    used_at: datetime


class Presence(NamedTuple):
    """When a server was there last, and since when its days count: nothing is unused for longer than that.

    Where it was away for long, or its clock has been set while it was, everything would be old when it starts.
    """

    seen_at: datetime
    since: datetime

    @classmethod
    def noted(cls, data_dir: Path) -> Self | None:
        """What the file in the data folder says; None where there is none, or none that can be read."""
        try:
            text = json.loads((data_dir / LAST_SEEN).read_text("ascii"))
            seen_at, since = (datetime.fromisoformat(text[name]) for name in cls._fields)
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return None if seen_at.tzinfo is None or since.tzinfo is None else cls(seen_at, since)

    def at(self, now: datetime, limits: RetentionLimits) -> Self:
        """What it is at a start."""
        longest = min(LONGEST_ABSENCE, max(limits.days * _DAY, _DAY)) if limits.days else LONGEST_ABSENCE
        was_away = (now - self.seen_at).total_seconds() > longest
        return type(self)(now, now if was_away else self.since).until(now)

    @property
    def began_anew(self) -> bool:
        return self.since != _LONG_AGO

    def until(self, now: datetime) -> Self:
        """What it is later on."""
        return type(self)(now, min(self.since, now))  # a clock that was ahead has been set right

    def note(self, data_dir: Path) -> None:
        """Keep it; where that fails, the next start takes the server to have been away for longer."""
        temporary = data_dir / f".{LAST_SEEN}"
        with suppress(OSError):
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
                json.dump({name: moment.isoformat() for name, moment in self._asdict().items()}, file)
            temporary.replace(data_dir / LAST_SEEN)


def presence_at_start(
    data_dir: Path, uses: Sequence[ConversationUse], limits: RetentionLimits, now: datetime
) -> Presence:
    """What counts when a server starts `now`; of one that has noted nothing its conversations say when it was there."""
    noted = Presence.noted(data_dir) or Presence(max((use.used_at for use in uses), default=now), _LONG_AGO)
    return noted.at(now, limits)


def doomed(
    uses: Sequence[ConversationUse],
    sizes: Mapping[str, int],
    limits: RetentionLimits,
    now: datetime,
    since: datetime = _LONG_AGO,
) -> list[Doomed]:
    """What has to go, oldest use first, by the limit that it is beyond; what works or waits stays, whatever it takes.

    `uses` has all conversations, oldest use first, and `sizes` those of logs, if they count. Nothing is unused for
    longer than `since`.
    """
    size = _with_sub_agents(sizes, {use.id for use in uses})
    counts = Counter(use.user_id for use in uses)
    of_users: defaultdict[str, int] = defaultdict(int)
    for use in uses:
        of_users[use.user_id] += size[use.id]
    in_all = sum(of_users.values())
    found = []
    for use in uses:
        age = (now - max(use.used_at, since)).total_seconds()
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
        found.append(Doomed(use.id, reason, use.used_at))
    return found


async def find_doomed(engines: Engines, limits: RetentionLimits, data_dir: Path) -> tuple[list[Doomed], Presence]:
    """What a start would delete now, as far as the database knows, and what counts then; raises `DatabaseError`."""
    uses, now = await conversations_by_use(engines), careful_now()
    sizes = await log_sizes(engines) if limits.need_sizes else {}
    presence = presence_at_start(data_dir, uses, limits, now)
    return doomed(uses, sizes, limits, now, presence.since), presence


class Retention:
    """Deletes, round by round, what is beyond the limits; an async context manager. Without limits it deletes nothing.

    Of several servers one does that. What has a session or a client is passed over. A round that is killed is taken up
    by the next one: a conversation is in the list until its last row is gone.
    """

    def __init__(
        self, settings: Settings, database: Database, manager: ConversationManager, metrics: ServerMetrics
    ) -> None:
        self._limits = RetentionLimits.of(settings)
        self._interval = settings.retention_interval_seconds
        self._database = database
        self._manager = manager
        self._metrics = metrics
        self._presence: Presence | None = None
        self._resisting = set[str]()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="retention")
        return self

    async def __aexit__(self, *_exception: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._note(careful_now())

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
        now, uses = careful_now(), list[ConversationUse]()
        if any(self._limits) and self._manager.does_chores:
            await self._database.conversations.flush()  # of what was used just now
            uses = await conversations_by_use(self._database.engines)
        if self._presence is None:
            self._presence = presence_at_start(self._database.data_dir, uses, self._limits, now)
            if uses and self._presence.since == now:
                logger.info(_BEGINS_ANEW)
        await self._note(now)
        sizes = await log_sizes(self._database.engines) if self._limits.need_sizes else {}
        found = await asyncio.to_thread(doomed, uses, sizes, self._limits, now, self._presence.since)
        return await self._delete(found)

    async def _note(self, now: datetime) -> None:
        if self._presence is not None:
            self._presence = self._presence.until(now)
            await asyncio.to_thread(self._presence.note, self._database.data_dir)

    async def _delete(self, found: Sequence[Doomed]) -> bool:
        reasons = Counter[str]()
        in_use = failures = 0
        for one in sorted(found, key=lambda one: one.id in self._resisting):
            if reasons.total() == MOST_AT_ONCE or failures == MOST_FAILURES:
                break
            try:
                if self._is_used(one.id) or await self._was_used_since(one):
                    in_use += 1
                elif await self._manager.delete(one.id, unless_used=True):
                    reasons[one.reason] += 1
                    self._metrics.count(Trouble.RETENTION_REMOVED)
            except DrydockError as error:
                failures += 1
                self._resisting.add(one.id)
                self._metrics.trouble(Trouble.RETENTION_FAILED, f"it is old, and could not be deleted: {error}", one.id)
        self._resisting &= {one.id for one in found}
        if reasons:
            why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
            kept = f"; {in_use} that are in use stay" if in_use else ""
            logger.info("deleted %d conversations: %s%s", reasons.total(), why, kept)
        return len(found) > reasons.total() + in_use + failures and bool(reasons)

    def _is_used(self, conversation_id: str) -> bool:
        live = self._manager.live(conversation_id)
        return live.status is not ConversationStatus.STOPPED or bool(live.num_connections)

    async def _was_used_since(self, one: Doomed) -> bool:
        """Whether somebody has come back to it and left again while others were deleted."""
        record = await self._database.conversations.get(one.id, even_damaged=True)
        return record is not None and (record.last_updated_at or record.created_at) > one.used_at


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
