"""The log of a conversation as it is stored: typed events, read, followed live and added to, for programs.

`conversation_events` has the same log in the protocol's public form. Here an event is the JSON that
`agent_core.events.serialization` reads, so that a program has the very objects that a local conversation gives it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from anyio import CancelScope
from fastapi import Query
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from agent_core.errors import DrydockError, NoSuchEventError, NotStuckError
from agent_core.events.branches import Rewind
from agent_core.events.control import (
    ChangeAgentState,
    ClientToolResult,
    Condensation,
    CondensationRequest,
    ConfirmationPolicyChanged,
    InterruptEvent,
    LoopRecovery,
    PauseEvent,
    Trajectory,
)
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.schema import UnknownAction, problems_in
from agent_core.events.serialization import AnyEvent, from_data, to_payload
from agent_core.events.stream import EventStream
from agent_core.events.transient import ClientCall, TextDelta, TextDiscarded, Transient
from agent_core.security.confirmation import ConfirmationPolicy
from agent_core.troubles import Trouble
from server.auth.identity import Identity
from server.conversation_manager.conversation_manager import ConversationManager
from server.dependencies import IdempotencyKey, IdentityDependency, OwnConversation, Services, ServicesDependency
from server.errors import INTERNAL, ConversationNotFoundError, ReplyError, SessionError, status_of
from server.routes.query import EventId, Moment
from server.routes.replies import errors, plain_error
from server.routes.route_classes import make_router
from server.session.images import ImagesRefusedError

logger = logging.getLogger(__name__)
router = make_router("/api/conversations/{conversation_id}/log")

MAX_LIMIT: Final = 200
MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
RETRY_SECONDS: Final = 10
SILENCE_SECONDS: Final = 10.0
"""After so long without anything a comment is sent, which tells that the connection is still there."""

_OF_USERS: Final = (
    *(MessageEvent, ActionEvent, ChangeAgentState, PauseEvent, InterruptEvent, ConfirmationPolicyChanged),
    *(ClientToolResult, Condensation, CondensationRequest, LoopRecovery, Rewind, Trajectory),
)
"""What a program may add; all else is written by the agent and its conversation."""


class LogPage(BaseModel):
    """A part of the log."""

    events: list[dict[str, Any]] = Field(description="Each with its `id` and its `kind`.")
    last_id: int = Field(ge=-1, description="The id of the newest event that is stored; -1: none.")


class AddedEvent(BaseModel, extra="forbid"):
    """The body of a new event."""

    event: dict[str, Any] = Field(description="With its `kind`; its id and time are the server's to say.")


class Stored(BaseModel):
    """It is stored."""

    id: int


@router.get("", response_model=LogPage)
async def read_log(
    record: OwnConversation,
    services: ServicesDependency,
    after: EventId = -1,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = MAX_LIMIT,
) -> Response:
    """The events behind `after`, oldest first, whether or not the conversation runs; fewer where they are large."""
    store = services.database.events
    found: list[bytes] = []
    size = 0
    for one in await store.read(record.id, after=max(after, -1), limit=limit):
        shown = b'{"id":%d,' % one.id + one.payload.lstrip()[1:]
        size += len(shown)
        if found and size > MAX_PAGE_BYTES:
            break
        found.append(shown)
    last = await store.last_id(record.id)
    return Response(b'{"events":[%b],"last_id":%d}' % (b",".join(found), last), media_type="application/json")


_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Server-sent events `event`, `text`, `text_discarded` and `client_call`, as long as one listens;"
        " perhaps `resync` in the end, or `failed` with the `status` that a request would have and why in `detail`",
        "content": {"text/event-stream": {"schema": {"type": "object", "additionalProperties": {"type": "string"}}}},
    }
}


@router.get("/live", response_class=StreamingResponse, responses=_STREAM)
async def follow_log(
    record: OwnConversation,
    services: ServicesDependency,
    identity: IdentityDependency,
    after: EventId = -1,
    seen_at: Moment | None = None,
) -> Response:
    """The events behind `after`, then each as it comes, with the model's text and calls for clients in between.

    It starts a conversation that does not run. Each event has its id, with which one goes on after a broken connection,
    and says by its timestamp, as `seen_at`, which event that was: a log that has lost its end may have grown again.
    """
    following = _following(services.manager, identity, record.id, max(after, -1), seen_at)
    return _LiveLog(_paced(following, services.ending), identity.user_id, services)


class _LiveLog(StreamingResponse):
    """A stream that has one of its user's places for as long as it is answered."""

    def __init__(self, frames: AsyncGenerator[bytes, None], user_id: str, services: Services) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._user_id = user_id
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        live_logs, limit = self._services.live_logs, self._services.settings.max_live_logs
        if live_logs[self._user_id] >= limit:
            sentence = f"{limit} live logs of this user are followed already (max_live_logs): end one, and come back"
            self._services.metrics.trouble(Trouble.TOO_MANY_LIVE_LOGS, sentence)
            body = {"detail": sentence, "message": sentence}
            raise ReplyError(429, body, headers={"retry-after": str(RETRY_SECONDS)})
        live_logs[self._user_id] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            live_logs[self._user_id] -= 1
            if not live_logs[self._user_id]:
                del live_logs[self._user_id]


async def _following(
    manager: ConversationManager, identity: Identity, conversation_id: str, after: int, seen_at: datetime | None
) -> AsyncGenerator[bytes, None]:
    connection = f"program-{uuid.uuid4().hex}"
    try:
        joined = await manager.join(conversation_id, connection, identity)
        stream = await joined.next_stream(None)
        while stream is not None:
            if after > stream.last_id or not await _is_of(stream, after, seen_at):
                yield _frame("resync", {"last_id": stream.last_id})
                return
            async with stream.subscribe(after=after, transients=True) as items:
                async for item in items:
                    if shown := _shown(item):
                        yield shown
                    after = items.position
            stream, seen_at = await joined.next_stream(stream), None
    except DrydockError as error:  # it cannot be loaded, or its log cannot be read; the answer has begun
        logger.warning("the log of conversation %s is not followed any more: %s", conversation_id, error)
        yield _frame("failed", {"status": _status_of(error), "detail": str(error)})
    except Exception:
        logger.exception("the log of conversation %s is not followed any more", conversation_id)
        yield _frame("failed", {"status": 500, "detail": INTERNAL})
    finally:
        await manager.leave(connection)


async def _is_of(stream: EventStream, event_id: int, timestamp: datetime | None) -> bool:
    """Whether the event is of that time, as far as one is given."""
    if timestamp is None or event_id < 0:
        return True
    page = await stream.page_before(before=event_id + 1, limit=1)
    return bool(page) and page[0].timestamp == timestamp


def _shown(item: AnyEvent | Transient) -> bytes:
    match item:
        case Event():
            return b"id: %d\nevent: event\ndata: %b\n\n" % (item.id, to_payload(item))
        case TextDelta():
            return _frame("text", {"response_id": item.response_id, "text": item.text, "channel": item.channel})
        case TextDiscarded():
            return _frame("text_discarded", {"response_id": item.response_id})
        case ClientCall():
            return _frame(
                "client_call",
                {"id": item.cause, "name": item.name, "arguments": dict(item.arguments), "is_over": item.is_over},
            )
    return b""


def _status_of(error: DrydockError) -> int:
    match error:
        case ConversationNotFoundError():
            return 404
        case SessionError():
            return 409  # no time mends it
    return status_of(error)


def _frame(name: Literal["text", "text_discarded", "client_call", "resync", "failed"], data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def _paced(frames: AsyncGenerator[bytes, None], ending: asyncio.Event) -> AsyncGenerator[bytes, None]:
    """The frames, a comment wherever nothing came for long, until the server ends."""

    async def following() -> bytes | None:
        return await anext(frames, None)

    over = asyncio.create_task(ending.wait(), name="log-server-ending")
    coming: asyncio.Task[bytes | None] | None = None
    async with aclosing(frames):
        try:
            yield b": following\n\n"
            while not over.done():
                coming = coming or asyncio.create_task(following(), name="log-next")
                await asyncio.wait({over, coming}, timeout=SILENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    yield b": waiting\n\n"
                    continue
                frame, coming = coming.result(), None
                if frame is None:
                    return
                yield frame
        finally:
            tasks = [task for task in (over, coming) if task is not None]
            for task in tasks:
                task.cancel()
            with CancelScope(shield=True):  # who hangs up has this cancelled again and again, until it has ended
                await asyncio.wait(tasks)


@router.post("", responses=errors(400, 409))
async def add_to_log(
    record: OwnConversation, services: ServicesDependency, body: AddedEvent, key: IdempotencyKey = None
) -> Stored:
    """Store an event of the program's user; a conversation that does not run is started."""
    event = _of_user(body.event)
    if key is not None:
        event = event.model_copy(update={"client_key": key})
    try:
        stored = await services.manager.send(record.id, event)
    except (ImagesRefusedError, NoSuchEventError, NotStuckError) as error:
        raise plain_error(400, f"event: {error}") from error
    return Stored(id=stored.id)


def _of_user(data: dict[str, Any]) -> AnyEvent:
    given = {name: value for name, value in data.items() if name not in ("id", "timestamp", "source", "client_key")}
    beside = data.get("kind") == "MessageEvent" and data.get("source") == "environment"
    try:
        event = from_data({**given, "source": "environment" if beside else "user"})
    except ValidationError as error:
        raise plain_error(400, f"event: {problems_in(error, 3)}") from error
    if not isinstance(event, _OF_USERS):
        allowed = ", ".join(kind.__name__ for kind in _OF_USERS)
        raise plain_error(400, f"event.kind: a program may add {allowed}, and no {event.kind}")
    problem = ""
    match event:
        case MessageEvent() if event.llm_message.role != "user":
            problem = f"event.llm_message.role: {event.llm_message.role!r} is not the user's"
        case ActionEvent(action=None) | ActionEvent(action=UnknownAction()):
            problem = "event.action: this server has no such action"
        case ConfirmationPolicyChanged():
            try:
                ConfirmationPolicy.recreate(event.policy)
            except ValueError as error:
                problem = f"event.policy: {error}"
    if problem:
        raise plain_error(400, problem)
    return event
