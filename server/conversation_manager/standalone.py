"""The default conversation manager: one process runs every conversation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from agent_core.errors import DrydockError, EventStoreError
from agent_core.events.branches import Rewind
from agent_core.events.control import AgentState
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import StatusNotice
from agent_core.llm.llm import LLM, CallContext
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.runtime.sandbox import HostView
from agent_core.skills.skill import Skill
from agent_core.tools.definition import ToolDefinition
from agent_core.troubles import Trouble, coded
from server.auth.identity import Identity
from server.conversation_manager.conversation_manager import (
    ConversationManager,
    ConversationStatus,
    LiveConversation,
    ManagerParts,
)
from server.conversation_manager.failed_starts import START_AGAIN_SECONDS, FailedStarts
from server.db.repositories.conversations import ConversationRecord
from server.db.storage_health import StorageHealth
from server.errors import EndingError
from server.session.activity import Activity, is_idle, is_pause_over
from server.session.capacity import Capacity
from server.session.client_tools import ClientToolSpec
from server.session.crash_guard import HELD_BACK, SENTENCE, CrashGuard
from server.session.memory_ceiling import LOOK_SECONDS, give_back, give_back_freed, server_memory
from server.session.recorder import BUSY_STATES
from server.session.recovery import Recovery, interrupted, is_up, may_be_up
from server.session.run_queue import RunQueue
from server.session.tickets import QueuePlace
from server.session.titles import TitleKeeper
from server.session.unfinished import remove_seed, tidy_up
from server.session.web_session import WebSession

logger = logging.getLogger(__name__)

MAX_PAUSE_SECONDS: Final = 60.0
STOPPED = StatusNotice("STATUS$STOPPED", "The conversation was stopped. Send a message to go on with it.")
DELETED = StatusNotice("CONVERSATION$NOT_FOUND", "The conversation was deleted.", "error")


class StandaloneConversationManager(ConversationManager):
    """A `ConversationManager` without any other process.

    One that is not alone (`is_alone`) takes up only what it is told to, loads nothing that it may not run (`runs`) at
    that moment, and tells of each conversation that it has `suspended`, since it ends.
    """

    def __init__(
        self,
        parts: ManagerParts,
        *,
        is_alone: bool = True,
        runs: Callable[[str], bool] = lambda _: True,
        suspended: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(parts)
        self._is_alone = is_alone
        self._runs = runs
        self._suspended = suspended
        self._conversations = parts.database.conversations
        self._sessions: dict[str, WebSession] = {}
        self._by_connection: dict[str, WebSession] = {}
        self._unattended_since: dict[str, float] = {}
        self._looked_at = ""  # whose sandbox is looked at, whether it is up
        self._kept = Counter[str]()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._titles = TitleKeeper(self._conversations, parts.titles, parts.announcements)
        self._last_activity = time.monotonic()
        self._frozen = set[WebSession]()
        self._is_closing = False
        self._unwanted: set[str] = set()
        self._failed_starts = FailedStarts(
            self._sessions, self._take_up, self._own, sandboxes=parts.sandboxes, health=parts.database.writer.health
        )
        settings = parts.settings
        self.guard = CrashGuard(
            self._conversations,
            parts.database.events,
            retry_seconds=settings.held_back_seconds if settings.resume_on_start else 0,
            tell=self._write_down,
            take_up=self._resume_in_turn,
            metrics=parts.metrics,
        )
        self.queue = RunQueue(
            Capacity.of(settings),
            self._conversations,
            conditions=[parts.sandboxes.memory.problem, parts.sandboxes.reserve.problem],
            sandboxes=lambda: parts.sandboxes.hosts.most if settings.max_sandboxes is None else None,
            others=self._unattended_since,
            free_sandbox=self._free_sandbox,
            on_turn=self._on_turn,
            metrics=parts.metrics,
        )
        if parts.warm is not None and is_alone:  # the start of another would sweep them away, as they are nobody's yet
            parts.warm.serve(self.queue.room, self.unattended)
        self._recovery = Recovery(self._take_up, self.queue, self.guard, concurrency=settings.resume_concurrency)

    async def __aenter__(self) -> Self:
        metrics = self.parts.metrics
        metrics.gauge("drydock_sessions", lambda: len(self._sessions))
        metrics.gauge(
            "drydock_loaded_conversations", lambda: sum(session.is_loaded for session in self._sessions.values())
        )
        self._own(self._cull, name="culler")
        self._own(self.guard.run, name="crash-guard")
        self._own(self.queue.run, name="queue")
        self.parts.database.writer.health.watch(self._storage_changed)
        self.parts.database.writer.health.unreadable = partial(metrics.trouble, Trouble.STORAGE_UNREADABLE)
        if self._is_alone:
            if self.parts.settings.resume_on_start:
                self.queue.close()  # until those who waited have their places again
                self._own(self._recover, name="recovery")
            self._own(self._find_unattended, name="unattended")
        self.parts.sandboxes.hosts.on_change = self._host_changed
        self._own(self._keep_reserve, name="disk-reserve")
        self._own(self._keep_memory, name="memory-ceiling")
        ceiling, gauge = self.parts.sandboxes.memory, self.parts.metrics.gauge
        gauge("drydock_memory_bytes", server_memory)
        gauge("drydock_memory_limit_bytes", lambda: ceiling.limit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closing = True
        self.queue.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._titles.close()
        ending = [asyncio.create_task(self._suspend(session)) for session in self._sessions.values()]
        ending += [asyncio.create_task(self._stop_at_rest(one)) for one in self._unattended_since]
        if not ending:
            return
        _, late = await asyncio.wait(ending, timeout=self.parts.settings.shutdown_seconds)
        for task in late:
            task.cancel()
        if late:
            logger.warning("%d conversations were not suspended in time; the next start takes them up", len(late))

    # --- sockets ---

    async def join(self, conversation_id: str, connection_id: str, identity: Identity) -> WebSession:
        await self.access(conversation_id, identity)
        with self._using(conversation_id) as session:
            session.connections.add(connection_id)
            self._by_connection[connection_id] = session
            try:
                await session.look()
            except BaseException:
                await self.leave(connection_id)
                raise
            return session

    def user_of(self, conversation_id: str) -> str:
        session = self._sessions.get(conversation_id)
        return (session.user_id if session is not None else None) or self.queue.user_of(conversation_id)

    async def _owner_of(self, conversation_id: str) -> str | None:
        session = self._sessions.get(conversation_id)
        # Of a loaded one it is known without asking the database; not yet of one that is being loaded the first time.
        if session is not None and session.is_loaded and session.user_id is not None:
            return session.user_id
        return await super()._owner_of(conversation_id)

    async def leave(self, connection_id: str) -> None:
        session = self._by_connection.pop(connection_id, None)
        if session is not None:
            session.connections.discard(connection_id)
            session.last_activity = time.monotonic()
            self._forget_if_unused(session)

    async def deliver(self, conversation_id: str, event: AnyEvent, *, after: int | None = None) -> AnyEvent:
        with self._using(conversation_id) as session:
            return await session.send(event)

    async def set_client_tools(self, conversation_id: str, specs: Sequence[ClientToolSpec]) -> bool:
        with self._using(conversation_id) as session:
            return await session.set_client_tools(specs)

    async def reconfigure(self, conversation_id: str, changes: Mapping[str, Any]) -> bool:
        with self._using(conversation_id) as session:
            return await session.reconfigure(changes)

    def tools(self, conversation_id: str) -> list[ToolDefinition]:
        session = self._sessions.get(conversation_id)
        return session.tools if session is not None else []

    async def refresh_secrets(self, user_id: str) -> None:
        try:
            await self._refresh_secrets(user_id)
        except EventStoreError:
            self._own(partial(self._refresh_secrets, user_id), name=f"secrets of {user_id!r}")

    async def _refresh_secrets(self, user_id: str) -> None:
        # Each reads them when its turn comes, so that of two changes at once the later one stands.
        refreshed = (session.refresh_secrets(user_id) for session in list(self._sessions.values()))
        for failure in await asyncio.gather(*refreshed, return_exceptions=True):
            if failure is not None:
                raise failure

    async def rewind(self, conversation_id: str, to: int | None) -> AnyEvent:
        with self._using(conversation_id) as session:
            return await session.send(Rewind(to=-1 if to is None else to))

    # --- life ---

    async def maybe_start_agent_loop(self, conversation_id: str) -> LiveConversation:
        self.parts.sandboxes.check_room()
        await self._take_up(conversation_id)
        self.guard.release(conversation_id)
        return self.live(conversation_id)

    async def _take_up(self, conversation_id: str) -> None:
        with self._using(conversation_id) as session:
            await session.restart_if_failed()

    async def stop(self, conversation_id: str) -> LiveConversation:
        before = self.live(conversation_id)
        with self._using(conversation_id) as session:
            was_loaded = session.is_loaded
            if was_loaded:
                await session.unload(stopped=True, sandbox="stop", notice=STOPPED)
            else:
                self.queue.forget(conversation_id)
            self._failed_starts.forget(conversation_id)
            record = await self._conversations.get(conversation_id)
            if record is not None and not session.is_loaded:
                if record.agent_state in BUSY_STATES:  # it was to be taken up, or its session could not write it down
                    await self._write_stopped(session)
                if not was_loaded:
                    await self.parts.sandboxes.stop(record)
            await self.guard.came_to_rest(conversation_id)
            self.attended(conversation_id)
        return before

    async def _write_stopped(self, session: WebSession) -> None:
        try:
            await session.halt(AgentState.STOPPED, STOPPED)
        except EventStoreError as error:
            problem = "Stopped, but that cannot be stored, so the server's next start would take it up; stop it again"
            raise EventStoreError(f"{problem}: {error}", code=error.code) from error

    async def delete(self, conversation_id: str, *, unless_used: bool = False) -> bool:
        record = await self._conversations.get(conversation_id, even_damaged=True)
        if record is None or (unless_used and self._is_used(conversation_id)):
            return False
        with self._using(conversation_id) as session:
            await session.end(stopped=True, farewell=DELETED)
            try:
                self._titles.forget(conversation_id)
                self._failed_starts.forget(conversation_id)
                self.guard.forget(conversation_id)
                remove_seed(self.parts.settings.data_dir, conversation_id)
                self.queue.forget(conversation_id)
                # Its sandbox may have been found only while it ran.
                latest = await self._conversations.get(conversation_id, even_damaged=True)
                async with self.parts.database.audit.beside("conversation.deleted", ("conversation", conversation_id)):
                    deleted = await self._conversations.delete(conversation_id)
                # Its files last: what cannot be deleted keeps them, and those of what is gone are looked for.
                try:
                    await self.parts.sandboxes.destroy(latest or record)
                finally:
                    self.attended(conversation_id)
                return deleted
            except EventStoreError:
                # It is there still: what was at work, and could not even be noted as stopped, is not left alone.
                self._own(partial(self._resume, conversation_id), name=f"resume:{conversation_id}")
                raise
            finally:
                if self._sessions.get(conversation_id) is session:
                    del self._sessions[conversation_id]

    # --- for who is not alone ---

    def uses(self, conversation_id: str) -> bool:
        """Whether anything is done with it here, or is about to be, or its sandbox is up."""
        is_known = self.queue.knows(conversation_id) or conversation_id in self._unattended_since
        is_known = is_known or conversation_id in self._unwanted  # to be deleted here
        return is_known or self._is_used(conversation_id)

    async def take_over(self, records: Sequence[ConversationRecord]) -> None:
        """Take up these, whose agents were at work elsewhere, in the background."""
        if records:
            self._own(partial(self._recovery.resume_all, records), name="taking over")

    async def look_after(self, record: ConversationRecord) -> None:
        """Have its sandbox stopped in time, if that is up and nobody has it."""
        self._looked_at = record.id
        if not await is_up(record, self.parts.sandboxes) or not self._looked_at:
            return  # or it was stopped, deleted or loaded meanwhile
        self._looked_at = ""
        session = self._sessions.get(record.id)
        is_loaded = session is not None and session.is_loaded
        if not (is_loaded or self.queue.has_sandbox(record.id)):
            self._unattended_since.setdefault(record.id, time.monotonic())

    async def abandon(self, some: Set[str] | None = None) -> None:
        """End all sessions, or `some`: others may carry on what they did. Sandboxes are left to them."""
        sessions = [one for one in self._sessions.values() if some is None or one.conversation_id in some]
        self._leave_alone(some)
        if some is None:
            self._unwanted.clear()
            self.queue.forget_all()
        else:
            for one in some:
                self.queue.forget(one)
        await asyncio.gather(*(session.end(stopped=False) for session in sessions), return_exceptions=True)
        self._leave_alone(some)
        for session in sessions:
            if self._sessions.get(session.conversation_id) is session:
                del self._sessions[session.conversation_id]

    def _leave_alone(self, some: Set[str] | None) -> None:
        for one in list(self._unattended_since if some is None else some):
            self._unattended_since.pop(one, None)

    def _is_used(self, conversation_id: str) -> bool:
        waits = self.queue.is_coming_up(conversation_id) or self.guard.is_held(conversation_id)
        return waits or conversation_id in self._sessions or self._kept[conversation_id] > 0

    @contextmanager
    def keeping(self, conversation_id: str) -> Iterator[None]:
        self._kept[conversation_id] += 1
        try:
            yield
        finally:
            self._kept[conversation_id] -= 1
            self._kept += Counter()  # what is at zero goes

    def wanted(self, conversation_id: str) -> None:
        self._unwanted.discard(conversation_id)

    async def discard(self, conversation_id: str) -> None:
        self._unwanted.add(conversation_id)
        try:
            await self.delete(conversation_id)
        except EventStoreError as error:
            text = f"it could not be begun, and is deleted later: {error}"
            self.parts.metrics.trouble(Trouble.OTHER, text, conversation_id)
        else:
            self._unwanted.discard(conversation_id)

    def live(self, conversation_id: str) -> LiveConversation:
        session, place = self._sessions.get(conversation_id), self.queue.place(conversation_id)
        connections = len(session.connections) if session is not None else 0
        if self.guard.is_held(conversation_id):
            return LiveConversation(ConversationStatus.STARTING, HELD_BACK, connections, SENTENCE)
        if session is None or not session.is_loaded:
            coming = self.queue.is_coming_up(conversation_id)
            status = ConversationStatus.STARTING if coming else ConversationStatus.STOPPED
            return LiveConversation(status, num_connections=connections, place=place)
        status = ConversationStatus.RUNNING if session.is_ready else ConversationStatus.STARTING
        warning, failure = session.runtime_warning, session.failure if session.start_failed else None
        return LiveConversation(status, session.runtime_status, connections, warning, place, failure)

    def sandbox(self, conversation_id: str) -> ConversationSandbox | None:
        session = self._sessions.get(conversation_id)
        return session.sandbox if session is not None else None

    async def until_ready(self, conversation_id: str) -> None:
        if (session := self._sessions.get(conversation_id)) is not None:
            await session.until_ready()

    async def skills(self, conversation_id: str) -> list[Skill] | None:
        session = self._sessions.get(conversation_id)
        return await session.skills() if session is not None else None

    def side_model(self, conversation_id: str) -> tuple[LLM, CallContext] | None:
        session = self._sessions.get(conversation_id)
        return session.side_model if session is not None and session.runtime_status is not None else None

    def touch(self, conversation_id: str) -> None:
        session = self._sessions.get(conversation_id)
        if session is not None:
            session.last_activity = time.monotonic()

    async def announce_title(self, conversation_id: str, title: str) -> None:
        await self.parts.announcements.announce_title(conversation_id, title)

    def idle_seconds(self) -> float:
        latest = max((session.last_activity for session in self._sessions.values()), default=self._last_activity)
        return time.monotonic() - max(latest, self._last_activity)

    # --- for the sessions (`SessionOwner`) ---

    def attended(self, conversation_id: str) -> None:
        self._unattended_since.pop(conversation_id, None)
        if self._looked_at == conversation_id:
            self._looked_at = ""

    def unattended(self, conversation_id: str) -> None:
        self._unattended_since[conversation_id] = time.monotonic()

    def first_message(self, session: WebSession, text: str) -> None:
        self._titles.take_message(session.conversation_id, text, *session.title_model, session.masked)

    async def _free_sandbox(self, to_work: bool) -> bool:
        """Stop the sandbox that rests longest; for a mere look only one that nobody has open."""
        left = [one for one in self._unattended_since if not self.queue.is_coming_up(one)]
        if left:
            await self._stop_unattended(min(left, key=self._unattended_since.__getitem__))
            return True
        resting = [one for one in self._sessions.values() if one.can_lose_sandbox and not one.is_changing]
        unseen = [one for one in resting if to_work or not one.connections]
        for session in sorted(unseen, key=lambda one: (bool(one.connections), one.last_activity)):
            if await session.give_up_sandbox():
                logger.info("conversation %s rests: its sandbox makes room for another", session.conversation_id)
                self._forget_if_unused(session)
                return True
        return False

    def _on_turn(self, conversation_id: str, turn: QueuePlace | None) -> None:
        if (session := self._sessions.get(conversation_id)) is not None:
            session.tell_turn(turn)

    def start_failed(self, session: WebSession, error: DrydockError) -> None:
        self._failed_starts.failed(session, error)

    def _host_changed(self, view: HostView) -> None:
        for session in self._sessions.values():
            self._own(partial(session.host_changed, view.name, view.reason), name=f"host {view.name} changed")

    def _storage_changed(self, health: StorageHealth) -> None:
        for session in self._sessions.values():
            session.tell_storage(health)
        if not (health.problem or self._is_closing):
            self._failed_starts.start_all("after-storage")

    # --- in the background ---

    async def _cull(self) -> None:
        """Unload who is idle, stop sandboxes whose pause is over, and remove what the storage kept from going."""
        settings = self.parts.settings

        def idle(activity: Activity) -> bool:
            return is_idle(activity, now=time.monotonic(), limit_seconds=settings.idle_unload_seconds)

        while True:
            await asyncio.sleep(settings.cull_interval_seconds)
            await tidy_up(self.parts.database)
            for conversation_id in filter(self._runs, list(self._unwanted)):
                await self.discard(conversation_id)
            for session in list(self._sessions.values()):
                await self._unload(session, idle, "it is idle")
            for conversation_id, since in list(self._unattended_since.items()):
                is_over = is_pause_over(since, now=time.monotonic(), limit_seconds=settings.sandbox_stop_seconds)
                if is_over and self.queue.is_open and not self.queue.is_coming_up(conversation_id):
                    await self._stop_unattended(conversation_id)

    async def _stop_unattended(self, conversation_id: str) -> None:
        record = await self._conversations.get(conversation_id)
        if self._unattended_since.pop(conversation_id, None) is not None and record is not None:
            await self.parts.sandboxes.stop(record)

    async def _unload(self, session: WebSession, condition: Callable[[Activity], bool], reason: str) -> None:
        """Suspend it, if it fulfils the condition: nobody asked for its end, and it goes on exactly where it was."""
        if not condition(session.activity()):
            return
        try:
            if not await session.unload_if(condition, sandbox="pause"):
                return
        except DrydockError as error:
            text = f"its session did not end well: {error}"
            self.parts.metrics.trouble(Trouble.OTHER, text, session.conversation_id)
        logger.info("unloaded conversation %s: %s", session.conversation_id, reason)
        self._forget_if_unused(session)

    async def _keep_reserve(self) -> None:
        """Freeze all sandboxes while there is too little room on the disk."""
        reserve, frozen, was_low = self.parts.sandboxes.reserve, self._frozen, False
        while True:
            await asyncio.sleep(reserve.next_look)
            problem = reserve.problem()
            if problem:
                if not was_low:
                    self.parts.metrics.trouble(Trouble.DISK_RESERVE, problem, level=logging.ERROR)
                writing = [one for one in self._sessions.values() if one.is_ready and one not in frozen]
                if writing:
                    await asyncio.gather(*(session.freeze(problem) for session in writing))
                frozen.update(writing)
            elif frozen:
                logger.info("there is room on the disk again: %d sandboxes go on", len(frozen))
                await asyncio.gather(*(session.thaw() for session in frozen))
                frozen.clear()
            was_low = bool(problem)

    async def _keep_memory(self) -> None:
        """While memory is short, say so and unload what is idle at once; then start what could not be started."""
        ceiling, was_reached, starts = self.parts.sandboxes.memory, False, 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            problem = ceiling.problem()
            if problem:
                self.parts.metrics.trouble(Trouble.MEMORY_CEILING, problem)
            elif was_reached or ceiling.has_refused:
                logger.info("there is memory again: what could not begin begins now")
                ceiling.has_refused, starts = False, 2  # twice: one may have been about to fail
            if not problem and starts:
                starts -= 1
                self._failed_starts.start_all("start with memory")
            was_reached = bool(problem)
            if not ceiling.is_near:
                continue
            resting = [one for one in self._sessions.values() if one.can_be_unloaded]
            for session in resting:
                # Not by its activity: what was said to it a moment ago has to be dealt with first.
                await self._unload(session, lambda _: session.can_be_unloaded, "memory is short")  # noqa: B023 - asked now
            if resting:
                give_back()
            elif problem:
                give_back_freed()  # by those who have read much at once

    async def _resume(self, conversation_id: str) -> None:
        """Take it up if its agent was at work."""
        while conversation_id not in self._unwanted:
            try:
                record = await self._conversations.get(conversation_id)
                if record is not None and record.agent_state in BUSY_STATES:
                    await self._take_up(conversation_id)
                return
            except EventStoreError as error:
                if not error.code:
                    return
            await asyncio.sleep(START_AGAIN_SECONDS)

    async def _recover(self) -> None:
        await self._recovery.resume_all(await interrupted(self._conversations))

    async def _resume_in_turn(self, conversation_id: str) -> None:
        """Have it taken up in its turn, which is behind all who wait."""
        if (record := await self._conversations.get(conversation_id)) is not None:
            ticket = self.queue.ticket(conversation_id, record.user_id)
            self._own(partial(self._recovery.resume, record, ticket), name=f"resume:{conversation_id}")

    async def _find_unattended(self) -> None:
        async for record in may_be_up(self._conversations, self.parts.sandboxes):
            await self.look_after(record)

    async def _write_down(self, conversation_id: str, events: Sequence[AnyEvent]) -> None:
        with self._using(conversation_id) as session:
            await session.write_down(events)

    async def _suspend(self, session: WebSession) -> None:
        """End it for now. What is at work goes on in its sandbox; a sandbox at rest does not stay behind running."""
        is_busy = session.activity().is_busy
        try:
            await session.end(stopped=False, sandbox="keep" if is_busy else "stop")
            if is_busy:
                await self.guard.ended_in_order(session.conversation_id)
        except DrydockError as error:
            text = f"its session did not end in order: {error}"
            self.parts.metrics.trouble(Trouble.OTHER, text, session.conversation_id)
        if self._suspended is not None:
            await self._suspended(session.conversation_id)

    async def _stop_at_rest(self, conversation_id: str) -> None:
        """End what an unloaded conversation's sandbox holds, frozen or not; what a task has begun in it goes on."""
        try:
            record = await self._conversations.get(conversation_id)
        except DrydockError as error:
            text = f"its sandbox could not be stopped: {error}"
            self.parts.metrics.trouble(Trouble.SANDBOX_NOT_STOPPED, text, conversation_id)
            return
        if record is not None and record.agent_state not in BUSY_STATES:
            await self.parts.sandboxes.stop(record)

    @contextmanager
    def _using(self, conversation_id: str) -> Iterator[WebSession]:
        """The one session object of a conversation; registered before anything is awaited, so that all share it."""
        if self._is_closing or not self._runs(conversation_id):
            raise EndingError
        session = self._sessions.get(conversation_id)
        if session is None:
            session = self._sessions[conversation_id] = WebSession(
                conversation_id,
                owner=self,
                agents=self.parts.agents,
                conversations=self._conversations,
                events=self.parts.database.events,
                listeners=self.parts.listeners,
                metrics=self.parts.metrics,
            )
        session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            self._forget_if_unused(session)

    def _forget_if_unused(self, session: WebSession) -> None:
        if session.is_unused and self._sessions.get(session.conversation_id) is session:
            self._last_activity = max(self._last_activity, session.last_activity)
            del self._sessions[session.conversation_id]

    def _own(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        task = asyncio.create_task(to_its_end(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def to_its_end(work: Callable[[], Awaitable[None]], name: str, *, pause_seconds: float = 1.0) -> None:
    """Do `work` until it ends or is cancelled. Where it fails that is logged, and it begins again after a pause.

    The pause is twice as long after each failure in a row, `MAX_PAUSE_SECONDS` at most.
    """
    pause = pause_seconds
    while True:
        began = time.monotonic()
        try:
            return await work()
        except DrydockError as error:
            extra = coded(Trouble.TASK_RESTARTED)
            logger.error("%s failed, and begins again in %.0f s: %s", name, pause, error, extra=extra)
        except Exception:
            extra = coded(Trouble.TASK_RESTARTED)
            logger.exception("%s failed, and begins again in %.0f s", name, pause, extra=extra)
        await asyncio.sleep(pause)
        pause = pause_seconds if time.monotonic() > began + 2 * MAX_PAUSE_SECONDS else min(2 * pause, MAX_PAUSE_SECONDS)
