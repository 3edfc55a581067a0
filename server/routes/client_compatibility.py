"""Small routes that clients of other generations, or of experiments, analyzers and editors, expect to find."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Path as PathParameter
from fastapi import Query, Request
from pydantic import BaseModel, Field, StringConstraints

from server.conversation_manager.conversation_manager import ConversationStatus
from server.db.repositories.conversations import ConversationRecord
from server.dependencies import IdentityDependency, OwnConversation, Services, ServicesDependency
from server.routes.replies import MEANINGS, Alive, ErrorReply, plain_error
from server.routes.route_classes import make_router

router = make_router("/api")

SelectedId = Annotated[str, StringConstraints(max_length=100)]
SandboxIds = Annotated[list[SelectedId], Query(alias="id", max_length=100, default_factory=list)]
Ids = Annotated[list[SelectedId], Query(max_length=100, default_factory=list)]


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


@router.get("/v1/web-client/config")
async def read_web_client_config(identity: IdentityDependency) -> WebClientConfig:
    """What those clients need to know before anything else that have the second generation, too."""
    return WebClientConfig()


@router.get("/v1/sandboxes")
async def find_sandboxes(identity: IdentityDependency, sandbox_ids: SandboxIds) -> list[None]:
    """Null for each id: sandboxes have no addresses of their own here."""
    return [None for _ in sandbox_ids]


@router.get("/v1/app-conversations")
async def find_conversations(identity: IdentityDependency, ids: Ids) -> list[None]:
    """Null for each id: there are no conversations of the second generation."""
    return [None for _ in ids]


@router.get("/v1/app-conversations/start-tasks")
async def find_start_tasks(identity: IdentityDependency, ids: Ids) -> list[None]:
    """Null for each id: none is ever being started."""
    return [None for _ in ids]


@router.get("/v1/app-conversations/start-tasks/search")
async def search_start_tasks(identity: IdentityDependency) -> NoTasks:
    """Those that are being started: none."""
    return NoTasks()


EXPERIMENT = "experiment"
"""The option of a conversation that holds it."""

SelectedEntry = Annotated[str, StringConstraints(max_length=1000)]


class ExperimentConfig(BaseModel):
    """The body; without a ``config`` there is nothing to note."""

    config: Annotated[dict[SelectedEntry, SelectedEntry] | None, Field(max_length=100)] = None


@router.post("/conversations/{conversation_id}/exp-config")
async def note_experiment(record: OwnConversation, services: ServicesDependency, body: ExperimentConfig) -> bool:
    """Note it beside the conversation, where it stays as it was noted first. The answer is always false.

    It is for whoever evaluates the experiment: nothing on this server acts on it.
    """
    if body.config is not None:
        await services.database.conversations.add_option(record.id, EXPERIMENT, body.config)
    return False


class ConversationConfig(BaseModel):
    """Ids that the original's client asks for."""

    runtime_id: str | None
    session_id: str | None


class EditorAddress(BaseModel):
    """Where a browser sees the workspace; null: nowhere."""

    vscode_url: str | None


@router.get("/conversations/{conversation_id}/config", response_model=ConversationConfig)
async def read_conversation_config(record: OwnConversation) -> dict[str, str | None]:
    """No runtime id: with one, a client asks routes of another protocol about it."""
    return {"runtime_id": None, "session_id": record.id}


@router.get("/conversations/{conversation_id}/vscode-url", response_model=EditorAddress)
async def read_vscode_url(
    record: OwnConversation, services: ServicesDependency, request: Request
) -> dict[str, str | None]:
    """The page of the workspace, since no editor runs in the sandbox (`server.routes.conversations.workspace_page`).

    Null while it is not there, and where an access token has to come with each request: browsers send none with an
    address. One that has signed in needs none.
    """
    await services.manager.until_ready(record.id)
    if not services.authenticator.opens_addresses or services.manager.sandbox(record.id) is None:
        return {"vscode_url": None}
    host = request.headers.get("host", "")
    return {"vscode_url": f"{request.url.scheme}://{host}/api/conversations/{record.id}/workspace"}


Path = Annotated[str, PathParameter(max_length=1000)]
_ANALYZER = "/conversations/{conversation_id}/security/{path:path}"
_REFUSED: Final[dict[str, Any]] = {
    "status_code": 400,
    "response_model": ErrorReply,
    "response_description": MEANINGS[400],
}


@router.get(_ANALYZER)
async def ask_analyzer(path: Path, record: OwnConversation, services: ServicesDependency) -> Alive:
    """Whether it is at work. None of ours has more to tell, so `path` does not matter."""
    _check_running(record, services)
    return Alive(status="ok")


@router.post(_ANALYZER, **_REFUSED)
async def post_to_analyzer(path: Path, record: OwnConversation, services: ServicesDependency) -> None:
    """Refused: the analyzers have nothing that could be changed here."""
    _refuse_change(path, record, services)


@router.put(_ANALYZER, **_REFUSED)
async def put_to_analyzer(path: Path, record: OwnConversation, services: ServicesDependency) -> None:
    """Refused, like POST."""
    _refuse_change(path, record, services)


@router.delete(_ANALYZER, **_REFUSED)
async def delete_from_analyzer(path: Path, record: OwnConversation, services: ServicesDependency) -> None:
    """Refused, like POST."""
    _refuse_change(path, record, services)


def _refuse_change(path: str, record: ConversationRecord, services: Services) -> None:
    _check_running(record, services)
    text = f"security/{path}: the analyzer has nothing to change; `security_analyzer` of the settings chooses another"
    raise plain_error(400, text)


def _check_running(record: ConversationRecord, services: Services) -> None:
    if services.manager.live(record.id).status is ConversationStatus.STOPPED:
        text = "Security analyzer not initialized: the conversation is not running"
        raise plain_error(404, text)
