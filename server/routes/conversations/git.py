"""The repositories of a conversation's workspace: what is changed, how, and what was committed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from agent_core.errors import DrydockError, SandboxClosedError
from agent_core.session.repository import folder_of
from server.db.errors import InvalidPageError
from server.db.page_ids import page_id as make_page_id
from server.db.page_ids import position
from server.db.repositories.conversations import ConversationRecord
from server.dependencies import Services, ServicesDependency, SharedConversation
from server.errors import ReplyError
from server.routes.conversations.files import STATUSES, refusal
from server.routes.query import LINKED, FilePath, PageId, PagingDependency
from server.routes.replies import errors, plain_error
from server.routes.route_classes import WatchedJsonRoute, make_router

router = make_router("/api/conversations/{conversation_id}/git", route_class=WatchedJsonRoute, responses=errors(403))
GIT_SECONDS = 40.0
NOT_RUNNING = "Not a git repository as far as can be seen: the conversation is not running"
_COMMIT = re.compile("[0-9a-f]{40,64}", re.ASCII)
Since = Literal["commit", "base"]
"""What the files are compared with: the last commit, or the commit where the branch left the one it began from."""


class Change(BaseModel):
    """A file that was changed: modified, added, deleted, or in conflict."""

    status: Literal["M", "A", "D", "U"]
    path: str


class Base(BaseModel):
    """Where a branch left the one it began from."""

    name: str
    commit: str


class RepositoryStatus(BaseModel):
    """A repository of the workspace."""

    path: str
    branch: str | None = Field(description="Null: detached.")
    head: str | None = Field(description="Null: no commit yet.")
    upstream: str | None
    ahead: int
    behind: int
    base: Base | None
    changes: list[Change]
    left_out: int = Field(ge=0)
    is_cut: bool


class GitStatus(BaseModel):
    """The repositories of the workspace."""

    folder: str
    repositories: list[RepositoryStatus]
    errors: list[str]


class Diff(BaseModel):
    """A file as it is, and as it was; empty where it is not there."""

    modified: str
    original: str


class Commit(BaseModel):
    """A commit."""

    hash: str
    parents: list[str]
    author: str
    email: str
    date: str
    refs: list[str]
    subject: str
    body: str


class History(BaseModel):
    """The newest commits first."""

    commits: list[Commit]
    has_more: bool
    next_page_id: str | None = Field(
        description="`page_id` of the next page of the same history, whatever is committed meanwhile; null: the last."
    )


@router.get("/changes", response_model=list[Change], responses={200: LINKED})
async def read_git_changes(
    record: SharedConversation, services: ServicesDependency, paging: PagingDependency, since: Since = "commit"
) -> list[dict[str, str]]:
    """The files that differ from the last commits (or the bases of the branches), of all repositories."""
    found = await _ask(services, record, "git.status", {"directory": repository_folder(record), "since": since})
    every = [(one["path"], change) for one in found["repositories"] for change in one["changes"]]
    every.sort(key=lambda placed: (placed[0], placed[1]["path"]))
    page = paging.linked(every, lambda placed: (placed[0], placed[1]["path"]), str, str)
    return [change for _, change in page]


@router.get("/status", response_model=GitStatus)
async def read_git_status(
    record: SharedConversation, services: ServicesDependency, since: Since = "commit"
) -> dict[str, Any]:
    """The repositories of the workspace, each with its branch, how far it is from its upstream, and its changes.

    `folder` is the one that all paths are relative to.
    """
    folder = repository_folder(record)
    found = await _ask(services, record, "git.status", {"directory": folder, "since": since})
    return {"folder": folder, **found}


@router.get("/diff", response_model=Diff, responses=errors(413, 415))
async def read_git_diff(
    record: SharedConversation, services: ServicesDependency, path: FilePath, since: Since = "commit"
) -> dict[str, str]:
    """A file as it was in the last commit (or where its branch was begun), and as it is."""
    args = {"directory": repository_folder(record), "path": path, "since": since}
    found = await _ask(services, record, "git.diff", args)
    return {"modified": str(found["modified"]), "original": str(found["original"])}


@router.get("/log", response_model=History)
async def read_git_log(
    record: SharedConversation,
    services: ServicesDependency,
    repository: FilePath = "",
    path: FilePath = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    skip: Annotated[int, Query(ge=0, le=2**31)] = 0,
    page_id: PageId = None,
) -> dict[str, Any]:
    """The newest commits of a repository, named by its path; of a file or folder of it where `path` names one.

    `page_id` goes on in the history as it was when its first page was asked for; `skip` counts from there.
    """
    start, before = _history(page_id)
    folder = "/".join(part for part in (repository_folder(record), repository) if part)
    skipped = min(before + skip, 2**31)
    args = {"directory": folder, "path": path, "limit": limit, "skip": skipped, "start": start}
    found = await _ask(services, record, "git.log", args)
    commits, has_more = found["commits"], bool(found["has_more"])
    behind = make_page_id(str(found["start"]), skipped + len(commits)) if has_more and commits else None
    return {"commits": commits, "has_more": has_more, "next_page_id": behind}


def _history(page_id: str | None) -> tuple[str, int]:
    if page_id is None:
        return "", 0
    try:
        start, before = position(page_id, str, int)
        if _COMMIT.fullmatch(str(start)) is None or int(before) < 0:
            raise InvalidPageError("page_id is not valid; use the next_page_id of the page before, or none")
    except InvalidPageError as error:
        raise plain_error(400, str(error)) from error
    return str(start), int(before)


def repository_folder(record: ConversationRecord) -> str:
    """What paths of changes are relative to: the folder of the repository that it was begun with, or the workspace."""
    return folder_of((record.selected_repository or "").strip())


async def _ask(
    services: Services, record: ConversationRecord, operation: str, args: Mapping[str, Any]
) -> dict[str, Any]:
    services.manager.touch(record.id)
    sandbox = services.manager.sandbox(record.id)
    if sandbox is None:
        raise ReplyError(404, {"error": NOT_RUNNING})
    try:
        found = (await sandbox.request(operation, args, limit_seconds=GIT_SECONDS)).result
    except SandboxClosedError as error:
        raise ReplyError(404, {"error": NOT_RUNNING}) from error
    except DrydockError as error:
        raise refusal(error) from error
    if found.get("error"):
        raise ReplyError(STATUSES.get(str(found.get("code")), 500), {"error": str(found["error"])})
    return found
