"""A conversation as one file, with its workspace: taken along to another server, or kept."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from typing import Annotated, Any, BinaryIO, Final

from fastapi import Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from server.conversation_manager.conversation_archives import export_archive, import_archive
from server.conversation_manager.conversation_manager import ConversationStatus
from server.db.archives import ArchiveError
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.idempotency_keys import Attempt
from server.db.storage_health import file_error
from server.dependencies import (
    IdempotencyKey,
    IdentityDependency,
    OwnConversation,
    ServicesDependency,
    find_conversation,
)
from server.errors import status_of
from server.http.files import StreamReply, attachment
from server.routes.conversations.new_conversation import ConversationReply, chosen_sandbox, create_once
from server.routes.replies import errors, status_error
from server.routes.route_classes import make_router
from server.session.agents.models import ConversationModels
from server.session.sandbox_choice import SANDBOX, SandboxOptions
from server.settings.settings import MEGABYTE

router = make_router("/api/conversations")

MEDIA_TYPE: Final = "application/x-tar"
_BODY: Final = {
    "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}
_FILE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}


@router.get("/{conversation_id}/archive", response_class=Response, responses=_FILE | errors(503, 507))
async def export_conversation(
    record: OwnConversation,
    services: ServicesDependency,
    files: Annotated[
        bool, Query(description="Whether its workspace is in it, for which its sandbox is started.")
    ] = True,
) -> Response:
    """The whole conversation as one file: its log, those of its sub-agents, and the files of its workspace."""
    await services.database.audit.record("conversation.exported", ("conversation", record.id), {"files": files})

    async def parts() -> AsyncIterator[bytes]:
        reserve = services.settings.disk_reserve_mb * MEGABYTE
        async for part in export_archive(
            services.database, services.manager, record, with_files=files, reserve=reserve
        ):
            services.manager.touch(record.id)
            yield part

    headers = {"content-disposition": attachment(f"{record.id}.drydock.tar")}
    what = f"the export of conversation {record.id}"
    try:
        return await StreamReply.begun(parts(), what=what, media_type=MEDIA_TYPE, headers=headers)
    except DrydockError as error:
        raise status_error(status_of(error, 503), f"The conversation could not be exported: {error}") from error


@router.post("/import/archive", response_model=ConversationReply, responses=errors(400, 409, 413), openapi_extra=_BODY)
async def import_conversation_archive(
    request: Request, services: ServicesDependency, identity: IdentityDependency, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Make a stopped conversation of such a file, which goes on with the next message; nothing is left of a bad one."""
    user = await services.database.settings.get(identity.user_id)
    sandbox = await chosen_sandbox(services, user, SandboxOptions())

    async def make(attempt: Attempt) -> str:
        if await find_conversation(services, identity, attempt.resource) is None:
            now = utc_now()
            record = ConversationRecord(
                id=attempt.resource,
                user_id=identity.user_id,
                created_at=now,
                last_updated_at=now,
                trigger="gui",
                llm_model=ConversationModels(user, services.settings).present().model,
                options={SANDBOX: sandbox.model_dump(mode="json", exclude_none=True)},
            )
            try:
                await import_archive(services.database, record, file)
            except ArchiveError as error:
                raise status_error(400, f"file: {error}") from error
        return attempt.resource

    status = ConversationStatus.STOPPED
    # A file without a name: nothing is left of it, however this ends.
    try:
        with tempfile.TemporaryFile(dir=services.database.data_dir) as file:
            digest = await _receive(request, file)
            return await create_once(
                services, key, make, user_id=identity.user_id, scope="archive", request=digest, status=status
            )
    except ClientDisconnect as error:
        raise status_error(400, "the upload broke off") from error  # nobody is there to read it
    except OSError as error:
        raise file_error("The file cannot be kept", error) from error


async def _receive(request: Request, file: BinaryIO) -> str:
    """Take the body; returns its digest."""
    digest = hashlib.sha256()
    async for part in request.stream():
        digest.update(part)
        await asyncio.to_thread(file.write, part)
    await asyncio.to_thread(file.seek, 0)
    return digest.hexdigest()
