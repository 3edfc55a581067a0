"""`ConversationManager`: what routes and sockets ask for, whichever class does it (the setting of that name)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from agent_core.errors import ClientToolError, DrydockError, NoSuchEventError, NotStuckError
from agent_core.events.control import AgentState, ChangeAgentState
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.store import EventStore
from agent_core.llm.llm import LLM, CallContext
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.skills.skill import Skill
from agent_core.tools.definition import ToolDefinition
from server.auth.identity import Identity
from server.db.database import Database
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.idempotency_keys import Attempt, IdempotencyKeys, sending_scope
from server.db.repositories.shares import Access
from server.errors import ConversationNotFoundError
from server.metrics import ServerMetrics
from server.session.agents.agent_sessions import AgentFactory
from server.session.client_tools import ClientToolSpec
from server.session.images import ImagesRefusedError
from server.session.listening import Listeners
from server.session.sandboxes import Sandboxes
from server.session.tickets import QueuePlace
from server.session.titles import Announcements, TitleWriter, default_title
from server.session.warm_sandboxes import WarmSandboxes
from server.settings.settings import Settings
from server.sockets.conversations import JoinedConversation
from server.wire.envelope import wire_time

REFUSALS: Final = (ClientToolError, ConversationNotFoundError, ImagesRefusedError, NoSuchEventError, NotStuckError)
"""Errors of `deliver` after which nothing is in the log."""
PAGE: Final = 200

_EVENT_ID: Final = "event_id"
_DECISIONS: Final = {AgentState.USER_CONFIRMED: "action.approved", AgentState.USER_REJECTED: "action.refused"}

CONVERSATION_VERSION = "V0"
"""The protocol that the client has to speak; any other value makes it use another one."""


class ConversationStatus(StrEnum):
    """What clients are told about a conversation."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    ARCHIVED = "ARCHIVED"
    ERROR = "ERROR"


class LiveConversation(NamedTuple):
    """The part of a conversation's public facts that only its running session knows."""

    status: ConversationStatus = ConversationStatus.STOPPED
    runtime_status: str | None = None
    num_connections: int = 0
    runtime_warning: str = ""
    place: QueuePlace | None = None
    """Its place among those that wait for their turn."""
    failure: DrydockError | None = None
    """Why it could not be started."""


@dataclass(frozen=True, slots=True)
class ManagerParts:
    """Parts of a conversation manager."""

    settings: Settings
    database: Database
    sandboxes: Sandboxes
    agents: AgentFactory
    titles: TitleWriter
    announcements: Announcements
    listeners: Listeners = field(default_factory=Listeners)
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    warm: WarmSandboxes | None = None


class ConversationManager(ABC):
    """Runs conversations and knows who is connected to them: `server.sockets.conversations.Conversations`.

    An async context manager: it takes up what the last process left, and suspends everything within a time limit.
    """

    url_of: Callable[[str], Awaitable[str | None]] | None = None
    """The address of the server that runs a conversation; None: this one, or none. Without it there is but one."""

    does_chores: bool = True
    """Whether this server does what one does for all of them: see to webhooks, delete what is old."""

    def __init__(self, parts: ManagerParts) -> None:
        self.parts = parts

    async def __aenter__(self) -> Self:
        return self

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    @abstractmethod
    async def join(self, conversation_id: str, connection_id: str, identity: Identity) -> JoinedConversation:
        """See `server.sockets.conversations.Conversations.join`."""

    async def access(self, conversation_id: str, identity: Identity) -> Access:
        """See `server.sockets.conversations.Conversations.access`."""
        owner = await self._owner_of(conversation_id)
        found = None if owner is None else await self.parts.database.shares.access(conversation_id, owner, identity)
        if found is None:
            raise ConversationNotFoundError(conversation_id)
        return found

    async def _owner_of(self, conversation_id: str) -> str | None:
        record = await self.parts.database.conversations.get(conversation_id)
        return record.user_id if record is not None else None

    @abstractmethod
    async def leave(self, connection_id: str) -> None:
        """See `server.sockets.conversations.Conversations.leave`."""

    async def send(self, conversation_id: str, event: AnyEvent) -> AnyEvent:
        """See `server.sockets.conversations.Conversations.send`; a conversation that does not run is started.

        That somebody approves of actions, or refuses them, is in the audit log before it is done, or it is not done.
        """
        await self._record_decision(conversation_id, event)
        if event.client_key is None:
            return await self.deliver(conversation_id, event)
        database = self.parts.database
        record = await database.conversations.get(conversation_id)
        if record is None:
            raise ConversationNotFoundError(conversation_id)
        return await take_once(
            event,
            conversation_id=conversation_id,
            user_id=record.user_id,
            keys=database.idempotency_keys,
            store=database.events,
            deliver=self.deliver,
        )

    async def _record_decision(self, conversation_id: str, event: AnyEvent) -> None:
        if not isinstance(event, ChangeAgentState) or event.agent_state not in _DECISIONS:
            return
        details: dict[str, Any] = {"behind_event": await self.parts.database.events.last_id(conversation_id)}
        if event.remember:
            details["remember"] = True
        if event.action_ids:
            details["action_ids"] = event.action_ids
        target = ("conversation", conversation_id)
        await self.parts.database.audit.record(_DECISIONS[event.agent_state], target, details)

    @abstractmethod
    async def deliver(self, conversation_id: str, event: AnyEvent, *, after: int | None = None) -> AnyEvent:
        """Take an event of the user, whatever was taken before; returns it as stored. Raises as `send` does.

        One with a `client_key` was not taken before the event `after`. Where several servers may be asked for the same
        one at once, it is looked for behind that.
        """

    @abstractmethod
    async def rewind(self, conversation_id: str, to: int | None) -> AnyEvent:
        """Take it back to right behind this event (None: before the first one); returns the rewind as stored.

        Starts it if need be. Raises `NoSuchEventError`, `ConversationNotFoundError` or another `DrydockError`.
        """

    def user_of(self, conversation_id: str) -> str:
        """Whose it is, for the log, as far as that is known in memory; else "". Called in any thread."""
        return ""

    @abstractmethod
    async def set_client_tools(self, conversation_id: str, specs: Sequence[ClientToolSpec]) -> bool:
        """Replace its tools of clients; False when there is no such conversation. ValueError: a name is taken."""

    @abstractmethod
    async def reconfigure(self, conversation_id: str, changes: Mapping[str, Any]) -> bool:
        """Replace these of its options, for its next session; False: there is no such conversation.

        Raises `AgentAtWorkError`, and changes nothing, while its agent works.
        """

    @abstractmethod
    def tools(self, conversation_id: str) -> list[ToolDefinition]:
        """The tools that its agent has at this moment; none while it does not run."""

    @abstractmethod
    async def refresh_secrets(self, user_id: str) -> None:
        """Have the user's running conversations use and hide the present secrets.

        Where these cannot be read for now, that is done as soon as they can be.
        """

    @abstractmethod
    async def maybe_start_agent_loop(self, conversation_id: str) -> LiveConversation:
        """See to it that the conversation runs; however many ask at once, one session starts.

        Returns once its log is open. Raises `ConversationNotFoundError` or another `DrydockError`.
        """

    @abstractmethod
    async def stop(self, conversation_id: str) -> LiveConversation:
        """End its session and its sandbox's processes, keeping log and workspace; what it was before is returned."""

    async def discard(self, conversation_id: str) -> None:
        """Delete what could not be begun; where the storage fails, later, unless it is `wanted` again by then."""
        await self.delete(conversation_id)

    def wanted(self, conversation_id: str) -> None:  # noqa: B027 - who deletes nothing later has nothing to do
        """It is begun anew."""

    @abstractmethod
    async def delete(self, conversation_id: str, *, unless_used: bool = False) -> bool:
        """Stop it and delete log, facts and sandbox; False when there is none of this id, or it is `unless_used`.

        It is used while it is loaded, somebody is connected, or a call about it goes on.
        """

    @abstractmethod
    def live(self, conversation_id: str) -> LiveConversation:
        """What its session says at this moment; STOPPED when it has none."""

    def keeping(self, conversation_id: str) -> AbstractContextManager[None]:
        """While it is held, the conversation is used: it is being read from its beginning to its end."""
        return nullcontext()

    @abstractmethod
    def sandbox(self, conversation_id: str) -> ConversationSandbox | None:
        """The sandbox of a running conversation; None while it does not run, or only starts."""

    async def until_ready(self, conversation_id: str) -> None:
        """Wait a moment for a sandbox that is just coming up: clients may know that before `sandbox` does."""
        return

    @abstractmethod
    async def skills(self, conversation_id: str) -> list[Skill] | None:
        """The skills that its agent may be told, with those of its workspace; None while it does not run."""

    @abstractmethod
    def side_model(self, conversation_id: str) -> tuple[LLM, CallContext] | None:
        """Its model, and what calls beside its agent are made with; None while it does not run."""

    @abstractmethod
    def touch(self, conversation_id: str) -> None:
        """Somebody uses this conversation's sandbox: it is not idle."""

    @abstractmethod
    async def announce_title(self, conversation_id: str, title: str) -> None:
        """Tell its clients, wherever they are connected, its new title."""

    @abstractmethod
    def idle_seconds(self) -> float:
        """Seconds since anything last happened in any conversation of this process."""


def conversation_info(
    record: ConversationRecord, live: LiveConversation, base_path: str, access: Access = Access.OWNER
) -> dict[str, Any]:
    """ConversationInfo, complete, for single answers and lists alike; below `base_path` its client finds the server."""
    has_session = live.status is not ConversationStatus.STOPPED
    return {
        "conversation_id": record.id,
        "title": record.title or default_title(record.id),
        "last_updated_at": wire_time(record.last_updated_at or record.created_at),
        "status": live.status.value,
        "runtime_status": live.runtime_status,
        "runtime_warning": live.runtime_warning or None,
        "waiting": None if live.place is None else {"position": live.place.position, "message": live.place.text},
        "selected_repository": record.selected_repository,
        "selected_branch": record.selected_branch,
        "git_provider": record.git_provider,
        "trigger": record.trigger,
        "num_connections": live.num_connections,
        "url": f"{base_path}/api/conversations/{record.id}" if has_session else None,
        "session_api_key": None,
        "created_at": wire_time(record.created_at),
        "pr_number": list(record.pr_number),
        "conversation_version": CONVERSATION_VERSION,
        "sub_conversation_ids": [],
        "agent_state": record.agent_state,
        "accumulated_cost": record.accumulated_cost,
        "access": access.value,
    }


class Deliver(Protocol):
    """What `ConversationManager.deliver` does."""

    async def __call__(self, conversation_id: str, event: AnyEvent, *, after: int | None = None) -> AnyEvent: ...


async def take_once(
    event: AnyEvent,
    *,
    conversation_id: str,
    user_id: str,
    keys: IdempotencyKeys,
    store: EventStore,
    deliver: Deliver,
) -> AnyEvent:
    """Deliver an event with a `client_key`, unless that was done: then it is returned as stored.

    Raises `KeyReusedError` (something else came under it), `KeyInUseError` (its first delivery goes on) or what
    `deliver` raises.
    """

    async def work(attempt: Attempt) -> dict[str, int]:
        if attempt.is_repeated:
            # The attempt before may have been broken off behind the append.
            known = await find_sent(store, conversation_id, event.client_key, after=int(attempt.resource))
            if known is not None:
                return {_EVENT_ID: known}
        return {_EVENT_ID: (await deliver(conversation_id, event, after=int(attempt.resource))).id}

    answer = await keys.once(
        event.client_key,
        work,
        user_id=user_id,
        scope=sending_scope(conversation_id),
        request=event.model_dump(mode="json", exclude={"id", "timestamp", "client_key"}),
        resource=str(await store.last_id(conversation_id)),
        refusals=REFUSALS,
    )
    (stored,) = await store.read(conversation_id, after=answer[_EVENT_ID] - 1, limit=1)
    return from_payload(stored.payload, stored.id, conversation_id)


async def find_sent(store: EventStore, conversation_id: str, key: str | None, *, after: int) -> int | None:
    """The id of the event with this `client_key` behind the event `after`; None: there is none."""
    mark = json.dumps({"client_key": key}, separators=(",", ":"))[1:-1].encode()
    while page := await store.read(conversation_id, after=after, limit=PAGE):
        for stored in page:
            after = stored.id
            if mark in stored.payload and from_payload(stored.payload, stored.id, conversation_id).client_key == key:
                return stored.id
    return None
