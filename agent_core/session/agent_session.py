"""One conversation's session: its stream, subscribers and sandbox, and their life together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from agent_core.agent.base import FIRST_EVENTS, AgentBase
from agent_core.controller.remarks import answers_to_invalid_calls
from agent_core.errors import ClientToolError, DrydockError, EventStoreError, StreamClosedError
from agent_core.events.branches import Rewind
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ClientToolResult,
    ConfirmationPolicyChanged,
    LoopRecovery,
)
from agent_core.events.llm_events import MessageEvent, SystemPromptEvent
from agent_core.events.recorded import Recorded
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore
from agent_core.events.stream import EventStream
from agent_core.llm.llm import CallContext
from agent_core.llm.metrics import ConversationStats
from agent_core.mcp.servers import McpServers
from agent_core.runtime.connection import SandboxConnection
from agent_core.runtime.seeding import plant
from agent_core.runtime.shared_sandbox import SharedSandbox
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationPolicy
from agent_core.security.hooks import HookEvent
from agent_core.security.secrets import SecretRegistry
from agent_core.session.after_close import AfterClose, let_go
from agent_core.session.going_back import GoingBack, check_cause
from agent_core.session.making import as_sent, make_agent, make_secrets, make_step, prepare_tools
from agent_core.session.parts import Parts, make_hooks, make_parts
from agent_core.session.repository import set_up
from agent_core.session.session_facts import SessionFacts
from agent_core.session.settings import SessionSettings
from agent_core.session.status_report import StatusReport
from agent_core.session.subagents import Parent, Shared
from agent_core.session.tool_servers import ToolServers, make_servers
from agent_core.tools.spec import ToolMakerState, WorkspacePlace

RESTART_SECONDS = (0.1, 1.0, 5.0)


class Subscribers:
    """Owns what follows a stream until that is closed."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def begin(
        self,
        name: str,
        run: Callable[[], Coroutine[Any, Any, None]],
        stream: EventStream,
        give_up: Callable[[str], Awaitable[None]],
    ) -> None:
        """Run this one; when it fails (a bug) that is logged, and it is started again at its position.

        `give_up` is told, in words for people, when that does not help.
        """
        work = _supervised(name, run, stream, give_up)
        self._tasks.append(asyncio.create_task(work, name=f"{name}:{stream.conversation_id}"))

    async def end(self, *, patience_seconds: float, limit_seconds: float) -> None:
        """Wait for their end: the stream is closed, they read to its end and return. Who does not is cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=patience_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=limit_seconds)


async def _supervised(
    name: str,
    run: Callable[[], Coroutine[Any, Any, None]],
    stream: EventStream,
    give_up: Callable[[str], Awaitable[None]],
) -> None:
    for delay in (*RESTART_SECONDS, None):
        try:
            await run()
            return
        except Exception:
            logger.exception("subscriber %s of conversation %s failed", name, stream.conversation_id)
            if stream.closed:
                return
            if delay is None:
                break
            await asyncio.sleep(delay)
    await give_up(f"The {name} of this conversation failed repeatedly; stop it and start it again.")


OPENING = 20
"""Within so many events of its own the prompt stands, whatever a rewind or a fork has written before it."""


async def own_beginning(stream: EventStream) -> list[AnyEvent]:
    """The first events, as many as tell whether the agent has its prompt already; none of those that were imported."""
    first = await stream.page(limit=FIRST_EVENTS)
    if not first or not isinstance(first[0], Recorded):
        return first
    imported, own = first[0].id, stream.last_id + 1
    while own - imported > 1:
        middle = (imported + own) // 2
        found = await stream.page(after=middle - 1, limit=1)
        if isinstance(found[0], Recorded):
            imported = middle
        else:
            own = middle
    opening = await stream.page(after=imported, limit=OPENING)
    return [event for event in opening if isinstance(event, SystemPromptEvent | MessageEvent)]


logger = logging.getLogger(__name__)

CLOSE_SECONDS = 10.0


class AgentSession(SessionFacts):
    """Runs one conversation: call `open`, `start` once, `send` as often as you like, and `close`.

    Attributes:
        stream: the conversation's log; valid after `open`.
        agent: who works, with its tools; valid after `open`.
        secrets: the conversation's secrets, to which more may be added at any time; valid after `open`.
        call_context: what side calls of models are made with that this conversation pays for; valid after `open`.
        is_ready: whether `start` has succeeded.
        client_count: says how many clients follow the conversation, where somebody knows; to be set before `start`.
    """

    stream: EventStream
    agent: AgentBase
    secrets: SecretRegistry
    call_context: CallContext

    def __init__(
        self,
        conversation_id: str,
        *,
        store: EventStore,
        settings: SessionSettings,
        sandbox: SandboxConnection | SharedSandbox,
        on_status: Callable[[str], None] | None = None,
        servers: McpServers | None = None,
        hook_events: Iterable[HookEvent] = (HookEvent.SESSION_START, HookEvent.SESSION_END),
        parent: Parent | None = None,
    ) -> None:
        """`hook_events` says whether its start and its end are events for hooks.

        `servers` are those of an earlier session of this conversation; they, and their end, stay the caller's.
        `parent` is what a sub-agent's session has from the one that asks it.
        """
        self.conversation_id = conversation_id
        self.settings = settings
        self.sandbox = sandbox
        self.is_ready = False
        self.client_count: Callable[[], int] | None = None
        self._store = store
        self._given_servers = servers
        self._report = StatusReport(on_status)
        self._hook_events = frozenset(hook_events)
        self._parts: Parts | None = None
        self._started = False
        self._opened_at = -1
        self._closing: asyncio.Task[None] | None = None
        self._subscribers = Subscribers()
        self._parent = parent
        self._warming: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Become the owner of the log, and write that it is loading (in a new log also what the agent is told).

        Raises:
            EventStoreError: the log cannot be read or written.
            AssertionError: the log holds a user's message before any system prompt.
            KeyError, ValueError: the settings name an agent or a tool that does not exist.
        """
        self.agent = await make_agent(self.settings)
        given = self._given_servers
        servers = make_servers(self.settings, self.agent, self.sandbox) if given is None else given
        place = ToolMakerState(self.conversation_id, WorkspacePlace(self.sandbox.working_dir))
        self._tool_servers = ToolServers(servers, self.agent, place, self.settings.own_tools)
        self._tool_servers.set_client_tools(self.settings.client_tools)
        self._tools = self._tool_servers.tools
        self.stream = await EventStream.open(self.conversation_id, self._store)
        self._report.begin(self.stream)
        self.secrets = make_secrets(self.settings, self.agent, self.stream, self._parent)
        self._step = make_step(self.settings, self.agent, self._tools, self.stream, self._parent)
        self.call_context = self._step.account.context
        self._going_back = GoingBack(
            self.stream, self.sandbox, lambda: self._step.system_prompt(self.secrets.descriptions())
        )
        opening: list[AnyEvent] = [AgentStateChanged(agent_state=AgentState.LOADING)]
        prompt = self._step.init_state(await own_beginning(self.stream), self.secrets.descriptions())
        opening.extend([prompt] if prompt is not None else [])
        self._opened_at = (await self.stream.add_events(opening))[-1].id

    async def start(self, initial_message: MessageEvent | None = None, *, max_steps: int | None = None) -> None:
        """Bring up the sandbox and the agent, and go on where the log ends.

        After `max_steps` (None: without a limit) an agent that would go on is paused.

        Progress is published on the stream. When it fails, the log says so (state `error`) and the session is to be
        closed; the conversation can be started again.

        Raises:
            RuntimeError: it was started already.
            SandboxError: the sandbox cannot be had; the message says why and what to do.
            EventStoreError: the log cannot be read or written.
        """
        if self._started:
            raise RuntimeError(f"the session of conversation {self.conversation_id} was started already")
        self._started = True
        # Loading the client library takes seconds; the sandbox comes up in the meantime.
        self._warming = asyncio.create_task(self.agent.llm.warm_up(), name=f"warm-up:{self.conversation_id}")
        self._tool_servers.start(self.stream, self.secrets)
        try:
            await self.sandbox.start(self._report.progress)
            self._tool_servers.sandbox_is_up()
            await plant(self.settings.seed, self.sandbox)
            await set_up(self.settings.git, self.sandbox, self.stream, self._report.step)
            await prepare_tools(self._tools.values(), self.sandbox)
            async with self._going_back.lock:
                await self._begin(initial_message, max_steps)
        except DrydockError as error:
            # One line: what a program said last may be many.
            await self._report.start_failed(type(error).__name__, " ".join(str(error).split()))
            raise
        except Exception as error:
            text = "The conversation could not be started; the server's log says why."
            await self._report.start_failed(type(error).__name__, text)
            raise
        self._report.ready()
        self.is_ready = True
        self.sandbox.listen(self._report.changed)

    async def _begin(self, initial_message: MessageEvent | None, max_steps: int | None) -> None:
        shared = Shared(
            stream=self.stream,
            store=self._store,
            settings=self.settings,
            agent=self.agent,
            sandbox=self.sandbox,
            secrets=self.secrets,
            step=self._step,
            parent=self._parent,
            make=AgentSession,
        )
        parts = await make_parts(shared, self._tools)
        await parts.catch_up(self.stream, self._going_back)
        await self._going_back.bring_back_files()
        controller, runtime = parts.controller, parts.runtime
        state = controller.state
        self._step.account.restore(state.metrics)
        if HookEvent.SESSION_START in self._hook_events:
            await parts.hooks.session_started()
        await self.stream.add_events(answers_to_invalid_calls(state))
        await parts.memory.look_again()
        await runtime.recover(resumes=state.resumable is AgentState.RUNNING, opened_at=self._opened_at)
        self._parts = parts
        runtime.client_calls.connected = self.client_count
        self._going_back.controller, self._going_back.runtime = controller, runtime
        controller.steps_left = max_steps
        parts.wait_for(self._going_back.lock)
        for name, run in parts.runs().items():
            self._subscribers.begin(name, run, self.stream, self._report.broken)
        await controller.begin([as_sent(initial_message, self.agent)] if initial_message is not None else [])

    async def send(self, event: AnyEvent) -> AnyEvent:
        """Store an event of the user; returns it as stored. The subscribers take it from there.

        Raises:
            StreamClosedError: the session is closed.
            EventStoreError: it could not be stored.
            NoSuchEventError, NotStuckError: it asks to go back to where one cannot, or answers what is not there.
            ClientToolError: it answers a call that does not wait for it.
        """
        if isinstance(event, Rewind):
            return await self._going_back.rewind(event.to, client_key=event.client_key)
        if isinstance(event, ClientToolResult):
            if self._parts is None:
                raise ClientToolError("the conversation is being loaded; send the answer again", code="loading")
            return await self._parts.runtime.client_calls.accept(event)
        if isinstance(event, LoopRecovery):
            return await self._going_back.recover(event.option, client_key=event.client_key)
        check_cause(event.cause, self.stream.last_id)
        return await self.stream.add_event(as_sent(event, self.agent), "user")

    async def rewind(self, to: int | None) -> AnyEvent:
        """Go back to right behind this event of the log (None: before the first one); see `GoingBack.rewind`."""
        return await self._going_back.rewind(to)

    async def set_confirmation_policy(self, policy: ConfirmationPolicy) -> None:
        """From the next answer of the model on, let this policy decide what waits for the user; the log remembers it.

        Raises:
            StreamClosedError: the session is closed.
            EventStoreError: it could not be stored.
        """
        await self.send(ConfirmationPolicyChanged(policy=policy.model_dump(mode="json")))

    async def tell_hooks_of_end(self, sandbox: SandboxConnection) -> None:
        """For a session that was not started: tell the hooks that the conversation ends, through that connection."""
        hooks = await make_hooks(self.settings, self.agent, self._tools, self._step, self.stream, sandbox)
        try:
            await hooks.session_ended()
        finally:
            await hooks.close()

    def count(self, stats: ConversationStats) -> None:
        """Take in what calls for this conversation have cost that were made outside of it; valid after `start`."""
        self._step.account.stats.take_over(stats)

    def set_security_analyzer(self, analyzer: SecurityAnalyzer | None) -> None:
        """From the next answer of the model on, have this analyzer judge its calls; valid after `open`."""
        self._step.set_analyzer(analyzer)

    async def close(self, *, stopped: bool, sandbox: AfterClose = "keep") -> None:
        """End the session, within a bounded time; calling it again waits for the first call.

        With `stopped` the log says so, and what runs is ended and answered. Without it the conversation is left as it
        is, to go on at the next start exactly where it was.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(
                self._close(stopped=stopped, after=sandbox), name=f"close:{self.conversation_id}"
            )
        await asyncio.shield(self._closing)

    async def _close(self, *, stopped: bool, after: AfterClose) -> None:
        try:
            if hasattr(self, "_step") and not self.stream.closed:
                await self._say_last(stopped=stopped)
        finally:
            if hasattr(self, "stream"):
                self.stream.close()
            if self._parts is not None:
                await self._parts.delegation.suspend()
            # First the sandbox, then the tasks: a cancelled task ends what it runs there, and that shall go on.
            try:
                await let_go(self.sandbox, after)
                await self._end_tasks()
            finally:
                if hasattr(self, "_tool_servers"):
                    await self._tool_servers.close(keep_servers=self._given_servers is not None)

    async def _say_last(self, *, stopped: bool) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if self._parts is not None:  # the account knows what was spent before
                    if HookEvent.SESSION_END in self._hook_events:
                        await self._parts.hooks.session_ended()
                    await self._step.account.settle()
                    if stopped:
                        await self._parts.stop(self.stream)
                elif stopped:
                    await self.stream.add_event(AgentStateChanged(agent_state=AgentState.STOPPED))
        except (TimeoutError, EventStoreError, StreamClosedError) as error:
            logger.warning("conversation %s was not closed cleanly: %r", self.conversation_id, error)

    async def _end_tasks(self) -> None:
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        patience = CLOSE_SECONDS if self.is_ready else 0
        await self._subscribers.end(patience_seconds=patience, limit_seconds=CLOSE_SECONDS)
