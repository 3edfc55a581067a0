"""The repositories of a conversation's workspace: what is changed, how, and what was committed (wire-protocol 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from agent_core.errors import DrydockError
from agent_core.session.repository import folder_of
from server.db.conversations import ConversationRecord
from server.dependencies import OwnConversation, Services, ServicesDependency
from server.errors import ReplyError
from server.replies.errors import errors
from server.replies.workspace import Change, Diff, GitStatus, History
from server.routes.conversation_files import refusal
from server.routes.json_route import JsonRoute
from server.routes.query import FilePath

router = APIRouter(prefix="/api/conversations/{conversation_id}/git", route_class=JsonRoute, responses=errors(403))

GIT_SECONDS = 40.0
Since = Literal["commit", "base"]
"""What the files are compared with: the last commit, or the commit where the branch left the one it began from."""
_STATUS = {
    "bad_request": 400,
    "not_a_file": 400,
    "forbidden": 403,
    "no_repository": 404,
    "not_found": 404,
    "too_large": 413,
    "binary": 415,
}


@router.get("/changes", response_model=list[Change])
async def read_git_changes(
    record: OwnConversation, services: ServicesDependency, since: Since = "commit"
) -> list[dict[str, str]]:
    """The files that differ from the last commits (or the bases of the branches), of all repositories."""
    found = await _ask(services, record, "git.status", {"directory": repository_folder(record), "since": since})
    return [change for repository in found["repositories"] for change in repository["changes"]]


@router.get("/status", response_model=GitStatus)
async def read_git_status(
    record: OwnConversation, services: ServicesDependency, since: Since = "commit"
) -> dict[str, Any]:
    """The repositories of the workspace, each with its branch, how far it is from its upstream, and its changes.

    `folder` is the one that all paths are relative to.
    """
    folder = repository_folder(record)
    found = await _ask(services, record, "git.status", {"directory": folder, "since": since})
    return {"folder": folder, **found}


@router.get("/diff", response_model=Diff, responses=errors(413, 415))
async def read_git_diff(
    record: OwnConversation, services: ServicesDependency, path: FilePath, since: Since = "commit"
) -> dict[str, str]:
    """A file as it was in the last commit (or where its branch was begun), and as it is."""
    args = {"directory": repository_folder(record), "path": path, "since": since}
    found = await _ask(services, record, "git.diff", args)
    return {"modified": str(found["modified"]), "original": str(found["original"])}


@router.get("/log", response_model=History)
async def read_git_log(
    record: OwnConversation,
    services: ServicesDependency,
    repository: FilePath = "",
    path: FilePath = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    skip: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> dict[str, Any]:
    """The newest commits of a repository, named by its path; of a file or folder of it where `path` names one."""
    folder = "/".join(part for part in (repository_folder(record), repository) if part)
    args = {"directory": folder, "path": path, "limit": limit, "skip": skip}
    return dict(await _ask(services, record, "git.log", args))


def repository_folder(record: ConversationRecord) -> str:
    """What paths of changes are relative to: the folder of the repository that it was begun with, or the workspace."""
    return folder_of((record.selected_repository or "").strip())


async def _ask(
    services: Services, record: ConversationRecord, operation: str, args: Mapping[str, Any]
) -> dict[str, Any]:
    services.manager.touch(record.id)
    sandbox = services.manager.sandbox(record.id)
    if sandbox is None:
        raise ReplyError(404, {"error": "Not a git repository as far as can be seen: the conversation is not running"})
    try:
        found = (await sandbox.request(operation, args, limit_seconds=GIT_SECONDS)).result
    except DrydockError as error:
        raise refusal(error) from error
    if found.get("error"):
        raise ReplyError(_STATUS.get(str(found.get("code")), 500), {"error": str(found["error"])})
    return found
