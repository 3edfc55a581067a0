"""What may be given as the tools of an agent: specs, and definitions that a spec can stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import registered_tools
from agent_core.tools.spec import Tool


def specs_of(value: Any) -> Any:
    """The list with a spec in place of each definition; what a ``create()`` returned, a sequence, may stand in it too.

    An agent is configuration, which is stored and sent: it names its tools, and each conversation makes its own. So a
    definition will do if it is like the one that its name stands for.

    Raises:
        ValueError: a definition is not; the message says what to do.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value
    specs: list[Any] = []
    for item in value:
        given = item if isinstance(item, list | tuple) else [item]
        specs += [_spec_of(one) if isinstance(one, ToolDefinition) else one for one in given]
    return specs


ToolSpecs = Annotated[list[Tool], BeforeValidator(specs_of)]
"""A field with the tools of an agent."""


def _spec_of(definition: ToolDefinition) -> Tool:
    registered = registered_tools().get(definition.name)
    if registered is definition or (registered is type(definition) and _is_plain(definition)):
        return Tool(name=definition.name)
    raise ValueError(
        f"the definition of {definition.name!r} is not the registered one: an agent names its tools. Register it with"
        f" register_tool(name, definition) and give Tool(name=name); or, for parameters, Tool(name=…, params={{…}})"
    )


def _is_plain(definition: ToolDefinition) -> bool:
    """Whether it is as its class makes it without any parameters."""
    try:
        made = next(one for one in type(definition).create(None) if one.name == definition.name)
    except (TypeError, ValueError, StopIteration):
        return False
    if made.model_copy(update={"executor": None}) != definition.model_copy(update={"executor": None}):
        return False
    mine, its = definition.executor, made.executor
    return mine is its or (type(mine) is type(its) and getattr(mine, "__dict__", None) == getattr(its, "__dict__", 0))
