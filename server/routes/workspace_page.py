"""A page with the files of a workspace, for clients that open what they take for an editor there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import HTMLResponse, Response

from agent_core.errors import DrydockError
from agent_core.runtime.transfers import list_folder
from server.dependencies import OwnConversation, ServicesDependency
from server.routes.conversation_files import refusal, workspace_of
from server.routes.query import FilePath
from server.routes.replies import errors
from server.routes.route_classes import WatchedRoute, make_router

router = make_router("/api/conversations/{conversation_id}", route_class=WatchedRoute)

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors"
_STYLE: Final = (
    "body{font:14px/1.6 system-ui,sans-serif;margin:1.5rem;color-scheme:light dark}"
    "table{border-collapse:collapse;margin-top:1rem}td{padding:0 1.5rem 0 0;white-space:nowrap}"
    "td+td{text-align:right;opacity:.7}h1{font-size:1.1rem}"
)
_HTML: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "A page for people", "content": {"text/html": {"schema": {"type": "string"}}}}
}
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


@router.get("/workspace", response_class=Response, responses=_HTML | errors(400, 403, 503))
async def workspace_page(record: OwnConversation, services: ServicesDependency, path: FilePath = "") -> Response:
    """The files of a folder on a page without scripts: each can be saved, and the folder as a ZIP file."""
    sandbox = workspace_of(services, record.id)
    try:
        found = await list_folder(sandbox, path)
    except DrydockError as error:
        raise refusal(error) from error
    frames = " ".join(["'self'", *services.settings.allowed_origins])
    return HTMLResponse(_page(found), headers={"content-security-policy": f"{_POLICY} {frames}"})


def _page(folder: dict[str, Any]) -> str:
    parts = [part for part in folder["path"].split("/") if part]
    rows = "".join(_row(parts, entry) for entry in folder["entries"])
    more = f"<p>and {folder['left_out']} more</p>" if folder["left_out"] else ""
    name = escape(parts[-1] if parts else "Workspace")
    path = [_link("workspace", parts[:depth], parts[depth - 1]) for depth in range(1, len(parts) + 1)]
    path.insert(0, _link("workspace", [], "Workspace"))
    archive, again = _link("zip-directory", parts, "Download as a ZIP file"), _link("workspace", parts, "Refresh")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title><style>{_STYLE}</style>'
        f"<h1>{' / '.join(path)}</h1>"
        f"<p>{archive} &middot; {again}</p>"
        f"<table>{rows or '<tr><td>Nothing is here yet.'}</table>{more}</html>"
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
