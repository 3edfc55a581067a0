"""Tools whose one text is an object of a certain form: structured answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_core.errors import ToolError
from agent_core.events.schema import Action
from agent_core.mcp.schema import parameters_from, problems_of
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import DeclaredResources


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
    """The tool with arguments of this form; for tools that take one text and nothing else, such as finish.

    Raises:
        ValueError: the tool is none of those, or the schema is none of an object.
    """
    own = tool.parameters
    required = own.get("required", [])
    if len(required) != 1 or len(own["properties"]) != 1 or own["properties"][required[0]].get("type") != "string":
        problem = f"tool {tool.name!r} does not take exactly one text; give a form to one that does, such as finish"
        raise ValueError(f"response_schema: {problem}")
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
