"""The MCP SDK behind the doors of MCP: tools, resources, serving. It takes a second to import, so it is loaded late."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp

from agent_core.errors import DrydockError
from agent_core.mcp.tool import problems_in
from agent_core.tools.spec import ToolAnnotations
from server.doors.stdio_program import MAX_LINE_BYTES, LineTooLongError, read_line, standard_input

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server
    from mcp.types import CallToolResult, Tool

logger = logging.getLogger(__name__)
A = TypeVar("A", bound=BaseModel)
ReportProgress = Callable[[float, str], Awaitable[None]]
TOO_LONG: Final = f"a line of more than {MAX_LINE_BYTES} bytes"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: `headers` with lower-case names, and ``progress(value, message)`` with growing values."""

    headers: Mapping[str, str]
    progress: ReportProgress


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A result: `data` for programs, as the tool's output schema says, and `text` for models."""

    text: str
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorTool(Generic[A]):
    """A tool of a door, with the schemas that clients see. A `DrydockError` fails a `call`; a client may cancel it."""

    name: str
    description: str
    arguments: type[A]
    parameters: dict[str, Any]
    annotations: ToolAnnotations
    call: Callable[[A, Caller], Awaitable[ToolResult]]
    output: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that can be read: the text at an address."""

    uri: str
    name: str
    title: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """Some resources; `next_cursor` None: these were the last."""

    resources: list[Resource]
    next_cursor: str | None = None


class DoorResources(Protocol):
    """The resources of a door, all of them texts of one type. Methods raise `DrydockError`."""

    template: Resource
    """How their addresses are built (RFC 6570), and what they are."""

    mime_type: str

    async def page(self, cursor: str | None) -> ResourcePage: ...

    async def read(self, uri: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """What one door offers."""

    name: str
    version: str
    tools: tuple[DoorTool[Any], ...]
    instructions: str = ""
    resources: DoorResources | None = None


def load() -> None:
    """Import it; slow, once."""
    for name in ("mcp.server.lowlevel.server", "mcp.server.streamable_http_manager", "mcp.server.stdio"):
        importlib.import_module(name)
    # What clients do wrong is told to them; these would write lines, and tracebacks, for each of their mistakes.
    logging.getLogger("mcp.server").setLevel(logging.CRITICAL)
    logging.getLogger("mcp.shared").setLevel(logging.CRITICAL)


def make_server(offer: Offer) -> Server[Any]:
    """The SDK's server with these tools; `load` was called."""
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

        async def progress(value: float, message: str) -> None:
            await context.session.report_progress(value, message=message)

        headers = {} if context.request is None else context.request.headers
        caller = Caller({name.lower(): value for name, value in headers.items()}, progress)
        return await _called(tool, params.arguments or {}, caller)

    return Server(
        offer.name,
        version=offer.version,
        instructions=offer.instructions or None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        **({} if offer.resources is None else _resource_handlers(offer.resources)),
    )


async def serve_stdio(offer: Offer) -> None:
    """Serve it over standard input and output until the input ends; what else is printed goes to standard error."""
    from mcp.server.stdio import stdio_server

    server = make_server(offer)
    reader = await standard_input()
    # The SDK would read standard input in a thread, which nothing ends but the other side.
    lines: Any = InputLines(reader) if reader is not None else None
    async with stdio_server(lines) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def serving_http(offer: Offer, *, max_bytes: int) -> AsyncIterator[ASGIApp]:
    """Serves it over HTTP while entered, once: each request by itself, answered with JSON; `load` was called."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    manager = StreamableHTTPSessionManager(
        make_server(offer), stateless=True, json_response=True, max_request_body_size=max_bytes
    )
    async with manager.run():
        yield manager.handle_request


class InputLines:
    """Lines of a stream as texts; what is no UTF-8 is replaced, one that is too long is a text that is no message."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        try:
            line = await read_line(self._reader)
        except LineTooLongError:
            return TOO_LONG
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")


async def _called(tool: DoorTool[Any], arguments: Mapping[str, Any], caller: Caller) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    try:
        result = await tool.call(tool.arguments.model_validate(dict(arguments)), caller)
    except ValidationError as error:
        failure = problems_in(error)
    except DrydockError as error:
        failure = str(error)
    except Exception:
        logger.exception("the tool %s failed", tool.name)
        failure = "it failed inside the server, whose log has the details"
    else:
        return CallToolResult(content=[TextContent(text=result.text)], structured_content=result.data)
    return CallToolResult(content=[TextContent(text=failure)], is_error=True)


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

    return {"on_list_resources": list_resources, "on_list_resource_templates": list_templates, "on_read_resource": read}
