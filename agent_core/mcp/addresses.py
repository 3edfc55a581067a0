"""Servers at an address: how they are reached, and what each request to them carries."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from agent_core.mcp.config import McpServer
from agent_core.mcp.program import McpServerError

MAX_EVENT_BYTES = 64 * 1024 * 1024
READ_SECONDS = 3600.0
"""A stream of events may be silent for long; calls have limits of their own, which are shorter."""

HTTP_ERROR = 400


def headers_of(server: McpServer) -> dict[str, str]:
    """The headers of each request to it, those of its `auth` included."""
    auth = server.auth
    match auth.type:
        case "api_key":
            return {**server.headers, auth.header: auth.key}
        case "bearer":
            return {**server.headers, "Authorization": f"Bearer {auth.token}"}
        case "basic":
            encoded = base64.b64encode(f"{auth.username}:{auth.password}".encode()).decode()
            return {**server.headers, "Authorization": f"Basic {encoded}"}
        case "header":
            return {**server.headers, auth.name: auth.value}
        case "none":
            return dict(server.headers)


def transport_to(server: McpServer, refusals: list[int]) -> Any:
    """The library's own transport for an address; statuses that are errors are added to `refusals`."""
    from httpx2 import AsyncClient, Auth, Response, Timeout
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    url = server.url or ""
    if not url.startswith(("http://", "https://")):
        raise McpServerError("its address begins with neither http:// nor https://; WebSockets are not supported")
    connect, read = server.connect_seconds, server.sse_read_timeout or READ_SECONDS
    headers = headers_of(server)

    async def note(response: Response) -> None:
        if response.status_code >= HTTP_ERROR:
            refusals.append(response.status_code)

    def made(
        headers: dict[str, str] | None = None, timeout: Timeout | None = None, auth: Auth | None = None
    ) -> AsyncClient:
        made = create_mcp_http_client(headers, timeout, auth)
        made.event_hooks = {"response": [note]}
        return made

    if server.kind == "sse":
        return sse_client(url, headers=headers, timeout=connect, sse_read_timeout=read, httpx_client_factory=made)

    @contextlib.asynccontextmanager
    async def streamable() -> AsyncGenerator[Any]:
        async with (
            made(headers=headers, timeout=Timeout(connect, read=read)) as http,
            streamable_http_client(url, http_client=http, max_sse_event_size=MAX_EVENT_BYTES) as streams,
        ):
            yield streams

    return streamable()
