"""What clients ask about a running conversation's workspace when they open it."""

from __future__ import annotations

from fastapi import APIRouter, Request

from server.dependencies import OwnConversation, ServicesDependency
from server.routes.json_route import JsonRoute
from server.routes.replies.conversations import ConversationConfig, EditorAddress

router = APIRouter(prefix="/api/conversations/{conversation_id}", route_class=JsonRoute)


@router.get("/config", response_model=ConversationConfig)
async def read_conversation_config(record: OwnConversation) -> dict[str, str | None]:
    """No runtime id: with one, a client asks routes of another protocol about it."""
    return {"runtime_id": None, "session_id": record.id}


@router.get("/vscode-url", response_model=EditorAddress)
async def read_vscode_url(
    record: OwnConversation, services: ServicesDependency, request: Request
) -> dict[str, str | None]:
    """The page of the workspace, since no editor runs in the sandbox (`server.routes.workspace_page`).

    Null while it is not there, and where an access token has to come with each request: browsers send none with an
    address. One that has signed in (`server.sign_in`) needs none.
    """
    if not services.authenticator.opens_addresses or services.manager.sandbox(record.id) is None:
        return {"vscode_url": None}
    host = request.headers.get("host", "")
    return {"vscode_url": f"{request.url.scheme}://{host}/api/conversations/{record.id}/workspace"}
