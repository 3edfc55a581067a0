"""The folders of a conversation's workspace."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter

from agent_core.errors import DrydockError, ToolError
from agent_core.runtime.transfers import list_folder
from agent_core.tools.spec import SandboxAccess
from server.dependencies import OwnConversation, ServicesDependency
from server.routes.conversation_files import refusal, workspace_of
from server.routes.paging import LINKED, Paging, PagingDependency
from server.routes.query import FilePath
from server.routes.replies.errors import errors
from server.routes.replies.workspace import Folder
from server.routes.watched import WatchedJsonRoute

router = APIRouter(
    prefix="/api/conversations/{conversation_id}", route_class=WatchedJsonRoute, responses=errors(403, 503)
)

_NOTHING: Final[dict[str, Any]] = {"entries": [], "left_out": 0}


@router.get("/list-files", responses={200: LINKED})
async def list_files(
    record: OwnConversation, services: ServicesDependency, paging: PagingDependency, path: FilePath = ""
) -> list[str]:
    """The names in a folder, those of folders with a slash behind them; with `path` each begins with it.

    A folder that is not there has none: clients ask for some that few workspaces have, and take an error for a failure.
    """
    found = await _listed(workspace_of(services, record.id), path, paging, if_missing=_NOTHING)
    prefix = path if not path or path.endswith("/") else f"{path}/"
    shown = [one for one in found["entries"] if not one["hidden"]]
    page = paging.linked(paging.cut(shown, _place, bool, str, str, goes_on=found["left_out"] > 0))
    return [f"{prefix}{one['name']}{'/' if one['kind'] == 'folder' else ''}" for one in page]


@router.get("/files", response_model=Folder)
async def folder_entries(
    record: OwnConversation, services: ServicesDependency, paging: PagingDependency, path: FilePath = ""
) -> dict[str, Any]:
    """All that is in a folder, with kinds, sizes and times; folders first. `left_out` are behind this page."""
    sandbox = workspace_of(services, record.id)
    found = await _listed(sandbox, path, paging)
    page, next_page_id = paging.cut(found["entries"], _place, bool, str, str, goes_on=found["left_out"] > 0)
    left_out = found["left_out"] + len(found["entries"]) - len(page)
    return {**found, "root": sandbox.working_dir, "entries": page, "left_out": left_out, "next_page_id": next_page_id}


async def _listed(
    sandbox: SandboxAccess, path: str, paging: Paging, *, if_missing: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What is in the folder behind the last page."""
    last = paging.last(bool, str, str)
    after, after_folder = (last[2], not last[0]) if last is not None else ("", False)
    try:
        return await list_folder(sandbox, path, after=after, after_folder=after_folder)
    except DrydockError as error:
        if if_missing is not None and isinstance(error, ToolError) and error.code == "not_found":
            return if_missing
        raise refusal(error) from error


def _place(entry: dict[str, Any]) -> tuple[bool, str, str]:
    """What the sandbox sorts by."""
    return (entry["kind"] != "folder", entry["name"].lower(), entry["name"])
