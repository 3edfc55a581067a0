"""The ports that something in a conversation's sandbox listens on, and the previews of them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from agent_core.errors import DrydockError, ToolError
from server.db.conversations import ConversationRecord
from server.dependencies import OwnConversation, Services, ServicesDependency
from server.errors import ReplyError

router = APIRouter(prefix="/api/conversations/{conversation_id}")

LIST_SECONDS = 10.0


@router.get("/ports")
async def read_ports(record: OwnConversation, services: ServicesDependency, request: Request) -> dict[str, Any]:
    """What listens, lowest port first, each with the address of its preview, which counts for some minutes.

    ``running`` is false, and the list empty, while there is no sandbox. ``mode`` says how previews are kept apart from
    this server: ``origin`` (a host name each) or ``path`` (a sandboxed document).
    """
    previews = services.previews
    host = request.headers.get("host", "")
    found = await _listening(services, record)
    ports = [
        {**one, "url": previews.link(request.url.scheme, host, record.id, one["port"], record.user_id)}
        for one in found or []
    ]
    return {"running": found is not None, "mode": previews.addresses.mode(host), "ports": ports}


@router.get("/web-hosts")
async def read_web_hosts(record: OwnConversation, services: ServicesDependency, request: Request) -> dict[str, Any]:
    """The same as older clients know it (wire-protocol 4.3): addresses that they poll and show, with their ports."""
    host = request.headers.get("host", "")
    try:
        found = await _listening(services, record)
    except ReplyError as error:
        raise ReplyError(500, {"hosts": None, **error.body}) from error
    link = services.previews.link
    scheme = request.url.scheme
    return {
        "hosts": {
            link(scheme, host, record.id, one["port"], record.user_id, is_kept=True): one["port"] for one in found or []
        }
    }


async def _listening(services: Services, record: ConversationRecord) -> list[dict[str, Any]] | None:
    """The runner's list, which is not believed more than it has to be; None where there is no sandbox."""
    sandbox = services.manager.sandbox(record.id)
    if sandbox is None:
        return None
    try:
        reply = await sandbox.request("ports.list", {}, limit_seconds=LIST_SECONDS)
    except ToolError:
        return []  # a sandbox that was started before there were previews
    except DrydockError as error:
        raise ReplyError(500, {"error": str(error)}) from error
    given = reply.result.get("ports")
    entries = given if isinstance(given, list) else []
    return [_entry(one) for one in entries if isinstance(one, dict) and _is_port(one.get("port"))]


def _entry(given: dict[str, Any]) -> dict[str, Any]:
    addresses = given.get("addresses")
    return {
        "port": given["port"],
        "addresses": [str(one) for one in addresses] if isinstance(addresses, list) else [],
        "pid": given.get("pid") if isinstance(given.get("pid"), int) else None,
        "process": _text(given.get("process")),
        "command": _text(given.get("command")),
    }


def _text(value: object) -> str | None:
    return value[:500] if isinstance(value, str) else None


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536
