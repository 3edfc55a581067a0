"""`Tool`: what a tool is to an agent's configuration, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from agent_core.bounded_regex import MAX_PATTERN_CHARS, check_pattern, refuse_slow
from agent_core.events.messages import Frozen


class Tool(Frozen):
    """A tool by name with its parameters, resolved through the registry when a conversation starts.

    `response_schema`, a JSON schema of an object, gives the form of what the model says through the tool instead of its
    one text, which holds the object as JSON then: ``Tool(name="finish", response_schema=…)`` is a structured answer.
    """

    name: str = Field(min_length=1)
    params: dict[str, Any] = Field(default_factory=dict)
    response_schema: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _form_among_params(cls, value: Any) -> Any:
        params = value.get("params") if isinstance(value, dict) else None
        if not isinstance(params, dict) or "response_schema" not in params:
            return value
        others = {name: param for name, param in params.items() if name != "response_schema"}
        return {"response_schema": params["response_schema"], **value, "params": others}

    @field_validator("response_schema", mode="before")
    @classmethod
    def _form_of_a_model(cls, value: Any) -> Any:
        is_model = isinstance(value, type) and issubclass(value, BaseModel)
        return value.model_json_schema() if is_model else value

    @field_validator("params", mode="before")
    @classmethod
    def _none_means_empty(cls, value: Any) -> Any:
        return {} if value is None else value


def _for_names(pattern: str) -> str:
    check_pattern(pattern)
    refuse_slow([pattern])
    return pattern


NamesRegex = Annotated[str, Field(max_length=MAX_PATTERN_CHARS), AfterValidator(_for_names)] | None
"""A field with a regular expression for names of tools, or None."""


class ToolAnnotations(Frozen):
    """Hints about a tool, with the names and defaults of the Model Context Protocol."""

    model_config = ConfigDict(strict=True)

    title: str | None = None
    readOnlyHint: bool = False  # noqa: N815 - the protocol's own spelling
    destructiveHint: bool = True  # noqa: N815
    idempotentHint: bool = False  # noqa: N815
    openWorldHint: bool = True  # noqa: N815

    @classmethod
    def read_only(cls, title: str, *, open_world: bool = False) -> Self:
        """Those of a tool that only looks, which can be called again without harm."""
        return cls(title=title, readOnlyHint=True, destructiveHint=False, idempotentHint=True, openWorldHint=open_world)


class DeclaredResources(Frozen):
    """What a call touches, so that calls which cannot disturb one another may run together.

    `declared` False: unknown, the whole tool is locked. Declared and empty: nothing is locked.
    """

    keys: tuple[str, ...] = ()
    declared: bool = False


@dataclass(frozen=True, slots=True)
class WorkspacePlace:
    """Where a conversation works; `working_dir` is an absolute path as its commands see it.

    `missing_parts` are the parts that it lacks of those that tools need (`ToolDefinition.needs`), each with a sentence
    that says how to get it.
    """

    working_dir: str
    missing_parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolMakerState:
    """What a tool's factory is told about the conversation (its `conv_state`).

    `models` are its stored models (`agent_core.llm.registry.StoredModels`); None stands for those in the user's home.
    """

    id: str
    workspace: WorkspacePlace
    models: Any = None
