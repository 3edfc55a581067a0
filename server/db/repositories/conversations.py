"""Conversations: the facts about each that are kept beside its log."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from string import ascii_lowercase, ascii_uppercase
from types import NoneType
from typing import Any, Final, NamedTuple, Self, TypedDict, Unpack

from sqlalchemy import (
    Column,
    ColumnElement,
    Executable,
    Row,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import EventStoreError
from agent_core.events.event import utc_now
from agent_core.troubles import Trouble, coded
from server.db import event_rows
from server.db.blobs import BlobStore, drop_blobs
from server.db.engine import Engines
from server.db.errors import ConversationExistsError, DatabaseUnreadableError
from server.db.page_ids import NewestFirst, newest_first, page_of
from server.db.repositories.idempotency_keys import sending_scope
from server.db.tables import (
    chat_turns,
    conversations,
    feedback,
    from_microseconds,
    idempotency_keys,
    inbox,
    read_moment,
    shares,
    waiting_files,
    webhook_positions,
    webhooks,
)
from server.db.writer import TableRepository, Writer

MAX_ID_LENGTH = 100
Changes = dict[str, Any]
_KEY = "touched_id"
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRecord:
    """The stored facts about one conversation. `agent_state` is the last recorded one; the log is the truth.

    `sandbox` is the small state from which its sandbox is found again; `options` what else the creator asked for.
    `waiting_number` is its place among those that wait for their turn; None where it has not had to wait.
    """

    id: str
    user_id: str = ""
    title: str | None = None
    created_at: datetime = field(default_factory=utc_now)
    last_updated_at: datetime | None = None
    agent_state: str | None = None
    sandbox: Mapping[str, Any] | None = None
    trigger: str | None = None
    selected_repository: str | None = None
    selected_branch: str | None = None
    git_provider: str | None = None
    llm_model: str | None = None
    accumulated_cost: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    pr_number: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    waiting_number: int | None = None

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class ConversationChanges(TypedDict, total=False):
    """The facts that may change after a conversation was created; absolute values."""

    title: str | None
    last_updated_at: datetime | None
    agent_state: str | None
    sandbox: Mapping[str, Any] | None
    selected_repository: str | None
    selected_branch: str | None
    git_provider: str | None
    llm_model: str | None
    accumulated_cost: float
    prompt_tokens: int
    completion_tokens: int
    pr_number: tuple[int, ...]
    options: Mapping[str, Any]
    waiting_number: int | None


class ConversationUse(NamedTuple):
    """When a conversation was last used, by whom, what its agent was last seen doing, and whether it waits in line."""

    id: str
    user_id: str
    used_at: datetime
    agent_state: str | None
    waits: bool = False


async def conversations_by_use(engines: Engines) -> list[ConversationUse]:
    """All conversations, the one that was used longest ago first; not those of which nobody knows when that was."""
    rows = await engines.fetch(
        "SELECT id, user_id, coalesce(last_updated_at, created_at), agent_state, waiting_number FROM conversations"
        " ORDER BY 3, 1"
    )
    uses = ((row, read_moment(row[2])) for row in rows)
    return [ConversationUse(row[0], row[1], at, row[3], row[4] is not None) for row, at in uses if at is not None]


class ConversationRepository(TableRepository):
    """Keeps `ConversationRecord`s. Reads show what was touched."""

    def __init__(self, engines: Engines, writer: Writer, blobs: BlobStore, touches: Touches) -> None:
        super().__init__(engines, writer)
        self._blobs = blobs
        self._touches = touches
        self._damaged: dict[str, str] = {}
        self._watcher: Callable[[], None] | None = None
        self._watcher_of_deletions: Callable[[str], None] | None = None

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have `watcher`, the only one, told of each conversation that is created; it must not block."""
        self._watcher = watcher

    def watch_deletions(self, watcher: Callable[[str], None] | None) -> None:
        """Have `watcher`, the only one, told the id of each conversation that was deleted; it must not block."""
        self._watcher_of_deletions = watcher

    async def create(self, record: ConversationRecord) -> ConversationRecord:
        """Keep it durably; `ConversationExistsError` where there is one with this id."""
        values = {column.name: _stored(getattr(record, column.name)) for column in conversations.c}
        try:
            await self._writer.execute(insert(conversations), values)
        except IntegrityError as error:
            raise ConversationExistsError(f"a conversation with the id {record.id!r} exists already") from error
        if self._watcher is not None:
            self._watcher()
        return record

    async def get(self, conversation_id: str, *, even_damaged: bool = False) -> ConversationRecord | None:
        """The record of this id, if there is one; `DatabaseUnreadableError` where it is damaged.

        Lists show it then, and it is for whoever deletes it (`even_damaged`), without what is damaged.
        """
        records = await self._records(select(conversations).where(conversations.c.id == conversation_id))
        if records and not even_damaged and (damaged := self._damaged.get(conversation_id)):
            raise DatabaseUnreadableError(
                f"the record of conversation {conversation_id} is damaged ({damaged}); restore it from a backup, or "
                "delete the conversation"
            )
        return records[0] if records else None

    async def list_page(
        self,
        *,
        limit: int,
        page_id: str | None = None,
        user_id: str = "",
        selected_repository: str | None = None,
        trigger: str | None = None,
        created_after: datetime | None = None,
        query: str | None = None,
    ) -> NewestFirst[ConversationRecord]:
        """At most `limit` of this user, newest first, from `page_id` (else `InvalidPageError`) on; none twice.

        With `query` those alone whose title, repository or id has this text, in any case.
        """
        table = conversations.c
        statement = select(conversations).where(table.user_id == user_id)
        if selected_repository is not None:
            statement = statement.where(table.selected_repository == selected_repository)
        if trigger is not None:
            statement = statement.where(table.trigger == trigger)
        if created_after is not None:
            statement = statement.where(table.created_at > created_after)
        if query:
            statement = statement.where(self._has_text(query))
        statement = newest_first(statement, conversations, limit=limit, page_id=page_id)
        return page_of(await self._records(statement), limit)

    def _has_text(self, query: str) -> ColumnElement[bool]:
        """That title, repository or id has this text, in any case; all rows are looked at, each once."""
        table = conversations.c
        about: ColumnElement[str] = (
            func.coalesce(table.title, "") + "\n" + func.coalesce(table.selected_repository, "") + "\n" + table.id
        )
        if self._engines.kind == "postgresql":
            # Its `lower` takes a fifth of the time, and knows ASCII alone, as SQLite's does.
            about = about.collate("C")
        # All letters but those of ASCII are looked for as they are, and in the cases that most texts have them in.
        texts = {query} if query.isascii() else {query, query.lower(), query.upper(), query.capitalize()}
        lowered = sorted({text.translate(_LOWER) for text in texts})
        return or_(*(func.lower(about).contains(text, autoescape=True) for text in lowered))

    async def in_states(self, agent_states: Collection[str]) -> list[ConversationRecord]:
        """All conversations in one of these states, oldest first."""
        statement = (
            select(conversations)
            .where(conversations.c.agent_state.in_(agent_states))
            .order_by(conversations.c.created_at, conversations.c.id)
        )
        await self._touches.flush()
        return await self._records(statement)

    async def having_sandboxes(self, *, after: str, limit: int) -> list[ConversationRecord]:
        """At most `limit` that have a sandbox, of all users, in the order of their ids, behind the id `after`."""
        table = conversations.c
        has_one = cast(table.sandbox, Text) != "null"
        return await self._records(
            select(conversations).where(table.id > after, has_one).order_by(table.id).limit(limit)
        )

    async def ids(self) -> set[str]:
        return {row.id for row in await self._engines.select(select(conversations.c.id))}

    async def update(self, conversation_id: str, **changes: Unpack[ConversationChanges]) -> bool:
        """Change these facts, durably when it returns; False when there is no such conversation."""
        values = {name: _stored(value) for name, value in changes.items()}
        if not values:
            return await self.get(conversation_id) is not None
        self._touches.supersede(conversation_id, values)
        statement = update(conversations).where(conversations.c.id == conversation_id).values(values)
        return await self._writer.execute(statement) > 0

    async def forget_places(self, waiting_states: Collection[str]) -> None:
        """Clear the places in the queue of those that are in none of these states, in which nothing waits."""
        table = conversations.c
        rests = table.agent_state.is_(None) | table.agent_state.not_in(waiting_states)
        await self._writer.execute(
            update(conversations).where(table.waiting_number.is_not(None), rests).values(waiting_number=None)
        )

    async def add_pr_number(self, conversation_id: str, number: int) -> bool:
        """Add the number of a pull or merge request behind those that it has; False: there is no such conversation."""
        return await self._extend(conversation_id, conversations.c.pr_number, lambda numbers: [*numbers, number])

    async def add_option(self, conversation_id: str, name: str, value: object) -> bool:
        """Add this to its options, durably; False when there is one of this name, or no such conversation."""
        return await self._extend(
            conversation_id,
            conversations.c.options,
            lambda options: None if name in options else {**options, name: value},
        )

    async def set_option(self, conversation_id: str, name: str, value: object) -> bool:
        """Have this among its options in place of what was there, None: nothing; False: no such conversation."""
        rest = {} if value is None else {name: value}
        return await self._extend(
            conversation_id,
            conversations.c.options,
            lambda options: {**{key: one for key, one in options.items() if key != name}, **rest},
        )

    async def _extend(self, conversation_id: str, column: Column[Any], extend: Callable[[Any], Any]) -> bool:
        async def apply(connection: AsyncConnection) -> bool:
            is_it = conversations.c.id == conversation_id
            row = (await connection.execute(select(column).where(is_it))).first()
            extended = None if row is None else extend(row[0])
            if extended is not None:
                await connection.execute(update(conversations).where(is_it).values({column: extended}))
            return extended is not None

        return await self._writer.change(apply)

    def touch(self, conversation_id: str, **changes: Unpack[ConversationChanges]) -> None:
        """Change these facts within about a second, which a crash may lose. What recovery relies on needs `update`."""
        self._touches.add(conversation_id, {name: _stored(value) for name, value in changes.items()})

    async def flush(self) -> None:
        """Write what was touched; raises `DatabaseError`."""
        await self._touches.flush()

    def forget_touched(self) -> None:
        """Do not write what was touched: another server knows better by now."""
        self._touches.forget_all()

    async def delete(self, conversation_id: str) -> bool:
        """Delete it with its logs in one transaction, and fence their owners off; False when there was none."""
        self._touches.forget(conversation_id)

        async def apply(connection: AsyncConnection) -> tuple[bool, list[str]]:
            logs = await event_rows.delete_log(connection, conversation_id)
            for table in (chat_turns, feedback, webhook_positions, webhooks, inbox, waiting_files, shares):
                await connection.execute(delete(table).where(table.c.conversation_id == conversation_id))
            sent = idempotency_keys.c.scope == sending_scope(conversation_id)
            await connection.execute(delete(idempotency_keys).where(sent))
            deleted = await connection.execute(delete(conversations).where(conversations.c.id == conversation_id))
            return deleted.rowcount > 0, logs

        existed, logs = await self._writer.change(apply, log=conversation_id)
        if self._watcher_of_deletions is not None:
            self._watcher_of_deletions(conversation_id)
        for log in logs:
            await drop_blobs(self._blobs, log)
        return existed

    async def _records(self, statement: Executable) -> list[ConversationRecord]:
        while True:
            writes = self._touches.writes
            rows = await self._engines.select(statement)
            if self._touches.writes == writes:
                return [self._record(row) for row in rows]

    def _record(self, row: Row[Any]) -> ConversationRecord:
        values = dict(row._mapping)
        damaged = damaged_fields(values)
        if damaged:
            if values["id"] not in self._damaged:
                text, extra = (
                    "the record of conversation %s is damaged: %s",
                    coded(Trouble.STORAGE_UNREADABLE, values["id"]),
                )
                _log.error(text, values["id"], ", ".join(damaged), extra=extra)
            self._damaged[values["id"]] = ", ".join(damaged)
            values |= {name: _IN_PLACE_OF_DAMAGED[name] for name in damaged}
        else:
            self._damaged.pop(values["id"], None)
        values["pr_number"] = tuple(values["pr_number"])
        record = ConversationRecord(**values)
        touched = self._touches.pending(record.id)
        return replace(record, **touched) if touched else record


_KINDS: Final[Mapping[str, Any]] = {
    "created_at": datetime,
    "sandbox": (Mapping, NoneType),
    "pr_number": (list, tuple),
    "options": Mapping,
}
"""What columns hold that somebody else may have damaged; the rest is taken as it is."""


_IN_PLACE_OF_DAMAGED: Final[Mapping[str, Any]] = {
    "created_at": from_microseconds(0),
    "sandbox": None,
    "pr_number": (),
    "options": {},
}


def damaged_fields(values: Mapping[str, Any]) -> list[str]:
    """What is damaged in the row of a conversation."""
    return [name for name, kind in _KINDS.items() if not isinstance(values[name], kind)]


async def damaged_records(engines: Engines) -> dict[str, list[str]]:
    """The conversations whose records are damaged, and what of them is."""
    columns = [conversations.c.id, *(conversations.c[name] for name in _KINDS)]
    rows = await engines.select(select(*columns).order_by(conversations.c.id))
    found = {row.id: damaged_fields(dict(row._mapping)) for row in rows}
    return {conversation_id: damaged for conversation_id, damaged in found.items() if damaged}


def _stored(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


class Touches:
    """Pending changes by conversation, written once per interval at most, and at the end of the context.

    `writes` counts: a reader that sees it change may have missed both the change in the database and the pending one.
    """

    def __init__(self, writer: Writer, *, interval_seconds: float) -> None:
        self._writer = writer
        self._interval_seconds = interval_seconds
        self._pending: dict[str, Changes] = {}
        self._in_flight: dict[str, Changes] = {}
        self.writes = 0
        self._flushing = asyncio.Lock()  # one write at a time: an older value must not overtake a newer one
        self._touched = asyncio.Event()
        self._has_trouble = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="conversation-touches")
        return self

    async def __aexit__(self, *_exception: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._try_flush()

    def add(self, conversation_id: str, changes: Changes) -> None:
        if changes:
            self._pending.setdefault(conversation_id, {}).update(changes)
            self._touched.set()

    def pending(self, conversation_id: str) -> Changes:
        if not self._pending and not self._in_flight:
            return {}
        return {**self._in_flight.get(conversation_id, {}), **self._pending.get(conversation_id, {})}

    def supersede(self, conversation_id: str, changes: Mapping[str, Any]) -> None:
        for waiting in (self._pending.get(conversation_id), self._in_flight.get(conversation_id)):
            if waiting is not None:
                for name in changes:
                    waiting.pop(name, None)

    def forget(self, conversation_id: str) -> None:
        self._pending.pop(conversation_id, None)
        self._in_flight.pop(conversation_id, None)

    def forget_all(self) -> None:
        self._pending.clear()
        self._in_flight.clear()

    async def flush(self) -> None:
        async with self._flushing:
            if not self._pending:
                return
            self._in_flight, self._pending = self._pending, {}
            groups = _grouped(self._in_flight)
            try:
                await self._writer.change(lambda connection: _write(connection, groups))
                self.writes += 1
            except BaseException:
                for conversation_id, changes in self._in_flight.items():
                    self._pending[conversation_id] = {**changes, **self._pending.get(conversation_id, {})}
                raise
            finally:
                self._in_flight = {}

    async def _run(self) -> None:
        while True:
            await self._touched.wait()
            await asyncio.sleep(self._interval_seconds)
            self._touched.clear()
            await self._try_flush()

    async def _try_flush(self) -> None:
        try:
            await self.flush()
            self._has_trouble = False
        except EventStoreError as error:
            if not (
                self._has_trouble or error.code
            ):  # a full disk may stay full for hours: told once, not once per interval
                _log.warning("counters of %d conversations could not be written yet: %s", len(self._pending), error)
            self._has_trouble = True
            self._touched.set()


def _grouped(pending: Mapping[str, Changes]) -> dict[tuple[str, ...], list[Changes]]:
    groups: defaultdict[tuple[str, ...], list[Changes]] = defaultdict(list)
    for conversation_id, changes in pending.items():
        if changes:
            groups[tuple(sorted(changes))].append({**changes, _KEY: conversation_id})
    return groups


async def _write(connection: AsyncConnection, groups: Mapping[tuple[str, ...], list[Changes]]) -> None:
    for names, rows in groups.items():
        statement = (
            update(conversations)
            .where(conversations.c.id == bindparam(_KEY))
            .values({name: bindparam(name) for name in names})
        )
        await connection.execute(statement, rows)


def id_problem(conversation_id: str) -> str | None:
    """Why this can be no conversation's id; None when it can."""
    if not conversation_id:
        return "Conversation ID is empty"
    if len(conversation_id) > MAX_ID_LENGTH:
        return "Conversation ID is too long"
    if "\0" in conversation_id:
        return "Conversation ID contains invalid characters"
    if ".." in conversation_id or "/" in conversation_id or "\\" in conversation_id:
        return "Conversation ID contains invalid path characters"
    if any(ord(character) < 32 or ord(character) == 127 for character in conversation_id):
        return "Conversation ID contains control characters"
    return None
