"""`ClusteredConversationManager`: any number of servers over one PostgreSQL, each of which runs some conversations."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from agent_core.errors import ClientToolError, DrydockError, EventStoreError, NoSuchEventError, NotStuckError
from agent_core.events.branches import Rewind
from agent_core.events.serialization import AnyEvent, from_payload, to_payload
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice, Transient
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
    find_sent,
)
from server.conversation_manager.followed_log import FollowedLog, messages_of
from server.conversation_manager.membership import Membership
from server.conversation_manager.standalone import DELETED, StandaloneConversationManager, to_its_end
from server.db.notices import Notices
from server.db.repositories.inbox import InboxRepository, Letter
from server.db.repositories.leases import Lease, LeaseRepository
from server.errors import ConfigurationError, ConversationNotFoundError, RunElsewhereError
from server.session.client_tools import ClientToolSpec
from server.session.images import ImagesRefusedError
from server.session.recorder import BUSY_STATES
from server.session.run_queue import QueuePlace
from server.sockets.conversations import JoinedConversation

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often a server looks what the others do, and what nobody does."""
ANSWER_SECONDS: Final = 0.5
"""How often it is looked for an answer that nobody has told of."""
SENDING_SECONDS: Final = 20.0
"""How long a client waits for what it has sent by way of another server; it is kept, and taken when that can be."""
RELAY_SECONDS: Final = 15.0
"""So long notices are sent to a server that has not said that it follows still."""
FOLLOWING_SECONDS: Final = 5.0
TAKE_AT_ONCE: Final = 16

_BUSY: Final = frozenset(state.value for state in BUSY_STATES)
_OTHER_SERVER: Final = "server:"
"""What connections of other servers are called here: they keep a conversation loaded, as clients do."""


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
        self._local = StandaloneConversationManager(parts, is_alone=False)
        self._leases = LeaseRepository(database.engines, database.writer)
        self._inbox = InboxRepository(database.engines, database.writer)
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
        self._mine = set[str]()
        self._held = Counter[str]()
        self._others: dict[str, Lease] = {}
        self._told: dict[str, dict[str, Any]] = {}
        self._joined: dict[str, ClusteredConversation] = {}
        self._followed: dict[str, FollowedLog] = {}
        self._relays: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._relayed_until: dict[tuple[str, str], float] = {}
        self._serving: dict[str, asyncio.Lock] = {}
        self._answers: dict[str, asyncio.Event] = {}
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_closing = False
        self._servers = 1

    async def __aenter__(self) -> Self:
        gauge = self.parts.metrics.gauge
        gauge("drydock_cluster_servers", lambda: self._servers)
        gauge("drydock_cluster_leases", lambda: len(self._mine))
        await self._stack.enter_async_context(self._membership)
        self._stack.push_async_callback(self._write_touched)  # behind all sessions, before others may go on
        await self._stack.enter_async_context(self._local)
        await self._stack.enter_async_context(self._notices)
        self._own(self._keep_looking, name="cluster")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closing = True
        relays = list(self._relays.values())
        for task in [*self._tasks, *relays]:
            task.cancel()
        await asyncio.gather(*self._tasks, *relays, return_exceptions=True)
        for log in list(self._followed.values()):
            await log.close()
        await self._stack.aclose()  # suspends what runs here, then gives its leases back

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
        record = await self.parts.database.conversations.get(conversation_id)
        if record is None or record.user_id != identity.user_id:
            raise ConversationNotFoundError(conversation_id)
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
            if await self.parts.database.conversations.get(conversation_id) is None:
                joined.farewell = DELETED
                return None
            await self._enter(joined)
        return None

    async def deliver(self, conversation_id: str, event: AnyEvent) -> AnyEvent:
        async with self._holding(conversation_id):
            if await self._lease(conversation_id) is None:
                return await self._local.deliver(conversation_id, event)
        return await self._post(conversation_id, event)

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
        self._notices.send({"secrets": user_id, "from": self.server_id})
        await self._local.refresh_secrets(user_id)

    async def announce_title(self, conversation_id: str, title: str) -> None:
        self._notices.send({"title": title, "log": conversation_id, "from": self.server_id})
        await self._local.announce_title(conversation_id, title)

    # --- leases ---

    async def _lease(self, conversation_id: str) -> Lease | None:
        """The lease of the other server that runs it; None: this one does, from now on if none did."""
        if conversation_id in self._mine:
            return None
        if (lease := self._others.get(conversation_id)) is not None:
            return lease
        if self._is_closing:
            raise DrydockError("the server is shutting down; try again in a moment")
        lease = await self._leases.take(conversation_id, self.server_id)
        if lease.owner == self.server_id:
            self._mine.add(conversation_id)
            self._notices.send(self._facts_message(conversation_id, {}))
            return None
        self._others[conversation_id] = lease
        return lease

    @asynccontextmanager
    async def _holding(self, conversation_id: str) -> AsyncIterator[None]:
        """While it is held, a lease that is taken is not given back."""
        self._held[conversation_id] += 1
        try:
            yield
        finally:
            self._held[conversation_id] -= 1
            self._held += Counter()

    @asynccontextmanager
    async def _running(self, conversation_id: str) -> AsyncIterator[None]:
        async with self._holding(conversation_id):
            if await self._lease(conversation_id) is not None:
                raise RunElsewhereError(conversation_id)
            yield

    async def _give_back(self) -> None:
        """Give back the leases of conversations with which nothing is done here any more."""
        unused = [one for one in self._mine if not self._held[one] and not self._local.uses(one)]
        self._mine.difference_update(unused)  # from now on whoever wants one of them takes it anew, behind this
        for one in unused:
            self._told.pop(one, None)
        if unused:
            await self._write_touched()
        await self._leases.release(unused, self.server_id)
        for one in unused:
            self._notices.send({"free": one, "from": self.server_id})

    async def _write_touched(self) -> None:
        try:
            await self.parts.database.conversations.flush()
        except EventStoreError as error:
            logger.warning("counters of conversations could not be written: %s", error)

    async def _lost(self) -> None:
        """Others may carry on what this server runs: end it, and write nothing."""
        self._mine.clear()
        self._told.clear()
        await self._local.abandon()
        self.parts.database.conversations.forget_touched()

    # --- what all servers do ---

    async def _keep_looking(self) -> None:
        following_at = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await self._refresh()
            for conversation_id in await self._inbox.waiting_for(self.server_id):
                self._serve_soon(conversation_id)
            await self._give_back()
            await self._tell_live()
            if self.parts.settings.resume_on_start:
                await self._take_over()
            self._end_relays()
            if loop.time() >= following_at:
                following_at = loop.time() + FOLLOWING_SECONDS
                self._say_what_is_followed(list(self._followed))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
                    await self._news.wait()
            self._news.clear()

    async def _refresh(self) -> None:
        leases = {lease.conversation_id: lease for lease in await self._leases.all()}
        self._others = {one: lease for one, lease in leases.items() if lease.owner != self.server_id}
        self._servers = len(await self._leases.servers())
        for conversation_id, log in list(self._followed.items()):
            lease = self._others.get(conversation_id)
            if lease is None or lease.owner != log.owner:
                await self._end_following(conversation_id)

    async def _take_over(self) -> None:
        """Take up conversations whose agents were at work and which no server runs, as far as there is room."""
        room = min(TAKE_AT_ONCE, self._local.queue.turns_left)
        taken = []
        for conversation_id in await self._leases.free(_BUSY, room) if room > 0 else ():
            if conversation_id in self._mine:
                continue
            async with self._holding(conversation_id):
                if await self._lease(conversation_id) is None:
                    taken.append(conversation_id)
        records = [await self.parts.database.conversations.get(one) for one in taken]
        await self._local.take_over([record for record in records if record is not None])

    async def _tell_live(self) -> None:
        """Tell the others how what runs here is, where that has changed."""
        now = {one: _facts_of(self._local.live(one)) for one in self._mine}
        news = {one: facts for one, facts in now.items() if self._told.get(one) != facts}
        if news:
            await self._leases.tell(news, self.server_id)
            self._told.update(news)
            for conversation_id, facts in news.items():
                self._notices.send(self._facts_message(conversation_id, facts))

    def _facts_message(self, conversation_id: str, facts: dict[str, Any]) -> dict[str, Any]:
        return {"runs": conversation_id, "facts": facts, "url": self._membership.url, "from": self.server_id}

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
            self._notices.send({"follows": conversation_id, "from": self.server_id})

    def _connections(self) -> Iterator[ClusteredConversation]:
        return iter(self._joined.values())

    # --- being followed ---

    def _relay_soon(self, conversation_id: str, server_id: str) -> None:
        key = conversation_id, server_id
        self._relayed_until[key] = asyncio.get_running_loop().time() + RELAY_SECONDS
        if key not in self._relays:
            work = partial(self._relay, conversation_id, server_id)
            task = self._relays[key] = asyncio.create_task(to_its_end(work, "relay"), name=f"relay:{conversation_id}")
            task.add_done_callback(lambda _: self._relays.pop(key, None))

    def _end_relays(self) -> None:
        now = asyncio.get_running_loop().time()
        for key, until in list(self._relayed_until.items()):
            if until < now or key[0] not in self._mine:
                del self._relayed_until[key]
                if (task := self._relays.get(key)) is not None:
                    task.cancel()

    async def _relay(self, conversation_id: str, server_id: str) -> None:
        """Tell that server what is seen here and not stored."""
        record = await self.parts.database.conversations.get(conversation_id)
        if record is None or conversation_id not in self._mine:
            return
        connection = f"{_OTHER_SERVER}{server_id}:{conversation_id}"
        here = await self._local.join(conversation_id, connection, Identity(record.user_id))
        try:
            stream = None
            while (stream := await here.next_stream(stream)) is not None:
                async with stream.subscribe(after=stream.last_id, transients=True) as news:
                    async for one in news:
                        if isinstance(one, Transient):
                            for message in messages_of(one):
                                self._notices.send({"notice": message, "log": conversation_id, "from": self.server_id})
                        else:
                            self._notices.send({"stored": conversation_id, "from": self.server_id})
        finally:
            await self._local.leave(connection)

    # --- the inbox ---

    async def _post(self, conversation_id: str, event: AnyEvent) -> AnyEvent:
        """Have the server that runs it, or the next one that does, take this; returns it as stored."""
        database = self.parts.database
        event = (
            event
            if event.client_key is not None
            else event.model_copy(update={"client_key": f"by-way-{secrets.token_hex(8)}"})
        )
        after = await database.events.last_id(conversation_id)
        letter = await self._inbox.put(conversation_id, to_payload(event), after=after)
        told = self._answers[letter] = asyncio.Event()
        self._notices.send({"letter": conversation_id, "from": self.server_id})
        try:
            async with asyncio.timeout(SENDING_SECONDS):
                answer = await self._answer_to(letter, conversation_id, told)
        except TimeoutError:
            raise DrydockError(
                "The server that runs this conversation does not answer. What you have sent is kept, and will be taken "
                "as soon as it does, or another one goes on with it: do not send it again."
            ) from None
        finally:
            del self._answers[letter]
        if "error" in answer:
            raise _error_of(answer, conversation_id)
        (stored,) = await database.events.read(conversation_id, after=answer["id"] - 1, limit=1)
        return from_payload(stored.payload, stored.id, conversation_id)

    async def _answer_to(self, letter: str, conversation_id: str, told: asyncio.Event) -> Mapping[str, Any]:
        while (answer := await self._inbox.answer_to(letter)) is None:
            async with self._holding(conversation_id):
                if await self._lease(conversation_id) is None:
                    await self._serve(conversation_id)
            told.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await told.wait()
        return answer

    def _serve_soon(self, conversation_id: str) -> None:
        if conversation_id not in self._serving:
            self._own(partial(self._serve, conversation_id), name=f"inbox:{conversation_id}")

    async def _serve(self, conversation_id: str) -> None:
        """Take what waits for a conversation that runs here, in its order."""
        lock = self._serving.setdefault(conversation_id, asyncio.Lock())
        try:
            async with lock, self._holding(conversation_id):
                while conversation_id in self._mine and (letters := await self._inbox.waiting(conversation_id)):
                    for letter in letters:
                        await self._inbox.answer(letter.id, await self._taken(letter))
                        self._notices.send({"answered": letter.id, "from": self.server_id})
        finally:
            if not lock.locked():
                self._serving.pop(conversation_id, None)

    async def _taken(self, letter: Letter) -> dict[str, Any]:
        log = letter.conversation_id
        try:
            event = from_payload(letter.event.encode(), -1, log)
            # The server before may have taken it, and then ended.
            known = await find_sent(self.parts.database.events, log, event.client_key, after=letter.after)
            return {"id": known if known is not None else (await self._local.deliver(log, event)).id}
        except DrydockError as error:
            return {"error": type(error).__name__, "text": str(error), "code": getattr(error, "code", "")}

    # --- what others say ---

    def _heard(self, message: Mapping[str, Any]) -> None:
        if message.get("from") == self.server_id or self._is_closing:
            return
        match message:
            case {"stored": str(log)}:
                if log in self._followed:
                    self._followed[log].look()
            case {"notice": Mapping() as notice, "log": str(log)}:
                if log in self._followed:
                    self._followed[log].show(notice)
            case {"follows": str(log), "from": str(server)}:
                if log in self._mine:
                    self._relay_soon(log, server)
            case {"letter": str(log)}:
                if log in self._mine:
                    self._serve_soon(log)
            case {"answered": str(letter)}:
                if letter in self._answers:
                    self._answers[letter].set()
            case {"runs": str(log), "facts": dict() as facts, "url": str(url), "from": str(server)}:
                self._others[log] = Lease(log, server, url, facts)
                if log in self._followed and self._followed[log].owner != server:
                    self._news.set()
            case {"free": str(log), "from": str(server)}:
                if log in self._others and self._others[log].owner == server:
                    del self._others[log]
                if log in self._followed:
                    self._news.set()
            case {"secrets": str(user)}:
                self._own(partial(self._local.refresh_secrets, user), name="secrets of another server's user")
            case {"title": str(title), "log": str(log)}:
                self._own(partial(self._local.announce_title, log, title), name="another server's title")

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


_ERRORS: Final[Mapping[str, Callable[[str, str], DrydockError]]] = {
    "ClientToolError": lambda text, code: ClientToolError(text, code=code),
    "EventStoreError": lambda text, code: EventStoreError(text, code=code),
    "ImagesRefusedError": lambda text, _: ImagesRefusedError(text),
    "NoSuchEventError": lambda text, _: NoSuchEventError(text),
    "NotStuckError": lambda text, _: NotStuckError(text),
}


def _error_of(answer: Mapping[str, Any], conversation_id: str) -> DrydockError:
    if answer["error"] == "ConversationNotFoundError":
        return ConversationNotFoundError(conversation_id)
    make = _ERRORS.get(answer["error"])
    return DrydockError(answer["text"]) if make is None else make(answer["text"], answer.get("code", ""))
