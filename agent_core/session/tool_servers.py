"""Tools that a session's agent has from clients and MCP servers, whose trouble is told in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from agent_core.agent.base import AgentBase
from agent_core.errors import EventStoreError, SandboxError, StreamClosedError
from agent_core.events.control import ToolServerFailed
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.mcp.config import McpServer
from agent_core.mcp.program import McpServerError
from agent_core.mcp.servers import McpServers
from agent_core.mcp.tool import McpTool, OwnTool
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.runtime.channel.tunnels import PortConnection
from agent_core.security.secrets import SecretRegistry
from agent_core.session.settings import SessionSettings
from agent_core.skills.skill import Skill, SkillLevel
from agent_core.tools.registry import LiveTools, resolve_tool
from agent_core.tools.spec import Tool, ToolMakerState
from agent_core.troubles import Trouble, coded

EXIT_SECONDS = 1.0
NOT_FOUND = (
    "its command {command!r} was not found in the sandbox; use an image that has it (setting sandbox_image;"
    " runtime_images/README.md shows how to make one with npx and uvx), give the full path of a program there, or give"
    " the address of a server that runs elsewhere"
)


class SandboxPrograms:
    """Programs run in this sandbox (`agent_core.mcp.program.ProgramPlace`), once it `is_up`."""

    def __init__(self, sandbox: ConversationSandbox) -> None:
        self.is_up = asyncio.Event()
        self._sandbox = sandbox

    async def ready(self) -> None:
        await self.is_up.wait()

    async def start(self, server: McpServer) -> SandboxProgram:
        command = server.command or ""
        order: dict[str, Any] = {"command": [command, *server.args], "env": dict(server.env), "cwd": server.cwd}
        try:
            return SandboxProgram(await self._sandbox.start_program(order))
        except SandboxError as error:
            text = NOT_FOUND.format(command=command) if error.code == "not_found" else str(error)
            raise McpServerError(text) from error


class SandboxProgram:
    """A program in a sandbox (`agent_core.mcp.program.RunningProgram`)."""

    def __init__(self, connection: PortConnection) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    async def read(self) -> bytes:
        try:
            return await self._connection.read()
        except SandboxError as error:
            raise ConnectionError(str(error)) from error

    async def write(self, data: bytes) -> None:
        # In a task of its own: a caller that is cancelled must not leave half a message behind.
        writing = asyncio.create_task(self._write(data), name="mcp-write")
        self._writing.add(writing)
        writing.add_done_callback(self._written)
        await asyncio.shield(writing)

    async def last_words(self) -> str:
        return self._connection.last_words

    async def stop(self) -> None:
        self._connection.end()
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                while await self._connection.read():
                    pass
        except (TimeoutError, SandboxError):
            pass  # closing ends it
        finally:
            self._connection.close()

    async def _write(self, data: bytes) -> None:
        async with self._turn:
            try:
                await self._connection.write(data)
            except SandboxError as error:
                raise ConnectionError(str(error)) from error

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled():
            writing.exception()  # whoever waits for it raises it; nobody may be left


logger = logging.getLogger(__name__)

CLIENT = "mcp"
CLIENTS = "clients"
WAITING = "STATUS$SETTING_UP_WORKSPACE"


def make_servers(settings: SessionSettings, agent: AgentBase, sandbox: ConversationSandbox) -> McpServers:
    """The servers of this agent and its always-on skills, not connected yet; none for an agent that uses no MCP."""
    rules = settings.mcp_rules
    if not agent.supports_openhands_mcp:
        if agent.mcp_config:
            logger.warning("a %s uses no MCP servers; those configured are left alone", agent.name)
        return McpServers({})
    servers = McpServers(
        agent.mcp_config,
        environment=rules.environment,
        refused_programs=rules.refused_programs,
        programs=SandboxPrograms(sandbox) if rules.programs == "sandbox" else None,
        sign_ins=rules.sign_ins,
    )
    skills = agent.agent_context.active_skills if agent.agent_context is not None else []
    untriggered = [skill for skill in skills if skill.trigger is None]
    servers.add(untriggered, rules.refused_levels)
    return servers


class ToolServers:
    """Connects a session's agent with its MCP servers, and with the tools of its clients.

    The agent makes its own tools at once, which raises `KeyError` or `ValueError` where it names one that does not
    exist, or one twice; `own_tools` are those of the program around it. `tools` has all that are there.
    """

    def __init__(
        self,
        servers: McpServers,
        agent: AgentBase,
        place: ToolMakerState,
        stream: EventStream,
        own_tools: Sequence[OwnTool] = (),
        *,
        refused_levels: frozenset[SkillLevel] = frozenset(),
    ) -> None:
        self.servers = servers
        self.tools = LiveTools(agent.initialize(place), wait=self._before_a_step, wait_for_all=self._all)
        self._agent = agent
        self._place = place
        self._own_tools = own_tools if agent.supports_openhands_mcp else ()
        self._stream = stream
        self._refused_levels = refused_levels
        self._secrets: SecretRegistry | None = None
        self._following: asyncio.Task[None] | None = None
        self._has_waited = False

    def start(self, secrets: SecretRegistry) -> None:
        """Begin to connect, and to tell in the log what goes wrong."""
        self._secrets = secrets
        self._take_tools()
        if self.servers.is_empty:
            return
        self._stream.secrets.add(self.servers.secrets())
        self.servers.start(secrets.environment_for, self._stream.secrets.add)
        self._following = self._following or asyncio.create_task(
            self._follow(), name=f"mcp:{self._stream.conversation_id}"
        )

    def bring(self, skills: Sequence[Skill]) -> None:
        """Have the MCP servers of skills that were brought up; their tools are there from the next step on."""
        if not self._agent.supports_openhands_mcp:
            return
        if self.servers.add(skills, self._refused_levels) and self._secrets is not None:
            self._has_waited = False
            self.start(self._secrets)

    def set_client_tools(self, specs: Sequence[Tool]) -> None:
        made = [tool for spec in specs for tool in resolve_tool(spec, self._place)]
        self._agent.add_runtime_tools(made, client=CLIENTS)
        self.tools.replace(self._agent.tools_map)

    def sandbox_is_up(self) -> None:
        if isinstance(self.servers.programs, SandboxPrograms):
            self.servers.programs.is_up.set()

    async def close(self, *, keep_servers: bool) -> None:
        """Stop to follow them; unless they are kept for another session, end them."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        if not keep_servers:
            await self.servers.close()

    async def _before_a_step(self) -> None:
        if not self._has_waited and (pending := self.servers.pending):
            self._has_waited = True
            text = f"Waiting for MCP servers: {', '.join(pending)}"
            self._stream.publish(StatusNotice(WAITING, text))
        await self.servers.settled()
        self._take_tools()

    async def _all(self) -> None:
        await self.servers.all_settled()
        self._take_tools()

    async def _follow(self) -> None:
        self._take_tools()  # they may be there from an earlier session
        await self._tell()
        while True:
            await self.servers.changed.wait()
            self.servers.changed.clear()
            self._take_tools()
            await self._tell()

    def _own_names(self) -> set[str]:
        return self._agent.tools_map.keys() - self._agent.tools_brought_by(CLIENT)

    def _take_tools(self) -> None:
        if self.servers.is_empty and not self._own_tools:
            return
        taken = self._own_names()
        found: dict[str, McpTool] = {tool.name: tool for tool in self._own_tools if tool.name not in taken}
        found.update({tool.name: tool for tool in self.servers.tools(taken)})  # what is configured comes first
        offered = []
        for tool in found.values():
            with suppress(ValueError):  # it is told as a problem
                offered += [tool] if self._agent.lets_through(tool.name) else []
        self._agent.add_runtime_tools(offered, client=CLIENT)
        self.tools.replace(self._agent.tools_map)

    async def _tell(self) -> None:
        problems = self.servers.problems(self._own_names(), self._agent.lets_through)
        found = [(server, reason, "") for server, reasons in problems.items() for reason in reasons]
        wanted = self.servers.wanted_sign_ins()
        for server, reason, sign_in in [*found, *((name, text, one) for name, (one, text) in wanted.items())]:
            if (server, reason) in self.servers.reported:
                continue
            self.servers.reported.add((server, reason))
            text = f"MCP server {server!r}: {reason}"
            where = self._stream.conversation_id
            logger.warning("conversation %s: %s", where, text, extra=coded(Trouble.TOOL_SERVER_FAILED, where))
            try:
                await self._stream.add_event(ToolServerFailed(server=server, detail=text, sign_in=sign_in))
            except (EventStoreError, StreamClosedError) as error:
                logger.warning("conversation %s: that was not stored: %s", self._stream.conversation_id, error)
