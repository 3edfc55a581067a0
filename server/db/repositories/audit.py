"""`AuditLog`: who did what, from where; each record stored with what was done, in one order for all servers."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Select, delete, func, insert, literal, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import EventStoreError
from agent_core.events.event import utc_now
from agent_core.troubles import Trouble, coded
from server.auth.audit import (
    ACTOR,
    BROKEN,
    NONE,
    PRUNED,
    SYSTEM,
    Actor,
    AuditEntry,
    AuditRecord,
    ChainCheck,
    Head,
    make_record,
)
from server.auth.secrets import SecretBox
from server.auth.signing import SigningKey
from server.db.data_folder import give_to_owner
from server.db.engine import Engines
from server.db.errors import DatabaseError
from server.db.tables import audit, audit_heads
from server.db.temporary_files import temporary_file
from server.db.writer import BESIDE, DatabaseChange, TableRepository, Writer

NOTED_FILE: Final = "audit-head.json"
"""In the data folder: where the log ended when this server last wrote to it. Whoever has but the database lacks it."""
LOOKED_AT: Final = 200
"""So many of the last records are looked at when a server starts."""
MAX_WAITING: Final = 100
"""Records of what changes nothing wait for being stored, up to so many; more are counted in the next one."""

_PAGE: Final = 500
_CLOSE_SECONDS: Final = 5.0
_REFUSALS: Final = 20
"""Refusals of strangers in a minute: what anybody can cause is not to fill the disk."""
_HEAD: Final = "number, hash, stump_number, stump_hash, signature, public_key"
_HELD: Final = (
    f"INSERT INTO audit_heads (id, {_HEAD}) VALUES (1, 0, '', 0, '', '', '') ON CONFLICT (id)"  # noqa: S608 - our own names
    f" DO UPDATE SET id = audit_heads.id RETURNING {_HEAD}"
)
"""One statement, which holds the row until the transaction has ended: whoever else appends waits for it."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Wanted(NamedTuple):
    """Which records are asked for; None and "" leave it open."""

    actor: str | None = None
    action: str = ""
    """One, or all of a noun: ``secret`` means ``secret.created`` and its like."""
    since: datetime | None = None
    until: datetime | None = None

    def narrow(self, statement: Select[Any]) -> Select[Any]:
        if self.actor is not None:
            statement = statement.where(audit.c.user_id == self.actor)
        if self.action:
            noun = audit.c.action.startswith(f"{self.action}.", autoescape=True)
            statement = statement.where((audit.c.action == self.action) | noun)
        if self.since is not None:
            statement = statement.where(audit.c.at >= self.since)
        if self.until is not None:
            statement = statement.where(audit.c.at < self.until)
        return statement


class AuditLog(TableRepository):
    """Appends records and reads them. `note`: the file `NOTED_FILE` of the data folder.

    Where the end of the log is not what was signed, or not what this server remembers, it goes on behind a record that
    says so (`BROKEN`), and which no later one can take back. Raises `DatabaseError` where a record cannot be stored.
    """

    def __init__(
        self,
        engines: Engines,
        writer: Writer,
        key: SigningKey,
        note: Path,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(engines, writer)
        self.key = key
        self.is_broken = False
        """Whether that was seen since the start."""
        self._now = now
        self._note = note
        self._noted: tuple[int, str] | None = None
        self._is_noted_read = False
        self._waiting: deque[AuditEntry] = deque()
        self._refused: deque[float] = deque()
        self._left_out = 0
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, engines: Engines, writer: Writer, key_file: Path) -> AuditLog:
        """That of the server with this key file in its data folder; `DatabaseError`: there is none."""
        if not key_file.exists():
            raise DatabaseError(f"there is no {key_file}: name the server's data folder with --data-dir")
        return cls(engines, writer, SigningKey(SecretBox.open(key_file)), key_file.with_name(NOTED_FILE))

    # --- writing ---

    async def record(
        self,
        action: str,
        target: tuple[str, str] = ("", ""),
        details: Mapping[str, Any] | None = None,
        *,
        actor: Actor | None = None,
    ) -> None:
        """Store a record durably, for what is not stored in the database itself: before it is done or answered.

        `action` is ``noun.verb``, `target` a kind and an id, and `details` hold nothing secret: names, not values.
        Without an `actor` it is the one whose request is being answered (`ACTOR`).
        """
        entry = AuditEntry(action, actor or ACTOR.get(), target, details or {})
        self.stored(await self._writer.change(lambda connection: self.append(connection, entry)))

    def beside(
        self,
        action: str,
        target: tuple[str, str] = ("", ""),
        details: Mapping[str, Any] | None = None,
        *,
        actor: Actor | None = None,
        changes_here: bool = False,
    ) -> AbstractAsyncContextManager[None]:
        """See `carried`; the other arguments are those of `record`."""
        entry = AuditEntry(action, actor or ACTOR.get(), target, details or {})
        return self.carried(lambda: entry, changes_here=changes_here)

    @asynccontextmanager
    async def carried(
        self, make: Callable[[], AuditEntry], *, always: bool = False, changes_here: bool = False
    ) -> AsyncIterator[None]:
        """Context whose first change of the database has its record in the same transaction: both are stored, or none.

        `make` makes the record then. A change that turns out to be none (`False`, or 0 rows; not with `always`) has
        none. Where nothing was asked of the database, since it is kept elsewhere, the record is stored at the end: an
        error says then that it is not. With `changes_here` nothing was changed then.
        """
        along = _Along(self, make, always=always)
        token = BESIDE.set(along)
        try:
            yield
        finally:
            BESIDE.reset(token)
        if along.head is not None:
            self.stored(along.head)
        elif not (along.was_asked or changes_here):
            entry = make()
            await self.record(entry.action, entry.target, entry.details, actor=entry.actor)

    def later(self, entry: AuditEntry) -> None:
        """Have a record stored soon, of what changes nothing, such as a refusal; see `MAX_WAITING`."""
        if len(self._waiting) >= MAX_WAITING:
            self._left_out += 1
            return
        self._waiting.append(entry)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_waiting(), name="audit-waiting")

    def refused(self, address: str, sentence: str) -> None:
        """Note that somebody was not let in; so many in a minute, see `_REFUSALS`."""
        now = self._now()
        while self._refused and self._refused[0] <= now - 60.0:
            self._refused.popleft()
        if len(self._refused) >= _REFUSALS:
            self._left_out += 1
            return
        self._refused.append(now)
        self.later(AuditEntry("sign_in.refused", Actor(address=address), details={"reason": sentence}))

    async def close(self) -> None:
        """Wait for what is to be stored later."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
            self._task.cancel()
            await asyncio.wait([self._task])

    async def append(
        self,
        connection: AsyncConnection,
        entry: AuditEntry,
        *,
        stump: tuple[int, str] | None = None,
        key: SigningKey | None = None,
    ) -> Head:
        """Append in a transaction of the caller's, as what it does last; returns the end of the log.

        It waits for others who append, until their transactions end. `stump`: the record up to which all are to be cut;
        `key`: signs from now on, in place of this one.
        """
        head = Head._make((await connection.execute(text(_HELD))).one())
        last = (
            await connection.execute(select(audit.c.number, audit.c.hash).order_by(audit.c.number.desc()).limit(1))
        ).one_or_none()
        number, mark = (head.stump_number, head.stump_hash) if last is None else (last.number, last.hash)
        if problem := await self._problem(connection, head, (number, mark)):
            self._broken(problem)
            behind = max(head.number, number, (self._remembered() or (0, ""))[0])
            entry_of_break = AuditEntry(BROKEN, SYSTEM, details={"reason": problem})
            number, mark = await self._insert(connection, entry_of_break, behind, mark)
        number, mark = await self._insert(connection, entry, number, mark)
        cut = stump or (head.stump_number, head.stump_hash)
        key = key or self.key
        fresh = Head(number, mark, *cut, public_key=key.public.hex())
        fresh = fresh._replace(signature=key.sign(fresh.signed_text()).hex())
        await connection.execute(update(audit_heads).where(audit_heads.c.id == 1).values(fresh._asdict()))
        return fresh

    async def _insert(self, connection: AsyncConnection, entry: AuditEntry, last: int, mark: str) -> tuple[int, str]:
        made = make_record(entry, number=last + 1, previous=mark, at=utc_now())
        columns = ("number", "at", "user_id", "action", "record", "hash")
        await connection.execute(insert(audit), dict(zip(columns, made, strict=True)))
        return made.number, made.hash

    async def _problem(self, connection: AsyncConnection, head: Head, last: tuple[int, str]) -> str:
        """Why one may not go on from this end as if it were what was left there; "" where one may."""
        if head.number != last[0] or head.hash != last[1]:
            return f"the log ends with record {last[0]}, which is not the one that was signed as its end"
        if head.number and (problem := head.problem(self.key.public)):
            return problem
        noted = self._remembered()
        if noted is None or noted[0] <= head.stump_number:
            return ""
        if noted[0] > head.number:
            return f"the log ends with record {head.number}, and this server has written record {noted[0]}"
        there: str | None = last[1]
        if noted[0] < head.number:
            there = await connection.scalar(select(audit.c.hash).where(audit.c.number == noted[0]))
        return "" if there == noted[1] else f"record {noted[0]} is not the one that this server has written"

    async def _store_waiting(self) -> None:
        while self._waiting:
            entry = self._waiting.popleft()
            if self._left_out:
                entry = entry._replace(details={**entry.details, "more": self._left_out})
                self._left_out = 0
            try:
                await self.record(entry.action, entry.target, entry.details, actor=entry.actor)
            except EventStoreError as error:
                extra = coded(Trouble.OTHER)
                _log.warning("%s was not noted in the audit log: %s", entry.action, error, extra=extra)

    def stored(self, head: Head) -> None:
        """Remember an end that was committed, so that each later one is known to be behind it."""
        if self._noted is not None and self._noted[0] > head.number and not self.is_broken:
            return  # another one was faster
        self._noted = head.number, head.hash
        try:
            with temporary_file(self._note.parent, NOTED_FILE) as (path, file):
                file.write(json.dumps({"number": head.number, "hash": head.hash}).encode())
                file.flush()
                give_to_owner(path, self._note.parent)
                path.replace(self._note)
        except OSError as error:  # an older end is still one that must be there
            _log.info("the end of the audit log could not be noted in %s: %s", self._note, error.strerror or error)

    def _remembered(self) -> tuple[int, str] | None:
        if not self._is_noted_read:
            self._is_noted_read = True
            self._noted = self._noted or noted_end(self._note)
        return self._noted

    def _broken(self, problem: str) -> None:
        self.is_broken = True
        sentence = f"the audit log is broken: {problem}; look at it with `drydock audit verify`"
        _log.error("%s", sentence, extra=coded(Trouble.AUDIT_BROKEN))

    # --- reading ---

    async def page(self, wanted: Wanted, *, before: int | None = None, limit: int = 100) -> list[AuditRecord]:
        """The newest records first, below the number `before`."""
        statement = wanted.narrow(select(audit)).order_by(audit.c.number.desc()).limit(limit)
        if before is not None:
            statement = statement.where(audit.c.number < before)
        return [AuditRecord._make(row) for row in await self._engines.select(statement)]

    async def records(self, wanted: Wanted = Wanted(), *, after: int = 0) -> AsyncIterator[AuditRecord]:  # noqa: B008 - never changed
        """All records above the number `after`, in their order."""
        while True:
            statement = wanted.narrow(select(audit)).where(audit.c.number > after).order_by(audit.c.number).limit(_PAGE)
            rows = await self._engines.select(statement)
            for row in rows:
                yield AuditRecord._make(row)
            if len(rows) < _PAGE:
                return
            after = rows[-1].number

    async def head(self) -> Head | None:
        """The end of the log; None: nothing was recorded yet."""
        columns = [audit_heads.c[name.strip()] for name in _HEAD.split(",")]
        rows = await self._engines.select(select(*columns))
        return Head._make(rows[0]) if rows else None

    async def verify(self, *more: tuple[int, str]) -> ChainCheck:
        """Look through all of it; `more`: numbers and hashes that were its end once, and that somebody has kept."""
        # First what must be in it: what is appended meanwhile is looked at no more.
        noted, head = noted_end(self._note), await self.head()
        check = ChainCheck(head, [one for one in (noted, *more) if one is not None])
        async for one in self.records():
            if head is not None and one.number > head.number and await self.head() != head:
                break  # appended since
            check.take(one)
        check.end(self.key.public)
        return check

    async def look(self) -> None:
        """See at a start whether the last records follow each other, which costs one read; what is wrong is logged."""
        try:
            noted, head = noted_end(self._note), await self.head() or Head()
            first = max(head.stump_number, head.number - LOOKED_AT)
            seen = audit.c.number.between(first + 1, head.number)
            rows = await self._engines.select(select(audit).where(seen).order_by(audit.c.number))
        except EventStoreError as error:
            _log.warning("the audit log could not be looked at: %s", error)
            return
        records = [AuditRecord._make(row) for row in rows]
        if records and records[0].number > head.stump_number + 1:  # what is before these is taken as they say it was
            head = head._replace(stump_number=records[0].number - 1, stump_hash=_previous_of(records[0]))
        check = ChainCheck(head, [] if noted is None or noted[0] <= head.stump_number else [noted])
        for one in records:
            check.take(one)
        check.end_unsigned()
        if check.problems:
            self._broken(check.problems[0])

    # --- retention ---

    async def prune(self, before: datetime, actor: Actor) -> int:
        """Remove the records of before that moment, up to the first younger one; returns how many.

        That it was done is a record of its own, and the hash of the last that was removed stays: from it on, the log is
        verified as before.
        """

        async def apply(connection: AsyncConnection) -> tuple[int, Head | None]:
            stump = await connection.scalar(select(func.max(audit_heads.c.stump_number))) or 0
            younger = select(func.min(audit.c.number)).where(audit.c.at >= before)
            last = await connection.scalar(younger)
            top = select(func.max(audit.c.number)) if last is None else select(literal(last - 1))
            upto = await connection.scalar(top) or 0
            mark = await connection.scalar(select(audit.c.hash).where(audit.c.number == upto))
            if upto <= stump or mark is None:
                return 0, None
            details = {"before": before.isoformat(), "first": stump + 1, "last": upto}
            head = await self.append(connection, AuditEntry(PRUNED, actor, details=details), stump=(upto, mark))
            removed = await connection.execute(delete(audit).where(audit.c.number <= upto))
            return removed.rowcount, head

        removed, head = await self._writer.change(apply)
        if head is not None:
            self.stored(head)
        return removed


class _Along:
    """A record on its way with the first change that is made beside it."""

    def __init__(self, log: AuditLog, make: Callable[[], AuditEntry], *, always: bool) -> None:
        self._log = log
        self._make = make
        self._always = always
        self._carrier: object = None
        self.was_asked = False
        self.head: Head | None = None

    def __call__(self, apply: DatabaseChange[_T]) -> DatabaseChange[_T]:
        async def both(connection: AsyncConnection) -> _T:
            result = await apply(connection)
            self.was_asked = True
            is_change = self._always or not (result is False or (type(result) is int and result == 0))
            if is_change and self._carrier in (None, apply):
                self._carrier = apply
                self.head = await self._log.append(connection, self._make())
            return result

        return both


def noted_end(note: Path) -> tuple[int, str] | None:
    """The number and the hash that a data folder remembers of the log's end; None: none that can be read."""
    try:
        found = json.loads(note.read_bytes())
        number, mark = found["number"], found["hash"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return (number, mark) if isinstance(number, int) and isinstance(mark, str) and 0 < number < 2**53 else None


def _previous_of(record: AuditRecord) -> str:
    try:
        return str(json.loads(record.text)["previous"])
    except (ValueError, LookupError, TypeError):
        return NONE
