"""Importing a recorded conversation: an addition to the protocol, whose own client can only export one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import Body

from agent_core.events.control import Recorded
from agent_core.events.event import utc_now
from agent_core.events.stream import EventStream
from server.conversation_manager.conversation_manager import ConversationStatus
from server.db.database import Database
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.idempotency_keys import Attempt
from server.dependencies import IdempotencyKey, IdentityDependency, ServicesDependency, find_conversation
from server.routes.conversations.new_conversation import ConversationReply, chosen_sandbox, create_once
from server.routes.replies import errors, status_error
from server.routes.route_classes import JsonRoute, make_router
from server.session.agents.models import ConversationModels
from server.session.sandbox_choice import SANDBOX, SandboxOptions
from server.session.titles import title_from_message
from server.session.unfinished import unfinished_conversation
from server.session.user_settings import masker_of
from server.wire.errors import WireError
from server.wire.imported_events import recorded_events
from server.wire.json_data import in_turns, json_type
from server.wire.trajectory import MAX_VALUES, trajectory_of, with_transcript

BATCH = 200
MAX_TITLE: Final = 200
_EVENTS: Final = {"type": "array", "minItems": 1, "items": {"type": "object"}}
_OBJECT: Final = {
    "type": "object",
    "required": ["trajectory"],
    "properties": {"trajectory": _EVENTS, "title": {"type": "string", "minLength": 1, "maxLength": MAX_TITLE}},
    "additionalProperties": False,
}
_BODY: Final = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"anyOf": [_EVENTS, _OBJECT]}}}}
}


class LongJsonRoute(JsonRoute):
    """A `JsonRoute` whose body may hold as many values as a trajectory."""

    max_values = MAX_VALUES


router = make_router("/api/conversations", route_class=LongJsonRoute)


@router.post("/import", response_model=ConversationReply, responses=errors(400, 409), openapi_extra=_BODY)
async def import_trajectory(
    services: ServicesDependency, identity: IdentityDependency, body: Annotated[Any, Body()], key: IdempotencyKey = None
) -> dict[str, Any]:
    """Make a stopped conversation of an exported trajectory: shown as it was, and able to go on from there."""
    try:
        title = _title(body)
        events = await _events(body)
    except WireError as error:
        raise status_error(400, f"trajectory: {error}") from error
    user = await services.database.settings.get(identity.user_id)
    sandbox = await chosen_sandbox(services, user, SandboxOptions())

    async def make(attempt: Attempt) -> str:
        if await find_conversation(services, identity, attempt.resource) is None:
            masker = await masker_of(services.database, identity.user_id)
            now = utc_now()
            record = ConversationRecord(
                id=attempt.resource,
                user_id=identity.user_id,
                title=masker.text(title or _first_words(events) or "") or None,
                created_at=now,
                last_updated_at=now,
                trigger="gui",
                llm_model=ConversationModels(user, services.settings).present().model,
                options={SANDBOX: sandbox.model_dump(mode="json", exclude_none=True)},
            )
            await import_conversation(services.database, record, events, secrets=masker.values)
        return attempt.resource

    status = ConversationStatus.STOPPED
    return await create_once(services, key, make, user_id=identity.user_id, scope="import", request=body, status=status)


def _title(body: Any) -> str | None:
    if not isinstance(body, dict):
        return None
    unknown = sorted(body.keys() - {"trajectory", "title"})
    if unknown:
        raise WireError(f"{unknown[0][:80]!r} stands beside it; send `trajectory`, and `title` if you want")
    title = body.get("title")
    if title is None:
        return None
    if not isinstance(title, str) or not 0 < len(title.strip()) <= MAX_TITLE:
        what = f"has {len(title.strip())} characters" if isinstance(title, str) else f"is {json_type(title)}"
        raise WireError(f"title {what}; it is a text of 1 to {MAX_TITLE} characters")
    return title.strip()


async def _events(body: Any) -> list[Recorded]:
    events = [event async for event in in_turns(recorded_events(await trajectory_of(body)))]
    return [event async for event in in_turns(with_transcript(events))]


def _first_words(events: list[Recorded]) -> str | None:
    for event in events:
        if event.source == "user" and event.record.get("action") == "message":
            return title_from_message(event.record["args"]["content"])
    return None


async def import_conversation(
    database: Database, record: ConversationRecord, events: Sequence[Recorded], *, secrets: Sequence[str]
) -> None:
    """Make the new conversation `record` of these events, not started; a failure leaves nothing of it."""
    async with unfinished_conversation(database, record.id):
        stream = await EventStream.open(record.id, database.events)
        stream.secrets.add(secrets)
        for start in range(0, len(events), BATCH):
            await stream.add_events(events[start : start + BATCH])
        stream.close()
        # Last, so that nobody ever sees one that is not whole, not even when this process is killed.
        await database.conversations.create(record)
