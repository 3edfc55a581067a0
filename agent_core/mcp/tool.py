"""A tool of a server, as the agent has it."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from pydantic import Field

from agent_core.errors import ToolError
from agent_core.events.schema import Action, types_of
from agent_core.mcp.expansion import expanded, names_in
from agent_core.mcp.results import MCPToolObservation
from agent_core.mcp.schema import parameters_from, problems_of
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import DeclaredResources, ToolAnnotations, ToolContext

MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 8_192

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]+")
_TYPES: dict[str, tuple[type, ...]] = {"integer": (int,), "number": (int, float), "boolean": (bool,)}


class MCPToolAction(Action):
    """A call of a remote tool; `data` are the arguments as the model gave them."""

    data: dict[str, Any] = Field(default_factory=dict)


class RemoteTool(Protocol):
    """A tool as the protocol's library lists it."""

    name: str
    title: str | None
    description: str | None
    input_schema: dict[str, Any]
    annotations: Any


class McpTool(ToolDefinition[MCPToolAction, MCPToolObservation]):
    """A tool that a server offers; `remote_name` is what the server calls it."""

    tool_parameters: dict[str, Any]
    remote_name: str
    server: str

    @property
    def parameters(self) -> dict[str, Any]:
        return self.tool_parameters

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> MCPToolAction:
        given = {key: self._read(key, value) for key, value in arguments.items()}
        if problems := problems_of(self.tool_parameters, given):
            raise ToolError("; ".join(problems))
        return MCPToolAction(data=given)

    def declared_resources(self, action: Action) -> DeclaredResources:
        keys = () if self.annotations.readOnlyHint else (f"mcp:{self.server}",)
        return DeclaredResources(keys=keys, declared=True)

    def _read(self, name: str, value: Any) -> Any:
        """A number or a truth value that a model wrote as text, as what it is; anything else as it is."""
        if not isinstance(value, str):
            return value
        wanted = types_of(self.tool_parameters["properties"].get(name), self.tool_parameters)
        types = [kind for each in wanted for kind in _TYPES.get(each, ())]
        if not types or "string" in wanted:
            return value
        try:
            found = json.loads(value.strip().lower())
        except ValueError:
            return value
        return found if type(found) in types else value

    @property
    def may_be_repeated(self) -> bool:
        """Whether a second call does no harm where nobody knows what became of the first."""
        return self.annotations.readOnlyHint or self.annotations.idempotentHint


def tool_of(remote: RemoteTool, *, server: str, call: Callable[..., Awaitable[MCPToolObservation]]) -> McpTool:
    """The definition for a listed tool.

    ``call(tool, shown, sent, limit_seconds, told)`` carries out a call of it; ``told(text)`` shows how far it is.

    Its name is the server's, with ``_`` for what models' providers do not take in names.

    Raises:
        ValueError: it cannot be offered to a model; the message says why.
    """
    name = _UNUSABLE.sub("_", remote.name)[:MAX_NAME_CHARS]
    if not name.strip("_"):
        raise ValueError("its name has no letter or digit")
    hints = remote.annotations.model_dump(by_alias=True, exclude_none=True) if remote.annotations is not None else {}
    known = {field: hints[field] for field in ToolAnnotations.model_fields if field in hints}
    if remote.title and "title" not in known:
        known["title"] = remote.title
    tool = McpTool(
        name=name,
        description=(remote.description or remote.title or remote.name)[:MAX_DESCRIPTION_CHARS],
        action_type=MCPToolAction,
        observation_type=MCPToolObservation,
        annotations=ToolAnnotations(**known),
        tool_parameters=parameters_from(remote.input_schema),
        remote_name=remote.name,
        server=server,
    )

    async def execute(action: MCPToolAction, context: ToolContext | None = None) -> MCPToolObservation:
        sent = await _with_secrets(action.data, context)
        if context is None:
            return await call(tool, action.data, sent, None, _told_nobody)
        return await call(tool, action.data, sent, context.hard_timeout, context.emit_output)

    return tool.set_executor(execute)


def _told_nobody(text: str) -> None:
    """Nobody is looking."""


async def _with_secrets(arguments: dict[str, Any], context: ToolContext | None) -> dict[str, Any]:
    """The arguments with the secrets that they refer to; nothing else, such as the environment, is looked at."""
    names = names_in(arguments)
    if not names:
        return arguments
    found = await context.secrets_for(" ".join(sorted(names))) if context is not None else {}
    sent = expanded(arguments, {name: value for name, value in found.items() if name in names})
    json.dumps(sent)  # what cannot be sent is refused here
    return dict(sent)
