"""A user's settings."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import APIRouter

from agent_core.errors import DrydockError
from server.dependencies import IdentityDependency, ServicesDependency
from server.errors import ReplyError
from server.routes.json_route import JsonRoute
from server.routes.replies.errors import MEANINGS, ErrorReply, errors
from server.routes.replies.server import Confirmation
from server.routes.replies.settings import PublicSettings
from server.session.user_settings import KEPT_WHEN_NULL, SettingsChange, merged, public_form
from server.settings.mcp_config import HiddenSecretError

logger = logging.getLogger(__name__)
router = APIRouter(prefix="/api", route_class=JsonRoute)


@router.get("/settings", response_model=PublicSettings, responses=errors(404))
async def read_settings(services: ServicesDependency, identity: IdentityDependency) -> dict[str, Any]:
    """What is stored, without secrets; 404 when nothing is."""
    stored = await services.database.settings.get(identity.user_id)
    if stored is None:
        raise ReplyError(404, {"error": "Settings not found"})
    return public_form(stored, services.settings.mcp_config)


@router.post("/settings", response_model=Confirmation)
async def store_settings(
    body: SettingsChange, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, str]:
    """Change the named settings; conversations that run keep theirs until they are started again, and hide new keys."""
    try:
        own = services.settings.mcp_config
        await services.database.settings.change(
            lambda stored: merged(stored, body, own), identity.user_id, sets=body.model_fields_set - KEPT_WHEN_NULL
        )
        await services.manager.refresh_secrets(identity.user_id)
    except HiddenSecretError as error:
        raise ReplyError(422, {"error": str(error)}) from error
    except DrydockError as error:
        logger.error("the settings of user %r were not stored: %s", identity.user_id, error)
        raise ReplyError(500, {"error": "Something went wrong storing settings"}) from error
    return {"message": "Settings stored"}


@router.post("/reset-settings", status_code=410, response_model=ErrorReply, response_description=MEANINGS[410])
async def reset_settings() -> None:
    """Gone; it was never more than a way to lose one's settings."""
    raise ReplyError(410, {"error": "Resetting settings is no longer possible; change them one by one."})
