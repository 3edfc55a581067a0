"""The interface between the sockets' gateway and the conversation manager."""

from __future__ import annotations

from typing import Protocol

from agent_core.errors import DrydockError
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from server.auth.identity import Identity
from server.db.repositories.shares import Access


class JoinRefusedError(DrydockError):
    """This connection cannot join; the client gets the message, and the `code`, as its CONNECT_ERROR."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class JoinedConversation(Protocol):
    """A connection's way to the streams of its conversation: one stream for each session, one after the other."""

    @property
    def conversation_id(self) -> str: ...

    @property
    def farewell(self) -> StatusNotice | None:
        """What its clients are told when there will be no more streams, if anything."""

    async def next_stream(self, previous: EventStream | None) -> EventStream | None:
        """The open stream that follows `previous`; None when there will never be one, and the connection is closed.

        With None the present one, at once. Otherwise this waits, however long, until a session opens another one. A
        `DrydockError` says that the log cannot be opened; the connection is closed, and the client comes back.
        """


class Conversations(Protocol):
    """Fulfilled by the conversation manager."""

    async def join(self, conversation_id: str, connection_id: str, identity: Identity) -> JoinedConversation:
        """Register the connection and start the conversation in the background; failures are seen on the stream.

        When this raises, the connection is not registered; otherwise `leave` is called exactly once for it. Raises
        `ConversationNotFoundError` (none, or not this user's), `JoinRefusedError`, or `DrydockError` (an unreadable
        log).
        """

    async def access(self, conversation_id: str, identity: Identity) -> Access:
        """What `identity` may do with a conversation, as of now.

        Raises `ConversationNotFoundError` (none, or not for this user), or `DrydockError` (a database that fails).
        """

    async def send(self, conversation_id: str, event: AnyEvent) -> AnyEvent:
        """Take an event of a client (no id, source ``user``, validated); returns it as stored, once durable.

        What comes again with the same `client_key` is not taken again. Events of one connection keep their order. A
        `DrydockError` is for the client: nothing was taken.
        """

    async def leave(self, connection_id: str) -> None:
        """The connection has ended; the conversation goes on without it. Unknown connections are fine."""
