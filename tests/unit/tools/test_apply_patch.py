"""The apply_patch tool: what the sandbox is asked, and what is said of a patch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.events.llm_events import ActionEvent
from agent_core.events.risk import SecurityRisk
from agent_core.security.shell_rules import ShellRuleAnalyzer
from agent_core.tools.apply_patch import ApplyPatchAction, ApplyPatchExecutor, ApplyPatchTool
from agent_core.tools.presets import get_gpt5_tools
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool
from tests.answering_sandbox import AnsweringSandbox, Asked, FakeCall

PATCH = "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@\n-x\n+y\n*** Delete File: c\n*** End Patch"


@dataclass
class Patched(AnsweringSandbox):
    result: dict[str, Any] = field(default_factory=dict)

    def answer(self, asked: Asked) -> dict[str, Any]:
        return {"text": "Done!\nM a.py", "is_error": False, "paths": ["/workspace/a.py"], "diff": "d", "fuzz": 1}


async def test_a_patch_is_applied_under_its_key() -> None:
    sandbox = Patched()
    result = await ApplyPatchExecutor().acall(ApplyPatchAction(patch=PATCH), FakeCall(sandbox))
    assert sandbox.asked == [Asked("patch.apply", {"patch": PATCH}, "c:3", 60.0)]
    assert (result.text, result.paths, result.diff, result.fuzz) == ("Done!\nM a.py", ["/workspace/a.py"], "d", 1)


def test_a_patch_knows_its_files() -> None:
    assert ApplyPatchAction(patch=PATCH).paths == ["a.py", "b.py", "c"]
    assert ApplyPatchAction(patch="nothing").paths == []


@pytest.mark.parametrize(
    ("patch", "risk"),
    [
        (PATCH, SecurityRisk.MEDIUM),
        ("*** Begin Patch\n*** Add File: /etc/passwd\n+x\n*** End Patch", SecurityRisk.HIGH),
        ("hello", SecurityRisk.UNKNOWN),
    ],
)
def test_the_rules_judge_a_patch_by_the_files_that_it_writes(patch: str, risk: SecurityRisk) -> None:
    action = ActionEvent(action=ApplyPatchAction(patch=patch), tool_name="apply_patch")
    assert ShellRuleAnalyzer().security_risk(action) is risk


def test_it_is_registered_and_refuses_what_it_does_not_know() -> None:
    (tool,) = resolve_tool(Tool(name="ApplyPatchTool"))
    assert (tool.name, tool.journaled, tool.annotations.readOnlyHint) == ("apply_patch", True, False)
    assert [tool.name for tool in get_gpt5_tools()] == ["terminal", "apply_patch", "task_tracker"]
    for wrong in ({}, {"patch": ""}, {"patch": "x", "path": "/a"}):
        with pytest.raises(ValidationError):
            tool.action_from_arguments(wrong)
    with pytest.raises(TypeError, match="strip"):
        ApplyPatchTool.create(strip=1)
