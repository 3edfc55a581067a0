"""The tools grep and glob: what the sandbox is asked, and what the model is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.tools.file_search import GlobAction, GlobExecutor, GlobTool, GrepAction, GrepExecutor, GrepTool
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool
from tests.answering_sandbox import AnsweringSandbox, Asked, FakeCall

FOUND = {"root": "/workspace/src", "files": ["/workspace/src/b.py", "/workspace/src/a.py"], "truncated": False}


@dataclass
class Searcher(AnsweringSandbox):
    result: dict[str, Any] = field(default_factory=dict)

    def answer(self, asked: Asked) -> dict[str, Any]:
        return {"unreadable": 0, "too_large": 0, **FOUND, **self.result}


async def test_grep_asks_the_sandbox_and_lists_what_it_found() -> None:
    sandbox = Searcher()
    action = GrepAction(pattern="-x.*", path="/workspace/src", include="*.py")
    result = await GrepExecutor().acall(action, FakeCall(sandbox))
    asked = sandbox.asked[0]
    assert asked.op == "search.grep"
    assert asked.args == {
        "pattern": "-x.*",
        "path": "/workspace/src",
        "include": "*.py",
        "limit": 100,
        "timeout": 30.0,
    }
    assert asked.limit_seconds == 45.0
    assert result.text == (
        "Found 2 file(s) containing pattern '-x.*' in '/workspace/src' (filtered by '*.py'):\n"
        "/workspace/src/b.py\n/workspace/src/a.py"
    )
    assert (result.matches, result.truncated, result.is_error) == (FOUND["files"], False, False)
    assert (result.pattern, result.search_path, result.include_pattern) == ("-x.*", "/workspace/src", "*.py")


async def test_glob_asks_the_sandbox_and_lists_what_it_found() -> None:
    sandbox = Searcher()
    result = await GlobExecutor().acall(GlobAction(pattern="*.py"), FakeCall(sandbox))
    assert (sandbox.asked[0].op, sandbox.asked[0].args["pattern"]) == ("search.glob", "*.py")
    assert "path" not in sandbox.asked[0].args
    assert result.text.startswith("Found 2 file(s) matching pattern '*.py' in '/workspace/src':\n/workspace/src/b.py\n")
    assert result.files == FOUND["files"]


async def test_where_was_searched_is_what_was_asked_for_and_else_the_workspace() -> None:
    answers = [({}, "/workspace/src"), ({"root": None}, "/asked"), ({"root": None, "asked": None}, "/workspace")]
    for result, shown in answers:
        action = GrepAction(pattern="x", path=None if "asked" in result else "/asked")
        observation = await GrepExecutor().acall(action, FakeCall(Searcher(result)))
        assert observation.search_path == shown


async def test_nothing_found_and_more_found_and_left_out_are_said() -> None:
    nothing = await GrepExecutor().acall(GrepAction(pattern="x"), FakeCall(Searcher({"files": [], "unreadable": 1})))
    assert nothing.text == (
        "No files found containing pattern 'x' in '/workspace/src'.\n[1 directory could not be read.]"
    )
    more = await GlobExecutor().acall(GlobAction(pattern="x"), FakeCall(Searcher({"truncated": True, "too_large": 2})))
    assert more.truncated
    assert "Only the newest 2 are listed; there are more." in more.text
    assert more.text.endswith("[2 very large files were not searched.]")


async def test_what_is_wrong_with_a_search_is_an_error_for_the_model() -> None:
    wrong = Searcher({"error": "Invalid regex pattern: missing )"})
    result = await GrepExecutor().acall(GrepAction(pattern="(", path="/workspace"), FakeCall(wrong))
    assert (result.text, result.is_error, result.matches) == ("Invalid regex pattern: missing )", True, [])


@pytest.mark.parametrize("tool", [GrepTool, GlobTool])
def test_they_only_look_and_run_beside_anything(tool: type[GrepTool] | type[GlobTool]) -> None:
    (definition,) = resolve_tool(Tool(name=tool.__name__))
    assert (definition.annotations.readOnlyHint, definition.annotations.idempotentHint) == (True, True)
    action = definition.action_from_arguments({"pattern": "x"})
    assert (definition.declared_resources(action).declared, definition.declared_resources(action).keys) == (True, ())
    assert "security_risk" not in str(definition.to_openai_tool(add_security_risk_prediction=True))
    for wrong in ({}, {"pattern": ""}, {"pattern": "x", "regex": True}, {"pattern": ["x"]}):
        with pytest.raises(ValidationError):
            definition.action_from_arguments(wrong)
