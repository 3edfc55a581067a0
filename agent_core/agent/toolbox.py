"""The tools of an agent: what may be given as them, the definitions they stand for, and how its model is shown them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from agent_core.agent import client_tool  # noqa: F401 - registers its tool
from agent_core.errors import ToolError
from agent_core.events.schema import Action
from agent_core.mcp.tool import parameters_from, problems_of
from agent_core.skills.context import AgentContext
from agent_core.tools.builtin import FinishTool, ThinkTool
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.invoke_skill import InvokeSkillTool
from agent_core.tools.registry import registered_tools, resolve_tools
from agent_core.tools.spec import DeclaredResources, Tool

logger = logging.getLogger(__name__)


DEFAULT_TOOL_NAMES: Final = (FinishTool.__name__, ThinkTool.__name__)
"""Class names of the tools that every agent has unless it says otherwise."""
MAX_SHORT_CHARS: Final = 1023
STATED_RISKS: Final = ("LOW", "MEDIUM", "HIGH")
_SHORT = re.compile(r"gpt-4|o1|o3|o4")


def builtin_tool_classes() -> dict[str, type[ToolDefinition]]:
    """The registered tools that are classes, by the names of these."""
    return {tool.__name__: tool for tool in registered_tools().values() if isinstance(tool, type)}


def toolset(
    specs: Sequence[Tool],
    default_names: Sequence[str],
    names_regex: str | None,
    conv_state: Any = None,
    context: AgentContext | None = None,
) -> dict[str, ToolDefinition]:
    """The tools of `specs` whose names `names_regex` matches from their beginning, and the default ones, by name.

    The tool for skills is added where the `context` has some that the agent may ask for. A spec with a form for the
    answers of a default tool replaces it. Raises `ToolNotFoundError` for an unregistered tool, `ValueError` for two of
    one name or an unknown default tool.
    """
    found = resolve_tools(specs, conv_state, shaped=structured)
    own = _filtered(found, names_regex)
    named = resolve_tools([Tool(name=name) for name in default_names], conv_state)
    defaults = {name: tool for name, tool in named.items() if not isinstance(found.get(name), StructuredTool)}
    if doubled := own.keys() & defaults.keys():
        raise ValueError(f"tools {sorted(doubled)} are given twice: they are among the default tools already")
    return {**own, **defaults, **skill_tools(context, taken=own.keys() | defaults.keys())}


def checked_toolset(
    present: Mapping[str, ToolDefinition], added: Sequence[ToolDefinition], names_regex: str | None
) -> dict[str, ToolDefinition]:
    """The present tools with those of `added` whose names match; raises `ValueError` for a name that is taken."""
    result = dict(present)
    for definition in added:
        if not _filtered({definition.name: definition}, names_regex):
            continue
        if definition.name in result:
            raise ValueError(f"two tools are named {definition.name!r}; names must differ")
        result[definition.name] = definition
    return result


def skill_tools(context: AgentContext | None, *, taken: Collection[str] = ()) -> dict[str, ToolDefinition]:
    """The tool to read the skills of this context, if there are any that an agent may ask for."""
    if context is None or not context.invocable_skills or InvokeSkillTool.tool_name in taken:
        return {}
    listed = [skill for skill in context.active_skills if skill.is_listed]
    return {tool.name: tool for tool in InvokeSkillTool.create(skills=listed)}


def end_tools(tools: Iterable[ToolDefinition]) -> None:
    """Close the executors of these tools that can be closed, each once; one that fails is logged."""
    for executor in {id(tool.executor): tool.executor for tool in tools}.values():
        close = getattr(executor, "close", None)
        if close is None:
            continue
        try:
            close()
        except Exception:
            logger.exception("an executor could not be closed")


class StructuredTool(ToolDefinition):
    """A tool that takes an object of a certain form in place of one text; the text is that object as JSON."""

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
    """A tool that takes one text, such as finish, with arguments of this form instead. Raises `ValueError`."""
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


def _filtered(tools: dict[str, ToolDefinition], names_regex: str | None) -> dict[str, ToolDefinition]:
    if names_regex is None:
        return tools
    return {name: tool for name, tool in tools.items() if re.match(names_regex, name)}


def specs_of(value: Any) -> Any:
    """The list with a spec in place of each definition, or sequence of these.

    Each conversation makes its own tools by name: raises `ValueError` for a definition unlike the one of its name.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value
    specs: list[Any] = []
    for item in value:
        items = item if isinstance(item, list | tuple) else [item]
        specs += [_spec_of(one) if isinstance(one, ToolDefinition) else one for one in items]
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
    try:
        made = next(one for one in type(definition).create(None) if one.name == definition.name)
    except (TypeError, ValueError, StopIteration):
        return False
    if made.model_copy(update={"executor": None}) != definition.model_copy(update={"executor": None}):
        return False
    mine, its = definition.executor, made.executor
    return mine is its or (type(mine) is type(its) and getattr(mine, "__dict__", None) == getattr(its, "__dict__", 0))


def takes_short_descriptions(model: str) -> bool:
    """Whether a model takes only short descriptions of tools."""
    return _SHORT.search(model.lower()) is not None


def shown_to_model(tool: ToolDefinition, *, short: bool = False, states_risk: bool = False) -> dict[str, Any]:
    """The schema of a tool as the model of an agent is given it.

    With `short` a long description is cut; with `states_risk` the model has to say how risky a call is.
    """
    schema = tool.to_openai_tool(add_security_risk_prediction=True)
    function = dict(schema["function"])
    if short and len(function["description"]) > MAX_SHORT_CHARS:
        function["description"] = f"{function['description'][: MAX_SHORT_CHARS - 1].rstrip()}…"
    parameters = function["parameters"]
    risk = parameters["properties"].get("security_risk")
    if states_risk and risk is not None and "security_risk" not in tool.parameters["properties"]:
        properties = {**parameters["properties"], "security_risk": {**risk, "enum": list(STATED_RISKS)}}
        required = [*parameters.get("required", []), "security_risk"]
        function["parameters"] = {**parameters, "properties": properties, "required": required}
    return {**schema, "function": function}
