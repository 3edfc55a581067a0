"""A user's notes: what their agents are told of earlier conversations, shown and edited."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, Field, StringConstraints

from server.db.errors import DatabaseError, InvalidPageError
from server.db.repositories.notes import Note, NoteChangedError, TooManyNotesError
from server.dependencies import IdentityDependency, ServicesDependency
from server.errors import ReplyError, log_level, status_of, stored_problem
from server.routes.query import PageId
from server.routes.replies import errors
from server.routes.route_classes import make_router
from server.session.agents.notes import MAX_FOUND, NoteContent, NoteTitle, RepositoryName, masked
from server.wire.envelope import wire_time

logger = logging.getLogger(__name__)
router = make_router("/api")

NoteId = Annotated[str, Path(min_length=1, max_length=64)]
Filled = StringConstraints(min_length=1, strip_whitespace=True)


class NewNote(BaseModel):
    """The body of ``POST /api/notes``. Secrets of the user are hidden in what is stored."""

    title: Annotated[NoteTitle, Filled]
    content: Annotated[NoteContent, Filled]
    repository: RepositoryName = Field("", description="As in `owner/name`; empty: for all.")


class NoteChange(BaseModel):
    """The body of ``PATCH /api/notes/{id}``: what is left out, or null, stays as it is."""

    title: Annotated[NoteTitle, Filled] | None = None
    content: Annotated[NoteContent, Filled] | None = None
    repository: RepositoryName | None = None
    version: int | None = Field(
        None, strict=True, description="The version that was read; 409 where there is a newer one by now."
    )


class NoteEntry(BaseModel):
    """A note as it is kept."""

    id: str
    title: str
    content: str
    repository: str = Field(description="Empty: for all.")
    conversation_id: str | None = Field(description="Whose agent wrote it first; null: its user did.")
    version: int
    created_at: str = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    updated_at: str


class NoteList(BaseModel):
    """A page of notes, newest first; of a search those that fit best, on one page."""

    results: list[NoteEntry]
    next_page_id: str | None = Field(description="`page_id` of the next page; null on the last one.")


@router.get("/notes", response_model=NoteList, responses=errors(400))
async def list_notes(
    services: ServicesDependency,
    identity: IdentityDependency,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    page_id: PageId = None,
    repository: Annotated[str | None, Query(max_length=500)] = None,
    query: Annotated[str | None, Query(max_length=1_000, description="Words to look for.")] = None,
) -> dict[str, Any]:
    """The user's notes, of a repository (empty: those for all) or of every one; with `query` the best that fit it."""
    notes = services.database.notes
    async with _answered(identity.user_id):
        if query is not None and query.strip():
            most = min(limit, MAX_FOUND)
            found = await notes.search(identity.user_id, query, limit=most, repository=repository)
            return {"results": [_public(one) for one in found], "next_page_id": None}
        page = await notes.list_page(identity.user_id, limit=limit, page_id=page_id, repository=repository)
    return {"results": [_public(one) for one in page.results], "next_page_id": page.next_page_id}


@router.post("/notes", status_code=201, response_model=NoteEntry, responses=errors(409))
async def create_note(body: NewNote, services: ServicesDependency, identity: IdentityDependency) -> dict[str, Any]:
    """Keep a note; conversations that begin from now on are told of it."""
    async with _answered(identity.user_id):
        title, content = await masked(services.database, identity.user_id, body.title, body.content)
        note = Note(user_id=identity.user_id, repository=body.repository, title=title, content=content)
        return _public(await services.database.notes.add(note))


@router.get("/notes/{note_id}", response_model=NoteEntry, responses=errors(404))
async def read_note(note_id: NoteId, services: ServicesDependency, identity: IdentityDependency) -> dict[str, Any]:
    """One note."""
    async with _answered(identity.user_id):
        return _public(_there(await services.database.notes.get(identity.user_id, note_id), note_id))


@router.patch("/notes/{note_id}", response_model=NoteEntry, responses=errors(404, 409))
async def change_note(
    note_id: NoteId, body: NoteChange, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, Any]:
    """Change a note; with `version` only if nobody else has meanwhile."""
    async with _answered(identity.user_id):
        title, content = await masked(services.database, identity.user_id, body.title or "", body.content or "")
        changed = await services.database.notes.change(
            identity.user_id,
            note_id,
            title=title or None,
            content=content or None,
            repository=body.repository,
            version=body.version,
        )
        return _public(_there(changed, note_id))


@router.delete("/notes/{note_id}", status_code=204, responses=errors(404))
async def delete_note(note_id: NoteId, services: ServicesDependency, identity: IdentityDependency) -> None:
    """Forget a note."""
    async with _answered(identity.user_id):
        if not await services.database.notes.delete(identity.user_id, note_id):
            _there(None, note_id)


@asynccontextmanager
async def _answered(user_id: str) -> AsyncIterator[None]:
    try:
        yield
    except InvalidPageError as error:
        raise ReplyError(400, {"detail": str(error)}) from error
    except (NoteChangedError, TooManyNotesError) as error:
        raise ReplyError(409, {"detail": str(error)}) from error
    except DatabaseError as error:
        logger.log(log_level(error, logging.ERROR), "notes of user %r could not be read or stored: %s", user_id, error)
        raise ReplyError(
            status_of(error), {"detail": stored_problem(error, "The notes could not be read or stored")}
        ) from error


def _there(note: Note | None, note_id: str) -> Note:
    if note is None:
        raise ReplyError(404, {"detail": f"There is no note {note_id!r}"})
    return note


def _public(note: Note) -> dict[str, Any]:
    return {
        "id": note.id,
        "title": note.title,
        "content": note.content,
        "repository": note.repository,
        "conversation_id": note.conversation_id,
        "version": note.version,
        "created_at": wire_time(note.created_at),
        "updated_at": wire_time(note.updated_at),
    }
