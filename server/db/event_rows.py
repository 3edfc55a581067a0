"""Rows of the event log, and the statements on them that every database understands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from sqlalchemy import Select, delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.store import SEPARATOR
from server.db.tables import events, from_microseconds, owners

MAX_ROWS = 1000
"""Rows of one ordinary batch."""


EventRow = tuple[str, int, str, str, int | None, int, int, str | None, bytes | None, int]
"""A row to be inserted, in the order of `_COLUMNS`; then the epoch that its writer holds."""

_COLUMNS = ("conversation_id", "id", "kind", "source", "cause", "timestamp", "size", "blob", "payload")


_RAISE = text("""
    INSERT INTO owners (conversation_id, epoch) VALUES (:log, 1)
    ON CONFLICT (conversation_id) DO UPDATE SET epoch = owners.epoch + 1 RETURNING epoch
""")


async def insert_events(
    connection: AsyncConnection,
    rows: Sequence[EventRow],
    fence: Callable[[AsyncConnection], Awaitable[None]] | None = None,
) -> set[str]:
    """Append `rows` in one transaction, except those of conversations that a later epoch owns; returns these.

    Where the `fence` raises, nothing is appended.
    """
    epochs = {row[0]: row[-1] for row in rows}
    async with connection.begin():
        if fence is not None:
            await fence(connection)
        current = await owner_epochs(connection, epochs)
        fenced = {log for log, epoch in epochs.items() if current.get(log, epoch) > epoch}
        accepted = [_values(row) for row in rows if row[0] not in fenced]
        if accepted:
            await connection.execute(insert(events), accepted)
    return fenced


def _values(row: EventRow) -> dict[str, object]:
    values: dict[str, object] = dict(zip(_COLUMNS, row, strict=False))
    return values | {"timestamp": from_microseconds(row[5])}


async def owner_epochs(connection: AsyncConnection, logs: Collection[str]) -> dict[str, int]:
    """The epochs of those of `logs` that have an owner, who keep it until the transaction ends."""
    statement = (
        select(owners.c.conversation_id, owners.c.epoch)
        .where(owners.c.conversation_id.in_(sorted(logs)))
        .with_for_update(read=True)
    )
    return dict((await connection.execute(statement)).all())


async def last_ids(connection: AsyncConnection, logs: Collection[str]) -> dict[str, int]:
    """The last id of each of `logs`, -1 for an empty one."""
    found: dict[str, int] = dict((await connection.execute(select_last_ids(logs))).all())
    return {log: found.get(log, -1) for log in logs}


def select_last_ids(logs: Collection[str]) -> Select[Any]:
    """Each of `logs` that is not empty, and its last id."""
    return (
        select(events.c.conversation_id, func.max(events.c.id).label("newest"))
        .where(events.c.conversation_id.in_(logs))
        .group_by(events.c.conversation_id)
    )


def select_below(conversation_id: str) -> Select[Any]:
    """The logs below this one, found by the owners that they have, which stand together in the order of their bytes."""
    log = owners.c.conversation_id
    first, behind = f"{conversation_id}{SEPARATOR}", f"{conversation_id}{chr(ord(SEPARATOR) + 1)}"
    return select(log).where(log >= first, log < behind)


async def raise_epoch(connection: AsyncConnection, conversation_id: str) -> int:
    """Give the log a new owner epoch, higher than all before, and return it."""
    return int((await connection.execute(_RAISE, {"log": conversation_id})).scalar_one())


async def delete_log(connection: AsyncConnection, conversation_id: str) -> list[str]:
    """Delete the rows of the log and of those below it, and fence their owners off; returns the ids of these logs."""
    found = (await connection.execute(select_below(conversation_id))).scalars()
    # In the order in which appends take the rows of owners, too: whoever takes them in another one may wait for ever.
    logs = sorted([conversation_id, *found])
    for log in logs:
        await connection.execute(delete(events).where(events.c.conversation_id == log))
        await connection.execute(update(owners).where(owners.c.conversation_id == log).values(epoch=owners.c.epoch + 1))
    return logs
