"""The agent's side of the protocol: what each method of it does with conversations of a Drydock server."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from acp import PROTOCOL_VERSION
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.helpers import update_available_commands, update_current_mode
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AuthenticateRequest,
    AuthMethodAgent,
    CancelNotification,
    CloseSessionRequest,
    DeleteSessionRequest,
    HttpMcpServer,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionRequest,
    NewSessionResponse,
    PromptCapabilities,
    PromptRequest,
    PromptResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionModeRequest,
    SseMcpServer,
)

from agent_core.version import VERSION
from drydock_client import DrydockClient, NotFoundError, RefusedError
from server.doors.acp.editor import ASK, MODES, EditorClient, Permissions
from server.doors.acp.editor_files import Copies, EditorFiles, Folders, instructions_for, tools_for
from server.doors.acp.json_rpc import NOT_FOUND, Dispatcher, Method, StdioTransport, invalid, standard_lines
from server.doors.acp.prompts import message_from
from server.doors.acp.session import COMMANDS, Commands, EditorSession
from server.doors.stdio_program import run_over_stdio
from server.settings.running_server import client_of

Given = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def mcp_config(servers: Sequence[Given]) -> dict[str, Any]:
    """The servers in the form of the protocol's ``mcp_config``.

    Programs run where the Drydock server runs such programs (its setting `mcp_programs`), by default in the sandbox.

    Raises:
        RequestError: a server cannot be given on as it is.
    """
    found: dict[str, list[dict[str, Any]]] = {"stdio_servers": [], "shttp_servers": [], "sse_servers": []}
    for number, server in enumerate(servers):
        where = f"mcpServers.{number}"
        match server:
            case McpServerStdio():
                name = re.sub(r"[^A-Za-z0-9_-]+", "-", server.name).strip("-") or f"server-{number}"
                if not server.command or any(letter.isspace() for letter in server.command):
                    raise invalid(f"{where}.command", "is empty or has blanks; give the path of a program without any")
                program = {"name": name, "command": server.command, "args": list(server.args)}
                found["stdio_servers"].append({**program, "env": {one.name: one.value for one in server.env}})
            case HttpMcpServer():
                found["shttp_servers"].append(_address(server, where))
            case SseMcpServer():
                found["sse_servers"].append(_address(server, where))
            case AcpMcpServer():
                raise invalid(f"{where}.type", "is acp, which is not supported; give http, sse or a program")
    return found


def _address(server: HttpMcpServer | SseMcpServer, where: str) -> dict[str, Any]:
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


logger = logging.getLogger(__name__)

KEY_METHOD: Final = "drydock-key"
PAGE: Final = 50
MAX_SESSIONS: Final = 100


class EditorsAgent:
    """Answers the requests of one editor. `aclose` it at the end; the conversations go on."""

    def __init__(self, client: DrydockClient, editor: EditorClient) -> None:
        self._client = client
        self._editor = editor
        self._sessions: dict[str, EditorSession] = {}

    @property
    def requests(self) -> Mapping[str, Method]:
        """What the editor may ask for."""
        return {
            "initialize": Method(InitializeRequest, self._initialize),
            "authenticate": Method(AuthenticateRequest, self._authenticate),
            "session/new": Method(NewSessionRequest, self._new),
            "session/load": Method(LoadSessionRequest, self._load),
            "session/resume": Method(ResumeSessionRequest, self._resume),
            "session/list": Method(ListSessionsRequest, self._list),
            "session/close": Method(CloseSessionRequest, self._close),
            "session/delete": Method(DeleteSessionRequest, self._delete),
            "session/set_mode": Method(SetSessionModeRequest, self._set_mode),
            "session/prompt": Method(PromptRequest, self._prompt),
        }

    @property
    def notifications(self) -> Mapping[str, Method]:
        """What the editor may tell."""
        return {"session/cancel": Method(CancelNotification, self._cancel)}

    async def aclose(self) -> None:
        """Follow no conversation any more."""
        while self._sessions:
            await self._sessions.popitem()[1].aclose()

    async def _initialize(self, wish: InitializeRequest) -> InitializeResponse:
        if wish.client_capabilities is not None:
            self._editor.abilities = wish.client_capabilities
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="drydock", title="Drydock", version=VERSION),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                    additional_directories=SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
            auth_methods=[
                AuthMethodAgent(
                    id=KEY_METHOD,
                    name="Access token of the Drydock server",
                    description="Set DRYDOCK_API_KEY in this agent's environment to the server's token.",
                )
            ],
        )

    async def _authenticate(self, wish: AuthenticateRequest) -> None:
        if wish.method_id != KEY_METHOD:
            raise invalid("methodId", f"there is no {wish.method_id!r}; the only one is {KEY_METHOD!r}")
        await self._client.conversation_page(limit=1)

    async def _new(self, wish: NewSessionRequest) -> NewSessionResponse:
        folders = _folders(wish.cwd, wish.additional_directories)
        self._room()
        asks = await self._asks()
        options: dict[str, Any] = {"mcp_config": mcp_config(wish.mcp_servers)} if wish.mcp_servers else {}
        if tools := tools_for(self._editor):
            options["client_tools"] = tools
        made = await self._client.create_conversation(
            instructions=instructions_for(self._editor, folders), options=options
        )
        session = self._session(made.id, folders)
        return NewSessionResponse(session_id=made.id, modes=self._begin(session, asks))

    async def _load(self, wish: LoadSessionRequest) -> LoadSessionResponse:
        asks = await self._asks()
        session = await self._known(wish.session_id, _folders(wish.cwd, wish.additional_directories))
        await session.replay()
        return LoadSessionResponse(modes=self._begin(session, asks))

    async def _resume(self, wish: ResumeSessionRequest) -> ResumeSessionResponse:
        asks = await self._asks()
        session = await self._known(wish.session_id, _folders(wish.cwd, wish.additional_directories))
        await session.replay(quietly=True)
        return ResumeSessionResponse(modes=self._begin(session, asks))

    async def _list(self, wish: ListSessionsRequest) -> ListSessionsResponse:
        page = await self._client.conversation_page(limit=PAGE, page_id=wish.cursor)
        cwd = wish.cwd or os.getcwd()
        sessions = [
            SessionInfo(
                session_id=one.id,
                cwd=cwd,
                title=one.title or None,
                updated_at=None if one.last_updated_at is None else one.last_updated_at.isoformat(),
            )
            for one in page.results
        ]
        return ListSessionsResponse(sessions=sessions, next_cursor=page.next_page_id)

    async def _close(self, wish: CloseSessionRequest) -> None:
        session = self._sessions.pop(wish.session_id, None)
        if session is not None:
            await session.cancel()
            await session.aclose()

    async def _delete(self, wish: DeleteSessionRequest) -> None:
        session = self._sessions.pop(wish.session_id, None)
        if session is not None:
            await session.aclose()
        await self._client.delete(wish.session_id)

    async def _set_mode(self, wish: SetSessionModeRequest) -> None:
        permissions = self._open(wish.session_id).permissions
        if wish.mode_id not in (modes := [mode.id for mode in MODES]):
            raise invalid("modeId", f"there is no {wish.mode_id!r}; there are {', '.join(modes)}")
        if wish.mode_id == ASK and permissions.is_remembered:
            raise invalid("modeId", "everything was allowed for the rest of this session; begin another to be asked")
        permissions.mode = wish.mode_id

    async def _prompt(self, wish: PromptRequest) -> PromptResponse:
        session = self._open(wish.session_id)
        message = message_from(wish.prompt)
        if await session.commands.run(message.text):
            return PromptResponse(stop_reason="end_turn")
        return PromptResponse(stop_reason=await session.prompt(message))

    async def _cancel(self, wish: CancelNotification) -> None:
        if (session := self._sessions.get(wish.session_id)) is not None:
            await session.cancel()

    def _open(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(
                NOT_FOUND, f"sessionId: {session_id[:100]!r} is not open; call session/new or session/load first"
            )
        return session

    async def _known(self, session_id: str, folders: Folders) -> EditorSession:
        """A session of a conversation that exists, opened anew."""
        try:
            await self._client.conversation(session_id)
        except NotFoundError as error:
            problem = f"there is no conversation {session_id[:100]!r}; session/list names those that there are"
            raise RequestError(NOT_FOUND, f"sessionId: {problem}") from error
        await self._declare_tools(session_id)
        if (open_one := self._sessions.pop(session_id, None)) is not None:
            await open_one.aclose()
        self._room()
        return self._session(session_id, folders)

    async def _declare_tools(self, session_id: str) -> None:
        """Let the agent have the editor's tools in a conversation that was begun elsewhere as well."""
        wanted = {tool["name"]: tool for tool in tools_for(self._editor)}
        there = await self._client.client_tools(session_id)
        if wanted and not wanted.keys() <= {tool.get("name") for tool in there}:
            others = [tool for tool in there if tool.get("name") not in wanted]
            try:
                await self._client.declare_client_tools(session_id, [*others, *wanted.values()])
            except RefusedError as error:
                logger.warning("the editor's files are no tools in conversation %s: %s", session_id, error)

    def _session(self, session_id: str, folders: Folders) -> EditorSession:
        async def changed(mode: str) -> None:
            await self._editor.show(session_id, update_current_mode(mode))

        permissions = Permissions(session_id, self._client, self._editor, changed)
        copies = Copies(self._client, self._editor, session_id, folders)
        return EditorSession(
            session_id,
            self._client,
            self._editor,
            permissions=permissions,
            files=EditorFiles(self._editor, session_id, folders, copies),
            commands=Commands(self._client, self._editor, session_id, copies),
        )

    def _begin(self, session: EditorSession, asks: bool) -> SessionModeState | None:
        """Follow it, from behind the answer to the request; returns its modes, where it has any."""
        self._sessions[session.id] = session
        session.permissions.has_modes = asks
        session.start(update_available_commands(COMMANDS))
        return session.permissions.state() if asks else None

    async def _asks(self) -> bool:
        """Whether this user's agents wait to be allowed things at all."""
        settings = await self._client.settings.get()
        return settings is not None and settings.confirmation_mode is True

    def _room(self) -> None:
        if len(self._sessions) >= MAX_SESSIONS:
            raise RequestError(-32600, f"{MAX_SESSIONS} sessions are open; close one (session/close) first")


def _folders(cwd: str, more: Sequence[str] | None) -> Folders:
    for field, folder in (("cwd", cwd), *(("additionalDirectories", one) for one in more or ())):
        if not os.path.isabs(folder) or "\0" in folder:
            raise invalid(field, f"{folder[:200]!r} is no absolute path; give one, such as /home/me/project")
    return Folders([cwd, *(more or ())])


def acp(url: str | None, key_file: Path | None, environment: Mapping[str, str]) -> int:
    """Serve one editor until its end of standard input; returns the exit status.

    The arguments are those of `client_of`.

    Raises:
        DrydockError: the options cannot be used.
    """
    return run_over_stdio("acp", _serve(client_of(url, key_file, environment)))


async def serve_editor(client: DrydockClient, lines: StdioTransport) -> None:
    """Answer one editor until it ends; conversations go on."""
    async with client:
        connection = Connection(lambda *request: dispatcher(*request), lines, listening=False)
        agent = EditorsAgent(client, EditorClient(connection))
        dispatcher = Dispatcher(agent.requests, agent.notifications)
        try:
            await connection.main_loop()
        finally:
            await agent.aclose()
            await connection.close()


async def _serve(client: DrydockClient) -> None:
    await serve_editor(client, await standard_lines())
