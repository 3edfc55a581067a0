"""`OpenSession`: the one open session of a conversation, and the sandbox that its runs share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from agent_core.agent.base import AgentBase, AgentMark
from agent_core.errors import EventStoreError
from agent_core.events.branches import Rewind
from agent_core.events.transient import Transient
from agent_core.library.callbacks import Callbacks
from agent_core.library.conversation_log import ConversationLog, StatusFold
from agent_core.library.workspace import OpenWorkspace
from agent_core.llm.transport import client
from agent_core.mcp.config import McpServer
from agent_core.mcp.servers import McpServers
from agent_core.runtime.channel.connection import ConversationSandbox, SandboxConnection
from agent_core.runtime.channel.shared_sandbox import SharedSandbox
from agent_core.runtime.loop_thread import Closer, library_loop
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.hooks import HookEvent
from agent_core.security.secrets import SecretValue
from agent_core.session.agent_session import AT_REST, LOOK_SECONDS, AgentSession
from agent_core.session.settings import SessionSettings
from agent_core.session.tool_servers import make_servers
from agent_core.tools.spec import Tool

logger = logging.getLogger(__name__)

USE_SECONDS = 600.0
"""How long the end of a run waits for those who use its session: a call of a tool is over by then."""

END_SECONDS = 10.0


class OpenSession:
    """Opens the session at its first use, and another one at the first use after its end.

    Whoever writes to it, or uses its sandbox, does so within `used` or `sandbox_access`: its end waits for that. A new
    `agent` and new `settings` count from the next session on; `set_analyzer` and `update_secrets` change an open one,
    too. `at_work` is the session while a run has it; its MCP servers stay connected from one session to the next.
    """

    def __init__(
        self,
        log: ConversationLog,
        sandbox: SandboxUse,
        callbacks: Callbacks,
        *,
        agent: AgentBase,
        settings: SessionSettings,
        data_dir: str,
    ) -> None:
        self.agent = agent
        self.settings = replace(settings, agent=agent)
        self.has_begun = False
        self.at_work: AgentSession | None = None
        self.follower: Follower | None = None
        self._log = log
        self._sandbox = sandbox
        self._callbacks = callbacks
        self._data_dir = data_dir
        self.session: AgentSession | None = None
        self._servers: McpServers | None = None
        self._servers_config: Mapping[str, McpServer] = {}
        self._ended: Follower | None = None
        # Protects which session is open: the next one owns the log only once the one before has let go of it.
        self._changing = asyncio.Lock()
        self._uses = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @property
    def ready_at_work(self) -> AgentSession | None:
        return self.at_work if self.at_work is not None and self.at_work.is_ready else None

    @contextlib.asynccontextmanager
    async def used(self) -> AsyncIterator[AgentSession]:
        """The session, opened if need be; it does not end meanwhile."""
        with contextlib.ExitStack() as use:
            async with self._changing:
                session = await self._opened()
                use.enter_context(self._in_use())
            yield session

    @contextlib.asynccontextmanager
    async def sandbox_access(self) -> AsyncIterator[SandboxConnection | SharedSandbox]:
        """The sandbox of the run that is under way, which waits with its end; else a connection for this one use."""
        if (session := self.ready_at_work) is not None:
            with self._in_use():
                yield session.sandbox
            return
        async with self._sandbox.for_one_call() as sandbox:
            yield sandbox

    def use_agent(self, agent: AgentBase) -> None:
        self.agent = agent
        self.settings = replace(self.settings, agent=agent)

    async def set_analyzer(self, analyzer: SecurityAnalyzer | None) -> None:
        async with self._changing:
            self.settings = replace(self.settings, analyzer=analyzer)
            if self.session is not None:
                self.session.step.set_analyzer(analyzer)

    async def update_secrets(self, secrets: Mapping[str, SecretValue]) -> None:
        async with self._changing:
            self.settings = replace(self.settings, named_secrets={**self.settings.named_secrets, **secrets})
            if self.session is not None:
                self.session.secrets.update(secrets)

    async def set_client_tools(self, tools: tuple[Tool, ...]) -> None:
        async with self._changing:
            if self.session is not None:
                self.session.set_client_tools(tools)
            self.settings = replace(self.settings, client_tools=tools)

    async def put_to_work(self) -> AgentSession:
        async with self._changing:
            self.at_work = await self._opened()
            return self.at_work

    async def end_at_rest(self) -> bool:
        """End the session of a run whose agent has nothing to do; returns whether it did."""
        return await self._end(lambda session: session.is_at_rest, USE_SECONDS)

    async def end(self) -> None:
        await self._end(lambda _session: True, END_SECONDS)

    async def end_unless_at_work(self) -> None:
        """End the session, unless a run has it: the next one takes up what was changed."""
        if await self._end(lambda session: session is not self.at_work, END_SECONDS):
            await self.callbacks_done()

    async def callbacks_done(self) -> None:
        """Wait until the callbacks have seen what the ended sessions have written."""
        if self._ended is not None:
            await self._ended.end()

    async def _opened(self) -> AgentSession:
        if self.session is None:
            fold = await self._log.present()
            if self._data_dir:
                check = partial(check_stored_agent, self.agent, Path(self._data_dir))
                await asyncio.get_running_loop().run_in_executor(self._callbacks.thread, check)
            connection = await self._sandbox.connection()
            session = await AgentSession.open(
                self._log.conversation_id,
                store=self._log.store,
                settings=self.settings,
                sandbox=connection,
                servers=await self._reused_servers(connection),
                hook_events=() if self.has_begun else (HookEvent.SESSION_START,),
            )
            self.follower = Follower(session, self._log, fold, self._callbacks, behind=self.follower)
            self.session = session
        return self.session

    async def _reused_servers(self, sandbox: ConversationSandbox) -> McpServers:
        if self._servers is None or self._servers_config != self.agent.mcp_config:
            await self.close_servers()
            self._servers = make_servers(self.settings, self.agent, sandbox)
            self._servers_config = self.agent.mcp_config
        return self._servers

    async def close_servers(self) -> None:
        if self._servers is not None:
            await self._servers.close()
            self._servers = None

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        self._uses += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._uses -= 1
            if not self._uses:
                self._unused.set()

    async def _end(self, may_end: Callable[[AgentSession], bool], patience_seconds: float) -> bool:
        """End the session if that is wanted once nobody uses it; returns whether it has ended."""
        now = asyncio.get_running_loop().time
        limit = now() + patience_seconds
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(limit):
                    await self._unused.wait()
            async with self._changing:
                session = self.session
                if self._uses and now() < limit:
                    continue
                if session is None or not may_end(session):
                    return session is None
                self.session = self.at_work = None
                self._ended = self.follower
                # What was hidden once stays hidden, also when the secret has another value by now.
                hidden = dict.fromkeys((*self.settings.secrets, *session.stream.secrets.values))
                self.settings = replace(self.settings, secrets=tuple(hidden))
                await session.close(stopped=False)
                return True


class Follower:
    """Tells the callbacks and the `fold` what one session stores, once the follower `behind` it has ended."""

    def __init__(
        self,
        session: AgentSession,
        log: ConversationLog,
        fold: StatusFold,
        callbacks: Callbacks,
        *,
        behind: Follower | None = None,
    ) -> None:
        self._session = session
        self._log = log
        self._fold = fold
        self._callbacks = callbacks
        self._moved = asyncio.Event()
        self._task = asyncio.create_task(self._follow(behind), name=f"callbacks:{session.conversation_id}")
        self._task.add_done_callback(lambda _task: self._moved.set())

    async def _follow(self, behind: Follower | None) -> None:
        if behind is not None:
            await behind.end()
        transients = bool(self._callbacks.for_tokens)
        async with self._session.stream.subscribe(after=self._fold.last_id, transients=transients) as events:
            async for event in events:
                await self._callbacks.tell(event)
                if isinstance(event, Transient):
                    continue
                self._fold.observe(event)
                if isinstance(event, Rewind):
                    await self._log.rejoin(self._fold)
                self._moved.set()

    async def next_move(self) -> bool:
        self._moved.clear()
        if self._task.done():
            return False
        await self._moved.wait()
        return True

    async def rest(self) -> None:
        """Wait until the agent does nothing more by itself, and the callbacks have seen all that it did."""
        fold = self._fold
        while True:
            self._moved.clear()
            if self._task.done():
                self._task.result()
                return
            if fold.state not in AT_REST or fold.awaits_change or fold.last_id < self._session.stream.last_id:
                await self._moved.wait()
            elif self._session.is_at_rest:
                return
            else:  # its controller reads the same events, a moment later
                await asyncio.sleep(LOOK_SECONDS)

    async def end(self) -> None:
        await asyncio.wait([self._task])


class SandboxUse:
    """The conversation's sandbox, opened when it is first needed; something uses it within its `turn`.

    A connection takes the sandbox away from the one before. So there is one for each run, and between the runs one for
    each call, or one that was lent for longer: single calls share that, and a run that begins gets it back. `opening`
    gives the sandbox, and `at_exit` is what the program's end does where nobody has closed it.
    """

    def __init__(self, opening: Callable[[], Awaitable[OpenWorkspace]]) -> None:
        self._turn = asyncio.Lock()
        self._shared_connection: SandboxConnection | None = None
        self._sharing = 0
        self._shared = asyncio.Condition()
        self._lending = asyncio.Lock()
        self._giving_back: asyncio.Task[None] | None = None
        self._open = opening
        self.at_exit: Closer = self.close
        self._opening = asyncio.Lock()
        self._opened: OpenWorkspace | None = None

    async def connection(self) -> SandboxConnection:
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open()
                library_loop().close_at_exit(self.at_exit)
                library_loop().close_at_exit(client.aclose)
            return SandboxConnection(self._opened.sandbox)

    @contextlib.asynccontextmanager
    async def for_one_call(self) -> AsyncIterator[SandboxConnection]:
        async with self._lending:  # what is about to be lent can be shared
            pass
        if self._shared_connection is not None:
            self._sharing += 1
            try:
                yield self._shared_connection
            finally:
                async with self._shared:
                    self._sharing -= 1
                    self._shared.notify_all()
            return
        async with self.turn():
            connection = await self.connection()
            try:
                await connection.start()
                yield connection
            finally:
                await connection.close()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The sandbox for oneself; a connection that was lent for longer is asked back."""
        async with self._lending:  # only what has been lent can be asked back
            self._ask_back()
        async with self._turn:
            yield

    async def lend(self) -> SandboxConnection:
        """A connection that lasts until a run begins, or the end."""
        async with self._lending:
            if self._shared_connection is None:
                await self._turn.acquire()
                connection = None
                try:
                    connection = await self.connection()
                    await connection.start()
                except BaseException:
                    if connection is not None:
                        await connection.close()
                    self._turn.release()
                    raise
                self._shared_connection = connection
            return self._shared_connection

    def _ask_back(self) -> None:
        connection, self._shared_connection = self._shared_connection, None
        if connection is not None:
            self._giving_back = asyncio.create_task(self._return_connection(connection), name="sandbox-given-back")

    async def _return_connection(self, connection: SandboxConnection) -> None:
        async with self._shared:
            await self._shared.wait_for(lambda: self._sharing == 0)
        try:
            await connection.close()
        finally:
            self._turn.release()

    async def close(self) -> None:
        self._ask_back()
        if self._giving_back is not None:
            await asyncio.wait([self._giving_back])
        library_loop().forget(self.at_exit)
        if self._opened is not None:
            await self._opened.close()


def check_stored_agent(agent: AgentBase, folder: Path) -> None:
    """Note the agent of a kept conversation; `ValueError` where its class or its tools are others. Blocking.

    Raises `EventStoreError` where that cannot be noted.
    """
    path, now, before = folder / "agent.json", AgentMark.of(agent), None
    try:
        before = AgentMark.model_validate_json(path.read_bytes()) if path.exists() else None
    except ValidationError as error:
        logger.warning("%s cannot be read, so the agent is not compared with the earlier one: %s", path, error)
    except OSError as error:
        raise EventStoreError.about_file(path, error) from error
    if before == now:
        return
    if before is not None:
        now.check(before)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(now.model_dump_json())
        fresh.replace(path)
    except OSError as error:
        raise EventStoreError.about_file(path, error) from error
