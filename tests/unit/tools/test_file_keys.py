"""Which files a call touches: calls for the same one never run together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from agent_core.tools.file_editor import FileEditorAction, FileEditorExecutor
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool, ToolMakerState, WorkspacePlace
from tests.answering_sandbox import AnsweringSandbox, Asked, FakeCall

PATCH = """*** Begin Patch
*** Update File: src/a.py
*** Move to: src/../b.py
@@
-x
+y
*** Add File: new/c.py
+z
*** Delete File: ./d.py
*** Update File: src/a.py
*** End Patch"""


def keys(tool: str, arguments: dict[str, Any], *, workspace: str = "/workspace") -> tuple[str, ...]:
    state = ToolMakerState("c", WorkspacePlace(workspace)) if workspace else None
    (definition,) = resolve_tool(Tool(name=tool), state)
    touched = definition.declared_resources(definition.action_from_arguments(arguments))
    assert touched.declared
    return touched.keys


def test_a_patch_touches_all_files_that_it_names_each_once() -> None:
    expected = tuple(f"file:/workspace/{name}" for name in ("b.py", "d.py", "new/c.py", "src/a.py"))
    assert keys("apply_patch", {"patch": PATCH}) == expected
    assert keys("apply_patch", {"patch": "nonsense"}) == ()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("file_editor", {"command": "view", "path": "/workspace/src/../a.py"}),
        ("planning_file_editor", {"command": "view", "path": "/workspace//a.py"}),
        ("write_file", {"file_path": "a.py", "content": ""}),
        ("edit", {"file_path": "./src/../a.py", "old_string": "a", "new_string": "b"}),
        ("read_file", {"file_path": "/workspace/a.py"}),
    ],
)
def test_one_file_is_the_same_for_all_tools_however_its_path_is_written(tool: str, arguments: dict[str, Any]) -> None:
    assert keys(tool, arguments) == ("file:/workspace/a.py",)


def test_an_edit_by_a_draft_touches_its_file() -> None:
    assert keys("edit_file", {"path": "/workspace/a.py", "content": "x"}) == ("file:/workspace/a.py",)


def test_a_listing_touches_no_file_and_without_a_workspace_a_path_is_what_it_says() -> None:
    assert keys("list_directory", {"dir_path": "src"}) == ()
    assert keys("write_file", {"file_path": "src/a.py", "content": ""}, workspace="") == ("file:src/a.py",)


@dataclass
class Editor(AnsweringSandbox):
    """A sandbox whose editor has nothing to say."""

    def answer(self, asked: Asked) -> dict[str, Any]:
        names = ("path", "prev_exist", "old_content", "new_content", "diff")
        return {"text": "", "is_error": False, **dict.fromkeys(names)} | {"path": "/a", "prev_exist": True}


@pytest.mark.parametrize(("command", "is_named"), [("view", False), ("undo_edit", True)])
async def test_a_change_is_named_so_that_it_is_made_once_and_a_look_is_not(command: Any, is_named: bool) -> None:
    sandbox = Editor()
    await FileEditorExecutor().acall(FileEditorAction(command=command, path="/a"), FakeCall(sandbox))
    assert (sandbox.asked[0].key is not None) is is_named
