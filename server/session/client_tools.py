"""Client tools: declared when a conversation is made, carried out by its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent_core.agent.client_tool import MAX_SECONDS, ClientTool
from agent_core.tools.registry import canonical_name, list_registered_tools
from agent_core.tools.spec import Tool, ToolAnnotations

CLIENT_TOOLS: Final = "client_tools"
"""Key among a conversation's options."""
DEFAULT_SECONDS: Final = 120.0
MAX_CLIENT_TOOLS: Final = 50
MAX_DESCRIPTION_CHARS: Final = 8_192


class ClientToolSpec(BaseModel):
    """One tool: what the model is told of it, and how long its client may take.

    `parameters` is the JSON schema of its arguments, an object. With `timeout` null the agent does not wait for a
    client, and gets nothing back. `annotations` are hints as MCP has them: a tool that only reads (``readOnlyHint``)
    needs nobody's approval.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = Field(min_length=1, max_length=MAX_DESCRIPTION_CHARS)
    parameters: dict[str, Any] = Field(default_factory=dict)
    timeout: float | None = Field(DEFAULT_SECONDS, gt=0, le=MAX_SECONDS)
    annotations: ToolAnnotations = Field(default_factory=ToolAnnotations)

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if not self.description.strip():
            raise ValueError("description: is blank; say what the tool does")
        if canonical_name(self.name) in list_registered_tools():
            raise ValueError(f"name: {self.name!r} is one of the server's own tools; choose another name")
        try:
            ClientTool.create(**self.spec.params)
        except ValueError as error:
            raise ValueError(f"parameters: {str(error).removeprefix('its ')}") from None
        return self

    @property
    def spec(self) -> Tool:
        params = {
            "name": self.name,
            "description": self.description,
            "schema": self.parameters,
            "timeout": self.timeout,
            "annotations": self.annotations.model_dump(exclude_none=True),
        }
        return Tool(name=ClientTool.tool_name, params=params)


def _names_differ(specs: list[ClientToolSpec]) -> list[ClientToolSpec]:
    names = [spec.name for spec in specs]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{doubled} is given twice; names must differ")
    return specs


ClientTools = Annotated[list[ClientToolSpec], Field(max_length=MAX_CLIENT_TOOLS), AfterValidator(_names_differ)]
"""A field with the tools of clients."""


def stored_tools(specs: Sequence[ClientToolSpec]) -> list[dict[str, Any]]:
    """The tools as they are kept among a conversation's options."""
    return [spec.model_dump(mode="json") for spec in specs]


def declared_tools(options: Mapping[str, Any]) -> tuple[Tool, ...]:
    """A conversation's client tools as its agent names them; one that cannot be read is left out."""
    found = []
    for one in options.get(CLIENT_TOOLS) or ():
        try:
            found.append(ClientToolSpec.model_validate(one).spec)
        except ValidationError:
            continue  # it was taken by another version; the model is not offered it
    return tuple(found)
