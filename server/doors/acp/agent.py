"""``drydock acp``: the agent's side of the Agent Client Protocol, with conversations of a Drydock server."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from acp import PROTOCOL_VERSION, schema
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.helpers import update_available_commands
from pydantic import BaseModel, ValidationError

from agent_core.version import VERSION
from drydock_client import ClientError, DrydockClient, NotFoundError, RefusedError
from server.doors.acp.editor import ASK, MODES, EditorClient, Permissions
from server.doors.acp.editor_files import EditorFiles, Folders, instructions_for, tools_for
from server.doors.acp.json_rpc import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    StdioTransport,
    from_server,
    invalid,
    invalid_form,
    plain,
    standard_lines,
)
from server.doors.acp.prompts import message_from
from server.doors.acp.session import COMMANDS, EditorSession
from server.doors.stdio_program import run_over_stdio
from server.settings.running_server import client_of

logger = logging.getLogger(__name__)

EditorMcpServer = schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio
Reopened = schema.LoadSessionResponse | schema.ResumeSessionResponse

KEY_METHOD: Final = "drydock-key"
PAGE: Final = 50
MAX_SESSIONS: Final = 100

Methods = Mapping[str, tuple[type[BaseModel], Callable[[Any], Awaitable[BaseModel | None]]]]


class EditorsAgent:
    """Answers the requests of one editor. `aclose` it at the end; the conversations go on."""

    def __init__(self, client: DrydockClient, editor: EditorClient) -> None:
        self._client = client
        self._editor = editor
        self._sessions: dict[str, EditorSession] = {}
        self._requests: Methods = {
            "initialize": (schema.InitializeRequest, self._initialize),
            "authenticate": (schema.AuthenticateRequest, self._authenticate),
            "session/new": (schema.NewSessionRequest, self._new),
            "session/load": (schema.LoadSessionRequest, partial(self._reopen, schema.LoadSessionResponse)),
            "session/resume": (schema.ResumeSessionRequest, partial(self._reopen, schema.ResumeSessionResponse)),
            "session/list": (schema.ListSessionsRequest, self._list),
            "session/close": (schema.CloseSessionRequest, self._close),
            "session/delete": (schema.DeleteSessionRequest, self._delete),
            "session/set_mode": (schema.SetSessionModeRequest, self._set_mode),
            "session/prompt": (schema.PromptRequest, self._prompt),
        }
        self._notifications: Methods = {"session/cancel": (schema.CancelNotification, self._cancel)}

    async def __call__(self, method: str, params: Any, is_notification: bool) -> dict[str, Any] | None:
        """Answer a request, or take a notification. Raises `RequestError` only."""
        methods = self._notifications if is_notification else self._requests
        if method not in methods:
            raise RequestError(METHOD_NOT_FOUND, f"{method[:100]}: no such method; there are {', '.join(methods)}")
        form, answer = methods[method]
        try:
            answered = await answer(form.model_validate({} if params is None else params))
        except ValidationError as error:
            raise invalid_form(error) from None
        except ClientError as error:
            raise from_server(error) from error
        return {} if answered is None else plain(answered)

    async def aclose(self) -> None:
        while self._sessions:
            await self._sessions.popitem()[1].aclose()

    async def _initialize(self, params: schema.InitializeRequest) -> schema.InitializeResponse:
        if params.client_capabilities is not None:
            self._editor.abilities = params.client_capabilities
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="drydock", title="Drydock", version=VERSION),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                    delete=schema.SessionDeleteCapabilities(),
                    additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
            auth_methods=[
                schema.AuthMethodAgent(
                    id=KEY_METHOD,
                    name="Access token of the Drydock server",
                    description="Set DRYDOCK_API_KEY in this agent's environment to the server's token.",
                )
            ],
        )

    async def _authenticate(self, params: schema.AuthenticateRequest) -> None:
        if params.method_id != KEY_METHOD:
            raise invalid("methodId", f"there is no {params.method_id!r}; the only one is {KEY_METHOD!r}")
        await self._client.conversation_page(limit=1)

    async def _new(self, params: schema.NewSessionRequest) -> schema.NewSessionResponse:
        folders = _folders(params.cwd, params.additional_directories)
        self._check_room()
        asks = await self._asks()
        options: dict[str, Any] = {"mcp_config": mcp_config(params.mcp_servers)} if params.mcp_servers else {}
        if tools := tools_for(self._editor):
            options["client_tools"] = tools
        conversation = await self._client.create_conversation(
            instructions=instructions_for(self._editor, folders), options=options
        )
        session = self._session(conversation.id, folders)
        return schema.NewSessionResponse(session_id=conversation.id, modes=self._begin(session, asks))

    async def _reopen(
        self, response: type[Reopened], params: schema.LoadSessionRequest | schema.ResumeSessionRequest
    ) -> Reopened:
        asks = await self._asks()
        folders = _folders(params.cwd, params.additional_directories)
        try:
            await self._client.conversation(params.session_id)
        except NotFoundError as error:
            problem = f"there is no conversation {params.session_id[:100]!r}; session/list names those that there are"
            raise RequestError(NOT_FOUND, f"sessionId: {problem}") from error
        required = {tool["name"]: tool for tool in tools_for(self._editor)}
        there = await self._client.client_tools(params.session_id)
        if required and not required.keys() <= {tool.get("name") for tool in there}:
            others = [tool for tool in there if tool.get("name") not in required]
            try:
                await self._client.declare_client_tools(params.session_id, [*others, *required.values()])
            except RefusedError as error:
                logger.warning("the editor's files are no tools in conversation %s: %s", params.session_id, error)
        if (open_one := self._sessions.pop(params.session_id, None)) is not None:
            await open_one.aclose()
        self._check_room()
        session = self._session(params.session_id, folders)
        await session.replay(quietly=response is schema.ResumeSessionResponse)
        return response(modes=self._begin(session, asks))

    async def _list(self, params: schema.ListSessionsRequest) -> schema.ListSessionsResponse:
        page = await self._client.conversation_page(limit=PAGE, page_id=params.cursor)
        cwd = params.cwd or os.getcwd()
        sessions = [
            schema.SessionInfo(
                session_id=one.id,
                cwd=cwd,
                title=one.title or None,
                updated_at=None if one.last_updated_at is None else one.last_updated_at.isoformat(),
            )
            for one in page.results
        ]
        return schema.ListSessionsResponse(sessions=sessions, next_cursor=page.next_page_id)

    async def _close(self, params: schema.CloseSessionRequest) -> None:
        session = self._sessions.pop(params.session_id, None)
        if session is not None:
            await session.cancel()
            await session.aclose()

    async def _delete(self, params: schema.DeleteSessionRequest) -> None:
        session = self._sessions.pop(params.session_id, None)
        if session is not None:
            await session.aclose()
        await self._client.delete(params.session_id)

    async def _set_mode(self, params: schema.SetSessionModeRequest) -> None:
        permissions = self._open(params.session_id).permissions
        if params.mode_id not in (modes := [mode.id for mode in MODES]):
            raise invalid("modeId", f"there is no {params.mode_id!r}; there are {', '.join(modes)}")
        if params.mode_id == ASK and permissions.is_remembered:
            raise invalid("modeId", "everything was allowed for the rest of this session; begin another to be asked")
        permissions.mode = params.mode_id

    async def _prompt(self, params: schema.PromptRequest) -> schema.PromptResponse:
        session = self._open(params.session_id)
        message = message_from(params.prompt)
        if await session.run_command(message.text):
            return schema.PromptResponse(stop_reason="end_turn")
        return schema.PromptResponse(stop_reason=await session.prompt(message))

    async def _cancel(self, params: schema.CancelNotification) -> None:
        if (session := self._sessions.get(params.session_id)) is not None:
            await session.cancel()

    def _open(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(
                NOT_FOUND, f"sessionId: {session_id[:100]!r} is not open; call session/new or session/load first"
            )
        return session

    def _session(self, session_id: str, folders: Folders) -> EditorSession:
        return EditorSession(
            session_id,
            self._client,
            self._editor,
            permissions=Permissions(session_id, self._client, self._editor),
            files=EditorFiles(self._client, self._editor, session_id, folders),
        )

    def _begin(self, session: EditorSession, asks: bool) -> schema.SessionModeState | None:
        self._sessions[session.id] = session
        session.permissions.has_modes = asks
        session.start(update_available_commands(COMMANDS))
        return session.permissions.state() if asks else None

    async def _asks(self) -> bool:
        settings = await self._client.settings.get()
        return settings is not None and settings.confirmation_mode is True

    def _check_room(self) -> None:
        if len(self._sessions) >= MAX_SESSIONS:
            raise RequestError(INVALID_REQUEST, f"{MAX_SESSIONS} sessions are open; close one (session/close) first")


def mcp_config(servers: Sequence[EditorMcpServer]) -> dict[str, Any]:
    """The servers as the ``mcp_config`` of a conversation; raises `RequestError` for one that cannot be passed on."""
    found: dict[str, list[dict[str, Any]]] = {"stdio_servers": [], "shttp_servers": [], "sse_servers": []}
    for number, server in enumerate(servers):
        where = f"mcpServers.{number}"
        match server:
            case schema.McpServerStdio():
                name = re.sub(r"[^A-Za-z0-9_-]+", "-", server.name).strip("-") or f"server-{number}"
                if not server.command or any(letter.isspace() for letter in server.command):
                    raise invalid(f"{where}.command", "is empty or has blanks; give the path of a program without any")
                program = {"name": name, "command": server.command, "args": list(server.args)}
                found["stdio_servers"].append({**program, "env": {one.name: one.value for one in server.env}})
            case schema.HttpMcpServer():
                found["shttp_servers"].append(_address(server, where))
            case schema.SseMcpServer():
                found["sse_servers"].append(_address(server, where))
            case schema.AcpMcpServer():
                raise invalid(f"{where}.type", "is acp, which is not supported; give http, sse or a program")
    return found


def _address(server: schema.HttpMcpServer | schema.SseMcpServer, where: str) -> dict[str, Any]:
    if not server.url.startswith(("http://", "https://")):
        raise invalid(f"{where}.url", f"{server.url[:200]!r} is no http(s) address; give one such as https://host/mcp")
    address: dict[str, Any] = {"url": server.url}
    for number, header in enumerate(server.headers):
        scheme, _, token = header.value.partition(" ")
        if header.name.lower() != "authorization" or scheme.lower() != "bearer" or not token:
            raise invalid(
                f"{where}.headers.{number}",
                f"is {header.name[:100]!r}; the only header that is passed on is `Authorization: Bearer …`",
            )
        address["api_key"] = token
    return address


def _folders(cwd: str, more: Sequence[str] | None) -> Folders:
    for field, folder in (("cwd", cwd), *(("additionalDirectories", one) for one in more or ())):
        if not os.path.isabs(folder) or "\0" in folder:
            raise invalid(field, f"{folder[:200]!r} is no absolute path; give one, such as /home/me/project")
    return Folders([cwd, *(more or ())])


def acp(url: str | None, key_file: Path | None, environment: Mapping[str, str]) -> int:
    """Serve one editor over standard input and output until it ends; the arguments are those of `client_of`."""
    client = client_of(url, key_file, environment)

    async def serve() -> None:
        await serve_editor(client, await standard_lines())

    return run_over_stdio("acp", serve())


async def serve_editor(client: DrydockClient, lines: StdioTransport) -> None:
    """Answer one editor until it ends; conversations go on."""
    async with client:
        connection = Connection(lambda *request: agent(*request), lines, listening=False)
        agent = EditorsAgent(client, EditorClient(connection))
        try:
            await connection.main_loop()
        finally:
            await agent.aclose()
            await connection.close()
