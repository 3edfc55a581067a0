"""Options that a client may choose from, and facts about this server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, Field

from agent_core.agent.base import AgentBase
from agent_core.security.analyzers import list_analyzers
from agent_core.version import VERSION
from server.auth.identity import Role
from server.dependencies import ServicesDependency, VisitorDependency
from server.routes.query import LINKED, Paging, PagingDependency
from server.routes.route_classes import make_router
from server.session.agents.models import ConversationModels
from server.session.user_settings import DEMO_PREFIX
from server.settings.settings import DEMO_MODEL

router = make_router("/api/options")
SUGGESTED_MODELS = (
    "anthropic/claude-opus-4-5",
    "anthropic/claude-sonnet-4-5",
    "deepseek/deepseek-chat",
    "gemini/gemini-2.5-pro",
    "mistral/devstral-medium",
    "ollama/qwen3-coder",
    "openai/gpt-5",
    "openai/gpt-5-mini",
    "openhands/claude-opus-4-5-20251101",
    "openhands/claude-sonnet-4-20250514",
    "openrouter/qwen/qwen3-coder",
)
"""Names to begin with; any other model of a provider that is known works as well.

The protocol's client offers only what is here, so the two that its releases have as their default are.
"""


class FeatureFlags(BaseModel):
    """Parts of the original's client that are switched on."""

    ENABLE_BILLING: bool
    HIDE_LLM_SETTINGS: bool


class SandboxChoice(BaseModel):
    """Where conversations run, and why there."""

    provider: str
    reason: str


class AccountFacts(BaseModel):
    """Who is signed in."""

    name: str
    role: Role


class DrydockFacts(BaseModel):
    """What our own page asks."""

    version: str
    sandbox: SandboxChoice
    model: str
    demo: bool
    auth_required: bool
    settings_stored: bool
    account: AccountFacts | None = Field(description="Where users have accounts.")
    guest: bool = Field(description="Whether who asks has nothing but links to conversations.")


class ClientConfig(BaseModel):
    """What a client needs to know before anything else."""

    APP_MODE: Literal["oss"]
    GITHUB_CLIENT_ID: str
    POSTHOG_CLIENT_KEY: str
    FEATURE_FLAGS: FeatureFlags
    DRYDOCK: DrydockFacts = Field(description="An addition to the protocol.")


@router.get("/config", response_model=ClientConfig)
async def read_config(services: ServicesDependency, visitor: VisitorDependency) -> dict[str, Any]:
    """What the page needs to know before anything else; ``DRYDOCK`` is an addition to the protocol."""
    user = await services.database.settings.get(visitor.user_id)
    model = ConversationModels(user, services.settings).present().model
    choice = services.sandboxes.choice
    has_account = services.accounts is not None and not visitor.is_guest
    sandbox = {"provider": "", "reason": "being found out"}
    if choice is not None:
        sandbox = {"provider": choice.name, "reason": choice.reason}
    return {
        "APP_MODE": "oss",
        "GITHUB_CLIENT_ID": "",
        "POSTHOG_CLIENT_KEY": "",
        "FEATURE_FLAGS": {"ENABLE_BILLING": False, "HIDE_LLM_SETTINGS": False},
        "DRYDOCK": {
            "version": VERSION,
            "sandbox": sandbox,
            "model": model,
            "demo": model.startswith(DEMO_PREFIX),
            "auth_required": services.authenticator.required,
            "settings_stored": user is not None,
            "account": {"name": visitor.name, "role": visitor.role} if has_account else None,
            "guest": visitor.is_guest,
        },
    }


@router.get("/models", responses={200: LINKED})
async def list_models(services: ServicesDependency, paging: PagingDependency) -> list[str]:
    """Names of models to begin with, the built-in and the configured one among them."""
    return _page(paging, {*SUGGESTED_MODELS, DEMO_MODEL, services.settings.model_name})


@router.get("/agents", responses={200: LINKED})
async def list_agents(paging: PagingDependency) -> list[str]:
    """The agents that a conversation can have."""
    return _page(paging, AgentBase.list_agents())


@router.get("/security-analyzers", responses={200: LINKED})
async def list_security_analyzers(paging: PagingDependency) -> list[str]:
    """The ways to judge what an agent asks its user about; without a choice it asks about every action."""
    return _page(paging, list_analyzers())


def _page(paging: Paging, names: Iterable[str]) -> list[str]:
    return paging.linked(sorted(names), lambda name: (name,), str)
