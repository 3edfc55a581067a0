"""The built page: its files, `index.html` for every address that the page itself knows, 404 for unknown API paths."""

from __future__ import annotations

import stat
from pathlib import Path

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from server.settings import Settings

CHECKOUT_PAGE = Path(__file__).parent.parent / "frontend_stub" / "dist"
PACKAGED_PAGE = Path(__file__).parent / "page_files"

_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Drydock</title>
<h1>The server runs, but its page is not built.</h1>
<p>Run <code>make setup</code> in the checkout and reload, or name the folder of a built page with
<code>DRYDOCK_PAGE</code>. The API is at work already.</p></html>"""


def page_folder(settings: Settings) -> Path:
    """Where the page is looked for."""
    if settings.page is not None:
        return settings.page
    return PACKAGED_PAGE if PACKAGED_PAGE.is_dir() else CHECKOUT_PAGE


class Page:
    """ASGI application for every path that no route took."""

    def __init__(self, folder: Path) -> None:
        self._files = StaticFiles(directory=folder, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self._respond(scope)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope) -> Response:
        path: str = scope["path"]
        if path == "/api" or path.startswith(("/api/", "/socket.io")):
            return JSONResponse({"detail": f"There is no {scope['method']} {path}"}, 404)
        if scope["method"] not in {"GET", "HEAD"}:
            return JSONResponse({"detail": "Method Not Allowed"}, 405, headers={"allow": "GET, HEAD"})
        try:
            name = self._files.get_path(scope)
            return await self._files.get_response(name, scope)
        except HTTPException:
            if path.startswith("/assets/"):
                return JSONResponse({"detail": f"There is no {path}"}, 404)
        return await self._index(scope)

    async def _index(self, scope: Scope) -> Response:
        path, facts = await anyio.to_thread.run_sync(self._files.lookup_path, "index.html")
        if facts is None or not stat.S_ISREG(facts.st_mode):
            return HTMLResponse(_NOT_BUILT, 503)
        return FileResponse(path, stat_result=facts)
