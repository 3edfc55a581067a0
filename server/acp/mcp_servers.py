"""MCP servers that an editor names, as a conversation is given them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

from server.acp.dispatch import invalid

Given = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def mcp_config(servers: Sequence[Given]) -> dict[str, Any]:
    """The servers in the form of the protocol's ``mcp_config``.

    Programs run where the Drydock server runs such programs (its setting `mcp_programs`), by default in the sandbox.

    Raises:
        RequestError: a server cannot be given on as it is.
    """
    found: dict[str, list[dict[str, Any]]] = {"stdio_servers": [], "shttp_servers": [], "sse_servers": []}
    for number, server in enumerate(servers):
        where = f"mcpServers.{number}"
        match server:
            case McpServerStdio():
                name = re.sub(r"[^A-Za-z0-9_-]+", "-", server.name).strip("-") or f"server-{number}"
                if not server.command or any(letter.isspace() for letter in server.command):
                    raise invalid(f"{where}.command", "is empty or has blanks; give the path of a program without any")
                program = {"name": name, "command": server.command, "args": list(server.args)}
                found["stdio_servers"].append({**program, "env": {one.name: one.value for one in server.env}})
            case HttpMcpServer():
                found["shttp_servers"].append(_address(server, where))
            case SseMcpServer():
                found["sse_servers"].append(_address(server, where))
            case AcpMcpServer():
                raise invalid(f"{where}.type", "is acp, which is not supported; give http, sse or a program")
    return found


def _address(server: HttpMcpServer | SseMcpServer, where: str) -> dict[str, Any]:
    if not server.url.startswith(("http://", "https://")):
        raise invalid(f"{where}.url", f"{server.url[:200]!r} is no http(s) address; give one such as https://host/mcp")
    address: dict[str, Any] = {"url": server.url}
    for number, header in enumerate(server.headers):
        scheme, _, token = header.value.partition(" ")
        if header.name.lower() != "authorization" or scheme.lower() != "bearer" or not token:
            raise invalid(
                f"{where}.headers.{number}",
                f"is {header.name[:100]!r}; the only header that is passed on is `Authorization: Bearer …`",
            )
        address["api_key"] = token
    return address
