"""The client_tool tool: a client of the conversation carries it out; a JSON schema describes its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import Field

from agent_core.errors import ToolError
from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.schema import Action
from agent_core.mcp.tool import MAX_TEXT_CHARS, MCPToolObservation, parameters_from, problems_of
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import ToolExecutor
from agent_core.tools.registry import built_in
from agent_core.tools.spec import DeclaredResources, ToolAnnotations
from agent_core.tools.truncation import maybe_truncate

MAX_SECONDS: Final = 3600.0
NOTHING_COMES_BACK: Final = "The client has been told. Nothing comes back from this tool; go on."


class ClientToolAction(Action):
    """The arguments of a call that a client carries out."""

    data: dict[str, Any] = Field(default_factory=dict)


class ClientToolObservation(MCPToolObservation):
    """What the client answered, or the acknowledgement that it has been told."""


@built_in
class ClientTool(ToolDefinition[ClientToolAction, ClientToolObservation]):
    """A tool that a client carries out: it reads the call in the log, or is told that it begins.

    An agent names it as ``Tool(name="client_tool", params={"name": …, "description": …, "schema": …})``. With a
    `timeout`, in seconds, the agent gets what the client answers in time; without one it goes on at once.
    """

    tool_name: ClassVar[str] = "client_tool"
    resumable: ClassVar[bool] = True
    tool_parameters: dict[str, Any]
    limit_seconds: float | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        return self.tool_parameters

    @property
    def waits_for_client(self) -> bool:
        return self.limit_seconds is not None

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
        timeout: float | None = None,
        annotations: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Sequence[ToolDefinition]:
        if params:
            known = "name, description, schema, timeout and annotations"
            raise TypeError(f"client_tool takes no parameter {sorted(params)}; it takes {known}")
        if not name.strip() or not description.strip():
            raise ValueError("a client's tool needs a name and a description")
        if timeout is not None and not 0 < timeout <= MAX_SECONDS:
            raise ValueError(f"timeout of tool {name!r} is {timeout:g}: give more than 0 and at most {MAX_SECONDS:g} s")
        definition = cls(
            name=name,
            description=description,
            action_type=ClientToolAction,
            annotations=ToolAnnotations.model_validate({"title": name, **(annotations or {})}),
            tool_parameters=parameters_from(schema or {}),
            limit_seconds=timeout,
        )
        return [definition.set_executor(ClientToolExecutor(name, timeout))]


class ClientToolExecutor(ToolExecutor[ClientToolAction, ClientToolObservation]):
    """Has a client of the conversation carry out the calls of one tool."""

    def __init__(self, name: str, limit_seconds: float | None) -> None:
        self._name = name
        self._limit = limit_seconds

    def __call__(self, action: ClientToolAction, conversation: Any = None) -> ClientToolObservation:
        raise ToolError(f"{self._name} is carried out by the clients of a conversation, and here is none")

    async def acall(self, action: ClientToolAction, conversation: ToolContext | None = None) -> ClientToolObservation:
        clients = conversation.clients if conversation is not None else None
        if conversation is None or clients is None:
            return self(action)
        shown: dict[str, Any] = {"name": self._name, "arguments": action.data}
        if self._limit is None:
            result_parts = [TextContent(text=f"[Tool '{self._name}' executed.]"), TextContent(text=NOTHING_COMES_BACK)]
            return ClientToolObservation(content=list(result_parts), **shown)
        limit = min(self._limit, conversation.hard_timeout or self._limit)
        result = await clients.ask(conversation.action_id, self._name, action.data, limit)
        texts = "\n".join(part.text for part in result.content if isinstance(part, TextContent))
        outcome = "failed" if result.is_error else "executed"
        return ClientToolObservation(
            content=[
                TextContent(text=f"[Tool '{self._name}' {outcome}.]"),
                *([TextContent(text=maybe_truncate(texts, MAX_TEXT_CHARS))] if texts else []),
                *(part for part in result.content if isinstance(part, ImageContent)),
            ],
            is_error=result.is_error,
            **shown,
        )
