"""`AgentSession`: one loaded conversation, with its log, its agent and its sandbox."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final, Literal, Self

from agent_core.agent.base import FIRST_EVENTS
from agent_core.controller.agent_controller import TakeTurn, no_wait
from agent_core.controller.guards import answers_to_invalid_calls
from agent_core.controller.state import INTERRUPTING, ControllerState
from agent_core.controller.step import Step
from agent_core.errors import (
    ClientToolError,
    DrydockError,
    EventStoreError,
    NoSuchEventError,
    SandboxError,
    SandboxLostError,
    StreamClosedError,
    ToolError,
)
from agent_core.events.branches import Rewind
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ClientToolResult,
    Condensation,
    LoopRecovery,
    Recorded,
    SkillLeftOut,
)
from agent_core.events.event import Source
from agent_core.events.llm_events import MessageEvent, SystemPromptEvent
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore
from agent_core.events.stream import EventStream
from agent_core.events.transient import READY
from agent_core.mcp.servers import McpServers
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.channel.shared_sandbox import SharedSandbox
from agent_core.runtime.snapshots import forget_behind, plant
from agent_core.security.confirmation import ConfirmationGate
from agent_core.security.hooks import HookEvent
from agent_core.security.secrets import SecretValue
from agent_core.session.factory import as_sent, make_agent, make_secrets, prepare_tools
from agent_core.session.hooks import make_hooks
from agent_core.session.repository import OrganizationSkills, organization_skills, run_scripts, set_up
from agent_core.session.rewind import Rewinder
from agent_core.session.running_agent import RunningAgent, make_running_agent
from agent_core.session.sandbox_plugins import SandboxPlugins
from agent_core.session.settings import SessionSettings
from agent_core.session.status_report import FAILED, StatusReport
from agent_core.session.subagent_factory import Parent, Shared, end_tools_of_child
from agent_core.session.tool_servers import ToolServers, make_servers
from agent_core.skills.skill import Skill
from agent_core.spans import PRESENT
from agent_core.tools.context import SandboxAccess
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import Tool, ToolMakerState, WorkspacePlace
from agent_core.tools.vision_inspect import VisionInspectTool
from agent_core.troubles import Trouble, coded

CLOSE_SECONDS = 10.0
AT_REST = INTERRUPTING | {AgentState.ERROR, AgentState.AWAITING_USER_CONFIRMATION}
LOOK_SECONDS: Final = 0.005
SETTLE_LOOKS: Final = 100
OPENING = 20
"""Within so many events of its own the prompt stands, whatever a rewind or a fork has written before it."""

AfterClose = Literal["keep", "pause", "stop", "destroy"]

logger = logging.getLogger(__name__)


class AgentSession:
    """One loaded conversation: its log is owned, and its agent, tools and secrets are there, from `open` to `close`.

    `start` puts a `RunningAgent` to work, which needs the sandbox; without it the log can be read and written all the
    same, at no cost. As an asynchronous context manager the session closes itself, leaving the conversation as it is.

    Attributes:
        secrets: the conversation's secrets, to which more may be added at any time.
        call_context: what side calls of models are made with that this conversation pays for.
        step, rewinder: what takes its steps, and takes it back.
        running: the agent at work; None before its start has come that far.
        is_ready: whether `start` has succeeded.
        has_failed: whether it has not; set before anybody is told.
    """

    def __init__(
        self,
        shared: Shared,
        tool_servers: ToolServers,
        report: StatusReport,
        resources: AsyncExitStack,
        *,
        hook_events: frozenset[HookEvent],
        client_count: Callable[[], int] | None,
        take_turn: TakeTurn,
        opened: range,
        unbegun_since: int | None,
        is_restored: bool,
    ) -> None:
        self.conversation_id = shared.stream.conversation_id
        self.stream = shared.stream
        self.agent = shared.agent
        self.settings = shared.settings
        self.secrets = shared.secrets
        self.sandbox = shared.sandbox
        self.call_context = shared.step.usage.context
        self.running: RunningAgent | None = None
        self.is_ready = self.has_failed = False
        self._shared = shared
        self.step = shared.step
        self._tool_servers = tool_servers
        self._tools = tool_servers.tools
        self._report = report
        self._hook_events = hook_events
        self._client_count = client_count
        self._take_turn = take_turn
        self._opened = opened
        self._unbegun_since = opened[-1] if unbegun_since is None else unbegun_since
        self._has_begun = False
        self._is_restored = is_restored
        self.rewinder = Rewinder(
            self.stream,
            self.sandbox,
            lambda: self.step.system_prompt(self.secrets.descriptions()),
            lambda: self.running,
            lambda: self.running is None and not self.has_failed,
        )
        self._followers: list[asyncio.Task[None]] = []
        self._warming: asyncio.Task[None] | None = None
        self._plugins = SandboxPlugins(shared.agent.sandbox_plugins, shared.stream)
        self._closing: asyncio.Task[None] | None = None
        self._after: AfterClose = "keep"
        self._keeps_work = False
        # Unwound from the last to the first. The sandbox goes before the tasks: a cancelled task ends what it runs
        # there, and that shall go on.
        self._resources = resources
        resources.push_async_callback(self._end_tasks)
        resources.push_async_callback(self._let_go_of_sandbox)
        resources.push_async_callback(self._suspend_subagents)
        resources.callback(self.stream.close)

    @classmethod
    async def open(
        cls,
        conversation_id: str,
        *,
        store: EventStore,
        settings: SessionSettings,
        sandbox: SandboxConnection | SharedSandbox,
        on_status: Callable[[str], None] | None = None,
        servers: McpServers | None = None,
        hook_events: Iterable[HookEvent] = (HookEvent.SESSION_START, HookEvent.SESSION_END),
        parent: Parent | None = None,
        client_count: Callable[[], int] | None = None,
        take_turn: TakeTurn = no_wait,
        unbegun_since: int | None = None,
    ) -> Self:
        """Become the owner of the log, and write that it is loading (in a new log also what the agent is told).

        Where that fails nothing is left, and the sandbox is let go of. `resources` end with the session; `servers` are
        those of an earlier session of this conversation and stay the caller's. `hook_events` says whether its start and
        its end are events for hooks, `parent` what a sub-agent's session has from the one that asks it, and
        `client_count` how many clients follow the conversation, where somebody knows; each step waits for `take_turn`.
        `unbegun_since` is that of the session before, whose start has failed.
        Raises `EventStoreError`; `AssertionError` where a message of the user comes before any system prompt;
        `KeyError` or `ValueError` where the settings name an unknown agent or tool.
        """
        async with AsyncExitStack() as resources:
            resources.push_async_callback(sandbox.close)
            skill_problems = list(settings.skill_problems)
            agent = await make_agent(settings, skill_problems.append)
            if parent is not None:
                resources.push_async_callback(end_tools_of_child, agent, parent.shared.agent)
            workspace = WorkspacePlace(sandbox.working_dir, settings.missing_parts)
            place = ToolMakerState(conversation_id, workspace, settings.stored_models)
            known = make_servers(settings, agent, sandbox) if servers is None else servers
            stream = await EventStream.open(conversation_id, store)
            resources.callback(stream.close)
            is_restored = stream.last_id >= 0
            stream.log_level = logging.INFO if settings.log_all_events else logging.DEBUG
            tool_servers = ToolServers(
                known,
                agent,
                place,
                stream,
                settings.own_tools,
                refused_levels=settings.mcp_rules.refused_levels,
            )
            resources.push_async_callback(tool_servers.close, keep_servers=servers is not None)
            tool_servers.set_client_tools(settings.client_tools)
            secrets = make_secrets(settings, agent, stream, parent)
            step = Step(
                stream,
                agent,
                tools=tool_servers.tools,
                models=settings.stored_models,
                gate=ConfirmationGate.for_tools(settings.policy, settings.analyzer, tool_servers.tools),
                max_budget=settings.max_budget,
                loops=settings.stuck_thresholds if settings.stuck_detection else None,
                context=settings.call_context(
                    conversation_id, agent, cache_key=parent.shared.cache_key if parent is not None else ""
                ),
                payer=parent.budget.count if parent is not None else None,
            )
            opening: list[AnyEvent] = [AgentStateChanged(agent_state=AgentState.LOADING)]
            prompt = step.init_state(await _first_own_events(stream), secrets.descriptions())
            opening.extend([prompt] if prompt is not None else [])
            opened = await stream.add_events(opening)
            shared = Shared(
                stream=stream,
                store=store,
                settings=settings,
                agent=agent,
                sandbox=sandbox,
                secrets=secrets,
                step=step,
                parent=parent,
                skill_problems=tuple(skill_problems),
                open=cls.open,
            )
            return cls(
                shared,
                tool_servers,
                StatusReport(stream, on_status),
                resources.pop_all(),
                hook_events=frozenset(hook_events),
                client_count=client_count,
                take_turn=take_turn,
                opened=range(opened[0].id, opened[-1].id + 1),
                unbegun_since=unbegun_since,
                is_restored=is_restored,
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close(stopped=False)

    @property
    def unbegun_since(self) -> int | None:
        """No action behind this event has begun, since its start has not got that far; None: it has."""
        return None if self._has_begun else self._unbegun_since

    @property
    def tools(self) -> list[ToolDefinition]:
        """The tools that the agent has at this moment."""
        return list(self._tools.values())

    async def start(self, initial_message: MessageEvent | None = None, *, max_steps: int | None = None) -> None:
        """Bring up the sandbox and the agent, and go on where the log ends; once for each session, else `RuntimeError`.

        First the sandbox, with MCP servers and the model's library coming up beside it; then the workspace (its files,
        its repository, the name on commits) and what tools need in it; then memory, runtime and controller, which take
        the log over; last the message and the state. Secrets, tools and prompt are there since `open`, before anything
        can be said or logged. After `max_steps` (None: without a limit) an agent that would go on is paused.

        Progress is published on the stream; success and duration are logged in any case. When it fails, with
        `SandboxError` or `EventStoreError`, the log says so (state `error`) and the session is to be closed; another
        one can start again. On a closed session it only warns.
        """
        if self._warming is not None:
            raise RuntimeError(f"the session of conversation {self.conversation_id} was started already")
        if self._closing is not None or self.stream.closed:
            logger.warning("conversation %s: its session was closed before it was started", self.conversation_id)
            return
        started_at = time.monotonic()
        try:
            await self._start(initial_message, max_steps)
        finally:
            self._log_start(time.monotonic() - started_at)

    def tell_start(self, status_id: str, text: str) -> None:
        """Tell how the start of the sandbox goes on, where that is decided outside of it."""
        self._report.progress(status_id, text)

    def _log_start(self, seconds: float) -> None:
        facts = {
            "signal": "agent_session_start",
            "conversation_id": self.conversation_id,
            "success": self.is_ready,
            "duration": round(seconds, 3),
            "restored_state": self._is_restored,
        }
        # One that was closed meanwhile has not failed; why another one has says whoever started it.
        outcome = "succeeded" if self.is_ready else "failed" if self.has_failed else "was ended"
        logger.info("conversation %s: start %s after %.3f s", self.conversation_id, outcome, seconds, extra=facts)

    async def _start(self, initial_message: MessageEvent | None, max_steps: int | None) -> None:
        # Loading the client library takes seconds; the sandbox comes up in the meantime.
        self._warming = asyncio.create_task(self.agent.llm.warm_up(), name=f"warm-up:{self.conversation_id}")
        self._tool_servers.start(self.secrets)
        try:
            await self.sandbox.start(self._report.progress)
            settle = self.settings.settle_sandbox
            if settle is None:
                await self._place_folders(self.sandbox)
                if not self._plugins:
                    self._tool_servers.sandbox_is_up()
            await plant(self.settings.seed, self.sandbox)
            cloned_at = await set_up(self.settings.git, self.sandbox, self.stream)
            if settle is not None:
                await settle(self.stream, self._report.progress)
                await self._place_folders(self.sandbox)
                if not self._plugins:
                    self._tool_servers.sandbox_is_up()
            organization = await organization_skills(self.settings.git.organization, self.sandbox)
            await prepare_tools(self._tools.values(), self.sandbox)
            # A sub-agent's sandbox is its parent's, who has brought up what is there.
            if isinstance(self.sandbox, SandboxConnection):
                if not (self.sandbox.sandbox.survived and await self._plugins.are_up(self.sandbox)):
                    await self._plugins.bring_up(self.sandbox)
                self.sandbox.prepare = self._prepare
            self._tool_servers.sandbox_is_up()
            async with self.rewinder.lock:
                await self._begin(initial_message, max_steps, organization, cloned_at=cloned_at)
        except Exception as error:
            self.has_failed = True
            if isinstance(error, EventStoreError) and error.code:
                # Nothing can be stored at present, this neither: who owns the store tells all, and starts it again.
                self._report.enter(FAILED)
                raise
            problem = "The conversation could not be started; the server's log says why."
            if isinstance(error, DrydockError):
                problem = " ".join(str(error).split())  # one line: what a program said last may be many
            await self._report.start_failed(type(error).__name__, problem)
            raise
        self._report.enter(READY)
        self.is_ready = True
        self.sandbox.listen(self._report.changed)

    async def _prepare(self, sandbox: SandboxAccess) -> None:
        """What has to be there again when the sandbox has started anew, before anybody uses it."""
        await self._place_folders(sandbox)
        await self._plugins.bring_up(sandbox)

    async def _place_folders(self, sandbox: SandboxAccess) -> None:
        for folder in self.settings.folders:
            try:
                await folder.place(sandbox)
            except SandboxLostError:
                raise
            except (SandboxError, ToolError) as error:
                text = f"The files in {folder.path} could not be put into the sandbox: {error}"
                await self.stream.add_event(SkillLeftOut(path=folder.path, detail=text))

    async def _begin(
        self,
        initial_message: MessageEvent | None,
        max_steps: int | None,
        organization: OrganizationSkills,
        *,
        cloned_at: int | None,
    ) -> None:
        agent = await make_running_agent(
            replace(self._shared, settings=self.settings),
            self._tools,
            organization=organization,
            bring=self._tool_servers.bring,
            rewinding=self.rewinder.lock,
            max_steps=max_steps,
            client_count=self._client_count,
            take_turn=self._take_turn,
        )
        await forget_behind(self.sandbox, self.conversation_id, self._opened[0] - 1)
        await agent.catch_up(self.rewinder.observe)
        await self.rewinder.bring_back_files()
        state = agent.controller.state
        self.step.usage.restore(state.metrics)
        if HookEvent.SESSION_START in self._hook_events:
            await agent.hooks.session_started()
        await self.stream.add_events(answers_to_invalid_calls(state))
        await agent.memory.look_again()
        self._has_begun = True
        await agent.runtime.recover(resumes=state.resumable is AgentState.RUNNING, unbegun_since=self._unbegun_since)
        self.running = agent
        if cloned_at is not None and (repository := self.settings.git.repository) is not None:
            self._followers = agent.follow(self._broken)
            await run_scripts(repository, self.sandbox, self.stream, cloned_at=cloned_at)
        await agent.controller.begin([as_sent(initial_message, self.agent)] if initial_message is not None else [])
        self._followers = self._followers or agent.follow(self._broken)

    async def _broken(self, problem: str, code: str) -> None:
        """A part of it has failed for good: have the others let go of what they do, and say so."""
        if self.is_broken:
            return  # another part has met the same
        self._report.is_broken = True
        others = [task for task in self._followers if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CLOSE_SECONDS)
        await self._report.broken(problem, code)

    async def send(self, event: AnyEvent) -> AnyEvent:
        """Store an event of the user; returns it as stored. The running agent takes it from there.

        Raises `StreamClosedError` or `EventStoreError` where it could not be stored, `NoSuchEventError` or
        `NotStuckError` for a rewind or recovery that is not possible, and `ClientToolError` for an answer to no waiting
        call.
        """
        self.stream.asked_in = PRESENT.get()
        if isinstance(event, Rewind):
            return await self.rewinder.rewind(event.to, client_key=event.client_key)
        if isinstance(event, ClientToolResult):
            if self.running is None:
                raise ClientToolError("the conversation is being loaded; send the answer again", code="loading")
            return await self.running.runtime.client_calls.accept(event)
        if isinstance(event, LoopRecovery):
            return await self.rewinder.recover(event.option, client_key=event.client_key)
        if event.cause is not None and event.cause > (last := self.stream.last_id):  # it can only answer one before it
            raise NoSuchEventError(
                f"cause: {event.cause} is not the id of an event before this one; the newest is {last}"
            )
        source: Source = "agent" if isinstance(event, Condensation) else "user"  # a program has made it, for the agent
        if isinstance(event, MessageEvent) and event.source == "environment":
            source = event.source  # what a program tells the agent beside its user's words
        return await self.stream.add_event(as_sent(event, self.agent), source)

    async def tell_hooks_of_end(self, sandbox: SandboxConnection) -> None:
        """Tell the hooks that the conversation ends, for a session that was not started."""
        policy = self.step.gate(self._state).policy
        shared = replace(self._shared, settings=self.settings, sandbox=sandbox)
        await self._place_folders(sandbox)
        hooks = await make_hooks(shared, self._tools, lambda: policy)
        try:
            await hooks.session_ended()
        finally:
            await hooks.close()

    async def close(self, *, stopped: bool, sandbox: AfterClose = "keep") -> None:
        """End the session, within a bounded time; calling it again waits for the first call.

        With `stopped` the log says so, and what runs is ended and answered. Without it the conversation goes on at the
        next start exactly where it was: a sandbox in which its agent is at work in that moment is not stopped.
        """
        if self._closing is None:
            self._after = sandbox
            self._keeps_work = sandbox == "stop" and not stopped
            self._closing = asyncio.create_task(self._close(stopped=stopped), name=f"close:{self.conversation_id}")
        await asyncio.shield(self._closing)

    async def _close(self, *, stopped: bool) -> None:
        async with self._resources:
            if self.stream.closed:
                return
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    if self.running is not None:  # its usage tells what was spent before
                        if HookEvent.SESSION_END in self._hook_events:
                            await self.running.hooks.session_ended()
                        await self.step.usage.settle()
                        if stopped and self.is_broken:  # the next session answers what is open
                            await self.stream.add_event(AgentStateChanged(agent_state=AgentState.STOPPED))
                        elif stopped:
                            # Where its start was ended in its last moment nobody follows the log yet, as a stop needs.
                            self._followers = self._followers or self.running.follow(self._broken)
                            await self.running.stop()
                            await self.step.usage.settle()  # what the call has cost that was cut
                    elif stopped:
                        await self.stream.add_event(AgentStateChanged(agent_state=AgentState.STOPPED))
            except (TimeoutError, EventStoreError, StreamClosedError) as error:
                logger.warning("conversation %s was not closed cleanly: %r", self.conversation_id, error)

    async def _suspend_subagents(self) -> None:
        if self.running is not None:
            await self.running.delegation.suspend()

    async def _let_go_of_sandbox(self) -> None:
        actions = {"pause": self.sandbox.pause, "stop": self.sandbox.stop, "destroy": self.sandbox.destroy}
        if self._keeps_work and self.running is not None and not self.is_at_rest:
            self._after = "keep"  # its turn came, or a message, since it was looked at
        try:
            if (action := actions.get(self._after)) is not None:
                await action()
        except SandboxError as error:
            where = self.conversation_id
            extra = coded(Trouble.SANDBOX_NOT_STOPPED, where)
            logger.warning("conversation %s: %s of its sandbox failed: %s", where, self._after, error, extra=extra)
        finally:
            await self.sandbox.close()

    async def _end_tasks(self) -> None:
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        # The stream is closed: they read to its end and return.
        late: set[asyncio.Task[None]] = set(self._followers)
        for patience in (CLOSE_SECONDS if self.is_ready else 0, CLOSE_SECONDS):
            if late:
                _, late = await asyncio.wait(late, timeout=patience)
            for task in late:
                task.cancel()

    # --- what can be asked of it at any moment ---

    def set_client_tools(self, tools: Sequence[Tool]) -> None:
        """Give the agent these tools of clients from its next step on; `ValueError`, and no change, where it cannot."""
        self._tool_servers.set_client_tools(tools)

    def set_named_secrets(self, secrets: Mapping[str, SecretValue]) -> None:
        """Give commands these in place of the settings' `named_secrets`; a former secret stays hidden."""
        self.secrets.remove(self.settings.named_secrets.keys() - secrets.keys())
        self.secrets.update(secrets)
        self.settings = replace(self.settings, named_secrets=dict(secrets))

    @property
    def is_broken(self) -> bool:
        """Whether its agent has stopped for good, because a part of it failed: another session can go on."""
        return self._report.is_broken

    @property
    def runtime_status(self) -> str:
        return self._report.status

    @property
    def runtime_warning(self) -> str:
        return self._report.warning

    @property
    def agent_state(self) -> AgentState:
        """What the agent is doing, as far as the log was read; loading before the session is ready."""
        if self.is_broken:
            return AgentState.ERROR
        return self._state.agent_state if self._state is not None else AgentState.LOADING

    async def settled_state(self) -> AgentState:
        stored = self.stream.last_id
        for _ in range(SETTLE_LOOKS):
            if self._state is None or self._state.last_event_id >= stored:
                break
            await asyncio.sleep(LOOK_SECONDS)
        return self.agent_state

    @property
    def has_images_inspected(self) -> bool:
        return VisionInspectTool.tool_name in self._tools

    @property
    def _state(self) -> ControllerState | None:
        return self.running.controller.state if self.running is not None else None

    async def skills(self) -> list[Skill] | None:
        return await self.running.memory.skills() if self.running is not None else None

    @property
    def is_at_rest(self) -> bool:
        """Whether the agent has read the whole log and does nothing until its user does something."""
        if self.is_broken:
            return True
        if self.running is None:
            return False
        state = self.running.controller.state
        waits = state.agent_state in AT_REST and (state.agent_state is AgentState.ERROR or not state.wants_attention)
        return waits and min(state.last_event_id, self.running.runtime.dealt_with) >= self.stream.last_id


async def _first_own_events(stream: EventStream) -> list[AnyEvent]:
    """The first events that were not imported, as many as tell whether the agent has its prompt already."""
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
