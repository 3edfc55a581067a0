"""The security analyzer of a conversation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter

from server.conversation_manager.conversation_manager import ConversationStatus
from server.db.conversations import ConversationRecord
from server.dependencies import OwnConversation, Services, ServicesDependency
from server.errors import ReplyError
from server.routes.json_route import JsonRoute
from server.routes.replies.errors import MEANINGS, ErrorReply
from server.routes.replies.server import Alive

router = APIRouter(prefix="/api/conversations/{conversation_id}/security", route_class=JsonRoute)


Path = Annotated[str, PathParameter(max_length=1000)]


@router.get("/{path:path}")
async def ask_analyzer(path: Path, record: OwnConversation, services: ServicesDependency) -> Alive:
    """Whether it is at work. None of ours has more to tell, so `path` does not matter."""
    _check_running(record, services)
    return Alive(status="ok")


@router.post("/{path:path}", status_code=400, response_model=ErrorReply, response_description=MEANINGS[400])
async def post_to_analyzer(path: Path, record: OwnConversation, services: ServicesDependency) -> None:
    """Refused: the analyzers have nothing that could be changed here."""
    _refuse_change(path, record, services)


@router.put("/{path:path}", status_code=400, response_model=ErrorReply, response_description=MEANINGS[400])
async def put_to_analyzer(path: Path, record: OwnConversation, services: ServicesDependency) -> None:
    """Refused, like POST."""
    _refuse_change(path, record, services)


@router.delete("/{path:path}", status_code=400, response_model=ErrorReply, response_description=MEANINGS[400])
async def delete_from_analyzer(path: Path, record: OwnConversation, services: ServicesDependency) -> None:
    """Refused, like POST."""
    _refuse_change(path, record, services)


def _refuse_change(path: str, record: ConversationRecord, services: Services) -> None:
    _check_running(record, services)
    text = f"security/{path}: the analyzer has nothing to change; `security_analyzer` of the settings chooses another"
    raise ReplyError(400, {"detail": text, "error": text})


def _check_running(record: ConversationRecord, services: Services) -> None:
    if services.manager.live(record.id).status is ConversationStatus.STOPPED:
        text = "Security analyzer not initialized: the conversation is not running"
        raise ReplyError(404, {"detail": text, "error": text})
