"""A page with the files of a workspace, for clients that open what they take for an editor there."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import HTMLResponse, Response

from agent_core.errors import DrydockError
from agent_core.runtime.transfers import list_folder
from server.dependencies import OwnConversation, ServicesDependency
from server.errors import ReplyError
from server.routes.conversations.files import NO_SANDBOX, refusal, workspace_of
from server.routes.query import FilePath
from server.routes.replies import errors
from server.routes.route_classes import WatchedRoute, make_router

router = make_router("/api/conversations/{conversation_id}", route_class=WatchedRoute)

_FOLLOW: Final = """
const QUICK = 2000, SLOW = 15000;
let tag = document.documentElement.dataset.tag, pause = QUICK, timer = 0, shown = true, asking = false;
const visible = () => shown && document.visibilityState === "visible";
const later = () => { clearTimeout(timer); if (visible()) timer = setTimeout(look, pause); };
async function look() {
  if (asking || !visible()) return;
  asking = true;
  try {
    const reply = await fetch(location.href, { headers: { "If-None-Match": tag }, cache: "no-store" });
    if (reply.status === 200) {
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      document.querySelector("main").replaceWith(page.querySelector("main"));
      tag = page.documentElement.dataset.tag;
      pause = QUICK;
    } else {
      document.querySelector("#state").textContent = reply.status === 304 ? "" : "not to be seen at the moment";
      pause = Math.min(pause * 1.3, SLOW);
    }
  } catch { pause = SLOW; } finally { asking = false; later(); }
}
function wake() { pause = QUICK; clearTimeout(timer); if (visible()) look(); }
document.addEventListener("visibilitychange", wake);
new IntersectionObserver(([seen]) => { const was = shown; shown = seen.isIntersecting; if (shown && !was) wake(); })
  .observe(document.documentElement);
later();
"""
"""Looks for changes while somebody sees the page (a frame that is not displayed is not seen), one request at a time."""

_HASH: Final = base64.b64encode(hashlib.sha256(_FOLLOW.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors"
)
_STYLE: Final = (
    "body{font:14px/1.6 system-ui,sans-serif;margin:1.5rem;color-scheme:light dark}"
    "table{border-collapse:collapse;margin-top:1rem}td{padding:0 1.5rem 0 0;white-space:nowrap}"
    "td+td{text-align:right;opacity:.7}h1{font-size:1.1rem}"
)
_HTML: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "A page for people", "content": {"text/html": {"schema": {"type": "string"}}}},
    304: {"description": "Nothing has changed since the page that `If-None-Match` names"},
}
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


@router.get("/workspace", response_class=Response, responses=_HTML | errors(400, 403, 503))
async def workspace_page(
    record: OwnConversation, services: ServicesDependency, request: Request, path: FilePath = ""
) -> Response:
    """The files of a folder on a page that follows them: each can be saved, and the folder as a ZIP file.

    While it is seen it asks again every few seconds, with ``If-None-Match``; that does not count as use.
    """
    known = request.headers.get("if-none-match")
    sandbox = services.manager.sandbox(record.id) if known else workspace_of(services, record.id)
    if sandbox is None:
        raise ReplyError(404, {"error": NO_SANDBOX})
    try:
        found = await list_folder(sandbox, path)
    except DrydockError as error:
        raise refusal(error) from error
    content = _content(found)
    tag = f'"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'
    if known == tag:
        return Response(status_code=304, headers={"etag": tag})
    frames = " ".join(["'self'", *services.settings.allowed_origins])
    page = (
        f'<!doctype html><html lang="en" data-tag="{escape(tag)}"><meta charset="utf-8"><title>{_name(found)}</title>'
        f"<style>{_STYLE}</style>{content}<script>{_FOLLOW}</script></html>"
    )
    return HTMLResponse(page, headers={"content-security-policy": f"{_POLICY} {frames}", "etag": tag})


def _name(folder: dict[str, Any]) -> str:
    return escape(folder["path"].strip("/").rpartition("/")[2] or "Workspace")


def _content(folder: dict[str, Any]) -> str:
    parts = [part for part in folder["path"].split("/") if part]
    rows = "".join(_row(parts, entry) for entry in folder["entries"])
    more = f"<p>and {folder['left_out']} more</p>" if folder["left_out"] else ""
    path = [_link("workspace", parts[:depth], parts[depth - 1]) for depth in range(1, len(parts) + 1)]
    path.insert(0, _link("workspace", [], "Workspace"))
    archive, again = _link("zip-directory", parts, "Download as a ZIP file"), _link("workspace", parts, "Refresh")
    return (
        f"<main><h1>{' / '.join(path)}</h1>"
        f"<p>{archive} &middot; {again} <span id=state></span></p>"
        f"<table>{rows or '<tr><td>Nothing is here yet.'}</table>{more}</main>"
    )


def _row(parts: Sequence[str], entry: dict[str, Any]) -> str:
    name = str(entry["name"])
    if entry["kind"] == "folder":
        shown = _link("workspace", [*parts, name], f"{name}/")
    elif entry["kind"] == "file":
        shown = _link("download", [*parts, name], name)
    else:
        shown = escape(name)
    return f"<tr><td>{shown}<td>{_size(entry['size'])}<td>{_time(entry['modified'])}"


def _link(route: str, parts: Sequence[str], text: str) -> str:
    address = f"{route}?{urlencode({'path': '/'.join(parts)})}"
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def _size(size: int | None) -> str:
    if size is None:
        return ""
    shown, unit = float(size), 0
    while shown >= 1000 and unit < len(_UNITS) - 1:
        shown, unit = shown / 1000, unit + 1
    return f"{shown:.1f} {_UNITS[unit]}" if unit else f"{size} {_UNITS[0]}"


def _time(modified: float | None) -> str:
    return "" if modified is None else datetime.fromtimestamp(modified, UTC).strftime("%Y-%m-%d %H:%M UTC")
