"""The side of a library's conversation that runs in the library's loop: its session, its runs, its followers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import Any

from agent_core.agent.base import AgentBase
from agent_core.errors import ConversationRunError, DrydockError
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    InterruptEvent,
    MetricsUpdated,
    PauseEvent,
)
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.hooks import HookEvent
from agent_core.session.agent_session import AgentSession
from agent_core.session.callbacks import Callbacks
from agent_core.session.conversation_log import ConversationLog
from agent_core.session.following import Follower
from agent_core.session.kept_agent import check_kept_agent
from agent_core.session.sandbox_use import SandboxUse
from agent_core.session.session_facts import AT_REST
from agent_core.session.settings import SessionSettings
from agent_core.session.side_calls import SideCalls
from agent_core.session.status import ExecutionStatus
from agent_core.session.tool_servers import KeptServers
from agent_core.session.workspace import Workspace
from agent_core.tools.spec import Tool

logger = logging.getLogger(__name__)

END_SECONDS = 10.0
_GOES_ON = frozenset({AgentState.PAUSED, AgentState.STOPPED, AgentState.ERROR, AgentState.RUNNING})
"""The states from which a run goes on without a word of the user."""


class ConversationLoop:
    """Does in the library's loop what a `Conversation` is asked to do. All coroutines run there, and nothing else.

    A session is open from the first word to the end of a run; between runs the log is nobody's.

    Attributes:
        log: what is in it.
        side_calls: what calls of models between the runs are made with.
        sandbox: for single calls between the runs.
        agent: who works; see `use_agent`.
        settings: for the next session; see `set_analyzer` and `update_secrets` for one that is open.
        callbacks: who is told of what happens.
        deciding: held by whoever decides about actions that wait.
    """

    def __init__(
        self,
        conversation_id: str,
        *,
        store: EventStore,
        data_dir: str,
        persistence_dir: str | None,
        agent: AgentBase,
        settings: SessionSettings,
        workspace: Workspace,
        callbacks: Callbacks,
    ) -> None:
        """`data_dir` is the folder that the workspace may keep things in; empty: none. `persistence_dir` is told."""
        self.conversation_id = conversation_id
        self.log = ConversationLog(conversation_id, store)
        self.side_calls = SideCalls(self.log)
        self.agent = agent
        self.settings = replace(settings, agent=agent)
        self.callbacks = callbacks
        self.is_closed = False
        self._data_dir = data_dir
        self._persistence_dir = persistence_dir
        self.sandbox = SandboxUse(conversation_id, workspace, data_dir=data_dir, at_exit=self.close)
        self.deciding = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._has_begun = self._tells_end = False
        self._session: AgentSession | None = None
        self._follower: Follower | None = None
        self.is_running = False
        self._ended = asyncio.Event()
        self._ended.set()
        self._servers = KeptServers()

    def use_agent(self, agent: AgentBase) -> None:
        """Have this agent work, from the next session on."""
        self.agent = agent
        self.settings = replace(self.settings, agent=agent)

    @property
    def session_at_work(self) -> AgentSession | None:
        """The session of the run that is under way, once its sandbox is there."""
        session = self._session
        return session if self.is_running and session is not None and session.is_ready else None

    async def session(self) -> AgentSession:
        """The session in which the next run happens: its log is open, its agent is not at work yet."""
        async with self._opening:
            if self._session is None:
                fold = await self.log.present()
                await check_kept_agent(self.agent, self._data_dir, self.callbacks.thread)
                connection = await self.sandbox.connection()
                session = AgentSession(
                    self.conversation_id,
                    store=self.log.store,
                    settings=self.settings,
                    sandbox=connection,
                    servers=await self._servers.of(self.settings, self.agent, connection),
                    hook_events=() if self._has_begun else (HookEvent.SESSION_START,),
                )
                await session.open()
                self._follower = Follower(session, self.log, fold, self.callbacks)
                self._session = session
            return self._session

    async def say(self, *events: AnyEvent) -> None:
        """Store events of the user, one after another; between runs it returns once the callbacks have seen them."""
        session = await self.session()
        for event in events:
            await session.send(event)
        await self._settled(session)

    async def write(self, *events: AnyEvent) -> list[AnyEvent]:
        """Store events as they are, all or none."""
        self.callbacks.check_outside("this", unless=self.is_running)
        session = await self.session()
        stored = await session.stream.add_events(events)
        await self._settled(session)
        if not self.is_running and any(isinstance(event, AgentStateChanged) for event in events):
            await self.end_session()  # the next one begins in that state
        return stored

    async def between_runs(self, wish: AnyEvent) -> None:
        """Have the session do what a user may wish that ends a run and goes back, say: the next run begins then.

        Raises:
            NoSuchEventError, NotStuckError: it cannot be done.
        """
        if self.is_running:
            await (await self.session()).send(wish)
            return
        self.callbacks.check_outside("this")
        async with self.sandbox.turn:
            session = await self.session()
            await session.send(wish)
            await self._settled(session)
            await self.end_session()  # the next one begins in that state

    async def pause(self) -> None:
        """Pause an agent that works or may work; one that waits for a word of its user, or is done, stays so."""
        if self.is_running:
            await self._stop(PauseEvent())
        elif (await self.log.present()).status in (ExecutionStatus.IDLE, ExecutionStatus.RUNNING):
            await self.write(PauseEvent(), AgentStateChanged(agent_state=AgentState.PAUSED))

    async def interrupt(self) -> None:
        """End a run that is under way; without one it is a pause."""
        if self.is_running:
            await self._stop(InterruptEvent())
        else:
            await self.pause()

    async def _stop(self, asked: ChangeAgentState) -> None:
        session = await self.session()
        if await session.settled_state() not in AT_REST:
            await session.send(asked)

    async def set_analyzer(self, analyzer: SecurityAnalyzer | None) -> None:
        """Have this analyzer judge what comes."""
        self.settings = replace(self.settings, analyzer=analyzer, confirmation_mode=False)
        if self._session is not None:
            self._session.set_security_analyzer(analyzer)

    async def update_secrets(self, secrets: dict[str, Any]) -> None:
        """Add secrets, or replace those of the same names."""
        self.settings = replace(self.settings, named_secrets={**self.settings.named_secrets, **secrets})
        if self._session is not None:
            self._session.secrets.update(secrets)

    async def set_client_tools(self, tools: tuple[Tool, ...]) -> None:
        """Have the agent use these tools of clients, and none of those before."""
        if self._session is not None:
            self._session.set_client_tools(tools)
        self.settings = replace(self.settings, client_tools=tools)

    async def step(self) -> None:
        """`run` for one step: what still waits is run, or the model is asked once and its calls are run."""
        await self.run(max_steps=1)

    async def run(self, *, max_steps: int | None = None) -> None:
        """Let the agent work until it has finished, waits for its user, or is paused: after `max_steps` it is.

        Raises:
            ConversationRunError: the run failed.
            RuntimeError: it is running already, or closed.
        """
        if self.is_closed or self.is_running:
            what = "closed" if self.is_closed else "running already"
            raise RuntimeError(f"conversation {self.conversation_id} is {what}")
        self.callbacks.check_outside("a run")
        self.is_running = True
        self._ended.clear()
        cause: Exception | None = None
        try:
            async with self.sandbox.turn:
                await self._run_to_rest(max_steps)
            cause = self._session.failure if self._session is not None else None
        except asyncio.CancelledError:
            await self._pause_session()
            raise
        except Exception as error:
            if self._session is None and not isinstance(error, DrydockError):
                raise  # it did not begin: what was given is not what it may be
            problem = str(error) if isinstance(error, DrydockError) else f"{type(error).__name__}: {error}"
            raise self._failure(problem) from error
        finally:
            await self.end_session()
            self.is_running = False
            self._ended.set()
        fold = await self.log.present()
        if fold.is_failure:
            raise self._failure(fold.failure) from cause

    async def until_run_ended(self) -> None:
        """Wait until a run that was cancelled is over: its agent is paused, and the next one may begin."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._ended.wait()

    async def close(self) -> None:
        """End what is going on, the tools' executors, and the sandbox; the log stays."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.is_running:
            await self._pause_session()
        await self.end_session()
        await self._tell_hooks_of_end()
        if not self.side_calls.is_settled:
            with contextlib.suppress(DrydockError):  # the figures are lost then, and nothing else
                await self.write(MetricsUpdated(metrics=await self.side_calls.snapshot()))
        await self.end_session()
        await self._servers.close()
        await asyncio.get_running_loop().run_in_executor(None, self.agent.close)
        await self.sandbox.close()
        self.callbacks.close()

    async def _tell_hooks_of_end(self) -> None:
        if not self._tells_end:
            return
        try:
            async with asyncio.timeout(END_SECONDS), self.sandbox.for_one_call() as connection:
                await (await self.session()).tell_hooks_of_end(connection)
        except (DrydockError, TimeoutError) as error:
            logger.warning("conversation %s: hooks were not told of its end: %s", self.conversation_id, error)
        await self.end_session()

    async def _settled(self, session: AgentSession) -> None:
        """Wait until the callbacks have seen what is in the log now; a run waits for them itself."""
        fold, last = await self.log.present(), session.stream.last_id
        while not (self.is_running or self.callbacks.is_inside) and fold.last_id < last and self._follower is not None:
            if not await self._follower.next_move():
                return

    async def _run_to_rest(self, max_steps: int | None) -> None:
        fold = await self.log.present()
        confirms = fold.state is AgentState.AWAITING_USER_CONFIRMATION and not fold.is_asked
        if not (fold.is_asked or confirms or fold.is_rewound or fold.state in _GOES_ON):
            return
        session = await self.session()
        if fold.state is not AgentState.AWAITING_USER_CONFIRMATION:
            await session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
        await session.start(max_steps=max_steps)
        self._has_begun, self._tells_end = True, session.has_hooks(HookEvent.SESSION_END)
        session.count(self.side_calls.taken())
        if confirms:
            await session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED))
        if self._follower is not None:
            await self._follower.rest()

    def _failure(self, problem: str) -> ConversationRunError:
        kept = self._persistence_dir
        return ConversationRunError(problem, conversation_id=self.conversation_id, persistence_dir=kept)

    async def _pause_session(self) -> None:
        session = self._session
        if session is not None and session.is_ready:
            with contextlib.suppress(DrydockError, TimeoutError):
                async with asyncio.timeout(5):
                    await self._stop(InterruptEvent())
                    if self._follower is not None:
                        await self._follower.rest()

    async def end_session(self) -> None:
        """End the session that is open; the next one takes up what was changed."""
        self.callbacks.check_outside("this")
        session, self._session = self._session, None
        follower, self._follower = self._follower, None
        if session is not None:
            # What was hidden once stays hidden, also when the secret has another value by now.
            hidden = dict.fromkeys((*self.settings.secrets, *session.stream.secrets.values))
            self.settings = replace(self.settings, secrets=tuple(hidden))
            await session.close(stopped=False)
        if follower is not None:
            await follower.end()
