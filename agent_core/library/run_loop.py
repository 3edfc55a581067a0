"""`RunLoop`: the runs of a conversation, in its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from agent_core.agent.base import AgentBase
from agent_core.errors import ConversationRunError, DrydockError, StaleOwnerError
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    InterruptEvent,
    MetricsUpdated,
    PauseEvent,
)
from agent_core.events.folder_store import FolderEventStore
from agent_core.events.llm_events import ActionDecision, MetricsSnapshot, SystemPromptEvent, UserRejectObservation
from agent_core.events.masking import SecretMasker
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore, InMemoryEventStore
from agent_core.library.callbacks import Callback, Callbacks
from agent_core.library.conversation_log import ConversationLog, ExecutionStatus
from agent_core.library.open_session import END_SECONDS, Follower, OpenSession, SandboxUse
from agent_core.llm.llm import CallContext
from agent_core.llm.metrics import ConversationStats
from agent_core.runtime.snapshots import packed, unpack
from agent_core.security.hooks import HookEvent
from agent_core.security.secrets import SecretRegistry
from agent_core.session.agent_session import AT_REST, AgentSession
from agent_core.session.rewind import fork_log
from agent_core.session.settings import SessionSettings

STORE_PATIENCE_SECONDS: Final = 10.0
"""How long a run goes on trying to store what it has."""

LOOK_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class RunLoop:
    """Does what a `Conversation` is asked to do. A session is open from the first word to the end of a run.

    Between runs the log is nobody's. `data_dir` is for what the workspace may keep (empty: none). `side_usage` counts
    the calls that are made with `side_context`; the next run, or the end, takes it into the log.
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
        sandbox: SandboxUse,
        callbacks: Callbacks,
    ) -> None:
        self.conversation_id = conversation_id
        self.log = ConversationLog(store, conversation_id)
        self.side_usage = ConversationStats()
        self.callbacks = callbacks
        self.state: object = None
        """What factories of tools are given; the conversation sets it."""
        self.is_closed = False
        self._persistence_dir = persistence_dir
        self.sandbox = sandbox
        sandbox.at_exit = self.close
        self._tells_end = False
        self.sessions = OpenSession(
            self.log, self.sandbox, callbacks, agent=agent, settings=settings, data_dir=data_dir
        )
        self._running: asyncio.Task[Any] | None = None
        self._is_beginning = False
        self._deciding = asyncio.Lock()
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def agent(self) -> AgentBase:
        return self.sessions.agent

    @property
    def settings(self) -> SessionSettings:
        return self.sessions.settings

    @property
    def is_running(self) -> bool:
        """Whether a run is under way whose agent is not at rest yet."""
        return self._is_beginning or self.sessions.at_work is not None

    @property
    def side_context(self) -> CallContext:
        context = self.settings.call_context(self.conversation_id, self.agent)
        return replace(context, on_response=lambda response, usage_id: self.side_usage.add(response, usage_id))

    @property
    def call_context(self) -> CallContext:
        session = self.sessions.ready_at_work
        return self.side_context if session is None else session.call_context

    @property
    def masker(self) -> SecretMasker:
        if (session := self.sessions.ready_at_work) is not None:
            return session.stream.secrets
        masker = SecretMasker(self.settings.secrets)
        SecretRegistry(masker.add).update(self.settings.named_secrets)
        return masker

    async def stats(self) -> ConversationStats:
        """What the models have cost by the log and by what was counted here since."""
        stats = ConversationStats((await self.log.present()).core.metrics)
        stats.take_over(self.side_usage)
        return stats

    async def side_snapshot(self) -> MetricsSnapshot:
        usage = (await self.stats()).snapshot()
        self.side_usage = ConversationStats()
        return usage

    async def use_agent(self, agent: AgentBase) -> None:
        if self.is_running:
            raise RuntimeError(f"conversation {self.conversation_id} is running; pause it first")
        await self.end_session()
        self.sessions.use_agent(agent)

    async def say(self, *events: AnyEvent) -> None:
        """Store events of the user, one after another; between runs it returns once the callbacks have seen them."""
        async with self.sessions.used() as session:
            for event in events:
                await session.send(event)
        await self._settled(session)

    async def write(self, *events: AnyEvent) -> list[AnyEvent]:
        self.callbacks.check_outside("this", unless=self.is_running)
        async with self.sessions.used() as session:
            stored = await session.stream.add_events(events)
        await self._settled(session)
        if any(isinstance(event, AgentStateChanged) for event in events):
            await self.sessions.end_unless_at_work()  # the next one begins in that state
        return stored

    async def reject(self, reason: str, only: Collection[int] | None = None) -> None:
        async with self._deciding:  # two refusals at once would both find the same actions
            fold = await self.log.present()
            waiting = [action for action in fold.core.unanswered.values() if action.action is not None]
            pending = [action for action in waiting if only is None or action.id in only]
            if not pending or self.sessions.ready_at_work is not None:
                logger.warning("conversation %s: there are no actions to reject", self.conversation_id)
                return
            is_idle = fold.state is AgentState.AWAITING_USER_CONFIRMATION and len(pending) == len(waiting)
            decisions = await self.write(
                *(ActionDecision(cause=one.id, decision="rejected", action=one, reason=reason) for one in pending)
            )
            refusals: list[AnyEvent] = [
                UserRejectObservation(
                    cause=action.id,
                    tool_name=action.tool_name,
                    tool_call_id=action.tool_call_id,
                    rejection_reason=reason,
                    reissued_as=decision.id,
                )
                for action, decision in zip(pending, decisions, strict=True)
            ]
            idle = AgentStateChanged(agent_state=AgentState.AWAITING_USER_INPUT)
            await self.write(*refusals, *([idle] if is_idle else []))

    async def opening_prompt(self) -> SystemPromptEvent | None:
        connection = await self.sandbox.connection()
        async with await AgentSession.open(
            self.conversation_id, store=InMemoryEventStore(), settings=self.settings, sandbox=connection
        ) as session:
            events = [event async for event in session.stream.history()]
        return next((event for event in events if isinstance(event, SystemPromptEvent)), None)

    async def copy_to(
        self,
        fork: RunLoop,
        upto: int | None,
        reset_metrics: bool,
        prompt: SystemPromptEvent | None,
        *,
        with_files: bool,
    ) -> None:
        """Begin the fork's log as this one did (see `fork_log`), and give it the files of then."""
        source, target = self.log, fork.log
        if await target.store.last_id(target.conversation_id) >= 0:
            raise ValueError(f"conversation_id: {target.conversation_id!r} has a log already; choose another one")
        moments = await fork_log(source, target, upto=upto, reset_metrics=reset_metrics, prompt=prompt)
        if with_files:
            async with fork.sandbox.for_one_call() as there, self.sessions.sandbox_access() as here:
                await unpack(there, packed(here, self.conversation_id, moments))

    async def between_runs(self, wish: AnyEvent) -> None:
        """Carry out a wish of the user's that ends a run, such as a rewind: the next run begins after it."""
        async with self.sessions.used() as session:
            if self.is_running:
                await session.send(wish)
                return
        self.callbacks.check_outside("this")
        async with self.sandbox.turn():
            async with self.sessions.used() as session:
                await session.send(wish)
            await self._settled(session)
            await self.end_session()  # the next one begins in that state

    async def pause(self) -> None:
        if self.is_running:
            await self._stop(PauseEvent())
        elif (await self.log.present()).status in (ExecutionStatus.IDLE, ExecutionStatus.RUNNING):
            await self.write(PauseEvent(), AgentStateChanged(agent_state=AgentState.PAUSED))

    async def interrupt(self) -> None:
        if self.is_running:
            await self._stop(InterruptEvent())
        else:
            await self.pause()

    async def _stop(self, request: ChangeAgentState) -> None:
        async with self.sessions.used() as session:
            if self.is_running and await session.settled_state() not in AT_REST:
                await session.send(request)

    async def step(self, on_event: Callback | None = None, on_token: Callback | None = None) -> None:
        callbacks = self.callbacks
        if on_token is not None:
            callbacks.for_tokens.append(on_token)
            if not self.is_running:
                await self.end_session()  # the next one hears of tokens
        if on_event is not None:
            callbacks.for_events.append(on_event)
        try:
            await self.run(max_steps=1)
        finally:
            for callback in (on_event, on_token):
                if callback is not None:
                    callbacks.remove(callback)

    async def run(self, *, max_steps: int | None = None) -> None:
        if may_not := "closed" if self.is_closed else "" if self._ended.is_set() else "running already":
            raise RuntimeError(f"conversation {self.conversation_id} is {may_not}")
        self.callbacks.check_outside("a run")
        self._running, self._is_beginning = asyncio.current_task(), True
        self._ended.clear()
        try:
            async with self.sandbox.turn():
                cause = await self._one_run(max_steps)
            await self.sessions.callbacks_done()
        except asyncio.CancelledError:
            if not self.is_closed:
                raise
            return  # that is how `close` ends it
        except Exception:
            await self.sessions.callbacks_done()  # they, and the state, are told of it before its caller is
            raise
        finally:
            self._is_beginning = False
            self._ended.set()
        fold = await self.log.present()
        if fold.is_failure:
            raise self._failure(fold.failure) from cause

    async def _one_run(self, max_steps: int | None) -> Exception | None:
        try:
            return await self._run_to_rest(max_steps)
        except asyncio.CancelledError:
            if self.sessions.ready_at_work is not None:
                with contextlib.suppress(DrydockError, TimeoutError):
                    async with asyncio.timeout(5):
                        await self._stop(InterruptEvent())
                        if self.sessions.follower is not None:
                            await self.sessions.follower.rest()
            raise
        except Exception as error:
            if self.sessions.session is None and not isinstance(error, DrydockError):
                raise  # it did not begin: what was given is not what it may be
            problem = str(error) if isinstance(error, DrydockError) else f"{type(error).__name__}: {error}"
            raise self._failure(problem) from error
        finally:
            self._is_beginning = False
            await self.sessions.end()

    async def delete(self) -> None:
        """Remove the log, and what is kept beside it; for a closed conversation."""
        if isinstance(self.log.store, FolderEventStore):
            remove = self.log.store.remove
            await asyncio.get_running_loop().run_in_executor(None, remove, self.conversation_id)

    async def until_run_ended(self) -> None:
        """Wait until a run that was cancelled is over: its agent is paused, and the next one may begin."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._ended.wait()

    async def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self.is_running and self._running is not None:
            self._running.cancel()
        await self.until_run_ended()
        await self.end_session()
        if self._tells_end:
            try:
                limit = asyncio.timeout(END_SECONDS)
                async with limit, self.sandbox.for_one_call() as connection, self.sessions.used() as session:
                    await session.tell_hooks_of_end(connection)
            except (DrydockError, TimeoutError) as error:
                logger.warning("conversation %s: hooks were not told of its end: %s", self.conversation_id, error)
            await self.end_session()
        if self.side_usage.calls:
            with contextlib.suppress(DrydockError):  # the usage is lost then, and nothing else
                await self.write(MetricsUpdated(metrics=await self.side_snapshot()))
        await self.end_session()
        await self.sessions.close_servers()
        await asyncio.get_running_loop().run_in_executor(None, self.agent.close)
        await self.sandbox.close()
        self.callbacks.close()

    async def _settled(self, session: AgentSession) -> None:
        fold, last = await self.log.present(), session.stream.last_id
        follower = self.sessions.follower
        while not (self.sessions.at_work is session or self.callbacks.is_inside) and fold.last_id < last:
            if follower is None or not await follower.next_move():
                return

    async def _run_to_rest(self, max_steps: int | None) -> Exception | None:
        fold = await self.log.present()
        if not fold.wants_run:
            return None
        waited, confirms = fold.state is AgentState.AWAITING_USER_CONFIRMATION, fold.awaits_approval
        session = await self.sessions.put_to_work()
        self._is_beginning = False
        if not waited:
            await session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
        await session.start(max_steps=max_steps)
        self.sessions.has_begun = True
        self._tells_end = session.running is not None and session.running.hooks.has(HookEvent.SESSION_END)
        session.step.usage.stats.take_over(self.side_usage)
        self.side_usage = ConversationStats()
        if confirms:
            await session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED, max_steps=max_steps))
        if (follower := self.sessions.follower) is not None:
            await self._rest(session, follower)
            while not await self.sessions.end_at_rest():  # the user has said something in the last moment
                await self._rest(session, follower)
        return session.running.controller.failure if session.running is not None else None

    async def _rest(self, session: AgentSession, follower: Follower) -> None:
        """Wait until the agent rests; raises what keeps its log from taking anything, unless that passes soon."""
        resting = asyncio.create_task(follower.rest(), name=f"rest:{self.conversation_id}")
        try:
            while not (await asyncio.wait([resting], timeout=LOOK_SECONDS))[0]:
                if (outage := session.stream.outage) is None:
                    continue
                is_over = isinstance(outage.error, StaleOwnerError)
                if is_over or time.monotonic() - outage.since > STORE_PATIENCE_SECONDS:
                    raise outage.error
            resting.result()
        finally:
            resting.cancel()

    def _failure(self, problem: str) -> ConversationRunError:
        folder = self._persistence_dir
        return ConversationRunError(problem, conversation_id=self.conversation_id, persistence_dir=folder)

    async def end_session(self) -> None:
        self.callbacks.check_outside("this")
        await self.sessions.end_unless_at_work()
