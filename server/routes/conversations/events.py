"""The log of a conversation: read, filtered, exported and added to."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Literal

from fastapi import Body, Query
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.responses import Response

from agent_core.errors import ClientToolError, DrydockError, NoSuchEventError, NotStuckError
from agent_core.events.serialization import from_payload
from agent_core.events.store import EventStore
from server.dependencies import IdempotencyKey, Services, ServicesDependency, SharedConversation
from server.errors import ConversationNotFoundError, KeyInUseError, KeyReusedError, ReplyError, status_of
from server.http.files import StreamReply
from server.routes.query import EventId, Moment, PageId
from server.routes.replies import errors
from server.routes.route_classes import make_router
from server.session.images import ImagesRefusedError
from server.wire.envelope import is_hidden, to_record, wire_time, without_view
from server.wire.errors import WireError
from server.wire.fields import ACTIONS, ADDITIONS, OBSERVATIONS
from server.wire.frames import to_json
from server.wire.incoming import CLIENT_KEY, MAX_KEY_CHARS, MAX_TIMEOUT_SECONDS, taken_from_wire

router = make_router("/api/conversations/{conversation_id}")

MAX_LIMIT = 100
EventLimit = Annotated[int, Query(json_schema_extra={"minimum": 0, "maximum": MAX_LIMIT})]
"""Only shown: what is beyond has an answer of its own."""

PAGE = 200
MAX_PAGE_BYTES = 4 * 1024 * 1024
"""How large a page may be, unless its one event is larger."""
MAX_LOOKED_AT = 10_000
"""How much of the log one request with a filter may look at."""
_PAGE_ID = re.compile(r"[0-9]{1,15}")
EVENT_ID_HEADER = "X-Event-Id"
"""Names the event that was stored; an addition, for those who wait for what comes of it."""


def event_schema() -> dict[str, Any]:
    """The schema of an event in a request; which args or extras its type has is not part of it."""
    fields = {"type": "object", "additionalProperties": True}
    return {
        "title": "ClientEvent",
        "description": "An action, or an observation; `args` and `extras` have the fields of its type.",
        "type": "object",
        "properties": {
            "id": {"enum": [None, -1], "description": "The server numbers the events."},
            "action": {"type": "string", "enum": sorted({*ACTIONS, *ADDITIONS})},
            "args": {**fields, "description": "The fields of an action."},
            "timeout": {
                "anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_SECONDS}, {"type": "null"}],
                "description": "Seconds; only read of actions.",
            },
            "observation": {"type": "string", "enum": sorted(OBSERVATIONS.keys() - {"agent_state_changed"})},
            "content": {"type": "string", "description": "The text of an observation."},
            "extras": {**fields, "description": "The fields of an observation."},
            "cause": {"description": "The id of the action that an observation is about."},
            CLIENT_KEY: {
                "anyOf": [
                    {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS, "pattern": "^[!-~]+$"},
                    {"type": "null"},
                ],
                "description": "The same once more is not stored again, like `Idempotency-Key`.",
            },
        },
        "oneOf": [{"required": ["action"]}, {"required": ["observation"]}],
    }


ClientEvent = Annotated[Any, Body(), WithJsonSchema(event_schema())]


class EventFilter(BaseModel, extra="forbid", strict=True):
    """The body of ``GET …/events``; all that is named has to hold.

    Attributes:
        query: a text that the event's JSON contains, in any case.
        start_date: the earliest time, ISO 8601; without a zone it is UTC.
        end_date: the latest time, likewise.
    """

    exclude_hidden: bool = False
    query: str | None = None
    source: Literal["agent", "user", "environment"] | None = None
    start_date: Moment | None = None
    end_date: Moment | None = None

    def takes(self, wire: Mapping[str, Any]) -> bool:
        if self.exclude_hidden and is_hidden(wire):
            return False
        if self.source is not None and wire["source"] != self.source:
            return False
        # Public times have one form and one zone: their texts order as they do.
        if self.start_date is not None and wire["timestamp"] < wire_time(self.start_date):
            return False
        if self.end_date is not None and wire["timestamp"] > wire_time(self.end_date):
            return False
        return not self.query or self.query.lower() in to_json(wire).decode().lower()


class WireEvent(BaseModel):
    """An event of the log: an action, or an observation. Its type says which `args` or `extras` it has."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"oneOf": [{"required": ["action"]}, {"required": ["observation"]}]}
    )

    id: int = Field(ge=0)
    timestamp: str = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    source: Literal["agent", "user", "environment"]
    message: str = Field(description="A line for people.")
    cause: int = Field(0, description="The action that an observation answers.")
    action: str = Field("", description="The type of an action.")
    args: dict[str, Any] = Field({}, description="The fields of an action.")
    observation: str = Field("", description="The type of an observation.")
    content: str = Field("", description="The text of an observation.")
    extras: dict[str, Any] = Field({}, description="The fields of an observation.")
    success: bool = False
    timeout: float = Field(0.0, description="Seconds.")
    tool_call_metadata: dict[str, Any] = {}
    llm_metrics: dict[str, Any] = {}
    idempotency_key: str = Field("", description="What its sender named it by.")


class EventsPage(BaseModel):
    """A part of the log."""

    events: list[WireEvent]
    has_more: bool
    next_page_id: str | None = Field(
        description="`page_id` of the page that follows in the same direction; null: none."
    )


class Trajectory(BaseModel):
    """The whole log without what is hidden."""

    trajectory: list[WireEvent]


class Done(BaseModel):
    """It is stored."""

    success: Literal[True]


class NewMessage(BaseModel, extra="forbid"):
    """The body of ``POST …/message``."""

    message: str


@router.get("/events", response_model=EventsPage)
async def read_events(
    record: SharedConversation,
    services: ServicesDependency,
    start_id: EventId = 0,
    end_id: EventId | None = None,
    reverse: bool = False,
    limit: EventLimit = 20,
    page_id: PageId = None,
    wanted: EventFilter | None = None,
) -> Response:
    """A part of the log, from either end, whether or not the conversation runs; the body may say what is wanted.

    A page may have fewer events than `limit` and `has_more` all the same: it ends where it would have more than some
    megabytes, and with a body where enough of the log was looked at.
    """
    if not 0 <= limit <= MAX_LIMIT:
        raise ReplyError(400, {"detail": "Invalid limit"})
    if page_id is not None:
        if not _PAGE_ID.fullmatch(page_id):
            raise ReplyError(400, {"detail": "page_id is not valid; use the next_page_id of the page before, or none"})
        if not reverse:
            start_id = max(start_id, int(page_id))
        else:
            end_id = int(page_id) if end_id is None else min(end_id, int(page_id))
    found: list[bytes] = []
    size = looked_at = 0
    next_page_id = None
    page = PAGE if wanted is not None else limit + 1
    async for wire in _events(services.database.events, record.id, start_id, end_id, reverse=reverse, page=page):
        looked_at += 1
        takes = wanted is None or wanted.takes(wire)
        shown = to_json(wire) if takes and len(found) < limit else b""
        is_full = len(found) == limit or (found and size + len(shown) > MAX_PAGE_BYTES)
        if (takes and is_full) or (wanted is not None and looked_at > MAX_LOOKED_AT):
            next_page_id = str(wire["id"])
            break
        if takes:
            found.append(shown)
            size += len(shown)
    rest = to_json({"has_more": next_page_id is not None, "next_page_id": next_page_id})
    return Response(b'{"events":[%b],%b' % (b",".join(found), rest[1:]), media_type="application/json")


@router.get("/trajectory", response_model=Trajectory)
async def read_trajectory(record: SharedConversation, services: ServicesDependency) -> Response:
    """All events but hidden ones, without what only the browser view needs."""

    async def chunks() -> AsyncIterator[bytes]:
        separator = b'{"trajectory":['
        async for wire in _events(services.database.events, record.id, 0, None, reverse=False):
            if is_hidden(wire):
                continue
            yield separator + to_json(without_view(wire))
            separator = b","
        yield b"]}" if separator == b"," else separator + b"]}"

    what = f"the trajectory of conversation {record.id}"
    return await StreamReply.begun(chunks(), what=what, media_type="application/json")


@router.post("/events", response_model=Done, responses=errors(409))
async def add_event(
    record: SharedConversation,
    services: ServicesDependency,
    response: Response,
    body: ClientEvent,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Take an event as a socket would; a conversation that does not run is started. A header names its id."""
    return await _send(services, record.id, body, response, key)


@router.post("/message", response_model=Done, responses=errors(409))
async def add_message(
    record: SharedConversation,
    services: ServicesDependency,
    response: Response,
    body: NewMessage,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Say something to the agent. A header names the event's id."""
    if not body.message.strip():
        raise ReplyError(400, {"success": False, "error": "message: is empty; write something"})
    data = {"action": "message", "args": {"content": body.message}}
    return await _send(services, record.id, data, response, key)


async def _send(
    services: Services, conversation_id: str, data: object, response: Response, key: str | None
) -> dict[str, Any]:
    try:
        event = await taken_from_wire(data, max_chars=services.settings.max_message_bytes)
        if key is not None and event.client_key not in (None, key):
            raise WireError("idempotency_key is another one than the header's; send one of them")
        stored = await services.manager.send(
            conversation_id, event if key is None else event.model_copy(update={"client_key": key})
        )
    except (ClientToolError, ConversationNotFoundError, KeyReusedError, KeyInUseError):
        raise  # they have statuses of their own
    except (WireError, ImagesRefusedError, NoSuchEventError, NotStuckError) as error:
        raise ReplyError(400, {"success": False, "error": str(error), "detail": str(error)}) from error
    except DrydockError as error:
        raise ReplyError(status_of(error), {"success": False, "error": str(error)}) from error
    response.headers[EVENT_ID_HEADER] = str(stored.id)
    return {"success": True}


async def _events(
    store: EventStore, conversation_id: str, start_id: int, end_id: int | None, *, reverse: bool, page: int = PAGE
) -> AsyncIterator[dict[str, Any]]:
    first = max(start_id, 0)
    last = await store.last_id(conversation_id)
    if end_id is not None:
        last = min(last, end_id)
    while first <= last:
        size = min(page, last - first + 1)
        if reverse:
            events = await store.read_before(conversation_id, before=last + 1, limit=size)
        else:
            events = await store.read(conversation_id, after=first - 1, limit=size)
        if not events:
            return
        for stored in events:
            yield to_record(from_payload(stored.payload, stored.id, conversation_id))
        if reverse:
            last = events[-1].id - 1
        else:
            first = events[-1].id + 1
