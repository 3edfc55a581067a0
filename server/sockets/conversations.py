"""What the sockets ask of the conversations: the seam between gateway and conversation manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agent_core.errors import DrydockError
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from server.auth.identity import Identity


class JoinRefusedError(DrydockError):
    """This connection cannot join; the client gets the message (and `data`) as its CONNECT_ERROR."""

    def __init__(self, message: str, *, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.data = data


class JoinedConversation(Protocol):
    """A connection's way to the streams of its conversation: one stream for each session, one after the other."""

    @property
    def conversation_id(self) -> str: ...

    async def next_stream(self, previous: EventStream | None) -> EventStream | None:
        """The open stream that follows `previous`.

        With `previous` None: the present one, without waiting for a sandbox or an agent. Otherwise `previous` is
        closed, and this waits, for as long as it takes, until a session of the conversation has opened another one.
        None when there will never be one (the conversation was deleted, the server ends): the connection is then
        closed.

        Raises:
            DrydockError: the log cannot be opened; the connection is then closed, and the client comes back.
        """
        ...


class Conversations(Protocol):
    """Fulfilled by the conversation manager."""

    async def join(self, conversation_id: str, connection_id: str, identity: Identity) -> JoinedConversation:
        """Register the connection and see to it that the conversation runs.

        Starting goes on in the background; its progress and its failure are seen on the stream. When this raises,
        the connection is not registered; otherwise `leave` is called exactly once for it.

        Raises:
            ConversationNotFoundError: there is none of this id, or it is not this user's.
            JoinRefusedError: any other reason why it cannot be joined.
            DrydockError: its log cannot be read.
        """
        ...

    async def send(self, conversation_id: str, event: AnyEvent) -> AnyEvent:
        """Take what a client of the conversation sent: an event without an id, source ``user``, already validated.

        Returns it as stored, once it is durable. What comes again with the same `client_key` is not taken again, and
        what was stored the first time is returned. Events of one connection arrive one after the other, in their order.

        Raises:
            DrydockError: it was not taken; the client gets the message.
        """
        ...

    async def leave(self, connection_id: str) -> None:
        """The connection has ended; the conversation goes on without it. Unknown connections are fine."""
        ...


class Announcer(Protocol):
    """Fulfilled by the gateway, for news that belong to no event."""

    async def announce_title(self, conversation_id: str, title: str) -> None: ...
