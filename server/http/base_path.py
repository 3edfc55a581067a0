"""The path below which clients find the server (`base_path`): taken off their requests, put before addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

_KEY: Final = "drydock.base_path"


class BasePath:
    """ASGI middleware around the whole server: behind it every path is as if there were no base path.

    A request may come with it or without, as the proxy before the server passes paths on or takes it off first. Hosts
    that are `elsewhere` (previews, whose paths are their programs') keep theirs.
    """

    def __init__(self, app: ASGIApp, base: str, *, elsewhere: Callable[[str], bool]) -> None:
        self._app = app
        self._base = base
        self._raw = base.encode("ascii")
        self._elsewhere = elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(self._inside(scope), receive, send)

    def _inside(self, scope: Scope) -> Scope:
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        if self._elsewhere(host):
            return scope
        inside = {**scope, _KEY: self._base}
        path, raw = scope["path"], scope.get("raw_path") or scope["path"].encode()
        if (path == self._base or path.startswith(f"{self._base}/")) and raw.startswith(self._raw):
            inside |= {"path": path[len(self._base) :] or "/", "raw_path": raw[len(self._raw) :] or b"/"}
        return inside


def base_path_of(scope: Mapping[str, Any]) -> str:
    """What stands before the paths of addresses that a client is given; it ends without a slash."""
    return str(scope.get(_KEY, ""))
