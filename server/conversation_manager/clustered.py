"""`ClusteredConversationManager`: any number of servers over one PostgreSQL, each of which runs some conversations."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from agent_core.errors import DrydockError, EventStoreError, StaleOwnerError
from agent_core.events.branches import Rewind
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.llm.llm import LLM, CallContext
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.skills.skill import Skill
from agent_core.tools.definition import ToolDefinition
from server.auth.identity import Identity
from server.conversation_manager.conversation_manager import (
    ConversationManager,
    ConversationStatus,
    LiveConversation,
    ManagerParts,
)
from server.conversation_manager.followed_log import FollowedLog
from server.conversation_manager.inbox import Inbox
from server.conversation_manager.membership import Membership
from server.conversation_manager.relays import Relays
from server.conversation_manager.shared_queue import SharedQueue
from server.conversation_manager.standalone import DELETED, StandaloneConversationManager, to_its_end
from server.db.notices import Notices
from server.db.redis_notices import RedisNotices
from server.db.repositories.inbox import InboxRepository
from server.db.repositories.leases import Lease, LeaseRepository
from server.db.repositories.turns import TurnRepository
from server.errors import ConfigurationError, EndingError, RunElsewhereError
from server.session.client_tools import ClientToolSpec
from server.session.recorder import BUSY_STATES
from server.session.recovery import is_up, may_be_up
from server.session.tickets import QueuePlace
from server.sockets.conversations import JoinedConversation

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often a server looks what the others do, and what nobody does."""
FOLLOWING_SECONDS: Final = 5.0
TAKE_AT_ONCE: Final = 16

_BUSY: Final = frozenset(state.value for state in BUSY_STATES)
_CHORES: Final = "chores"
"""What one server does for all."""


class ClusteredConversation:
    """A connection's way to its conversation's log, wherever that is written: a `JoinedConversation`."""

    def __init__(self, manager: ClusteredConversationManager, conversation_id: str, connection: str, user: Identity):
        self.conversation_id = conversation_id
        self.connection = connection
        self.user = user
        self.here: JoinedConversation | None = None
        self.farewell: StatusNotice | None = None
        self._manager = manager

    async def next_stream(self, previous: EventStream | None) -> EventStream | None:
        return await self._manager.next_stream(self, previous)


class ClusteredConversationManager(ConversationManager):
    """A `ConversationManager` whose conversations are each run by one of the servers that share a database.

    A server takes the lease of a conversation that nobody runs when somebody wants something of it, or its agent was at
    work; it runs it as if it were alone. Of one that another runs it shows the log as it grows, and what its clients
    send is kept in the inbox for that server. Requests about its sandbox are passed on to there
    (`server.http.forwarding`).
    """

    def __init__(self, parts: ManagerParts) -> None:
        super().__init__(parts)
        database, settings = parts.database, parts.settings
        if database.engines.kind != "postgresql":
            raise ConfigurationError(
                "conversation_manager_class: servers share a PostgreSQL, and database_url names none; set it to "
                "postgresql+asyncpg://user:password@host/name, or leave conversation_manager_class out"
            )
        self._mine = set[str]()
        self._local = StandaloneConversationManager(
            parts, is_alone=False, runs=self._mine.__contains__, suspended=self._hand_over
        )
        self._leases = LeaseRepository(database.engines, database.writer)
        self._notices = Notices(database.engines, heard=self._heard, connected=self._look_at_all)
        self._membership = Membership(
            self._leases,
            url=settings.cluster_url or f"http://{settings.host}:{settings.port}",
            seconds=settings.cluster_lease_seconds,
            lost=self._lost,
            metrics=parts.metrics,
        )
        self._stack = AsyncExitStack()
        self._tasks = set[asyncio.Task[None]]()
        self._held = Counter[str]()
        self._others: dict[str, Lease] = {}
        self._told: dict[str, dict[str, Any]] = {}
        self._joined: dict[str, ClusteredConversation] = {}
        self._followed: dict[str, FollowedLog] = {}
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_closing = False
        self._servers = frozenset[str]()
        self._has_chores = False
        self._is_looking_after = False
        self._stored: Callable[[str], None] = lambda conversation_id: None
        self._letters = InboxRepository(database.engines, database.writer)
        self._inbox = Inbox(
            self._letters,
            database.events,
            mine=self._mine,
            running=self._running_here,
            deliver=self._local.deliver,
            notify=self._notify,
        )
        self._relays = Relays(self._local, database.conversations, mine=self._mine, tell=self._tell)
        self._deaf = set[str]()
        """Servers that do not hear what is said over Redis."""
        self._redis = settings.redis_url and RedisNotices(
            settings.redis_url.get_secret_value(),
            server_id=lambda: self.server_id,
            heard=lambda message: self._heard(message) if message.keys() & {"notice", "stored"} else None,
            unheard=self._notices.send,
            changed=lambda: self._say_what_is_followed(list(self._followed)),
            metrics=parts.metrics,
        )
        self._queue = SharedQueue(
            self._local.queue,
            TurnRepository(database.engines, database.writer),
            server_id=lambda: self.server_id,
            notify=self._notify,
        )

    async def __aenter__(self) -> Self:
        gauge = self.parts.metrics.gauge
        gauge("drydock_cluster_servers", lambda: max(1, len(self._servers)))
        gauge("drydock_cluster_leases", lambda: len(self._mine))
        await self._stack.enter_async_context(self._membership)
        self.parts.sandboxes.check_owner = self._membership.check
        await self._queue.begin(self._leases)
        self._stack.push_async_callback(self._write_touched)  # behind all sessions, before others may go on
        await self._stack.enter_async_context(self._local)
        await self._stack.enter_async_context(self._notices)
        self._own(self._keep_looking, name="cluster")
        self._own(self._queue.run, name="shared queue")
        self._own(self._queue.make_room, name="room for other servers")
        if self._redis:
            self._own(self._redis.run, name="notices over Redis")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._relays.close()
        for log in list(self._followed.values()):
            await log.close()
        await self._stack.aclose()  # suspends what runs here; others go on with each as soon as it is

    @property
    def server_id(self) -> str:
        return self._membership.server_id

    async def url_of(self, conversation_id: str) -> str | None:
        if conversation_id in self._mine:
            return None
        lease = self._others.get(conversation_id) or await self._leases.get(conversation_id)
        return None if lease is None or lease.owner == self.server_id else lease.url

    # --- sockets ---

    async def join(self, conversation_id: str, connection_id: str, identity: Identity) -> ClusteredConversation:
        await self.access(conversation_id, identity)
        joined = ClusteredConversation(self, conversation_id, connection_id, identity)
        self._joined[connection_id] = joined
        try:
            await self._enter(joined)
        except BaseException:
            await self.leave(connection_id)
            raise
        return joined

    async def leave(self, connection_id: str) -> None:
        joined = self._joined.pop(connection_id, None)
        await self._local.leave(connection_id)
        if joined is not None and not any(one.conversation_id == joined.conversation_id for one in self._connections()):
            await self._end_following(joined.conversation_id)

    async def _enter(self, joined: ClusteredConversation) -> None:
        """Have it joined here, where this server runs the conversation, or followed."""
        async with self._holding(joined.conversation_id):
            lease = await self._lease(joined.conversation_id)
            if lease is None:
                joined.here = await self._local.join(joined.conversation_id, joined.connection, joined.user)
            else:
                await self._follow(joined.conversation_id, lease)

    async def next_stream(self, joined: ClusteredConversation, previous: EventStream | None) -> EventStream | None:
        """See `JoinedConversation.next_stream`; the log may be written by one server after the other."""
        conversation_id = joined.conversation_id
        while joined.connection in self._joined:
            if (here := joined.here) is not None:
                stream = await here.next_stream(previous)
                if stream is not None or here.farewell is not None or self._is_closing:
                    joined.farewell = here.farewell
                    return stream
                joined.here = None  # another server runs it by now
            log = self._followed.get(conversation_id)
            if log is not None and log.stream is not previous and not log.stream.closed:
                return log.stream
            if log is not None:
                changed = self._changed
                if self._followed.get(conversation_id) is log:
                    await changed.wait()
                continue
            try:
                if await self.parts.database.conversations.get(conversation_id) is None:
                    joined.farewell = DELETED
                    return None
                await self._enter(joined)
            except (EndingError, StaleOwnerError):
                return None  # its client comes back by itself, to another server or when this one is there again
        return None

    async def deliver(self, conversation_id: str, event: AnyEvent, *, after: int | None = None) -> AnyEvent:
        async with self._holding(conversation_id):
            if await self._lease(conversation_id) is None:
                if event.client_key is None or after is None:
                    return await self._local.deliver(conversation_id, event)
                return await self._inbox.deliver_once(conversation_id, event, after)
        return await self._inbox.post(conversation_id, event, after)

    async def rewind(self, conversation_id: str, to: int | None) -> AnyEvent:
        return await self.deliver(conversation_id, Rewind(to=-1 if to is None else to))

    # --- what its own server does ---

    async def set_client_tools(self, conversation_id: str, specs: Sequence[ClientToolSpec]) -> bool:
        async with self._running(conversation_id):
            return await self._local.set_client_tools(conversation_id, specs)

    async def reconfigure(self, conversation_id: str, changes: Mapping[str, Any]) -> bool:
        async with self._running(conversation_id):
            return await self._local.reconfigure(conversation_id, changes)

    async def maybe_start_agent_loop(self, conversation_id: str) -> LiveConversation:
        async with self._running(conversation_id):
            return await self._local.maybe_start_agent_loop(conversation_id)

    async def stop(self, conversation_id: str) -> LiveConversation:
        async with self._running(conversation_id):
            return await self._local.stop(conversation_id)

    async def delete(self, conversation_id: str, *, unless_used: bool = False) -> bool:
        if unless_used and await self.url_of(conversation_id) is not None:
            return False
        async with self._running(conversation_id):
            return await self._local.delete(conversation_id, unless_used=unless_used)

    async def discard(self, conversation_id: str) -> None:
        async with self._running(conversation_id):
            await self._local.discard(conversation_id)

    def wanted(self, conversation_id: str) -> None:
        self._local.wanted(conversation_id)

    def live(self, conversation_id: str) -> LiveConversation:
        lease = None if conversation_id in self._mine else self._others.get(conversation_id)
        if lease is None:
            return self._local.live(conversation_id)
        return _live_of(lease.live or {})

    def keeping(self, conversation_id: str) -> AbstractContextManager[None]:
        return self._local.keeping(conversation_id)

    def tools(self, conversation_id: str) -> list[ToolDefinition]:
        return self._local.tools(conversation_id)

    def sandbox(self, conversation_id: str) -> ConversationSandbox | None:
        return self._local.sandbox(conversation_id)

    async def until_ready(self, conversation_id: str) -> None:
        await self._local.until_ready(conversation_id)

    async def skills(self, conversation_id: str) -> list[Skill] | None:
        return await self._local.skills(conversation_id)

    def side_model(self, conversation_id: str) -> tuple[LLM, CallContext] | None:
        return self._local.side_model(conversation_id)

    def touch(self, conversation_id: str) -> None:
        self._local.touch(conversation_id)

    def idle_seconds(self) -> float:
        return self._local.idle_seconds()

    # --- what concerns all servers ---

    async def refresh_secrets(self, user_id: str) -> None:
        self._notify({"secrets": user_id})
        await self._local.refresh_secrets(user_id)

    async def announce_title(self, conversation_id: str, title: str) -> None:
        self._notify({"title": title, "log": conversation_id})
        await self._local.announce_title(conversation_id, title)

    @property
    def does_chores(self) -> bool:  # type: ignore[override] # of others it is a constant
        return self._has_chores and self._membership.is_there

    def tell_stored(self, conversation_id: str) -> None:
        """Something was stored in it that whoever does the chores wants to know."""
        self._notify({"told": conversation_id})

    def hear_stored(self, stored: Callable[[str], None]) -> None:
        """Tell it what other servers have stored."""
        self._stored = stored

    def _notify(self, message: Mapping[str, Any]) -> None:
        self._notices.send({**message, "from": self.server_id})

    def _tell(self, server_id: str, message: Mapping[str, Any]) -> None:
        """Tell this server alone what is not stored, or that something is."""
        told = {**message, "to": server_id, "from": self.server_id}
        if self._redis and server_id not in self._deaf:
            self._redis.send(server_id, told)
        else:
            self._notices.send(told)

    # --- leases ---

    async def _lease(self, conversation_id: str) -> Lease | None:
        """The lease of the other server that runs it; None: this one does, from now on if none did."""
        if conversation_id in self._mine:
            return None
        if (lease := self._others.get(conversation_id)) is not None:
            return lease
        former = ""
        while not self._is_closing:
            if not (me := await self._membership.id_after(former)):
                raise StaleOwnerError("the database does not hear of this server for now; ask again in a moment")
            try:
                lease = await self._leases.take(conversation_id, me)
            except StaleOwnerError:  # it does not know yet that its time is over
                former = me
                continue
            if lease.owner != me:
                self._others[conversation_id] = lease
                return lease
            if me == self.server_id:  # else it was lost again with all others meanwhile
                self._mine.add(conversation_id)
                self._notify(self._facts_message(conversation_id, {}))
                return None
        raise EndingError

    @asynccontextmanager
    async def _holding(self, conversation_id: str) -> AsyncIterator[None]:
        """While it is held, a lease that is taken is not given back."""
        self._held[conversation_id] += 1
        try:
            yield
        finally:
            self._held[conversation_id] -= 1
            if not self._held[conversation_id]:
                del self._held[conversation_id]

    @asynccontextmanager
    async def _running(self, conversation_id: str) -> AsyncIterator[None]:
        async with self._holding(conversation_id):
            if await self._lease(conversation_id) is not None:
                raise RunElsewhereError(conversation_id)
            yield

    @asynccontextmanager
    async def _running_here(self, conversation_id: str) -> AsyncIterator[bool]:
        async with self._holding(conversation_id):
            yield await self._lease(conversation_id) is None

    async def _give_back(self) -> None:
        """Give back the leases of conversations with which nothing is done here any more."""
        if any(map(self._is_unused, self._mine)):
            await self._write_touched()
        unused = list(filter(self._is_unused, self._mine))
        self._mine.difference_update(unused)  # from now on whoever wants one of them takes it anew, behind this
        for one in unused:
            self._told.pop(one, None)
        await self._leases.release(unused, self.server_id)
        self._queue.forget(unused)

    def _is_unused(self, conversation_id: str) -> bool:
        return not (self._held[conversation_id] or self._local.uses(conversation_id))

    async def _hand_over(self, conversation_id: str) -> None:
        """It is suspended, since this server ends: others may go on with it, whatever is still to be done here."""
        if conversation_id in self._mine:
            await self._write_touched()
            self._mine.discard(conversation_id)
            with suppress(DrydockError):  # others find out when this server has left, or its time is over
                await self._leases.release([conversation_id], self.server_id, handed_over=True)

    async def _write_touched(self) -> None:
        try:
            await self.parts.database.conversations.flush()
        except EventStoreError as error:
            logger.warning("counters of conversations could not be written: %s", error)

    async def _lost(self) -> None:
        """Others may carry on what this server runs: end it, and write nothing."""
        self._has_chores = False
        self._mine.clear()
        self._told.clear()
        await self._local.abandon()
        self.parts.database.conversations.forget_touched()

    # --- what all servers do ---

    async def _keep_looking(self) -> None:
        following_at = 0.0
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._look()
            except EventStoreError as error:
                logger.info("what other servers do cannot be seen for now: %s", error)
            self._relays.end_unwanted()
            if loop.time() >= following_at:
                following_at = loop.time() + FOLLOWING_SECONDS
                self._say_what_is_followed(list(self._followed))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
                    await self._news.wait()
            self._news.clear()

    async def _look(self) -> None:
        await self._refresh()
        for conversation_id in await self._letters.waiting_for(self.server_id):
            self._serve_soon(conversation_id)
        await self._give_back()
        await self._tell_live()
        if self.parts.settings.resume_on_start:
            await self._take_over()

    async def _refresh(self) -> None:
        me, had = self.server_id, set(self._mine)
        leases = {lease.conversation_id: lease for lease in await self._leases.all()}
        if me == self.server_id:
            await self._compare({one for one, lease in leases.items() if lease.owner == me}, had)
        self._others = {one: lease for one, lease in leases.items() if lease.owner != self.server_id}
        self._queue.see(self._others.values())
        before, self._servers = self._servers, frozenset(await self._leases.servers())
        self._deaf &= self._servers
        had_chores, self._has_chores = self._has_chores, await self._leases.does(_CHORES, self.server_id)
        if self._has_chores and (before - self._servers or not had_chores) and not self._is_looking_after:
            self._is_looking_after = True
            self._own(self._find_unattended, name="unattended")
        for conversation_id, log in list(self._followed.items()):
            lease = self._others.get(conversation_id)
            if lease is None or lease.owner != log.owner:
                await self._end_following(conversation_id)

    async def _compare(self, stored: Set[str], had: Set[str]) -> None:
        """See that this server has the leases that are `stored` as its, and no others of those that it `had`.

        They differ where the answer to one that was taken was lost, and where the database has lost the last moments
        (a failover to a standby that was behind).
        """
        self._mine.update(one for one in stored - self._mine if not self._held[one])
        if lost := (had & self._mine) - stored:
            logger.warning("the database does not know any more that this server runs %s", ", ".join(sorted(lost)))
            self._mine -= lost
            await self._local.abandon(lost)

    async def _take_over(self) -> None:
        """Take up some conversations whose agents were at work, and which no server runs: they wait for their turns."""
        if self._local.queue.problem:
            return
        taken = []
        for conversation_id in await self._leases.free(_BUSY, TAKE_AT_ONCE):
            if conversation_id in self._mine:
                continue
            async with self._holding(conversation_id):
                if await self._lease(conversation_id) is None:
                    taken.append(conversation_id)
        records = [await self.parts.database.conversations.get(one) for one in taken]
        await self._local.take_over([record for record in records if record is not None])

    async def _find_unattended(self) -> None:
        """Look after sandboxes that a server which is gone has left, of conversations at rest."""
        try:
            async for record in may_be_up(self.parts.database.conversations, self.parts.sandboxes):
                if record.id in self._mine or record.id in self._others or record.agent_state in _BUSY:
                    continue  # whose agent was at work is taken up, by whoever comes first
                if await is_up(record, self.parts.sandboxes):
                    async with self._running_here(record.id) as is_here:
                        if is_here:
                            await self._look_after(record.id)
        finally:
            self._is_looking_after = False

    async def _look_after(self, conversation_id: str) -> None:
        record = await self.parts.database.conversations.get(conversation_id)
        if record is None or record.agent_state in _BUSY:
            return
        await self._local.look_after(record)
        if conversation_id not in self._mine:  # this server was not heard of meanwhile
            self._local.attended(conversation_id)

    async def _tell_live(self) -> None:
        """Tell the others how what runs here is, where that has changed."""
        now = {one: _facts_of(self._local.live(one)) for one in self._mine}
        news = {one: facts for one, facts in now.items() if self._told.get(one) != facts}
        if news:
            await self._leases.tell(news, self.server_id)
            self._told.update(news)
            for conversation_id, facts in news.items():
                self._notify(self._facts_message(conversation_id, facts))

    def _facts_message(self, conversation_id: str, facts: dict[str, Any]) -> dict[str, Any]:
        return {"runs": conversation_id, "facts": facts, "url": self._membership.url}

    # --- following ---

    async def _follow(self, conversation_id: str, lease: Lease) -> None:
        if conversation_id in self._followed:
            return
        log = await FollowedLog.open(conversation_id, lease.owner, self.parts.database.events)
        if conversation_id in self._followed:
            await log.close()
            return
        self._followed[conversation_id] = log
        self._say_what_is_followed([conversation_id])

    async def _end_following(self, conversation_id: str) -> None:
        if (log := self._followed.pop(conversation_id, None)) is not None:
            await log.close()
            self._changed.set()
            self._changed = asyncio.Event()

    def _say_what_is_followed(self, conversation_ids: Sequence[str]) -> None:
        for conversation_id in conversation_ids:
            self._notify({"follows": conversation_id, "deaf": not (self._redis and self._redis.is_there)})

    def _connections(self) -> Iterator[ClusteredConversation]:
        return iter(self._joined.values())

    # --- what others say ---

    def _heard(self, message: Mapping[str, Any]) -> None:
        me = self.server_id
        if message.get("from") == me or message.get("to", me) != me or self._is_closing:
            return
        match message:
            case {"stored": str(log)}:
                if log in self._followed:
                    self._followed[log].look()
            case {"notice": Mapping() as notice, "log": str(log)}:
                if log in self._followed:
                    self._followed[log].show(notice)
            case {"follows": str(log), "from": str(server)}:
                (self._deaf.add if message.get("deaf", True) else self._deaf.discard)(server)
                if log in self._mine:
                    self._relays.follows(log, server)
            case {"letter": str(log)}:
                if log in self._mine:
                    self._serve_soon(log)
            case {"answered": str(letter)}:
                self._inbox.answered(letter)
            case {"runs": str(log), "facts": dict() as facts, "url": str(url), "from": str(server)}:
                self._others[log] = Lease(log, server, url, facts)
                if log in self._followed and self._followed[log].owner != server:
                    self._news.set()
            case {"free": str(log), "from": str(server)}:
                if log in self._others and self._others[log].owner == server:
                    del self._others[log]
                if log in self._followed or message.get("handed_over"):
                    self._news.set()
            case {"left": str(server)}:
                self._others = {log: lease for log, lease in self._others.items() if lease.owner != server}
                self._news.set()
            case {"queue": str()}:
                self._queue.heard(message)
            case {"told": str(log)}:
                self._stored(log)
            case {"secrets": str(user)}:
                self._own(partial(self._local.refresh_secrets, user), name="secrets of another server's user")
            case {"title": str(title), "log": str(log)}:
                self._own(partial(self._local.announce_title, log, title), name="another server's title")

    def _serve_soon(self, conversation_id: str) -> None:
        if self._inbox.is_to_serve(conversation_id):
            self._own(partial(self._inbox.serve, conversation_id), name=f"inbox:{conversation_id}")

    def _look_at_all(self) -> None:
        self._news.set()
        for log in self._followed.values():
            log.look()
        self._say_what_is_followed(list(self._followed))

    def _own(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        task = asyncio.create_task(to_its_end(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _facts_of(live: LiveConversation) -> dict[str, Any]:
    facts: dict[str, Any] = {"status": live.status.value, "connections": live.num_connections}
    if live.runtime_status is not None:
        facts["runtime_status"] = live.runtime_status
    if live.runtime_warning:
        facts["warning"] = live.runtime_warning
    if live.place is not None:
        facts["place"] = list(live.place)
    if live.failure is not None:
        facts["failure"] = str(live.failure)
    return facts


def _live_of(facts: Mapping[str, Any]) -> LiveConversation:
    place, failure = facts.get("place"), facts.get("failure")
    return LiveConversation(
        ConversationStatus(facts.get("status", ConversationStatus.STARTING)),
        facts.get("runtime_status"),
        facts.get("connections", 0),
        facts.get("warning", ""),
        None if place is None else QueuePlace(*place),
        None if failure is None else DrydockError(failure),
    )
