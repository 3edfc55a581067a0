"""The built page: its files, `index.html` for every address that it knows, 404 for unknown API paths."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import os
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Match, Mount
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from server.errors import ConfigurationError
from server.settings.settings import Settings

CHECKOUT_PAGE = Path(__file__).parents[2] / "frontend_stub" / "dist"
PACKAGED_PAGE = Path(__file__).parents[1] / "page_files"

FOREIGN_POLICY: Final = "frame-ancestors 'none'; object-src 'none'"
"""What another client's page may not do. Its scripts are the operator's choice, also those within its HTML."""

FOREVER: Final = "public, max-age=2592000, immutable"
"""For files whose names change with what is in them: a build's ``assets``."""

ASK_AGAIN: Final = "no-cache"

_NEVER_PAGES: Final = ("/api/", "/v1/", "/mcp/", "/preview/", "/socket.io", "/feedback/", "/integration/")
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_ENCODINGS: Final = (("br", ".br"), ("gzip", ".gz"))
_INLINE_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)

# Not every system knows them, and a browser runs no script whose type is another one.
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}

_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Drydock</title>
<h1>The server runs, but its page is not built.</h1>
<p>Run <code>make setup</code> in the checkout and reload, install the wheel that <code>make wheel</code> makes there,
or name the folder of a built page with <code>DRYDOCK_PAGE</code>. The API is at work already.</p></html>"""


def page_folder(settings: Settings) -> Path:
    """Where the page is looked for."""
    if settings.page is not None:
        return settings.page
    return PACKAGED_PAGE if PACKAGED_PAGE.is_dir() else CHECKOUT_PAGE


def page_of(settings: Settings) -> Page:
    """The page that is served; `ConfigurationError` where a folder was named that holds none."""
    folder = page_folder(settings)
    if settings.page is not None and not (folder / "index.html").is_file():
        what = "has no index.html" if folder.is_dir() else "is no folder"
        raise ConfigurationError(
            f"page: {folder.absolute()} {what}; name the folder that a client was built into, or leave it out"
        )
    is_own = folder.resolve() in (CHECKOUT_PAGE.resolve(), PACKAGED_PAGE.resolve())
    return Page(folder, base_path=settings.base_path) if is_own else Page(folder, policy=FOREIGN_POLICY)


class _File(NamedTuple):
    path: str
    facts: os.stat_result
    encoding: str | None = None


class Page:
    """ASGI application for every path that no route took.

    `policy` is its Content-Security-Policy, None the server's strict one; `is_foreign` another client's page. Our own
    page is told the `base_path` below which its browser finds the server: addresses in its HTML begin with ``./``.
    """

    def __init__(self, folder: Path, *, base_path: str = "", policy: str | None = None) -> None:
        self._folder = folder
        self._base_path = base_path
        self._policy = policy
        self._scripts: str | None = None
        self.is_foreign = policy is not None

    def scripts(self) -> str:
        """Sources for a policy that allows the scripts within the page's HTML, each behind a space."""
        if self._scripts is None:
            try:
                found = _INLINE_SCRIPT.findall((self._folder / "index.html").read_bytes())
            except OSError:  # not built yet
                return ""
            hashes = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in found)
            self._scripts = "".join(f" 'sha256-{one}'" for one in hashes)
        return self._scripts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        response = await self._respond(scope)
        if self._policy is not None:
            response.headers["content-security-policy"] = self._policy
        await response(scope, receive, send)

    async def _respond(self, scope: Scope) -> Response:
        path: str = scope["path"]
        if path == "/api" or path.startswith(_NEVER_PAGES):
            text = f"There is no {scope['method']} {path}"
            methods = _methods_of_routes(scope)
            if not methods:
                return JSONResponse({"detail": text, "message": text}, 404)
            text = f"{text}; ask with {' or '.join(methods)}"
            return JSONResponse({"detail": text, "message": text}, 405, headers={"allow": ", ".join(methods)})
        if scope["method"] not in {"GET", "HEAD"}:
            return JSONResponse({"detail": "Method Not Allowed"}, 405, headers={"allow": "GET, HEAD"})
        headers = Headers(scope=scope)
        file = await anyio.to_thread.run_sync(self._find, path, headers)
        if file is None and path.startswith("/assets/"):
            return JSONResponse({"detail": f"There is no {path}"}, 404)
        if file is None:
            path = "/index.html"
            file = await anyio.to_thread.run_sync(self._find, path, headers)
        if file is None:
            return HTMLResponse(_NOT_BUILT, 503)
        if path != "/index.html" or self.is_foreign:
            return _reply(file, path, headers)
        html = await anyio.to_thread.run_sync(Path(file.path).read_bytes)
        return _reply(file, path, headers, html.replace(b'="./', f'="{self._base_path}/'.encode("ascii")))

    def _find(self, path: str, headers: Headers) -> _File | None:
        """The file of this path, compressed if there is such a one beside it and the client takes it."""
        names = [name for name in path.split("/") if name]
        if any(name.startswith(".") and name != ".well-known" for name in names) or "\0" in path:
            return None
        root = os.path.realpath(self._folder)
        plain = _regular(root, os.path.join(root, *names))
        if plain is None or "range" in headers:
            return plain
        for encoding, suffix in _ENCODINGS:
            if _accepts(headers.get("accept-encoding", ""), encoding):
                packed = _regular(root, plain.path + suffix)
                if packed is not None and packed.facts.st_mtime >= plain.facts.st_mtime:
                    return packed._replace(encoding=encoding)
        return plain


def _methods_of_routes(scope: Scope) -> list[str]:
    """With which methods an address of the protocol can be asked."""
    if not scope["path"].startswith("/api/"):
        return []
    routes = [route for route in scope["app"].routes if not isinstance(route, Mount)]
    return [
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]


def _regular(root: str, path: str) -> _File | None:
    """The file at this path, if it is one, and within the folder wherever links lead."""
    try:
        real = os.path.realpath(path)
        facts = os.stat(real)
    except (OSError, ValueError):
        return None
    is_within = os.path.commonpath([root, real]) == root
    return _File(real, facts) if is_within and stat.S_ISREG(facts.st_mode) else None


def _accepts(header: str, encoding: str) -> bool:
    """Whether an ``Accept-Encoding`` names it and does not refuse it."""
    for one in header.lower().split(","):
        name, _, parameters = one.partition(";")
        if name.strip() == encoding:
            weight = parameters.replace(" ", "")
            return not (weight.startswith("q=0") and weight.strip("q=0.") == "")
    return False


def _reply(file: _File, path: str, headers: Headers, content: bytes | None = None) -> Response:
    """The file, or `content` that was made of it."""
    facts = file.facts
    # With the inode and the time of its change: builds of different content may have the same size and date. Hashed,
    # since strangers get it.
    known_by = f"{facts.st_ino}-{facts.st_size}-{facts.st_mtime_ns}-{facts.st_ctime_ns}"
    tag = f'"{hashlib.blake2b(known_by.encode() + (content or b""), digest_size=12).hexdigest()}"'
    sent = {
        "etag": tag,
        "cache-control": FOREVER if path.startswith("/assets/") else ASK_AGAIN,
        "vary": "accept-encoding",
    }
    if file.encoding is not None:
        sent["content-encoding"] = file.encoding
    tags = [one.strip().removeprefix("W/") for one in headers.get("if-none-match", "").split(",")]
    if tag in tags or "*" in tags:
        return Response(status_code=304, headers=sent)
    suffix = os.path.splitext(path)[1].lower()
    kind = _TYPES.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"
    if content is not None:
        return Response(content, headers=sent, media_type=kind)
    return FileResponse(file.path, headers=sent, media_type=kind, stat_result=facts)
