"""The protocol's own library, as a server: the only module here that knows it.

It takes a second and much memory to import, so it is loaded when somebody first comes to a door.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from agent_core.errors import DrydockError
from agent_core.mcp.tool import problems_in
from server.doors.mcp.tools import Caller, DoorResources, DoorTool, Offer, ToolResult

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server
    from mcp.types import CallToolResult, Tool

# The protocol's library reads it in a thread, which nothing ends but the other side.
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
TOO_LONG: Final = f"a line of more than {MAX_LINE_BYTES} bytes"


class InputLines:
    """An async iterator over the lines of a stream, as texts; what is no UTF-8 is replaced.

    A line that is too long is read past and given as a text that is no message, which is answered as such.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
        except asyncio.LimitOverrunError:
            await self._pass_over()
            return TOO_LONG
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")

    async def _pass_over(self) -> None:
        while True:
            try:
                await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(max(1, error.consumed))
            except asyncio.IncompleteReadError:
                return
            else:
                return


async def standard_input() -> InputLines | None:
    """The lines of standard input; None where it cannot be waited for: a file, which ends by itself."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or sys.stdin.isatty()):
        return None
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin.buffer)
    return InputLines(reader)


logger = logging.getLogger(__name__)


class HttpServing(Protocol):
    """Serves over HTTP while `run` is entered; that is done and left in one task, once."""

    def run(self) -> AbstractAsyncContextManager[None]:
        """What it does while it is entered."""
        ...

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        ...


def load() -> None:
    """Import it; slow, once."""
    for name in ("mcp.server.lowlevel.server", "mcp.server.streamable_http_manager", "mcp.server.stdio"):
        importlib.import_module(name)
    # What clients do wrong is told to them; these would write lines, and tracebacks, for each of their mistakes.
    logging.getLogger("mcp.server").setLevel(logging.CRITICAL)
    logging.getLogger("mcp.shared").setLevel(logging.CRITICAL)


def make_server(offer: Offer) -> Server[Any]:
    """A server of the library with these tools; `load` was called."""
    from mcp import MCPError
    from mcp.server.lowlevel.server import Server
    from mcp.types import INVALID_PARAMS, CallToolRequestParams, ListToolsResult, PaginatedRequestParams

    tools = {tool.name: tool for tool in offer.tools}
    listed = [_listed(tool) for tool in offer.tools]

    async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:100]!r}; there are: {', '.join(tools)}")
        return await _called(tool, params.arguments or {}, _caller(context))

    return Server(
        offer.name,
        version=offer.version,
        instructions=offer.instructions or None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        **({} if offer.resources is None else _resource_handlers(offer.resources)),
    )


async def serve_stdio(offer: Offer) -> None:
    """Serve it over standard input and output until the input ends; `load` was called.

    What else is written to standard output meanwhile goes to standard error.
    """
    from mcp.server.stdio import stdio_server

    server = make_server(offer)
    lines: Any = await standard_input()  # has what the library asks of a file: lines, one after the other
    async with stdio_server(lines) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def make_http(server: Server[Any], *, max_bytes: int) -> HttpServing:
    """What serves it over HTTP: each request by itself, answered with JSON."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    return StreamableHTTPSessionManager(server, stateless=True, json_response=True, max_request_body_size=max_bytes)


def _caller(context: Any) -> Caller:
    async def progress(value: float, message: str) -> None:
        await context.session.report_progress(value, message=message)

    headers = (
        {} if context.request is None else {name.lower(): value for name, value in context.request.headers.items()}
    )
    return Caller(headers, progress)


async def _called(tool: DoorTool[Any], arguments: Mapping[str, Any], caller: Caller) -> CallToolResult:
    try:
        result = await tool.call(tool.arguments.model_validate(dict(arguments)), caller)
    except ValidationError as error:
        return _failure(problems_in(error))
    except DrydockError as error:
        return _failure(str(error))
    except Exception:
        logger.exception("the tool %s failed", tool.name)
        return _failure("it failed inside the server, whose log has the details")
    return _success(result)


def _success(result: ToolResult) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(text=result.text)], structured_content=result.data)


def _failure(text: str) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _listed(tool: DoorTool[Any]) -> Tool:
    from mcp.types import Tool, ToolAnnotations

    hints = tool.annotations
    return Tool(
        name=tool.name,
        title=hints.title,
        description=tool.description,
        input_schema=tool.parameters,
        output_schema=tool.output,
        annotations=ToolAnnotations(
            title=hints.title,
            read_only_hint=hints.readOnlyHint,
            destructive_hint=hints.destructiveHint,
            idempotent_hint=hints.idempotentHint,
            open_world_hint=hints.openWorldHint,
        ),
    )


def _resource_handlers(resources: DoorResources) -> dict[str, Any]:
    from mcp import MCPError
    from mcp.types import (
        INTERNAL_ERROR,
        INVALID_PARAMS,
        ListResourcesResult,
        ListResourceTemplatesResult,
        PaginatedRequestParams,
        ReadResourceRequestParams,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        TextResourceContents,
    )

    kind, template = resources.mime_type, resources.template

    async def list_resources(context: Any, params: PaginatedRequestParams | None) -> ListResourcesResult:
        try:
            page = await resources.page(params.cursor if params is not None else None)
        except DrydockError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        listed = [
            Resource(uri=one.uri, name=one.name, title=one.title, description=one.description or None, mime_type=kind)
            for one in page.resources
        ]
        return ListResourcesResult(resources=listed, next_cursor=page.next_cursor)

    async def list_templates(context: Any, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        described = ResourceTemplate(
            uri_template=template.uri,
            name=template.name,
            title=template.title,
            description=template.description,
            mime_type=kind,
        )
        return ListResourceTemplatesResult(resource_templates=[described])

    async def read(context: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        try:
            text = await resources.read(str(params.uri))
        except DrydockError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        if text is None:
            raise MCPError(INVALID_PARAMS, f"there is no resource {str(params.uri)[:200]!r}; see {template.uri}")
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=kind, text=text)])

    return {
        "on_list_resources": list_resources,
        "on_list_resource_templates": list_templates,
        "on_read_resource": read,
    }
