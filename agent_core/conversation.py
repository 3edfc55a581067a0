"""`Conversation`: the library's way to work with an agent (agent-core 8.3)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

from agent_core.agent.base import AgentBase
from agent_core.errors import ConversationRunError, DrydockError
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.folder_store import FolderEventStore
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.store import EventStore, InMemoryEventStore
from agent_core.llm import client
from agent_core.runtime.connection import SandboxConnection
from agent_core.runtime.loop_thread import library_loop
from agent_core.runtime.sandbox import Sandbox
from agent_core.security.secrets import GivenSecret
from agent_core.session.agent_session import AT_REST, AgentSession
from agent_core.session.conversation_state import ConversationView, StatusFold
from agent_core.session.settings import SessionSettings
from agent_core.session.workspace import OpenWorkspace, Workspace, workspace_of
from agent_core.tools.definition import ToolDefinition

logger = logging.getLogger(__name__)

T = TypeVar("T")

Callback = Callable[[Any], object]
"""Called with each stored event, once and in order, in a thread of its own."""

LOOK_SECONDS = 0.005
_GOES_ON = frozenset({AgentState.PAUSED, AgentState.STOPPED, AgentState.ERROR, AgentState.RUNNING})
"""The states from which a run goes on without a word of the user."""


class Conversation:
    """One conversation with an agent, from an ordinary or an asynchronous program.

    Nothing happens before the first call. The work is done in an event loop in a thread of its own, so it makes no
    difference whether the caller has one. Close it (or use ``with``) to end its sandbox; otherwise the program's end
    does.

    Args:
        agent: who works.
        workspace: a folder of this host, which commands see under its own path and nothing beside it (needs
            bubblewrap); or a `LocalWorkspace`, a `DockerWorkspace`, or a sandbox of the caller's.
        callbacks: get every event once it is stored, in order; `run` waits for them.
        max_iteration_per_run: answers of the model until a run ends with the status error.
        conversation_id: a new one if None; one that `persistence_dir` has goes on.
        persistence_dir: folder for the log; None keeps it in memory.
        secrets: values by name, for the commands that name them; hidden wherever they appear in the log.
        max_budget_per_run: US dollars until a run ends with the status error.
        stuck_detection: whether an agent that only repeats itself is stopped.
    """

    def __init__(
        self,
        agent: AgentBase,
        workspace: str | Path | Workspace | Sandbox = "workspace/project",
        *,
        callbacks: Iterable[Callback] | None = None,
        max_iteration_per_run: int = 500,
        conversation_id: object = None,
        persistence_dir: str | Path | None = None,
        secrets: Mapping[str, GivenSecret] | None = None,
        max_budget_per_run: float | None = None,
        stuck_detection: bool = True,
    ) -> None:
        self.id = str(conversation_id or uuid4())
        self.agent = agent.model_copy()  # the tools that it makes are this conversation's own
        self.workspace = workspace_of(workspace)
        self._callbacks = list(callbacks or ())
        self._folder = None if persistence_dir is None else FolderEventStore(persistence_dir)
        self._store: EventStore = self._folder or InMemoryEventStore()
        self._settings = SessionSettings(
            llm=agent.llm,
            agent=self.agent,
            max_iterations=max_iteration_per_run,
            max_budget=max_budget_per_run,
            stuck_detection=stuck_detection,
            named_secrets=dict(secrets or {}),
        )
        self.state = ConversationView(
            self.id,
            self.agent,
            self.workspace,
            store=self._store,
            persistence_dir=None if persistence_dir is None else str(persistence_dir),
            max_iterations=max_iteration_per_run,
            fold=self._present,
        )
        self._loop = library_loop()
        self._lock = asyncio.Lock()
        self._moved = asyncio.Event()
        self._tools: dict[str, ToolDefinition] = {}
        self._opened: OpenWorkspace | None = None
        self._session: AgentSession | None = None
        self._follower: asyncio.Task[None] | None = None
        self._fold: StatusFold | None = None
        self._is_running = False
        self._is_closed = False
        self._calling = ThreadPoolExecutor(1, thread_name_prefix="callbacks")

    # --- what a program does ---

    def send_message(self, message: str | Message, sender: str | None = None) -> None:
        """Store a message of the user; `run` lets the agent answer. A run that is under way takes it up at once.

        Raises:
            ValueError: the message's role is not user.
            RuntimeError: the conversation is closed.
        """
        said = Message.user(message) if isinstance(message, str) else message
        if said.role != "user":
            raise ValueError(f"role is {said.role!r}: only messages of the user can be sent")
        self._do(self._say(MessageEvent(source="user", llm_message=said, sender=sender)))

    def run(self) -> None:
        """Let the agent work until it has finished, waits for its user, or is paused.

        A conversation that was paused or failed goes on; what awaited confirmation is confirmed.

        Raises:
            ConversationRunError: the run failed; its message says why, its cause is the error if there was one.
            RuntimeError: it is running already, is closed, or this is called in its own loop.
        """
        self._do(self._run())

    async def arun(self) -> None:
        """`run` for asynchronous programs; when it is cancelled the agent is paused first."""
        await asyncio.get_running_loop().run_in_executor(self._calling, self._resolve_tools)
        await asyncio.wrap_future(self._loop.submit(self._run()))

    def add_callback(self, callback: Callback) -> None:
        """Call this one too, from the next event on."""
        self._callbacks.append(callback)

    def pause(self) -> None:
        """Stop the agent where it is: the model's answer and running commands are ended; `run` goes on from there."""
        self._do(self._ask(AgentState.PAUSED))

    def reject_pending_actions(self, reason: str = "User rejected the action") -> None:
        """Refuse what awaits confirmation, for a reason that the agent is told at the next run."""
        self._do(self._say(MessageEvent(source="user", llm_message=Message.user(reason))))

    def close(self) -> None:
        """End the sandbox and the executors of the tools; calling it again is fine. The log stays."""
        self._loop.run(self._close())
        self._calling.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- in the loop's thread ---

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            work.close()
            raise RuntimeError(f"conversation {self.id} is closed")
        try:
            self._resolve_tools()
        except BaseException:
            work.close()
            raise
        return self._loop.run(work)

    def _resolve_tools(self) -> None:
        """In the caller's thread: a factory may use a tool itself, and wait for it."""
        self._tools = self.agent.initialize(self.state)

    async def _session_open(self) -> AgentSession:
        """The session in which the next run happens: its log is open, its agent is not at work yet."""
        async with self._lock:
            if self._session is None:
                if self._opened is None:
                    kept = "" if self._folder is None else str(self._folder.folder_of(self.id))
                    self._opened = await self.workspace.open(self.id, kept or uuid4().hex, kept)
                    self._loop.close_at_exit(self._close)
                    self._loop.close_at_exit(client.aclose)
                fold = await self._present()
                connection = SandboxConnection(self._opened.sandbox)
                session = AgentSession(self.id, store=self._store, settings=self._settings, sandbox=connection)
                await session.open()
                self._moved.clear()
                self._follower = asyncio.create_task(self._follow(session, fold), name=f"callbacks:{self.id}")
                self._follower.add_done_callback(lambda _task: self._moved.set())
                self._session = session
            return self._session

    async def _present(self) -> StatusFold:
        """The status by the whole log, read once."""
        if self._fold is None:
            fold = StatusFold()
            while page := await self._store.read(self.id, after=fold.last_id):
                for record in page:
                    fold.observe(from_payload(record.payload, record.id))
            self._fold = fold
        return self._fold

    async def _follow(self, session: AgentSession, fold: StatusFold) -> None:
        loop = asyncio.get_running_loop()
        async with session.stream.subscribe(after=fold.last_id) as events:
            async for event in events:
                for callback in self._callbacks:
                    try:
                        await loop.run_in_executor(self._calling, callback, event)
                    except Exception:
                        logger.exception("conversation %s: a callback failed", self.id)
                fold.observe(event)  # type: ignore[arg-type] # no notices were asked for
                self._moved.set()

    async def _followed(self, session: AgentSession) -> None:
        """Wait until the callbacks have seen what is in the log now."""
        fold, last = await self._present(), session.stream.last_id
        while fold.last_id < last and self._follower is not None and not self._follower.done():
            self._moved.clear()
            await self._moved.wait()

    async def _say(self, event: AnyEvent) -> None:
        session = await self._session_open()
        await session.send(event)
        if not self._is_running:
            await self._followed(session)

    async def _ask(self, state: AgentState) -> None:
        session = await self._session_open()
        if self._is_running:
            await session.send(ChangeAgentState(agent_state=state))
        else:
            await session.stream.add_events(
                [ChangeAgentState(agent_state=state, source="user"), AgentStateChanged(agent_state=state)]
            )
            await self._followed(session)

    async def _run(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"conversation {self.id} is closed")
        if self._is_running:
            raise RuntimeError(f"conversation {self.id} is running already")
        self._is_running = True
        try:
            await self._run_to_rest()
        except asyncio.CancelledError:
            await self._pause_session()
            raise
        except DrydockError as error:
            raise self._failure(str(error)) from error
        finally:
            await self._end_session()
            self._is_running = False
        fold = await self._present()
        if fold.is_failure:
            raise self._failure(fold.failure)

    async def _run_to_rest(self) -> None:
        fold = await self._present()
        confirms = fold.state is AgentState.AWAITING_USER_CONFIRMATION and not fold.is_asked
        if not (fold.is_asked or confirms or fold.state in _GOES_ON):
            return
        session = await self._session_open()
        if not fold.is_asked and not confirms:
            await session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
        await session.start()
        if confirms:
            await session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED))
        await self._rest(session, fold)

    async def _rest(self, session: AgentSession, fold: StatusFold) -> None:
        """Wait until the agent does nothing more by itself, and the callbacks have seen all that it did."""
        while True:
            self._moved.clear()
            if fold.state not in AT_REST or fold.awaits_change or fold.last_id < session.stream.last_id:
                await self._moved.wait()
            elif session.is_at_rest:
                return
            else:  # its controller reads the same events, a moment later
                await asyncio.sleep(LOOK_SECONDS)

    def _failure(self, problem: str) -> ConversationRunError:
        return ConversationRunError(problem, conversation_id=self.id, persistence_dir=self.state.persistence_dir)

    async def _pause_session(self) -> None:
        session = self._session
        if session is not None and session.is_ready:
            with contextlib.suppress(DrydockError, TimeoutError):
                async with asyncio.timeout(5):
                    await session.send(ChangeAgentState(agent_state=AgentState.PAUSED))
                    await self._rest(session, await self._present())

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        follower, self._follower = self._follower, None
        if session is not None:
            await session.close(stopped=False)
        if follower is not None:  # the stream is closed: it reads to the end and returns
            await asyncio.wait([follower])

    async def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.forget(self._close)
        if self._is_running:
            await self._pause_session()
        await self._end_session()
        for executor in {id(tool.executor): tool.executor for tool in self._tools.values()}.values():
            close = getattr(executor, "close", None)
            if close is not None:
                await asyncio.get_running_loop().run_in_executor(None, close)
        if self._opened is not None:
            await self._opened.close()
