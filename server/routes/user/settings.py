"""A user's settings."""

from __future__ import annotations

import logging
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, SecretStr

from agent_core.errors import DrydockError
from server.db.repositories.user_settings import StoredSettings
from server.dependencies import IdentityDependency, Services, ServicesDependency
from server.errors import ReplyError, log_level, status_of, stored_problem
from server.routes.replies import MEANINGS, Confirmation, ErrorReply, errors
from server.routes.route_classes import make_router
from server.session.agents.web_search import SearchKeyRefusedError, SearchUnreachableError
from server.session.sandbox_choice import SANDBOX_FIELDS, SandboxRefusedError, check_of_settings, refuse_what_lacks
from server.session.user_settings import (
    KEPT_WHEN_NULL,
    SettingsChange,
    UnknownProfileError,
    check_references,
    merged,
    public_form,
)
from server.settings.mcp_config import HiddenSecretError

logger = logging.getLogger(__name__)
router = make_router("/api")


class SecretsStore(BaseModel):
    """Always empty; the original has it."""

    provider_tokens: dict[str, Any]


class PublicSettings(BaseModel):
    """What is stored; null where the server's own default counts."""

    language: str | None
    agent: str | None
    max_iterations: int | None
    security_analyzer: str | None
    confirmation_mode: bool | None
    llm_model: str | None
    llm_api_key: None
    llm_base_url: str | None
    remote_runtime_resource_factor: int | None
    secrets_store: SecretsStore
    enable_default_condenser: bool
    enable_sound_notifications: bool
    enable_proactive_conversation_starters: bool
    enable_solvability_analysis: bool
    user_consents_to_analytics: bool | None
    sandbox_base_container_image: str | None
    sandbox_runtime_container_image: str | None
    mcp_config: dict[str, Any] | None = Field(
        description="Three lists: `sse_servers`, `stdio_servers`, `shttp_servers`."
    )
    search_api_key: None
    sandbox_api_key: None
    max_budget_per_task: float | None
    condenser_max_size: int | None
    email: str | None
    email_verified: bool | None
    git_user_name: str | None
    git_user_email: str | None
    agent_options: dict[str, Any] | None = Field(description="An addition to the protocol.")
    llm_profile: str | None = Field(description="The profile in place of the three fields of the model; an addition.")
    llm_purposes: dict[str, str] | None = Field(description="Profiles by purpose; an addition.")
    llm_agents: dict[str, str] | None = Field(description="Profiles by agent class; an addition.")
    system_message_suffix: str | None = Field(description="An addition, like the five that follow.")
    user_message_suffix: str | None
    disabled_skills: list[str] | None
    load_public_skills: bool | None
    load_org_skills: bool | None
    load_project_skills: bool | None
    disabled_plugins: list[str] | None = Field(description="Of those that the operator installed; an addition.")
    runtime_extra_deps: str | None = Field(description="An addition to the protocol, like the one that follows.")
    runtime_startup_env_vars: dict[str, str] | None = Field(
        description="An addition to the protocol; what looks like a secret is hidden."
    )
    provider_tokens_set: dict[str, str | None] = Field(description="The providers with a token, each with its host.")
    llm_api_key_set: bool
    search_api_key_set: bool
    v1_enabled: bool = Field(description="Always false: clients are to use the first generation of the protocol.")


class SettingsStored(Confirmation):
    """That the settings are stored, and what is to be said about unknown ones (an addition to the protocol)."""

    warnings: list[str] = Field(default_factory=list)


@router.get("/settings", response_model=PublicSettings, responses=errors(404))
async def read_settings(services: ServicesDependency, identity: IdentityDependency) -> dict[str, Any]:
    """What is stored, without secrets; 404 when nothing is."""
    stored = await services.database.settings.get(identity.user_id)
    if stored is None:
        raise ReplyError(404, {"error": "Settings not found"})
    return public_form(stored, services.settings.mcp_config)


@router.post("/settings", response_model=SettingsStored, response_model_exclude_unset=True, responses=errors(502))
async def store_settings(
    body: SettingsChange, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, Any]:
    """Change the named settings; conversations that run keep theirs until they are started again, and hide new keys.

    Unknown fields are ignored; `warnings` says of each that is like a known one which was probably meant.
    """
    for name in ("runtime_startup_env_vars", "runtime_extra_deps"):
        if getattr(body, name) and not services.settings.users_set_up_sandboxes:
            text = f"{name}: not on this server (users_set_up_sandboxes is false); leave it out"
            raise ReplyError(422, {"error": text})
    await _check_search_key(services, body)
    lacks = await services.sandboxes.lacks() if body.model_fields_set & SANDBOX_FIELDS else {}

    def make(stored: StoredSettings | None) -> StoredSettings:
        changed = merged(stored, body, services.settings.mcp_config)
        check_references(changed, body, services.settings)
        refuse_what_lacks(check_of_settings(changed, body.model_fields_set, services.settings), lacks, changed)
        return changed

    try:
        await services.database.settings.change(make, identity.user_id, sets=body.model_fields_set - KEPT_WHEN_NULL)
        await services.manager.refresh_secrets(identity.user_id)
    except UnknownProfileError as error:
        problem = {"type": "unknown_profile", "loc": ("body", *error.field.split(".")), "msg": str(error)}
        raise RequestValidationError([problem]) from error
    except (HiddenSecretError, SandboxRefusedError) as error:
        raise ReplyError(422, {"error": str(error)}) from error
    except DrydockError as error:
        logger.log(
            log_level(error, logging.ERROR), "the settings of user %r were not stored: %s", identity.user_id, error
        )
        raise ReplyError(
            status_of(error), {"error": stored_problem(error, "Something went wrong storing settings")}
        ) from error
    stored: dict[str, Any] = {"message": "Settings stored"}
    return {**stored, "warnings": body.warnings} if body.warnings else stored


async def _check_search_key(services: Services, body: SettingsChange) -> None:
    if not body.search_api_key or not services.settings.verify_search_key:
        return
    try:
        await services.search.check(SecretStr(body.search_api_key))
    except SearchKeyRefusedError as error:
        raise ReplyError(422, {"error": str(error)}) from error
    except SearchUnreachableError as error:
        text = f"{error}. Nothing was stored; try again later, or leave search_api_key out"
        raise ReplyError(502, {"error": text}) from error


@router.post("/reset-settings", status_code=410, response_model=ErrorReply, response_description=MEANINGS[410])
async def reset_settings() -> None:
    """Gone; it was never more than a way to lose one's settings."""
    raise ReplyError(410, {"error": "Resetting settings is no longer possible; change them one by one."})
