"""The ports that something in a conversation's sandbox listens on, and the previews of them."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Request
from pydantic import BaseModel, Field

from agent_core.errors import DrydockError, SandboxClosedError
from agent_core.runtime.channel.tunnels import listening
from server.db.repositories.conversations import ConversationRecord
from server.dependencies import OwnConversation, Services, ServicesDependency
from server.errors import ReplyError
from server.routes.query import LINKED, PagingDependency
from server.routes.route_classes import WatchedJsonRoute, make_router
from server.session.sandboxes import app_ports

router = make_router("/api/conversations/{conversation_id}", route_class=WatchedJsonRoute)


class ListeningPort(BaseModel):
    """A port that a program listens on; what cannot be seen of it is null."""

    port: int = Field(ge=1, le=65535)
    addresses: list[str]
    pid: int | None
    process: str | None
    command: str | None
    url: str = Field(description="Opens the preview; counts for ten minutes.")


class Ports(BaseModel):
    """The ports of a sandbox."""

    running: bool
    mode: Literal["origin", "path"]
    ports: list[ListeningPort]


class WebHosts(BaseModel):
    """The same ports as older clients know them: addresses with their ports."""

    hosts: dict[str, int]


@router.get("/ports", response_model=Ports, responses={200: LINKED})
async def read_ports(
    record: OwnConversation, services: ServicesDependency, request: Request, paging: PagingDependency
) -> dict[str, Any]:
    """What listens, lowest port first, each with the address of its preview, which counts for some minutes.

    ``running`` is false, and the list empty, while there is no sandbox. ``mode`` says how previews are kept apart from
    this server: ``origin`` (a host name each) or ``path`` (a sandboxed document).
    """
    previews = services.previews
    host = request.headers.get("host", "")
    found = await _listening(services, record)
    shown = paging.linked(found or [], lambda one: (one["port"],), int)
    ports = [
        {**one, "url": previews.link(request.url.scheme, host, record.id, one["port"], record.user_id)} for one in shown
    ]
    return {"running": found is not None, "mode": previews.addresses.mode(host), "ports": ports}


@router.get("/web-hosts", response_model=WebHosts)
async def read_web_hosts(record: OwnConversation, services: ServicesDependency, request: Request) -> dict[str, Any]:
    """The same as older clients know it: addresses that they poll and show, with their ports.

    First the two that are the conversation's for what its agent serves, also while nothing listens there, since such
    clients ask once.
    """
    host, scheme = request.headers.get("host", ""), request.url.scheme
    await services.manager.until_ready(record.id)
    try:
        found = await _listening(services, record)
    except ReplyError as error:
        raise ReplyError(500, {"hosts": None, **error.body}) from error
    ports = [] if found is None else dict.fromkeys([*app_ports(record.id), *(one["port"] for one in found)])
    link = services.previews.link
    return {"hosts": {link(scheme, host, record.id, port, record.user_id, lasting=True): port for port in ports}}


async def _listening(services: Services, record: ConversationRecord) -> list[dict[str, Any]] | None:
    sandbox = services.manager.sandbox(record.id)
    if sandbox is None:
        return None
    try:
        found = await listening(sandbox)
    except SandboxClosedError:
        return None  # stopped meanwhile
    except DrydockError as error:
        raise ReplyError(500, {"error": str(error)}) from error
    return [{**one._asdict(), "addresses": list(one.addresses)} for one in found]
