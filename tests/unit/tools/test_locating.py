"""Tools whose calls are cells that find places in code."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.tools.ipython import RESOURCE, IPythonAction, IPythonExecutor
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        (
            "search_code_snippets",
            {"search_terms": ["Cart", 'it\'s "x"\n']},
            "search_code_snippets(search_terms=['Cart', 'it\\'s \"x\"\\n'], file_path_or_pattern='**/*.py')",
        ),
        (
            "search_code_snippets",
            {"line_nums": [3], "file_path_or_pattern": "a.py"},
            "search_code_snippets(line_nums=[3], file_path_or_pattern='a.py')",
        ),
        ("get_entity_contents", {"entity_names": ["a.py:B"]}, "get_entity_contents(entity_names=['a.py:B'])"),
        (
            "explore_tree_structure",
            {"direction": "both", "entity_type_filter": ["class"]},
            "explore_tree_structure(start_entities=['/'], direction='both', traversal_depth=2,"
            " entity_type_filter=['class'])",
        ),
    ],
)
def test_a_call_is_a_cell_that_calls_the_function_of_its_name(name: str, arguments: dict[str, Any], code: str) -> None:
    (tool,) = resolve_tool(Tool(name=name))
    action = tool.action_from_arguments(arguments)
    assert action == IPythonAction(code=code, include_extra=False)
    ast.parse(code)
    assert isinstance(tool.executor, IPythonExecutor)
    assert tool.declared_resources(action).keys == (RESOURCE,)
    assert tool.annotations.readOnlyHint
    assert tool.journaled
    assert "code" not in tool.parameters["properties"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_entity_contents", {}),
        ("get_entity_contents", {"entity_names": []}),
        ("explore_tree_structure", {"direction": "sideways"}),
        ("explore_tree_structure", {"traversal_depth": -2}),
        ("search_code_snippets", {"line_nums": ["x"]}),
        ("search_code_snippets", {"code": "import os"}),
    ],
)
def test_what_it_cannot_be_asked_is_refused(name: str, arguments: dict[str, Any]) -> None:
    (tool,) = resolve_tool(Tool(name=name))
    with pytest.raises(ValidationError):
        tool.action_from_arguments(arguments)
