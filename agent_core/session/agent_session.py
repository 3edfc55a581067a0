"""One conversation's session: its stream, subscribers and sandbox, and their life together (agent-core 8.13)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from agent_core.agent.base import FIRST_EVENTS
from agent_core.controller.agent_controller import AgentController
from agent_core.controller.remarks import answers_to_invalid_calls
from agent_core.controller.state import INTERRUPTING, ConversationState, Limits
from agent_core.controller.step import Step
from agent_core.errors import DrydockError, EventStoreError, SandboxError, StreamClosedError
from agent_core.events.branches import Rewind
from agent_core.events.control import AgentState, AgentStateChanged, ConfirmationPolicyChanged
from agent_core.events.llm_events import MessageEvent
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore
from agent_core.events.stream import EventStream
from agent_core.llm.llm import CallContext
from agent_core.llm.metrics import ConversationStats
from agent_core.mcp.servers import McpServers
from agent_core.runtime.connection import SandboxConnection
from agent_core.runtime.hook_calls import ToolHooks
from agent_core.runtime.runtime import Runtime
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationPolicy
from agent_core.security.secrets import SecretRegistry
from agent_core.session.going_back import GoingBack
from agent_core.session.making import as_sent, make_agent, make_memory, make_secrets, prepare_tools
from agent_core.session.settings import SessionSettings
from agent_core.session.status_report import StatusReport
from agent_core.session.subscribers import Subscribers
from agent_core.session.tool_servers import ToolServers, make_servers
from agent_core.tools.spec import ToolMakerState, WorkspacePlace
from agent_core.version import VERSION

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 10.0

AT_REST = INTERRUPTING | {AgentState.ERROR, AgentState.AWAITING_USER_CONFIRMATION}
"""States in which an agent waits for its user."""

AfterClose = Literal["keep", "pause", "stop", "destroy"]
"""What becomes of the sandbox when its session is closed."""


class AgentSession:
    """Runs one conversation: call `open`, `start` once, `send` as often as you like, and `close`.

    Attributes:
        stream: the conversation's log; valid after `open`.
        secrets: the conversation's secrets, to which more may be added at any time; valid after `open`.
        call_context: what side calls of models are made with that this conversation pays for; valid after `open`.
        is_ready: whether `start` has succeeded.
    """

    stream: EventStream
    secrets: SecretRegistry
    call_context: CallContext

    def __init__(
        self,
        conversation_id: str,
        *,
        store: EventStore,
        settings: SessionSettings,
        sandbox: SandboxConnection,
        on_status: Callable[[str], None] | None = None,
        servers: McpServers | None = None,
    ) -> None:
        """`servers` are those of an earlier session of this conversation; they, and their end, stay the caller's."""
        self.conversation_id = conversation_id
        self.settings = settings
        self.sandbox = sandbox
        self.is_ready = False
        self._store = store
        self._given_servers = servers
        self._report = StatusReport(on_status)
        self._controller: AgentController | None = None
        self._runtime: Runtime | None = None
        self._started = False
        self._opened_at = -1
        self._closing: asyncio.Task[None] | None = None
        self._subscribers = Subscribers()
        self._warming: asyncio.Task[None] | None = None

    @property
    def runtime_status(self) -> str:
        """State of the sandbox as the public protocol names it (wire-protocol section 5)."""
        return self._report.status

    @property
    def agent_state(self) -> AgentState:
        """What the agent is doing, as far as the log was read; loading before the session is ready."""
        return self._controller.state.agent_state if self._controller is not None else AgentState.LOADING

    @property
    def is_confirmation_mode_active(self) -> bool:
        """Whether actions are analyzed and may wait for the user (agent-core 6.3); valid after `open`."""
        return self._step.gate(self._controller.state if self._controller else None).is_confirmation_mode_active

    @property
    def last_activity_id(self) -> int:
        """Id of the last event."""
        return self.stream.last_id

    async def open(self) -> None:
        """Become the owner of the log, and write that it is loading (in a new log also what the agent is told).

        Raises:
            EventStoreError: the log cannot be read or written.
            AssertionError: the log holds a user's message before any system prompt.
            KeyError, ValueError: the settings name an agent or a tool that does not exist.
        """
        self._agent = await make_agent(self.settings)
        place = WorkspacePlace(self.sandbox.working_dir)
        tools = self._agent.initialize(ToolMakerState(self.conversation_id, place))
        servers = make_servers(self.settings, self._agent) if self._given_servers is None else self._given_servers
        self._tool_servers = ToolServers(servers, self._agent, tools)
        self._tools = self._tool_servers.tools
        self.stream = await EventStream.open(self.conversation_id, self._store)
        self._report.begin(self.stream)
        self.secrets = make_secrets(self.settings, self._agent, self.stream)
        self._step = self._make_step()
        self.call_context = self._step.account.context
        self._going_back = GoingBack(self.stream, lambda: self._step.system_prompt(self.secrets.descriptions()))
        opening: list[AnyEvent] = [AgentStateChanged(agent_state=AgentState.LOADING)]
        prompt = self._step.init_state(await self.stream.page(limit=FIRST_EVENTS), self.secrets.descriptions())
        opening.extend([prompt] if prompt is not None else [])
        self._opened_at = (await self.stream.add_events(opening))[-1].id

    async def start(self, initial_message: MessageEvent | None = None) -> None:
        """Bring up the sandbox and the agent, and go on where the log ends.

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
        self._warming = asyncio.create_task(self._agent.llm.warm_up(), name=f"warm-up:{self.conversation_id}")
        self._tool_servers.start(self.stream, self.secrets)
        try:
            await self.sandbox.start(self._report.progress)
            await prepare_tools(self._tools.values(), self.sandbox)
            async with self._going_back.lock:
                await self._begin(initial_message)
        except DrydockError as error:
            # One line: what a program said last may be many.
            await self._report.start_failed(type(error).__name__, " ".join(str(error).split()))
            raise
        except Exception:
            text = "The conversation could not be started; the server's log says why."
            await self._report.start_failed("RuntimeError", text)
            raise
        self._report.ready()
        self.is_ready = True
        self.sandbox.listen(self._report.changed)

    async def _begin(self, initial_message: MessageEvent | None) -> None:
        settings = self.settings
        limits = Limits(settings.max_iterations, settings.max_budget, per_run=settings.limits_per_run)
        state = ConversationState(limits)
        controller = AgentController(self.stream, self._agent, state, self._step)
        hooks = ToolHooks(self.settings.hooks, self.sandbox, self.conversation_id)
        memory = make_memory(self.settings, self._agent, self.secrets, self.stream, self.sandbox)
        runtime = Runtime(
            self.stream, self._tools, self.sandbox, secrets=self.secrets, hooks=hooks, rules_for=memory.rules_for
        )
        async for event in self.stream.history():
            controller.observe(event)
            runtime.observe(event)
            memory.observe(event)
        await controller.rejoin()
        await memory.rejoin()
        state = controller.state
        self._step.account.restore(state.metrics)
        await self.stream.add_events(answers_to_invalid_calls(state))
        resumes = state.resumable is AgentState.RUNNING
        await runtime.recover(resumes=resumes, opened_at=self._opened_at)
        self._controller, self._runtime = controller, runtime
        self._going_back.controller, self._going_back.runtime = controller, runtime
        for name, run in (("runtime", runtime.run), ("memory", memory.run), ("agent_controller", controller.run)):
            self._subscribers.begin(name, run, self.stream, self._report.trouble)
        await controller.begin([as_sent(initial_message, self._agent)] if initial_message is not None else [])

    @property
    def is_at_rest(self) -> bool:
        """Whether the agent has read the whole log and does nothing until its user does something."""
        if self._controller is None:
            return False
        state = self._controller.state
        waits = state.agent_state in AT_REST and (state.agent_state is AgentState.ERROR or not state.wants_attention)
        return waits and state.last_event_id >= self.stream.last_id

    async def send(self, event: AnyEvent) -> AnyEvent:
        """Store an event of the user; returns it as stored. The subscribers take it from there.

        Raises:
            StreamClosedError: the session is closed.
            EventStoreError: it could not be stored.
            ValueError: it asks to go back to an event that there is not.
        """
        if isinstance(event, Rewind):
            return await self.rewind(event.to)
        return await self.stream.add_event(as_sent(event, self._agent), "user")

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
            # First the sandbox, then the tasks: a cancelled task ends what it runs there, and that shall go on.
            await self._let_go(after)
            await self._end_tasks()
            if hasattr(self, "_tool_servers"):
                await self._tool_servers.close(keep_servers=self._given_servers is not None)

    async def _say_last(self, *, stopped: bool) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if self._controller is not None:  # it knows what was spent before
                    await self._step.account.settle()
                if not stopped:
                    return
                await self.stream.add_event(AgentStateChanged(agent_state=AgentState.STOPPED))
                if self._runtime is not None:
                    await self._runtime.interrupt()
        except (TimeoutError, EventStoreError, StreamClosedError) as error:
            logger.warning("conversation %s was not closed cleanly: %r", self.conversation_id, error)

    async def _end_tasks(self) -> None:
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        patience = CLOSE_SECONDS if self.is_ready else 0
        await self._subscribers.end(patience_seconds=patience, limit_seconds=CLOSE_SECONDS)

    async def _let_go(self, after: AfterClose) -> None:
        actions: dict[AfterClose, Callable[[], Awaitable[None]]] = {
            "pause": self.sandbox.pause,
            "stop": self.sandbox.stop,
            "destroy": self.sandbox.destroy,
        }
        try:
            if (action := actions.get(after)) is not None:
                await action()
        except SandboxError as error:
            logger.warning("conversation %s: %s of its sandbox failed: %s", self.conversation_id, after, error)
        finally:
            await self.sandbox.close()

    def _make_step(self) -> Step:
        return Step(
            self.stream,
            self._agent,
            tools=self._tools,
            gate=self.settings.gate(self._tools),
            max_budget=self.settings.max_budget,
            version=VERSION,
            stuck_detection=self.settings.stuck_detection,
        )
