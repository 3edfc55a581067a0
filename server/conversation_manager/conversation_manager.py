"""The conversation manager: what routes and sockets ask for, whichever class does it (setting of that name)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import NamedTuple, Self

from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM, CallContext
from agent_core.runtime.channel.tunnels import PortAccess
from agent_core.skills.skill import Skill
from server.auth.identity import Identity
from server.db.database import Database
from server.errors import ConversationNotFoundError
from server.session.agents import AgentFactory
from server.session.announcements import Announcements
from server.session.client_tools import ClientToolSpec
from server.session.sandboxes import Sandboxes
from server.session.sending import take_once
from server.session.titles import TitleWriter
from server.settings.settings import Settings
from server.sockets.ports import JoinedConversation


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


@dataclass(frozen=True, slots=True)
class ManagerParts:
    """What a conversation manager is built from."""

    settings: Settings
    database: Database
    sandboxes: Sandboxes
    agents: AgentFactory
    titles: TitleWriter
    announcements: Announcements


class ConversationManager(ABC):
    """Runs conversations and knows who is connected to them; an async context manager.

    Entering it takes up what the last process left; leaving it suspends every conversation, within a time limit, so
    that the next process goes on where this one ended. Fulfils `server.sockets.ports.Conversations`.
    """

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
        """See `server.sockets.ports.Conversations.join`."""

    @abstractmethod
    async def leave(self, connection_id: str) -> None:
        """See `server.sockets.ports.Conversations.leave`."""

    async def send(self, conversation_id: str, event: AnyEvent) -> AnyEvent:
        """See `server.sockets.ports.Conversations.send`; a conversation that does not run is started."""
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

    @abstractmethod
    async def deliver(self, conversation_id: str, event: AnyEvent) -> AnyEvent:
        """Take an event of the user, whatever was taken before; returns it as stored. Raises as `send` does."""

    @abstractmethod
    async def rewind(self, conversation_id: str, to: int | None) -> AnyEvent:
        """Take it back to right behind this event (None: before the first one); returns the rewind as stored.

        A conversation that does not run is started.

        Raises:
            NoSuchEventError: its log has no such event.
            ConversationNotFoundError: there is none of this id.
            DrydockError: it cannot be started, or the rewind cannot be stored.
        """

    @abstractmethod
    async def set_client_tools(self, conversation_id: str, specs: Sequence[ClientToolSpec]) -> bool:
        """Have its agent use these tools of clients in place of those before; False when there is no such conversation.

        Raises:
            ValueError: the agent has another tool of such a name; nothing has changed then.
        """

    @abstractmethod
    async def refresh_secrets(self, user_id: str) -> None:
        """The user's secrets have changed: have all their conversations that run use and hide them as they are.

        Raises:
            DatabaseError: the database cannot be read.
        """

    @abstractmethod
    async def maybe_start_agent_loop(self, conversation_id: str) -> LiveConversation:
        """See to it that the conversation runs; however many ask at once, one session starts.

        Returns once its log is open; its sandbox and agent may still be starting.

        Raises:
            ConversationNotFoundError: there is none of this id.
            DrydockError: it cannot be started.
        """

    @abstractmethod
    async def stop(self, conversation_id: str) -> LiveConversation:
        """End its session and its sandbox's processes, keeping log and workspace; what it was before is returned."""

    @abstractmethod
    async def delete(self, conversation_id: str) -> bool:
        """Stop it and delete log, facts and sandbox; False when there is none of this id."""

    @abstractmethod
    def live(self, conversation_id: str) -> LiveConversation:
        """What its session says at this moment; STOPPED when it has none."""

    @abstractmethod
    def sandbox(self, conversation_id: str) -> PortAccess | None:
        """The sandbox of a running conversation; None while it does not run, or only starts."""

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
