"""What is hinted about each built-in tool: what only reads needs nobody's approval."""

from __future__ import annotations

import pytest

from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool

READS = "think finish request_condensation grep glob read_file list_directory"
LOOKS_OUTSIDE = "browser_get_state browser_get_content browser_list_tabs browser_get_storage"
CHANGES_FILES = "file_editor apply_patch edit edit_file write_file"
ACTS = "browser_navigate browser_click browser_type browser_scroll browser_go_back browser_switch_tab"
MAY_DESTROY = "terminal execute_ipython_cell browser browser_close_tab browser_set_storage delegate task"


@pytest.mark.parametrize(
    ("names", "reads", "destroys", "repeatable", "open_world"),
    [
        (READS, True, False, True, False),
        (LOOKS_OUTSIDE, True, False, True, True),
        (CHANGES_FILES, False, True, False, False),
        (ACTS, False, False, False, True),
        (MAY_DESTROY, False, True, False, True),
        ("task_tracker", False, False, True, False),
        ("planning_file_editor", False, False, False, False),
    ],
)
def test_each_tool_says_whether_it_reads_destroys_can_be_repeated_and_reaches_out(
    names: str, reads: bool, destroys: bool, repeatable: bool, open_world: bool
) -> None:
    for name in names.split():
        (tool,) = resolve_tool(Tool(name=name))
        hints = tool.annotations
        said = (hints.readOnlyHint, hints.destructiveHint, hints.idempotentHint, hints.openWorldHint)
        assert said == (reads, destroys, repeatable, open_world), name
        asks = (
            "security_risk"
            in tool.to_openai_tool(add_security_risk_prediction=True)["function"]["parameters"]["properties"]
        )
        assert asks is not reads, name
