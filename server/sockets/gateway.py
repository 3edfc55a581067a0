"""`SocketGateway`: the Socket.IO endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from starlette.types import ASGIApp

from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from agent_core.spans import Span
from agent_core.troubles import CONVERSATION, USER, Trouble, coded
from server.auth.audit import ACTOR, Actor
from server.auth.doorkeeper import Doorkeeper
from server.auth.identity import Authenticator, Identity, Permission, Watch, refused_permission
from server.db.repositories.shares import Access
from server.errors import ConversationNotFoundError, PermissionDeniedError, ReadOnlyError, code_of, coded_page
from server.http.turnstile import Turnstile
from server.sockets.admission import Admission, read_handshake
from server.sockets.connections import SCOPE_KEY, ConnectionMiddleware, SocketConnection, SocketLimits, Transports
from server.sockets.conversations import Conversations
from server.sockets.feed import EVENT, Feed, send_error
from server.sockets.library import RefusedError, socketio
from server.sockets.outlet import Malformed, Outlet, client_packet_class
from server.sockets.polling import PacketQueue, PayloadKeeper
from server.wire.errors import WireError
from server.wire.frames import error_frames, title_frame, to_json
from server.wire.incoming import taken_from_wire

USER_EVENTS: Final = ("oh_user_action", "oh_action")
NO_SESSION: Final = "no_connected_session"
NO_CONVERSATION: Final = "no_conversation"
NO_ANSWER: Final = "no_answer"
MAX_UNHEARD: Final = 64
"""Packets that may wait for a client that has joined nothing."""

END_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 1.0
"""How often it is looked whether conversations are still shared with who is connected to them."""

logger = logging.getLogger(__name__)


def _nothing_to_watch(_identity: Identity, _end: Callable[[], None]) -> Callable[[], None]:
    return _do_nothing


def _do_nothing() -> None:
    return


@dataclass(slots=True)
class ClientConnection:
    """One client in one conversation."""

    conversation_id: str
    outlet: Outlet
    identity: Identity
    actor: Actor
    websocket: SocketConnection | None
    feed: asyncio.Task[None]
    unwatch: Callable[[], None]
    access: Access


class SocketGateway:
    """Serves the protocol's sockets on top of `Conversations`: mount `asgi_app`; leaving the context ends all feeds."""

    def __init__(
        self,
        conversations: Conversations,
        authenticator: Authenticator,
        *,
        keeper: Doorkeeper | None = None,
        limits: SocketLimits | None = None,
        clock: Callable[[], datetime] = utc_now,
        base_path: str = "",
        watch: Watch | None = None,
    ) -> None:
        self._watch = watch or _nothing_to_watch
        self.limits = limits or SocketLimits()
        self._base_path = base_path
        self._conversations = conversations
        self._authenticator = authenticator
        self._keeper = keeper or Doorkeeper(authenticator)
        self._clock = clock
        self._connections: dict[str, ClientConnection] = {}
        self._joins, self._histories, self._ends = Turnstile(), Turnstile(), Turnstile()
        self._server = _make_server(self.limits, self._on_unjoined)
        self._transports = Transports(self._server, self.limits)
        self._watching: list[asyncio.Task[None]] = []
        self._users: dict[str, str] = {}
        """Who has joined over a transport."""
        self._hanging_up: set[asyncio.Task[None]] = set()
        self._server.on("connect", self._on_connect)
        self._server.on("disconnect", self._on_disconnect)
        self._server.on("*", self._on_event)

    async def __aenter__(self) -> Self:
        watches = {"the sockets": self._transports.watch(), "shares": self._watch_shares()}
        self._watching = [asyncio.create_task(watch, name=f"watch of {name}") for name, watch in watches.items()]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for connection_id, connection in list(self._connections.items()):
            await self._leave(connection_id)
            if connection.websocket is not None:
                connection.websocket.end()
        for task in self._watching:
            task.cancel()
            await asyncio.wait([task])
        if self._hanging_up:
            await asyncio.wait(self._hanging_up)
        await self._transports.aclose()
        await self._server.shutdown()

    def asgi_app(self, other: ASGIApp) -> ASGIApp:
        """Socket.IO under ``/socket.io/``, everything else (lifespan too) is `other`'s."""
        app = PayloadKeeper(socketio.ASGIApp(self._server, other_asgi_app=other), max_bytes=self._max_bytes)
        tracked = ConnectionMiddleware(app, self.limits, self._upgraded, self._transports.websocket_ended)
        return Admission(tracked, self._keeper, self._knows)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def waiting_bytes(self) -> int:
        return sum(connection.outlet.waiting_bytes for connection in self._connections.values())

    async def announce_title(self, conversation_id: str, title: str) -> None:
        body = to_json(title_frame(conversation_id, title))
        for connection in list(self._connections.values()):
            if connection.conversation_id == conversation_id:
                await connection.outlet.send_now(EVENT, body)

    # python-socketio calls a handler again, with fewer arguments, when a TypeError comes out of it, and a
    # connect handler that raises leaves the client hanging: so these let nothing out but refusals.

    async def _on_connect(self, connection_id: str, environ: Mapping[str, Any], auth: object = None) -> None:
        try:
            await self._connect(connection_id, environ)
        except DrydockError as error:
            raise self._refused(str(error), code_of(error)) from error
        except TimeoutError as error:
            raise self._refused("The conversation does not answer; try again in a moment", NO_ANSWER) from error
        except Exception as error:
            logger.exception("a client could not be connected")
            problem = "The server failed to connect you; its log says why"
            raise self._refused(problem, Trouble.UNEXPECTED) from error

    def _refused(self, problem: str, code: str) -> Exception:
        """What ends a handshake; `msg_id` is how the protocol names that there is no such conversation."""
        data = coded_page(code, self._base_path)
        if code == ConversationNotFoundError.code:
            data["msg_id"] = code
        return RefusedError(problem, data) if data else RefusedError(problem)

    async def _on_disconnect(self, connection_id: str, reason: str = "") -> None:
        await self._ends.pass_through()
        try:
            await self._leave(connection_id)
        except Exception:
            logger.exception("connection %s did not end cleanly", connection_id)

    async def _on_event(self, event: str, connection_id: str, *args: object) -> dict[str, Any] | None:
        """Take what a client sends; what is returned is the acknowledgement, for those who ask for one."""
        connection = self._connections.get(connection_id)
        if connection is None:  # it has left in this moment, or its conversation has
            problem = f"{NO_SESSION}:{connection_id}"
            return {"success": False, "error": problem, **coded_page(NO_SESSION, self._base_path)}
        CONVERSATION.set(connection.conversation_id)
        ACTOR.set(connection.actor)
        try:
            async with asyncio.timeout(self.limits.send_seconds):
                with Span("socket_message", conversation=connection.conversation_id):
                    return {"success": True, "id": await self._take(connection, event, args)}
        except ConversationNotFoundError as error:
            problem, code = f"{NO_CONVERSATION}:{connection.conversation_id}", error.code
        except DrydockError as error:
            problem, code = str(error), code_of(error)
        except TimeoutError:
            code = NO_ANSWER
            problem = "The message was not taken in time; look whether it is there before you send it again."
        except Exception:
            logger.exception("a message to conversation %s could not be taken", connection.conversation_id)
            problem, code = "The server failed to take the message; its log says why.", Trouble.UNEXPECTED
        await self._tell(connection.outlet, problem, code)
        return {"success": False, "error": problem, **coded_page(code, self._base_path)}

    async def _tell(self, outlet: Outlet, problem: str, code: str) -> None:
        await send_error(outlet, problem, self._clock(), code=code, base_path=self._base_path)

    async def _on_unjoined(self, transport_id: str, namespace: str | None, ack_id: int | None) -> None:
        """Answer an event of a client that has joined nothing, as any refused one is answered."""
        problem = f"{NO_SESSION}:{transport_id}"
        answers: list[tuple[int, list[Any], int | None]] = [
            (socketio.packet.EVENT, [EVENT, frame], None)
            for frame in error_frames(problem, self._clock(), code=NO_SESSION, base_path=self._base_path)
        ]
        if ack_id is not None:
            refused = {"success": False, "error": problem, **coded_page(NO_SESSION, self._base_path)}
            answers.append((socketio.packet.ACK, [refused], ack_id))
        for kind, data, number in answers:
            packet = self._server.packet_class(kind, data=data, namespace=namespace, id=number)
            await self._server.eio.send(transport_id, packet.encode())

    async def _connect(self, connection_id: str, environ: Mapping[str, Any]) -> None:
        transport_id: str = self._server.manager.eio_sid_from_sid(connection_id, "/")
        websocket = environ["asgi.scope"].get(SCOPE_KEY) or self._transports.upgrade_of(transport_id)
        self._transports.joining(transport_id)
        if websocket is not None:
            websocket.joining()
        try:
            with Span("socket_join"):
                await self._joins.pass_through()
                await self._join(connection_id, environ, websocket)
        except BaseException:
            self._transports.left(transport_id)
            if websocket is not None:
                websocket.left()
            raise

    async def _join(self, connection_id: str, environ: Mapping[str, Any], websocket: SocketConnection | None) -> None:
        async with asyncio.timeout(self.limits.join_seconds):
            handshake = await read_handshake(environ, self._authenticator)
            CONVERSATION.set(handshake.conversation_id)
            USER.set(handshake.identity.user_id)
            access = await self._conversations.access(handshake.conversation_id, handshake.identity)
            joined = await self._conversations.join(handshake.conversation_id, connection_id, handshake.identity)
        outlet = Outlet(self._server, connection_id, max_buffer_bytes=self.limits.max_buffer_bytes)
        feed = Feed(
            joined,
            outlet,
            after=handshake.after,
            seen_at=handshake.seen_at,
            replay_limit=handshake.replay_limit,
            limits=self.limits,
            histories=self._histories,
            clock=self._clock,
            base_path=self._base_path,
        )
        task = asyncio.create_task(self._run_feed(connection_id, feed, outlet), name=f"feed:{connection_id}")
        unwatch = self._watch(handshake.identity, lambda: self._begin_hang_up(connection_id))
        self._connections[connection_id] = ClientConnection(
            handshake.conversation_id,
            outlet,
            handshake.identity,
            handshake.actor,
            websocket,
            task,
            unwatch,
            access,
        )
        self._users[outlet.transport_id] = handshake.identity.user_id
        self._transports.joined(outlet.transport_id)
        if websocket is not None:
            websocket.joined()

    def _upgraded(self, transport_id: str, websocket: SocketConnection) -> None:
        self._transports.upgraded(transport_id, websocket)
        for connection in self._connections.values():
            if connection.outlet.transport_id == transport_id:
                connection.websocket = websocket
                websocket.joined()

    def _max_bytes(self, transport_id: str) -> int:
        joined = self._transports.has_joined(transport_id)
        return self.limits.max_transport_bytes if joined else self.limits.max_joining_bytes

    async def _take(self, connection: ClientConnection, event: str, args: tuple[object, ...]) -> int:
        if (problem := refused_permission(connection.identity, Permission.WRITE)) is not None:
            raise PermissionDeniedError(problem)
        if event not in USER_EVENTS:
            raise WireError(f"event {event[:80]!r} is unknown; send {USER_EVENTS[0]}")
        if len(args) != 1:
            raise WireError(f"{event} came with {len(args)} arguments; send one, a JSON object")
        if isinstance(args[0], Malformed):
            raise WireError(args[0].problem)
        if connection.access is not Access.OWNER:
            access = await self._conversations.access(connection.conversation_id, connection.identity)
            if access is Access.READ:
                raise ReadOnlyError
        taken = await taken_from_wire(args[0], max_chars=self.limits.max_message_bytes)
        return (await self._conversations.send(connection.conversation_id, taken)).id

    async def _watch_shares(self) -> None:
        """Let go whoever follows a conversation that is not shared with them any more, for as long as this runs."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            # Through ids only: names of this loop would keep the last connection until the next look.
            for connection_id in list(self._connections):
                await self._look_at_share(connection_id)

    async def _look_at_share(self, connection_id: str) -> None:
        connection = self._connections.get(connection_id)
        if connection is None or connection.access is Access.OWNER:
            return
        try:
            await self._conversations.access(connection.conversation_id, connection.identity)
        except ConversationNotFoundError:
            await self._let_go(connection)
        except DrydockError as error:
            logger.info("whether a conversation is still shared could not be seen: %s", error)
        except Exception:
            logger.exception("the shares of conversation %s were not looked at", connection.conversation_id)

    async def _run_feed(self, connection_id: str, feed: Feed, outlet: Outlet) -> None:
        try:
            await feed.run()
        except DrydockError as error:
            await self._tell(outlet, str(error), code_of(error))
        except Exception:
            logger.exception("the feed of connection %s failed", connection_id)
            problem = "The server cannot show this conversation; its log says why."
            await self._tell(outlet, problem, Trouble.UNEXPECTED)
        await self._hang_up(connection_id)

    def _knows(self, transport_id: str, identity: Identity) -> bool:
        """Whether there is such a transport, and nobody else has joined a conversation over it."""
        owner = self._users.get(transport_id, identity.user_id)
        return owner == identity.user_id and self._transports.knows(transport_id)

    def _begin_hang_up(self, connection_id: str) -> None:
        task = asyncio.create_task(self._hang_up(connection_id), name=f"hang up:{connection_id}")
        self._hanging_up.add(task)
        task.add_done_callback(self._hanging_up.discard)

    async def _hang_up(self, connection_id: str) -> None:
        """End a connection so that its client comes back by itself (a Socket.IO disconnect would keep it away)."""
        connection = self._connections.get(connection_id)
        if connection is None:
            return
        if connection.websocket is not None:
            await self._let_go(connection)
            return
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._server.eio.disconnect(connection.outlet.transport_id)
        except TimeoutError:
            logger.info("a client that polls did not take its last messages", extra=coded(Trouble.SLOW_CLIENT))
            await self._let_go(connection)

    async def _let_go(self, connection: ClientConnection) -> None:
        """End a connection without waiting for its client, whose polls are answered no more."""
        if connection.websocket is not None:
            connection.websocket.end()
        else:
            await self._transports.forget(connection.outlet.transport_id)

    async def _leave(self, connection_id: str) -> None:
        connection = self._connections.pop(connection_id, None)
        if connection is None:
            return
        connection.unwatch()
        self._users.pop(connection.outlet.transport_id, None)
        connection.outlet.close()
        self._transports.left(connection.outlet.transport_id)
        if connection.websocket is not None:
            connection.websocket.left()
        if connection.feed is not asyncio.current_task():
            connection.feed.cancel()
            await asyncio.wait([connection.feed])
        await self._conversations.leave(connection_id)


class _Server(socketio.AsyncServer):  # type: ignore[misc] # python-socketio is not typed
    """The library's server, which would drop what a client sends that has joined nothing, without a word."""

    def __init__(self, on_unjoined: Callable[[str, str | None, int | None], Awaitable[None]], **options: Any) -> None:
        super().__init__(**options)
        self._on_unjoined = on_unjoined

    async def _handle_event(self, eio_sid: str, namespace: str | None, ack_id: int | None, data: list[Any]) -> None:
        place = namespace or "/"
        if self.manager.is_connected(self.manager.sid_from_eio_sid(eio_sid, place), place):
            await super()._handle_event(eio_sid, namespace, ack_id, data)
            return
        transport = self.eio.sockets.get(eio_sid)
        if transport is not None and transport.queue.qsize() < MAX_UNHEARD:  # who does not listen is not answered
            await self._on_unjoined(eio_sid, namespace, ack_id)


class _Manager(socketio.AsyncManager):  # type: ignore[misc] # python-socketio is not typed
    """The library's manager, which would look into the rooms of all clients when one goes; here there are but two."""

    def basic_disconnect(self, sid: str, namespace: str, **_options: Any) -> None:
        for room in (sid, None):  # its own, and that of all
            if sid in self.rooms.get(namespace, {}).get(room, ()):
                self.basic_leave_room(sid, namespace, room)
        self.callbacks.pop(sid, None)
        for pending in (self.pending_connect, self.pending_disconnect):
            waiting = pending.get(namespace, [])
            if sid in waiting:
                waiting.remove(sid)
                if not waiting:
                    del pending[namespace]


def _make_server(
    limits: SocketLimits, on_unjoined: Callable[[str, str | None, int | None], Awaitable[None]]
) -> socketio.AsyncServer:
    server = _Server(
        on_unjoined,
        client_manager=_Manager(),
        async_mode="asgi",
        serializer=client_packet_class(limits.max_message_bytes),
        # One message of a client after the other: order is kept, and a flood waits in the client's own socket.
        async_handlers=False,
        cors_allowed_origins=[],
        max_http_buffer_size=limits.max_transport_bytes,
        ping_interval=limits.ping_interval_seconds,
        ping_timeout=limits.ping_timeout_seconds,
        monitor_clients=False,  # see `Transports.watch`
        logger=_library_logger("socketio"),
        engineio_logger=_library_logger("engineio"),
    )
    server.eio.create_queue = PacketQueue
    return server


def _library_logger(name: str) -> logging.Logger:
    """A quiet logger: at INFO every packet would be logged, at WARNING each that a client should not have sent."""
    library = logging.getLogger(f"{__name__}.{name}")
    library.setLevel(logging.ERROR)
    return library
