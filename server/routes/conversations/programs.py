"""What programs on the library ask of a server beside its log: their agent's configuration, tools and sandbox."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated, Any, Final, Literal

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from agent_core.agent.base import AgentMark
from agent_core.errors import SandboxError, SandboxLostError, ToolError
from server.conversation_manager.forks import sandbox_of
from server.dependencies import OwnConversation, ServicesDependency, conversation_not_found
from server.errors import AgentAtWorkError, ReplyError, SessionError
from server.routes.conversations.events import Done
from server.routes.conversations.new_conversation import check_program
from server.routes.replies import errors, plain_error
from server.routes.route_classes import CLIENT_GONE, make_router, while_connected
from server.session.agents.programs import PROGRAM, ProgramSettings, opened_program, sealed_program

router = make_router("/api/conversations/{conversation_id}")

MAX_SECONDS: Final = 3600.0
MAX_BLOB_CHARS: Final = 16 * 1024 * 1024
OWN_KEYS: Final = "direct:"
"""How the keys of a program's own requests begin: the agent's calls have others."""

SandboxOperation = Literal[
    "shell.run",
    "shell.interrupt",
    "shell.kill",
    "kernel.run",
    "kernel.restart",
    "browser.run",
    "ports.list",
    "file.edit",
    "file.range",
    "file.read",
    "file.whole",
    "file.write",
    "folder.list",
    "patch.apply",
    "search.glob",
    "search.grep",
    "git.diff",
    "git.identity",
    "git.log",
    "git.status",
    "workspace.facts",
    "transfer.read",
    "transfer.next",
    "transfer.write",
    "transfer.put",
    "transfer.keep",
    "transfer.drop",
]
"""What tools ask a sandbox for. What keeps the conversation itself (journal, snapshots) is not among it."""


class SandboxRequest(BaseModel, extra="forbid", hide_input_in_errors=True):
    """One request to the sandbox; with a `key` it is carried out at most once."""

    op: SandboxOperation
    args: dict[str, Any] = Field(default_factory=dict)
    blob: Annotated[str, Field(max_length=MAX_BLOB_CHARS)] | None = Field(None, description="Bytes, as base64.")
    key: Annotated[str, Field(pattern=rf"^{OWN_KEYS}[A-Za-z0-9-]{{1,100}}$")] | None = None
    limit_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS, strict=True)] | None = None


class SandboxFailure(BaseModel):
    """Why a request came to nothing: its arguments (`tool`), the sandbox, or (`lost`) nobody knows whether it did."""

    kind: Literal["tool", "sandbox", "lost"]
    message: str
    code: str = ""
    fix: str = ""


class SandboxOutcome(BaseModel):
    """What came of it."""

    result: dict[str, Any] = Field(default_factory=dict)
    blob: str | None = Field(None, description="Bytes, as base64.")
    failure: SandboxFailure | None = None


class AgentTools(BaseModel):
    """The tools that an agent at work has, with those of MCP servers."""

    tools: list[dict[str, Any]] = Field(description="As a server of the Model Context Protocol lists them.")


@router.put("/program", response_model=Done, responses=errors(403, 409))
async def replace_program(
    record: OwnConversation, services: ServicesDependency, body: ProgramSettings
) -> dict[str, Any]:
    """Have the conversation run with this from its next run on; not while its agent works.

    An agent may be replaced by one of its class that has its tools, and perhaps others.
    """
    await check_program(services, body)
    box = services.database.secrets
    try:
        before = opened_program(box, record)
    except SessionError:
        before = None  # it could not be used any more: this is what mends it
    if before is not None:
        if before.as_data() == body.as_data():
            return {"success": True}
        try:
            AgentMark.of(body.agent).check(AgentMark.of(before.agent), allow_added_tools=True)
        except ValueError as error:
            raise plain_error(409, f"agent: {error}") from error
    try:
        is_there = await services.manager.reconfigure(record.id, {PROGRAM: sealed_program(box, record.id, body)})
    except AgentAtWorkError as error:
        raise ReplyError(409, {"detail": str(error), "error": str(error), "code": "at_work"}) from error
    if not is_there:
        raise conversation_not_found(record.id)
    return {"success": True}


@router.get("/tools")
async def list_agent_tools(record: OwnConversation, services: ServicesDependency) -> AgentTools:
    """The tools of its agent as they are now; none while the conversation does not run."""
    return AgentTools(tools=[tool.to_mcp_tool() for tool in services.manager.tools(record.id)])


@router.post("/sandbox")
async def ask_sandbox(
    request: Request, record: OwnConversation, services: ServicesDependency, body: SandboxRequest
) -> SandboxOutcome:
    """Ask the conversation's sandbox for one operation, as the executors of tools do; it is started if need be.

    Nothing of it is in the log. Who hangs up has it cancelled.
    """
    services.manager.touch(record.id)
    try:
        return await while_connected(request, _asked(services, record.id, body))
    except ClientDisconnect:
        raise ReplyError(CLIENT_GONE, {"message": "The client has gone"}) from None


async def _asked(services: ServicesDependency, conversation_id: str, body: SandboxRequest) -> SandboxOutcome:
    try:
        sandbox = await sandbox_of(services.manager, conversation_id)
        reply = await sandbox.request(
            body.op,
            body.args,
            key=body.key,
            limit_seconds=body.limit_seconds,
            blob=b64decode(body.blob, validate=True) if body.blob is not None else None,
        )
    except SandboxLostError as error:
        return SandboxOutcome(failure=SandboxFailure(kind="lost", message=str(error), code=error.code, fix=error.fix))
    except SandboxError as error:
        return SandboxOutcome(failure=SandboxFailure(kind="sandbox", message=str(error), code=error.code))
    except ToolError as error:
        return SandboxOutcome(failure=SandboxFailure(kind="tool", message=str(error), code=error.code))
    except ValueError as error:
        raise plain_error(422, f"blob: is no base64: {error}") from error
    blob = b64encode(reply.blob).decode() if reply.blob is not None else None
    return SandboxOutcome(result=reply.result, blob=blob)
