"""Patches in the format of ``apply_patch``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_images.runner.files.editor import Edit, Editor
from runtime_images.runner.files.edits import EditError, EditHistory
from runtime_images.runner.files.patcher import Hunk, HunkLine, Patcher, changes, parse

FUNCTIONS = "def a():\n    x = 1\n    return x\n\n\ndef b():\n    x = 1\n    return x\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def patch(work: Path, *lines: str) -> dict[str, Any]:
    text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    return Patcher(str(work), EditHistory(f"{work}/../state")).run(text)


def done(result: dict[str, Any], *summary: str, fuzz: int = 0) -> None:
    assert result["is_error"] is False, result["text"]
    assert result["text"].split("\n") == ["Done!", *summary]
    assert result["fuzz"] == fuzz


def fails(result: dict[str, Any], *words: str) -> None:
    assert result["is_error"] is True, result
    assert (result["paths"], result["diff"]) == ([], None)
    for word in words:
        assert word in result["text"], result["text"]


def test_files_are_added_changed_moved_and_deleted_in_one_patch(work: Path) -> None:
    (work / "old.txt").write_text("gone\n")
    (work / "main.py").write_text(FUNCTIONS)
    (work / "name.txt").write_text("one\ntwo\n")
    result = patch(
        work,
        "*** Add File: sub/new.txt",
        "+first",
        "+",
        "+third",
        "*** Delete File: old.txt",
        "*** Update File: main.py",
        "@@ def b():",
        "-    x = 1",
        "+    x = 2",
        "     return x",
        "*** Update File: name.txt",
        "*** Move to: sub/renamed.txt",
        "@@",
        " one",
        "-two",
        "+zwei",
    )
    done(result, "A sub/new.txt", "D old.txt", "M main.py", "R name.txt -> sub/renamed.txt")
    assert (work / "sub/new.txt").read_text() == "first\n\nthird\n"
    first, second = FUNCTIONS.split("def b")
    assert (work / "main.py").read_text() == f"{first}def b{second.replace('x = 1', 'x = 2')}"
    assert (work / "sub/renamed.txt").read_text() == "one\nzwei\n"
    assert sorted(os.listdir(work)) == ["main.py", "sub"]
    assert result["paths"][2:] == [f"{work}/main.py", f"{work}/sub/renamed.txt"]


def test_a_file_may_be_moved_without_a_change_and_keeps_its_mode(work: Path) -> None:
    (work / "run").write_text("x\n")
    (work / "run").chmod(0o755)
    done(patch(work, "*** Update File: run", "*** Move to: bin/run"), "R run -> bin/run")
    assert (work / "bin/run").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("context", "fuzz"),
    [("    x = 1", 0), ("    x = 1  \t", 1), ("x = 1", 100)],
)
def test_lines_are_found_exactly_or_but_for_blanks(work: Path, context: str, fuzz: int) -> None:
    (work / "a").write_text("def f():\n    x = 1\n    y = 2\n")
    done(patch(work, "*** Update File: a", "@@", f" {context}", "-    y = 2", "+    y = 3"), "M a", fuzz=fuzz)
    assert (work / "a").read_text() == "def f():\n    x = 1\n    y = 3\n"


@pytest.mark.parametrize(("rest", "fuzz"), [("z\n", 1), ("", 0)])
def test_empty_lines_behind_a_hunk_may_stand_for_nothing(work: Path, rest: str, fuzz: int) -> None:
    (work / "a").write_text(f"x\ny\n{rest}")
    done(patch(work, "*** Update File: a", "@@", "-y", "+Y", "", "", "*** Add File: b", "+b"), "M a", "A b", fuzz=fuzz)
    assert (work / "a").read_text() == f"x\nY\n{rest}"
    fails(patch(work, "*** Update File: a", "@@", "+new", ""), "line 3")
    fails(patch(work, "*** Update File: a", "@@", "-none", ""), "none")


def test_hunks_are_found_one_below_the_other(work: Path) -> None:
    (work / "a").write_text("x\n1\nx\n2\nx\n3\n")
    result = patch(work, "*** Update File: a", " x", "-1", "+one", "@@", " x", "-2", "+two", "@@ x", "+three")
    done(result, "M a")
    assert (work / "a").read_text() == "x\none\nx\ntwo\nx\nthree\n3\n"
    fails(patch(work, "*** Update File: a", "@@", "-3", "@@", "-one"), "line 5", "below line 7", "one")


def test_anchors_lead_to_the_place_exactly_or_but_for_blanks(work: Path) -> None:
    (work / "a").write_text("class A:\n    def f(self):\n        pass\nclass B:\n    def f(self):\n        pass\n")
    hunk = ["@@ class B:", "@@ def f(self):", "-        pass", "+        return 1"]
    done(patch(work, "*** Update File: a", *hunk), "M a", fuzz=1)
    assert (work / "a").read_text().endswith("class B:\n    def f(self):\n        return 1\n")
    fails(patch(work, "*** Update File: a", "@@ class C:", "+x"), "`class C:`")


def test_without_its_anchor_a_hunk_is_applied_only_where_its_lines_stand_once(work: Path) -> None:
    (work / "a").write_text(FUNCTIONS)
    lost = ["*** Update File: a", "@@ def other():", "     x = 1", "-    return x", "+    return 2"]
    fails(patch(work, *lost), "`def other():`", "lines 2 and 7")
    assert (work / "a").read_text() == FUNCTIONS
    done(patch(work, "*** Update File: a", "@@ -9,1 +9,1 @@ def b():", "-    x = 1", "+    x = 2"), "M a")
    done(patch(work, "*** Update File: a", "@@ -1 +1 @@", " def b():", "-    x = 2", "+    x = 3"), "M a")
    done(patch(work, *lost), "M a")
    first, second = FUNCTIONS.split("def b")
    changed = f"{first.replace('return x', 'return 2')}def b{second.replace('x = 1', 'x = 3')}"
    assert (work / "a").read_text() == changed


def test_hunks_that_touch_one_another_change_the_end_of_a_file_once(work: Path) -> None:
    (work / "a").write_text("one\ntwo")
    done(patch(work, "*** Update File: a", "@@", "-two", "@@", "+2", "@@", "+3"), "M a")
    assert (work / "a").read_text() == "one\n2\n3"
    done(patch(work, "*** Update File: a", "@@", "+0", "@@", "-one", "+1", "@@", "-3", "*** End of File"), "M a")
    assert (work / "a").read_text() == "0\n1\n2\n"


def test_as_many_hunks_as_a_patch_can_hold_are_applied_while_somebody_waits(work: Path) -> None:
    lines = [f"line {number} {'x' * 40}" for number in range(100_000)]
    (work / "a").write_text("\n".join(lines) + "\n")
    hunks = [part for line in lines[::10] for part in ("@@", f"-{line}", "+changed")]
    done(patch(work, "*** Update File: a", *hunks), "M a")  # with work for each that grows with the file: hours
    lines[::10] = ["changed"] * 10_000
    assert (work / "a").read_text().splitlines() == lines


def test_a_move_to_where_a_file_is_leaves_it_there(work: Path) -> None:
    (work / "a").write_text("x\n")
    done(patch(work, "*** Update File: a", "*** Move to: a", "@@", "-x", "+y"), "M a")
    assert (work / "a").read_text() == "y\n"


def test_the_end_of_the_file_is_looked_at_first_where_a_hunk_says_so(work: Path) -> None:
    (work / "a").write_text("x\ny\nx\nz\nx\n")
    done(patch(work, "*** Update File: a", "@@", " x", "+last", "*** End of File"), "M a")
    assert (work / "a").read_text() == "x\ny\nx\nz\nx\nlast\n"
    done(patch(work, "*** Update File: a", "@@", " y", "+after y", "*** End of File"), "M a", fuzz=10_000)
    done(patch(work, "*** Update File: a", "@@", "+the end", "*** End of File"), "M a")
    assert (work / "a").read_text() == "x\ny\nafter y\nx\nz\nx\nlast\nthe end\n"


def test_an_empty_line_stands_for_an_empty_line(work: Path) -> None:
    (work / "a").write_text("one\n\ntwo\n")
    done(patch(work, "*** Update File: a", "@@", " one", "", "-two", "+2"), "M a")
    assert (work / "a").read_text() == "one\n\n2\n"


def test_bytes_that_are_not_changed_stay_as_they_are(work: Path) -> None:
    (work / "a").write_bytes("eins\r\nzwei\r\ndrei\nvier ä".encode("latin-1"))
    done(patch(work, "*** Update File: a", "@@", "-zwei", "+2", "@@", "-vier ä", "+4 ä"), "M a")
    assert (work / "a").read_bytes() == "eins\r\n2\r\ndrei\n4 ä".encode("latin-1")
    done(patch(work, "*** Update File: a", "@@", " 4 ä", "+5"), "M a")
    assert (work / "a").read_bytes() == "eins\r\n2\r\ndrei\n4 ä\r\n5".encode("latin-1")
    done(patch(work, "*** Update File: a", "@@", "-4 ä", "-5"), "M a")
    assert (work / "a").read_bytes() == b"eins\r\n2\r\ndrei\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "its first line must be `*** Begin Patch`"),
        ("--- a\n+++ b", "its first line must be"),
        ("*** Begin Patch\n*** Add File: a\n+x", "its last line must be `*** End Patch`"),
        ("*** Begin Patch\n*** End Patch", "it has no section"),
        ("*** Begin Patch\nhello\n*** End Patch", "line 2 must begin a section"),
        ("*** Begin Patch\n*** Add File: \n+x\n*** End Patch", "line 2 names no file"),
        ("*** Begin Patch\n*** Add File: sub/\n+x\n*** End Patch", "line 2 names no file"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "line 3 of a new file must begin with `+`"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "changes nothing"),
        ("*** Begin Patch\n*** Update File: a\n@@\n*** End Patch", "the hunk at line 3 is empty"),
        ("*** Begin Patch\n*** Update File: a\n@@\nx\n*** End Patch", "line 4 must begin with a blank, `-` or `+`"),
        ("*** Begin Patch\n*** Update File: a\n@@x\n+y\n*** End Patch", "line 3 must be `@@` alone"),
        (
            "*** Begin Patch\n*** Update File: a\n+x\n*** End of File\n+y\n*** End Patch",
            "line 5 must begin a hunk with `@@`",
        ),
        ("*** Begin Patch\n*** Delete File: a\n*** Delete File: a\n*** End Patch", "a has two sections"),
    ],
)
def test_what_is_no_patch_is_refused_with_the_line(text: str, words: str) -> None:
    with pytest.raises(EditError) as caught:
        parse(text)
    assert words in str(caught.value)


def test_nothing_is_written_when_one_section_cannot_be_applied(work: Path) -> None:
    (work / "a").write_text("x\n")
    add = ["*** Add File: new", "+x"]
    fails(patch(work, *add, "*** Update File: a", "@@", "-not there", "+y"), "hunk at line 5", "not in a", "not there")
    fails(patch(work, *add, "*** Update File: none", "@@", "-x"), "none does not exist")
    fails(patch(work, *add, "*** Delete File: none"), "none does not exist; it cannot be deleted")
    fails(patch(work, *add, "*** Add File: a", "+y"), "a cannot be added: it exists already")
    fails(
        patch(work, *add, "*** Update File: a", "*** Move to: new", "@@", "-x"),
        "Two sections of the patch change the file new",
    )
    (work / "link").symlink_to("a")
    for other in ("./a", "link", f"{work}/a"):
        change = ["*** Update File: a", "@@", "-x", "+y"]
        fails(patch(work, *add, *change, f"*** Update File: {other}", "@@", "-x", "+z"), "Two sections")
        fails(patch(work, *add, *change, f"*** Delete File: {other}"), "Two sections")
    (work / "link").unlink()
    (work / "taken").write_text("")
    fails(patch(work, *add, "*** Update File: a", "*** Move to: taken"), "that exists already")
    (work / "binary").write_bytes(b"\0x\n")
    fails(patch(work, *add, "*** Update File: binary", "@@", "+y"), "binary")
    (work / "folder").mkdir()
    fails(patch(work, *add, "*** Delete File: folder"), "a directory")
    assert sorted(os.listdir(work)) == ["a", "binary", "folder", "taken"]
    done(patch(work, "*** Delete File: binary"), "D binary")


def test_a_failure_to_write_takes_back_what_was_written(work: Path) -> None:
    (work / "a").write_text("x\n")
    (work / "gone").write_text("y\n")
    change = ["*** Update File: a", "@@", "-x", "+z"]
    result = patch(work, *change, "*** Delete File: gone", "*** Add File: new", "+n", "*** Add File: a/b", "+c")
    fails(result, "not a directory")
    assert sorted(os.listdir(work)) == ["a", "gone"]
    assert (work / "a").read_text() == "x\n"
    assert (work / "gone").read_text() == "y\n"


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "~/outside", "sub/../../outside", "link/file", "linked", "."]
)
def test_paths_outside_the_workspace_are_refused(work: Path, name: str) -> None:
    (work / "link").symlink_to(work.parent)
    (work / "linked").symlink_to(work.parent / "outside")
    (work / "a").write_text("x\n")
    (work.parent / "outside").write_text("x\n")
    fails(patch(work, f"*** Add File: {name}", "+x"), f"{name} is outside the workspace")
    fails(patch(work, f"*** Delete File: {name}"), f"{name} is outside the workspace")
    fails(patch(work, "*** Update File: a", f"*** Move to: {name}"), name)
    assert (work.parent / "outside").read_text() == "x\n"


@pytest.mark.parametrize("name", ["sub/../b", "../work/b", "b/.."])
def test_a_move_goes_nowhere_by_way_of_a_folder_above(work: Path, name: str) -> None:
    (work / "a").write_text("x\n")
    fails(patch(work, "*** Update File: a", f"*** Move to: {name}"), name, "without `..`")
    assert os.listdir(work) == ["a"]


def test_no_file_grows_over_the_limit_or_is_read_over_it(work: Path) -> None:
    limit = 10 * 1024 * 1024
    (work / "a").write_text("x\n" + "y" * (limit - 3) + "\n")
    fails(patch(work, "*** Update File: a", "@@", "-x", "+xx"), f"{limit + 1} bytes", str(limit))
    done(patch(work, "*** Update File: a", "@@", "-x", "+z"), "M a")
    (work / "a").write_bytes(b"x\n" * (limit // 2) + b"x")
    fails(patch(work, "*** Update File: a", "@@", "-x", "+y"), str(limit))


def test_the_end_of_the_file_is_not_before_the_hunk_above(work: Path) -> None:
    (work / "a").write_text("w\nx\n")
    fails(patch(work, "*** Update File: a", "@@", " w", "-x", "+y", "@@", "-x", "+z", "*** End of File"), "its end")
    assert (work / "a").read_text() == "w\nx\n"


def test_an_absolute_path_inside_the_workspace_is_one_of_it(work: Path) -> None:
    done(patch(work, f"*** Add File: {work}/a", "+x"), f"A {work}/a")
    fails(patch(work, "*** Update File: a", f"*** Move to: {work}/b"), "give a path relative to the workspace")


def test_the_editor_can_undo_the_change_of_a_file(work: Path) -> None:
    (work / "a").write_text("x\n")
    done(patch(work, "*** Update File: a", "@@", "-x", "+y"), "M a")
    result = Editor(EditHistory(f"{work}/../state")).run(Edit("undo_edit", f"{work}/a", str(work)))
    assert result["is_error"] is False
    assert (work / "a").read_text() == "x\n"


def test_the_diff_is_one_that_patch_understands(work: Path) -> None:
    before = "".join(f"{number}\n" for number in range(30))
    (work / "a").write_text(before)
    result = patch(work, "*** Update File: a", "@@", "-3", "+drei", " 4", " 5", "-6", "@@", " 20", "+20.5", "+20.6")
    done(result, "M a")
    (work / "copy").write_text(before)
    applied = subprocess.run(["patch", "-s", f"{work}/copy"], input=result["diff"], text=True, capture_output=True)
    assert applied.returncode == 0, applied.stdout
    assert (work / "copy").read_text() == (work / "a").read_text()


LINES = st.lists(st.sampled_from(["a", "b", " a", "a ", ""]), max_size=8)


@given(LINES, st.data())
def test_a_hunk_made_from_a_file_is_applied_where_it_says(lines: list[str], data: st.DataObject) -> None:

    start = data.draw(st.integers(0, len(lines)))
    end = data.draw(st.integers(start, len(lines)))
    signs = [data.draw(st.sampled_from(" -")) for _ in range(start, end)]
    hunk_lines = [HunkLine(sign, text) for sign, text in zip(signs, lines[start:end], strict=True)]
    hunk = Hunk([], [*hunk_lines, HunkLine("+", "new")], False, 1)
    (found, fuzz) = changes("f", lines, [hunk])
    assert fuzz == 0
    result = list(lines)
    for change in reversed(found):
        result[change.start : change.start + change.removed] = change.added
    kept = [text for sign, text in zip(signs, lines[start:end], strict=True) if sign == " "]
    assert len(result) == len(lines) - signs.count("-") + 1
    assert "new" in result
    assert all(text in result for text in kept)
