"""What clients ask about a running conversation's workspace when they open it (wire-protocol 4.1, 4.3, 4.4)."""

from __future__ import annotations

import shlex

from fastapi import APIRouter

from agent_core.errors import DrydockError
from agent_core.tools.spec import SandboxAccess
from server.dependencies import OwnConversation, ServicesDependency
from server.errors import ReplyError
from server.session.git_status import parse_status

router = APIRouter(prefix="/api/conversations/{conversation_id}")

GIT_SECONDS = 10.0
GIT_SHELL = "git-changes"
MAX_GIT_CHARS = 200_000


@router.get("/config")
async def read_config(record: OwnConversation) -> dict[str, str | None]:
    """No runtime id: with one, a client asks routes of another protocol about it (wire-protocol 0, 13)."""
    return {"runtime_id": None, "session_id": record.id}


@router.get("/vscode-url")
async def read_vscode_url(record: OwnConversation) -> dict[str, str | None]:
    """No editor runs in the sandbox."""
    return {"vscode_url": None}


@router.get("/web-hosts")
async def read_web_hosts(record: OwnConversation) -> dict[str, dict[str, int]]:
    """No port of the sandbox is published."""
    return {"hosts": {}}


@router.get("/git/changes")
async def read_git_changes(record: OwnConversation, services: ServicesDependency) -> list[dict[str, str]]:
    """The files of the workspace's repository that differ from its last commit."""
    sandbox = services.manager.sandbox(record.id)
    if sandbox is None:
        raise ReplyError(404, {"error": "Not a git repository as far as can be seen: the conversation is not running"})
    try:
        facts = await sandbox.request("workspace.facts", {}, limit_seconds=GIT_SECONDS)
        if facts.result.get("git") is None:
            raise ReplyError(404, {"error": "Not a git repository"})
        return parse_status(await _git_status(sandbox))
    except DrydockError as error:
        if isinstance(error, ReplyError):
            raise
        raise ReplyError(500, {"error": str(error)}) from error


async def _git_status(sandbox: SandboxAccess) -> str:
    """Asked in a shell of its own, so that the agent's is not disturbed."""
    where = shlex.quote(sandbox.working_dir)
    command = f"git -C {where} -c core.quotePath=false status --porcelain=v1 --no-renames --untracked-files=all"
    try:
        reply = await sandbox.request(
            "shell.run",
            {"session": GIT_SHELL, "command": command, "timeout": GIT_SECONDS, "max_output": MAX_GIT_CHARS},
            limit_seconds=GIT_SECONDS * 2,
        )
    finally:
        await sandbox.request("shell.kill", {"session": GIT_SHELL}, limit_seconds=GIT_SECONDS)
    if reply.result.get("exit_code") != 0:
        raise ReplyError(500, {"error": f"git status failed: {reply.result.get('output', '')[:500]}"})
    return str(reply.result.get("output", ""))
