"""How an agent's tools are shown to its model."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from agent_core.tools.definition import ToolDefinition

MAX_SHORT_CHARS: Final = 1023
"""The longest description of a function that the models of `takes_short_descriptions` take."""
STATED_RISKS: Final = ("LOW", "MEDIUM", "HIGH")

_SHORT = re.compile(r"gpt-4|o1|o3|o4")


def takes_short_descriptions(model: str) -> bool:
    """Whether a model of this name takes short descriptions of tools only."""
    return _SHORT.search(model.lower()) is not None


def shown_to_model(tool: ToolDefinition, *, short: bool = False, states_risk: bool = False) -> dict[str, Any]:
    """The schema of a tool as the model of an agent is given it.

    With `short` a description that is too long for some models is cut. With `states_risk` the model has to say how
    risky a call is, and cannot say that it does not know.
    """
    schema = tool.to_openai_tool(add_security_risk_prediction=True)
    function = dict(schema["function"])
    if short and len(function["description"]) > MAX_SHORT_CHARS:
        function["description"] = f"{function['description'][: MAX_SHORT_CHARS - 1].rstrip()}…"
    if states_risk and "security_risk" not in tool.parameters["properties"]:
        function["parameters"] = _stating_risk(function["parameters"])
    return {**schema, "function": function}


def _stating_risk(parameters: dict[str, Any]) -> dict[str, Any]:
    properties = dict(parameters["properties"])
    if "security_risk" not in properties:
        return parameters
    properties["security_risk"] = {**properties["security_risk"], "enum": list(STATED_RISKS)}
    required: Collection[str] = parameters.get("required", [])
    return {**parameters, "properties": properties, "required": [*required, "security_risk"]}
