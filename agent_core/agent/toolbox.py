"""The tools of an agent: what may be given as them, the definitions they stand for, and how its model is shown them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from agent_core.agent import client_tool  # noqa: F401 - registers its tool
from agent_core.errors import ToolError
from agent_core.events.schema import Action
from agent_core.llm.registry import ProfileStore, StoredModels
from agent_core.mcp.tool import parameters_from, problems_of
from agent_core.skills.context import AgentContext
from agent_core.spelling import nearest
from agent_core.tools.builtin import FinishTool, ThinkTool
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.invoke_skill import InvokeSkillTool
from agent_core.tools.registry import canonical_name, list_registered_tools, registered_tools
from agent_core.tools.spec import DeclaredResources, Tool

DEFAULT_TOOL_NAMES: Final = (FinishTool.__name__, ThinkTool.__name__)
"""Class names of the tools that every agent has unless it says otherwise."""
MAX_SHORT_CHARS: Final = 1023
STATED_RISKS: Final = ("LOW", "MEDIUM", "HIGH")


def stored_models(conv_state: Any) -> StoredModels:
    """The stored models of the conversation that tools are made for; those in the user's home where it names none."""
    return getattr(conv_state, "models", None) or ProfileStore()


def skill_tools(context: AgentContext | None, *, taken: Collection[str] = ()) -> dict[str, ToolDefinition]:
    """The tool to read the skills of this context, if there are any that an agent may ask for."""
    if context is None or not context.invocable_skills or InvokeSkillTool.tool_name in taken:
        return {}
    listed = [skill for skill in context.active_skills if skill.is_listed]
    return {tool.name: tool for tool in InvokeSkillTool.create(skills=listed)}


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


def specs_of(value: Any) -> Any:
    """The list with a spec in place of each definition, or sequence of these.

    Each conversation makes its own tools by name: raises `ValueError` for a definition unlike the one of its name, and
    for a class or a name in place of a spec, with what is to be written instead.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value
    specs: list[Any] = []
    for item in value:
        items = item if isinstance(item, list | tuple) else [item]
        specs += [_spec_of(one) if isinstance(one, ToolDefinition) else _checked(one) for one in items]
    return specs


def _checked(item: Any) -> Any:
    if isinstance(item, str):
        names = list_registered_tools()
        known = canonical_name(item) if canonical_name(item) in names else nearest(item, names)
        problem = f"{item!r} is a name; write Tool(name={known or item!r})"
        raise ValueError(problem if known else f"{problem}, once register_tool({item!r}, …) has made it known")
    if isinstance(item, type):
        name = item.__name__
        is_known = any(tool is item for tool in registered_tools().values())
        first = "" if is_known else f"register_tool({name!r}, {name}) once, then "
        raise ValueError(f"{name} is a class; write {first}Tool(name={name!r})")
    return item


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
