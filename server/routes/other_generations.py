"""What the protocol's clients ask of other generations of their server, as far as it may happen.

They learn from the settings that conversations are of the first generation here. A client whose default is the second
one asks for what there is of that until it has read them: nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StringConstraints

from server.dependencies import IdentityDependency
from server.routes.json_route import JsonRoute

router = APIRouter(prefix="/api/v1", route_class=JsonRoute)

Id = Annotated[str, StringConstraints(max_length=100)]
SandboxIds = Annotated[list[Id], Query(alias="id", max_length=100, default_factory=list)]
Ids = Annotated[list[Id], Query(max_length=100, default_factory=list)]


class NoTasks(BaseModel):
    """A page of conversations of the second generation that are being started."""

    items: list[None] = []
    next_page_id: None = None


class WebClientFlags(BaseModel):
    """Parts of later releases' clients that are switched on: those that the first generation's routes serve."""

    enable_billing: Literal[False] = False
    hide_llm_settings: Literal[False] = False
    enable_jira: Literal[False] = False
    enable_jira_dc: Literal[False] = False
    enable_linear: Literal[False] = False
    hide_users_page: Literal[True] = True
    hide_billing_page: Literal[True] = True
    hide_integrations_page: Literal[False] = False


class WebClientConfig(BaseModel):
    """What `/api/options/config` says, as later releases ask for it."""

    app_mode: Literal["oss"] = "oss"
    posthog_client_key: None = Field(default=None, description="Null: nothing is told to anyone.")
    feature_flags: WebClientFlags = WebClientFlags()
    providers_configured: list[str] = Field(default=[], description="None: users store tokens of their own.")
    maintenance_start_time: None = None
    auth_url: None = None
    recaptcha_site_key: None = None
    faulty_models: list[str] = []
    error_message: None = None
    updated_at: Literal["1970-01-01T00:00:00Z"] = Field(
        default="1970-01-01T00:00:00Z", description="Since when these announcements stand; there are none."
    )
    github_app_slug: None = None


@router.get("/web-client/config")
async def read_web_client_config(identity: IdentityDependency) -> WebClientConfig:
    """What those clients need to know before anything else that have the second generation, too."""
    return WebClientConfig()


@router.get("/sandboxes")
async def find_sandboxes(identity: IdentityDependency, sandbox_ids: SandboxIds) -> list[None]:
    """Null for each id: sandboxes have no addresses of their own here."""
    return [None for _ in sandbox_ids]


@router.get("/app-conversations")
async def find_conversations(identity: IdentityDependency, ids: Ids) -> list[None]:
    """Null for each id: there are no conversations of the second generation."""
    return [None for _ in ids]


@router.get("/app-conversations/start-tasks")
async def find_start_tasks(identity: IdentityDependency, ids: Ids) -> list[None]:
    """Null for each id: none is ever being started."""
    return [None for _ in ids]


@router.get("/app-conversations/start-tasks/search")
async def search_start_tasks(identity: IdentityDependency) -> NoTasks:
    """Those that are being started: none."""
    return NoTasks()
