"""Tools of the program around the agent, which it has as if a server offered them, from its first step on (3.5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from agent_core.errors import DrydockError, ToolError
from agent_core.events.messages import TextContent
from agent_core.events.schema import problems_in as problems_in
from agent_core.mcp.results import MCPToolObservation, failed_observation
from agent_core.mcp.tool import McpTool, MCPToolAction
from agent_core.tools.spec import ToolAnnotations, ToolContext

MOST_PROBLEMS: Final = 5


class OwnTool(McpTool):
    """A tool that is carried out in this process.

    Its arguments are checked by `arguments_type`. Secrets that they refer to are not put in: what such a tool sends may
    be read by everybody.
    """

    arguments_type: type[BaseModel]

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> MCPToolAction:
        try:
            self.arguments_type.model_validate(dict(arguments))
        except ValidationError as error:
            raise ToolError(problems_in(error, MOST_PROBLEMS)) from error
        return MCPToolAction(data=dict(arguments))


def own_tool(
    name: str,
    description: str,
    arguments_type: type[BaseModel],
    run: Callable[[Any], Awaitable[str]],
    *,
    parameters: dict[str, Any],
    annotations: ToolAnnotations,
    server: str,
) -> OwnTool:
    """A tool that calls ``run(arguments)`` and tells the agent the text that it returns.

    `parameters` is the JSON schema of the arguments. A `DrydockError` of `run` is told as the call's failure.
    """
    tool = OwnTool(
        name=name,
        description=description,
        action_type=MCPToolAction,
        observation_type=MCPToolObservation,
        annotations=annotations,
        tool_parameters=parameters,
        arguments_type=arguments_type,
        remote_name=name,
        server=server,
    )

    async def execute(action: MCPToolAction, context: ToolContext | None = None) -> MCPToolObservation:
        try:
            text = await run(arguments_type.model_validate(action.data))
        except ValidationError as error:
            return failed_observation(name, action.data, problems_in(error, MOST_PROBLEMS))
        except DrydockError as error:
            return failed_observation(name, action.data, str(error))
        content = [TextContent(text=f"[Tool '{name}' executed.]"), TextContent(text=text)]
        return MCPToolObservation(content=list(content), name=name, arguments=dict(action.data))

    return tool.set_executor(execute)
