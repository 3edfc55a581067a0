"""The file tools that Gemini models know, on the runner's own code."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.events.llm_events import ActionEvent
from agent_core.events.risk import SecurityRisk
from agent_core.events.schema import Action
from agent_core.security.shell_rules import ShellRuleAnalyzer
from agent_core.tools.file_editor import FileEditorObservation
from agent_core.tools.gemini_files import EditAction, ReadFileAction, WriteFileAction
from agent_core.tools.presets import get_gemini_tools
from agent_core.tools.registry import resolve_tools
from runtime_images.runner.core.arguments import BadRequestError
from runtime_images.runner.files.editor import Edit, Editor
from runtime_images.runner.files.edits import EditHistory
from runtime_images.runner.files.whole_files import WholeFiles, whole_file
from tests.answering_sandbox import AnsweringSandbox, Asked, FakeCall

TOOLS = resolve_tools(get_gemini_tools())


@dataclass
class Workplace(AnsweringSandbox):
    """The runner's own code on a folder."""

    state: str = field(default="", kw_only=True)

    def answer(self, asked: Asked) -> dict[str, Any]:
        assert asked.op == "file.whole"
        return WholeFiles(EditHistory(self.state)).run(whole_file(asked.args, self.working_dir))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


async def do(work: Path, tool: str, **arguments: Any) -> FileEditorObservation:
    place = Workplace(working_dir=str(work), state=f"{work}-state")
    definition = TOOLS[tool]
    result = await definition.acall(definition.action_from_arguments(arguments), FakeCall(place))
    assert isinstance(result, FileEditorObservation)
    assert (place.asked[0].key is None) == definition.annotations.readOnlyHint
    return result


def test_the_preset_has_them_in_place_of_the_editor() -> None:
    names = ["terminal", "read_file", "write_file", "edit", "list_directory", "task_tracker"]
    assert list(TOOLS) == names
    assert [TOOLS[name].annotations.readOnlyHint for name in names[1:5]] == [True, False, False, True]
    assert [TOOLS[name].journaled for name in names[1:5]] == [False, True, True, False]


async def test_a_file_is_written_whole_and_read_by_lines(work: Path) -> None:
    written = await do(work, "write_file", file_path="sub/a.txt", content="".join(f"{n}\n" for n in range(2500)))
    assert (written.text, written.command, written.prev_exist) == (f"Created {work}/sub/a.txt.", "create", False)
    read = await do(work, "read_file", file_path=f"{work}/sub/a.txt")
    lines = read.text.splitlines()
    assert lines[0] == f"The lines 1 to 1000 of {work}/sub/a.txt, which has 2500:"
    assert (lines[1], lines[1000]) == ("     1\t0", "  1000\t999")
    assert lines[1001] == "[There is more: read on with offset=1000.]"
    end = (await do(work, "read_file", file_path="sub/a.txt", offset=2498, limit=5)).text.splitlines()
    assert end == [f"The lines 2499 to 2500 of {work}/sub/a.txt, which has 2500:", "  2499\t2498", "  2500\t2499"]
    again = await do(work, "write_file", file_path="sub/a.txt", content="new")
    assert (again.text, again.command, again.prev_exist, again.new_content) == (
        f"Wrote {work}/sub/a.txt.",
        "str_replace",
        True,
        "new",
    )
    assert (await do(work, "read_file", file_path="sub/a.txt")).text == f"The lines of {work}/sub/a.txt:\n     1\tnew\n"


def test_what_was_overwritten_can_be_had_back_with_the_editor(work: Path) -> None:
    (work / "a").write_text("old\n")
    history = EditHistory(f"{work}-state")
    WholeFiles(history).run(whole_file({"command": "write", "path": "a", "content": "new\n"}, str(work)))
    Editor(history).run(Edit("undo_edit", f"{work}/a", str(work)))
    assert (work / "a").read_text() == "old\n"


async def test_an_edit_replaces_as_many_as_were_expected_and_none_otherwise(work: Path) -> None:
    path = _put(work, "a", b"x = 1\r\ny = x\nx = 1\r\n")
    edit = {"file_path": "a", "old_string": "x = 1\n", "new_string": "z = 2\n"}
    wrong = await do(work, "edit", **edit)
    assert wrong.is_error
    assert "stands 2 times" in wrong.text
    assert "1 replacement(s) were expected" in wrong.text
    done = await do(work, "edit", **edit, expected_replacements=2)
    assert done.text == f"Made 2 replacement(s) in {work}/a."
    assert _get(path) == b"z = 2\r\ny = x\nz = 2\r\n"
    assert "+z = 2" in (done.diff or "")
    missing = await do(work, "edit", file_path="a", old_string="nowhere", new_string="")
    assert (missing.is_error, "is not in" in missing.text) == (True, True)
    assert (await do(work, "edit", file_path="a", old_string="y", new_string="y")).is_error


async def test_an_edit_with_nothing_to_replace_makes_a_new_file(work: Path) -> None:
    made = await do(work, "edit", file_path="new", old_string="", new_string="text\n")
    assert (made.text, made.prev_exist, made.diff) == (
        f"Created {work}/new.",
        False,
        f"--- {work}/new\n+++ {work}/new\n@@ -0,0 +1 @@\n+text\n",
    )
    again = await do(work, "edit", file_path="new", old_string="", new_string="other\n")
    assert again.is_error
    assert "exists already" in again.text


async def test_a_directory_is_listed_directories_first(work: Path) -> None:
    _put(work, "b.txt", b"123")
    _put(work, ".hidden", b"")
    _put(work, "sub/deep/c", b"")
    listed = await do(work, "list_directory")
    assert listed.text == f"The entries of {work}:\nsub/\n.hidden (0 bytes)\nb.txt (3 bytes)"
    assert f"{work}/sub/deep/" in (await do(work, "list_directory", recursive=True)).text
    assert (await do(work, "list_directory", dir_path="sub/deep")).text.endswith("\nc (0 bytes)")
    for wrong, words in (("none", "does not exist"), ("b.txt", "is a file")):
        result = await do(work, "list_directory", dir_path=wrong)
        assert (result.is_error, words in result.text) == (True, True)


async def test_what_is_no_text_file_is_refused_at_once(work: Path) -> None:
    _put(work, "binary", b"\0\1")
    _put(work, "short", b"1\n")
    os.mkfifo(work / "fifo")
    for arguments in ({"file_path": "binary"}, {"file_path": "fifo"}, {"file_path": "."}, {"file_path": "none"}):
        assert (await do(work, "read_file", **arguments)).is_error
        assert (await do(work, "edit", old_string="a", new_string="b", **arguments)).is_error
    assert "beyond the end" in (await do(work, "read_file", file_path="short", offset=1)).text
    assert (await do(work, "write_file", file_path="fifo", content="")).is_error


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"file_path": ""}),
        ("read_file", {"file_path": "a", "limit": 1001}),
        ("read_file", {"file_path": "a", "offset": -1}),
        ("write_file", {"file_path": "a"}),
        ("edit", {"file_path": "a", "old_string": "x"}),
        ("edit", {"file_path": "a", "old_string": "x", "new_string": "y", "expected_replacements": 0}),
        ("list_directory", {"path": "."}),
    ],
)
def test_arguments_are_checked(tool: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TOOLS[tool].action_from_arguments(arguments)


@pytest.mark.parametrize(
    "args", [{"command": "delete", "path": "a"}, {"command": "read"}, {"command": "read", "path": ""}]
)
def test_the_runner_checks_them_too(args: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError):
        whole_file(args, "/")


@pytest.mark.parametrize(
    ("action", "risk"),
    [
        (WriteFileAction(file_path="/workspace/a", content=""), SecurityRisk.MEDIUM),
        (WriteFileAction(file_path="/etc/passwd", content=""), SecurityRisk.HIGH),
        (EditAction(file_path="/etc/passwd", old_string="a", new_string="b"), SecurityRisk.HIGH),
        (ReadFileAction(file_path="a"), SecurityRisk.UNKNOWN),
    ],
)
def test_the_rules_judge_by_the_file_that_is_written(action: Action, risk: SecurityRisk) -> None:
    # That read_file only reads is known from its annotations.
    assert ShellRuleAnalyzer().security_risk(ActionEvent(action=action, tool_name="x")) is risk


def _put(work: Path, name: str, content: bytes) -> Path:
    path = work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _get(path: Path) -> bytes:
    return path.read_bytes()
