"""What clients ask about a running conversation's workspace when they open it (wire-protocol 4.1, 4.3)."""

from __future__ import annotations

from fastapi import APIRouter

from server.dependencies import OwnConversation
from server.replies.conversations import ConversationConfig, EditorAddress
from server.routes.json_route import JsonRoute

router = APIRouter(prefix="/api/conversations/{conversation_id}", route_class=JsonRoute)


@router.get("/config", response_model=ConversationConfig)
async def read_conversation_config(record: OwnConversation) -> dict[str, str | None]:
    """No runtime id: with one, a client asks routes of another protocol about it (wire-protocol 0, 13)."""
    return {"runtime_id": None, "session_id": record.id}


@router.get("/vscode-url", response_model=EditorAddress)
async def read_vscode_url(record: OwnConversation) -> dict[str, str | None]:
    """No editor runs in the sandbox."""
    return {"vscode_url": None}
