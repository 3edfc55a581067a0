"""Webhooks: addresses that are told what happens in a user's conversations (an addition to the protocol)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from fastapi import Depends, Request
from pydantic import AfterValidator, BaseModel, Field, SecretStr
from starlette.exceptions import HTTPException
from starlette.responses import Response

from agent_core.destinations import PORTS
from agent_core.events.masking import secrets_in_address
from server.db.errors import TooManyWebhooksError
from server.db.repositories.webhooks import MAX_PER_USER, StoredWebhook, WebhookChanges
from server.dependencies import IdentityDependency, ServicesDependency, find_conversation, identity_of, services_of
from server.doors.webhooks.delivery import EVENT_TYPES
from server.doors.webhooks.sender import new_secret, secret_problem
from server.errors import ConversationNotFoundError
from server.routes.query import PagingDependency
from server.routes.route_classes import make_router
from server.settings.mcp_config import HIDDEN, hidden_address
from server.wire.envelope import wire_time

T = TypeVar("T")
MAX_URL_CHARS: Final = 2_000


def url_problem(url: str) -> str | None:
    """Why this cannot be a webhook's address; None when it can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no address; write it as https://host/path"
    if len(url) > MAX_URL_CHARS:
        return f"is longer than {MAX_URL_CHARS} characters"
    if parts.scheme not in PORTS or not parts.hostname:
        return "is no address for HTTP; write it as https://host/path"
    if parts.username is not None or parts.password is not None:
        return "holds a name or a password, which anybody who sees it could read; the signature proves who sends"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "holds characters that no address has; write them as %XX"
    if parts.fragment:
        return "has a fragment, which is never sent; leave it out"
    return "has the port 0, to which nothing can be sent" if port == 0 else None


router = make_router("/api/webhooks", tags=["webhooks"])


def _event_type_problem(value: str) -> str | None:
    return (
        None if value in EVENT_TYPES else f"{value!r} is no type of events; there are {', '.join(sorted(EVENT_TYPES))}"
    )


def _without(problem_of: Callable[[Any], str | None]) -> AfterValidator:

    def check(value: T) -> T:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if (problem := problem_of(text)) is not None:
            raise ValueError(problem)
        return value

    return AfterValidator(check)


Url = Annotated[str, Field(max_length=MAX_URL_CHARS), _without(url_problem)]
EventTypes = Annotated[list[Annotated[str, _without(_event_type_problem)]], Field(max_length=len(EVENT_TYPES))]
WebhookSecret = Annotated[SecretStr, Field(max_length=200), _without(secret_problem)]


class NewWebhook(BaseModel, extra="forbid", hide_input_in_errors=True):
    """The body of a creation."""

    url: Url = Field(description="Where events are sent, by POST.")
    events: EventTypes = Field([], description="The public types of events to send; empty for all.")
    conversation_id: str | None = Field(None, description="The only conversation to tell of; null for all.")
    secret: WebhookSecret | None = Field(None, description="Signs what is sent; left out, the server makes one.")


class WebhookChange(BaseModel, extra="forbid", hide_input_in_errors=True):
    """The body of a change; what is left out stays."""

    url: Url | None = None
    events: EventTypes | None = None
    secret: WebhookSecret | None = None
    active: bool | None = Field(None, strict=True)


class Replay(BaseModel, extra="forbid", hide_input_in_errors=True):
    """The body of a replay."""

    conversation_id: str
    after_event_id: int = Field(ge=-1, le=2**53, strict=True, description="-1 sends the log from its beginning.")


class WebhookInfo(BaseModel):
    """A webhook as its user sees it."""

    id: str
    url: str = Field(description="Parameters whose names tell of secrets are hidden; sent back like that they stay.")
    events: list[str]
    conversation_id: str | None
    active: bool
    created_at: datetime
    delivered_at: datetime | None = Field(description="When the receiver last acknowledged something.")
    failing_since: datetime | None = Field(description="Since when nothing was acknowledged; null while all is well.")
    problem: str = Field(description="What was wrong with the last attempt; empty while all is well.")


class CreatedWebhook(WebhookInfo):
    """A new webhook; its secret is shown only here."""

    secret: str


class WebhookList(BaseModel):
    """A user's webhooks, or a page of them."""

    results: list[WebhookInfo] = Field(max_length=MAX_PER_USER)
    next_page_id: str | None = Field(description="`page_id` of the next page; null on the last one.")


async def _own_webhook(request: Request, webhook_id: str) -> StoredWebhook:
    webhook = services_of(request).webhooks.get(identity_of(request).user_id, webhook_id)
    if webhook is None:
        raise _not_found(webhook_id)
    return webhook


def _not_found(webhook_id: str) -> HTTPException:
    return HTTPException(404, f"There is no webhook {webhook_id[:64]!r}")


OwnWebhook = Annotated[StoredWebhook, Depends(_own_webhook)]


@router.get("")
async def list_webhooks(
    services: ServicesDependency, identity: IdentityDependency, paging: PagingDependency
) -> WebhookList:
    """The user's webhooks, oldest first."""
    page, next_page_id = paging.cut(services.webhooks.of_user(identity.user_id), _place, str, str)
    return WebhookList(results=[_info(one) for one in page], next_page_id=next_page_id)


@router.post("", status_code=201)
async def create_webhook(
    services: ServicesDependency, identity: IdentityDependency, body: NewWebhook
) -> CreatedWebhook:
    """Have an address told of what is stored from now on. The answer is the only one that shows the secret."""
    if body.conversation_id is not None and await find_conversation(services, identity, body.conversation_id) is None:
        raise ConversationNotFoundError(body.conversation_id)
    _refuse_hidden(body.url)
    webhook = StoredWebhook(
        id=f"wh_{uuid.uuid4().hex}",
        user_id=identity.user_id,
        url=body.url,
        secret=body.secret or new_secret(),
        events=tuple(dict.fromkeys(body.events)),
        conversation_id=body.conversation_id,
    )
    try:
        await services.webhooks.create(webhook)
    except TooManyWebhooksError as error:
        raise HTTPException(409, str(error)) from error
    await services.manager.refresh_secrets(identity.user_id)
    return CreatedWebhook(**_info(webhook).model_dump(), secret=webhook.secret.get_secret_value())


@router.get("/{webhook_id}")
async def read_webhook(webhook: OwnWebhook) -> WebhookInfo:
    """One webhook, and how it fares."""
    return _info(webhook)


@router.patch("/{webhook_id}")
async def change_webhook(webhook: OwnWebhook, services: ServicesDependency, body: WebhookChange) -> WebhookInfo:
    """Change it. One that is made active, or whose address changes, is tried again at once, from where it was."""
    values = {name: value for name, value in body if value is not None}
    if body.url == hidden_address(webhook.url):
        del values["url"]
    _refuse_hidden(values.get("url"))
    if body.events is not None:
        values["events"] = tuple(dict.fromkeys(body.events))
    changes = cast(WebhookChanges, values)
    if body.active or body.url is not None:
        changes |= {"failing_since": None, "problem": ""}
    changed = await services.webhooks.update(webhook.id, **changes) if changes else webhook
    if changed is None:
        raise _not_found(webhook.id)
    if changed.secrets != webhook.secrets:
        await services.manager.refresh_secrets(webhook.user_id)
    return _info(changed)


@router.delete("/{webhook_id}", status_code=204)
async def delete_webhook(webhook: OwnWebhook, services: ServicesDependency) -> Response:
    """Send it nothing more."""
    await services.webhooks.delete(webhook.id)
    return Response(status_code=204)


@router.post("/{webhook_id}/replay", status_code=202)
async def replay_events(
    webhook: OwnWebhook, services: ServicesDependency, identity: IdentityDependency, body: Replay
) -> WebhookInfo:
    """Send what a conversation's log holds behind an event once more: for a receiver that has lost it."""
    matches = webhook.conversation_id in (None, body.conversation_id)
    if not matches or await find_conversation(services, identity, body.conversation_id) is None:
        raise ConversationNotFoundError(body.conversation_id)
    await services.webhooks.replay(webhook.id, body.conversation_id, body.after_event_id)
    return _info(webhook)


def _refuse_hidden(url: str | None) -> None:
    if HIDDEN in secrets_in_address(url or ""):
        raise HTTPException(422, f"url: {HIDDEN} stands for a key that is not stored; send the whole address")


def _place(webhook: StoredWebhook) -> tuple[str, str]:
    return (wire_time(webhook.created_at), webhook.id)


def _info(webhook: StoredWebhook) -> WebhookInfo:
    info = WebhookInfo.model_validate(webhook, from_attributes=True)
    return info.model_copy(update={"url": hidden_address(webhook.url)})
