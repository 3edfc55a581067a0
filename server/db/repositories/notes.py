"""Notes: what agents and their users keep from one conversation to the next, found again by its words."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from server.db.errors import DatabaseError
from server.db.page_ids import NewestFirst, newest_first, page_of
from server.db.tables import notes as table
from server.db.writer import TableRepository

MAX_NOTES: Final = 1_000
"""Of one user."""
MAX_WORDS: Final = 32
"""Of a query; those behind them are not looked for."""

_WORD: Final = re.compile(r"[^\W_]+")
_CREATE: Final = """
    CREATE VIRTUAL TABLE IF NOT EXISTS notes_index
    USING fts5(note_id UNINDEXED, user_id UNINDEXED, title, content, tokenize = 'unicode61 remove_diacritics 2')
"""
_FILL: Final = "INSERT INTO notes_index SELECT id, user_id, title, content FROM notes"
_SIZES: Final = "SELECT (SELECT count(*) FROM notes) = (SELECT count(*) FROM notes_index)"
_ADD: Final = "INSERT INTO notes_index VALUES (:id, :user_id, :title, :content)"
_DROP: Final = "DELETE FROM notes_index WHERE note_id = :id"
_FOUND: Final = """
    SELECT n.id FROM notes_index f JOIN notes n ON n.id = f.note_id
    WHERE notes_index MATCH :query AND n.user_id = :user_id AND (:everywhere OR n.repository IN (:repository, ''))
    ORDER BY bm25(notes_index, 0, 0, 4.0, 1.0), n.updated_at DESC LIMIT :limit
"""
_FOUND_BY_POSTGRESQL: Final = """
    SELECT id FROM (
        SELECT id, updated_at, setweight(to_tsvector('simple', title), 'A') || to_tsvector('simple', content) AS words
        FROM notes WHERE user_id = :user_id AND (CAST(:everywhere AS boolean) OR repository IN (:repository, ''))
    ) AS found
    WHERE words @@ to_tsquery('simple', :query)
    ORDER BY ts_rank(words, to_tsquery('simple', :query)) DESC, updated_at DESC LIMIT :limit
"""

_log = logging.getLogger(__name__)


class TooManyNotesError(DrydockError):
    """The user has as many notes as one may have."""

    def __init__(self) -> None:
        super().__init__(f"there are {MAX_NOTES} notes already, as many as one may have; forget some first")


class NoteChangedError(DrydockError):
    """The note is not the version that was to be changed: somebody else was faster."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the note was changed meanwhile (it is at version {version}); read it again first")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note of a user, for a repository (as in ``owner/name``) or, where that is empty, for all that they do.

    `version` counts its changes; `conversation_id` is that of the agent that wrote it first, None for its user.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    user_id: str
    repository: str = ""
    title: str
    content: str
    conversation_id: str | None = None
    version: int = 1
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)


class NoteRepository(TableRepository):
    """Keeps `Note`s; no method returns or changes one of another user.

    They are looked for in an index of SQLite (FTS5), by PostgreSQL's own search, or, where SQLite has no FTS5, one by
    one. The index holds nothing of its own, and is made anew where it does not fit.
    """

    _has_index: bool | None = None

    async def add(self, note: Note) -> Note:
        """Keep it durably, unless this user has one of its id: that is returned. Raises `TooManyNotesError`."""
        has_index = await self._index()

        async def apply(connection: AsyncConnection) -> Note:
            known = await _found(connection, note.user_id, note.id)
            if known is not None:
                return known
            owned = select(func.count()).select_from(table).where(table.c.user_id == note.user_id)
            if (await connection.scalar(owned) or 0) >= MAX_NOTES:
                raise TooManyNotesError
            await connection.execute(insert(table), asdict(note))
            if has_index:
                await connection.execute(text(_ADD), _indexed(note))
            return note

        return await self._writer.change(apply)

    async def get(self, user_id: str, note_id: str) -> Note | None:
        found = await self._notes(select(table).where(_is(user_id, note_id)))
        return found[0] if found else None

    async def change(
        self,
        user_id: str,
        note_id: str,
        *,
        title: str | None = None,
        content: str | None = None,
        repository: str | None = None,
        version: int | None = None,
    ) -> Note | None:
        """Change what is not None, durably; returns it as it is then, None where there is none.

        With `version` only that one is changed, else `NoteChangedError`.
        """
        has_index = await self._index()
        wanted = {"title": title, "content": content, "repository": repository}

        async def apply(connection: AsyncConnection) -> Note | None:
            known = await _found(connection, user_id, note_id)
            if known is None:
                return None
            if version is not None and version != known.version:
                raise NoteChangedError(known.version)
            changes = {name: value for name, value in wanted.items() if value not in (None, getattr(known, name))}
            if not changes:
                return known
            stamp = {"version": known.version + 1, "updated_at": utc_now()}
            await connection.execute(update(table).where(_is(user_id, note_id)).values({**changes, **stamp}))
            note = Note(**{**asdict(known), **changes, **stamp})
            if has_index:
                await connection.execute(text(_DROP), {"id": note_id})
                await connection.execute(text(_ADD), _indexed(note))
            return note

        return await self._writer.change(apply)

    async def delete(self, user_id: str, note_id: str) -> bool:
        """Forget it; False where there is none."""
        has_index = await self._index()

        async def apply(connection: AsyncConnection) -> bool:
            gone = (await connection.execute(delete(table).where(_is(user_id, note_id)))).rowcount > 0
            if gone and has_index:
                await connection.execute(text(_DROP), {"id": note_id})
            return gone

        return await self._writer.change(apply)

    async def list_page(
        self, user_id: str, *, limit: int, page_id: str | None = None, repository: str | None = None
    ) -> NewestFirst[Note]:
        """At most `limit` of the user's, newest first, from `page_id` (else `InvalidPageError`) on."""
        statement = select(table).where(table.c.user_id == user_id)
        if repository is not None:
            statement = statement.where(table.c.repository == repository)
        return page_of(await self._notes(newest_first(statement, table, limit=limit, page_id=page_id)), limit)

    async def search(self, user_id: str, query: str, *, limit: int, repository: str | None = None) -> list[Note]:
        """The user's notes that have words of the query (also their beginnings), the best first.

        With `repository` those of it and those for all repositories.
        """
        words = list(dict.fromkeys(_WORD.findall(query.lower())))[:MAX_WORDS]
        if not words:
            return []
        where: dict[str, Any] = {"user_id": user_id, "everywhere": repository is None, "repository": repository or ""}
        if await self._index():
            query = " OR ".join(f'"{word}"*' for word in words)
            ids = await self._engines.fetch(_FOUND, query=query, limit=limit, **where)
        elif self._engines.kind == "postgresql":
            query = " | ".join(f"{word}:*" for word in words)
            ids = await self._engines.fetch(_FOUND_BY_POSTGRESQL, query=query, limit=limit, **where)
        else:
            return self._best(await self._notes(_of(user_id, repository)), words)[:limit]
        found = {note.id: note for note in await self._notes(_with_ids(user_id, [row[0] for row in ids]))}
        # In writing without spaces a word is a whole sentence to an index.
        return [found[row[0]] for row in ids if row[0] in found] or self._best(
            await self._notes(_of(user_id, repository)), words
        )[:limit]

    async def recent(self, user_id: str, repository: str, *, limit: int) -> list[Note]:
        """Those changed last: of the repository, then those for all repositories."""
        first = (table.c.repository == repository).desc() if repository else table.c.updated_at.desc()
        statement = _of(user_id, repository).order_by(first, table.c.updated_at.desc(), table.c.id)
        return await self._notes(statement.limit(limit))

    async def _notes(self, statement: Select[Any]) -> list[Note]:
        return [Note(**row._mapping) for row in await self._engines.select(statement)]

    @staticmethod
    def _best(notes: Iterable[Note], words: Sequence[str]) -> list[Note]:
        def score(note: Note) -> int:
            title, content = note.title.lower(), note.content.lower()
            return sum(4 * (word in title) + (word in content) for word in words)

        scored = [(score(note), note) for note in notes]
        scored.sort(key=lambda one: (one[0], one[1].updated_at), reverse=True)
        return [note for points, note in scored if points]

    async def _index(self) -> bool:
        """Whether there is an index of SQLite's, which fits from then on; found out at the first use."""
        if self._has_index is None:
            found = False  # others who ask meanwhile find it out, too: what they write has to be in the index
            if self._engines.kind == "sqlite":
                try:
                    await self._writer.change(_make_index)
                    found = True
                except DatabaseError as error:
                    if "fts5" not in str(error):
                        raise
                    _log.warning("notes are looked for without an index: this SQLite has no FTS5")
            self._has_index = found
        return self._has_index


async def _make_index(connection: AsyncConnection) -> None:
    await connection.execute(text(_CREATE))
    if not await connection.scalar(text(_SIZES)):
        await connection.execute(text("DELETE FROM notes_index"))
        await connection.execute(text(_FILL))


async def _found(connection: AsyncConnection, user_id: str, note_id: str) -> Note | None:
    row = (await connection.execute(select(table).where(_is(user_id, note_id)))).mappings().one_or_none()
    return None if row is None else Note(**row)


def _is(user_id: str, note_id: str) -> ColumnElement[bool]:
    return (table.c.user_id == user_id) & (table.c.id == note_id)


def _of(user_id: str, repository: str | None) -> Select[Any]:
    statement = select(table).where(table.c.user_id == user_id)
    return statement if repository is None else statement.where(table.c.repository.in_([repository, ""]))


def _with_ids(user_id: str, ids: Sequence[str]) -> Select[Any]:
    return select(table).where(table.c.user_id == user_id, table.c.id.in_(ids))


def _indexed(note: Note) -> dict[str, str]:
    return {"id": note.id, "user_id": note.user_id, "title": note.title, "content": note.content}
