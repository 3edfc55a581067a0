"""Tools whose arguments a JSON schema describes: structured answers, and tools of clients (agent-core 3.1, 3.4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from agent_core.errors import ToolError
from agent_core.events.schema import Action, Observation
from agent_core.mcp.schema import parameters_from, problems_of
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import DeclaredResources, ToolAnnotations, ToolContext


class StructuredTool(ToolDefinition):
    """A tool that takes one text, with an object of a certain form in its place; the text is that object as JSON."""

    tool_parameters: dict[str, Any]
    inner: ToolDefinition
    text_field: str

    @property
    def parameters(self) -> dict[str, Any]:
        return self.tool_parameters

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> Action:
        if problems := problems_of(self.tool_parameters, arguments):
            raise ToolError("; ".join(problems))
        return self.inner.action_from_arguments({self.text_field: json.dumps(dict(arguments), ensure_ascii=False)})

    def declared_resources(self, action: Action) -> DeclaredResources:
        return self.inner.declared_resources(action)


def structured(tool: ToolDefinition, schema: Mapping[str, Any]) -> StructuredTool:
    """The tool with arguments of this form; for tools with one text argument that must be given, such as finish.

    Raises:
        ValueError: the tool is none of those, or the schema is none of an object.
    """
    own = tool.parameters
    required = own.get("required", [])
    if len(required) != 1 or own["properties"][required[0]].get("type") != "string":
        raise ValueError(f"response_schema: tool {tool.name!r} has not exactly one text argument that must be given")
    try:
        parameters = parameters_from(schema)
    except ValueError as error:
        raise ValueError(f"response_schema of tool {tool.name!r}: {error}") from None
    shared = {name: getattr(tool, name) for name in ("name", "description", "annotations", "meta", "executor")}
    return StructuredTool(
        action_type=tool.action_type,
        observation_type=tool.observation_type,
        tool_parameters=parameters,
        inner=tool,
        text_field=required[0],
        **shared,
    )


class ClientToolAction(Action):
    """The arguments of a call that a client carries out."""

    data: dict[str, Any] = Field(default_factory=dict)


class ClientToolObservation(Observation):
    """The acknowledgement that clients can see the call."""


class ClientTool(ToolDefinition[ClientToolAction, ClientToolObservation]):
    """A tool that a client carries out: it reads the call in the log, and the agent goes on without a result.

    An agent names it as ``Tool(name="client_tool", params={"name": …, "description": …, "schema": …})``.
    """

    tool_name: ClassVar[str] = "client_tool"
    tool_parameters: dict[str, Any]

    @property
    def parameters(self) -> dict[str, Any]:
        return self.tool_parameters

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> ClientToolAction:
        if problems := problems_of(self.tool_parameters, arguments):
            raise ToolError("; ".join(problems))
        return ClientToolAction(data=dict(arguments))

    def declared_resources(self, action: Action) -> DeclaredResources:
        return DeclaredResources(declared=True)

    @classmethod
    def create(
        cls,
        conv_state: Any = None,
        *,
        name: str = "",
        description: str = "",
        schema: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Sequence[ToolDefinition]:
        """The tool of this name; `schema` describes its arguments, an object."""
        if params:
            raise TypeError(f"client_tool takes no parameter {sorted(params)}; it takes name, description and schema")
        if not name.strip() or not description.strip():
            raise ValueError("a client's tool needs a name and a description")
        definition = cls(
            name=name,
            description=description,
            action_type=ClientToolAction,
            observation_type=ClientToolObservation,
            annotations=ToolAnnotations(title=name),
            tool_parameters=parameters_from(schema or {}),
        )
        return [definition.set_executor(_acknowledge)]


async def _acknowledge(action: ClientToolAction, conversation: ToolContext | None = None) -> ClientToolObservation:
    return ClientToolObservation.from_text("The client has been told. Nothing comes back from this tool; go on.")


register_tool(ClientTool.tool_name, ClientTool)
