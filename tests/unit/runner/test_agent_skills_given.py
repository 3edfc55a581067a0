"""What the helpers of cells make of wrong arguments, odd encodings, empty files and the ends of files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from runtime_images.runner.agent_skills import available


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRYDOCK_EDIT_HISTORY", str(tmp_path / ".history"))
    Path("code.py").write_text("class Cart:\n    def total(self):\n        return 1\n")
    Path("lines").write_text("".join(f"line {number}\n" for number in range(1, 251)))


def _said(capsys: pytest.CaptureFixture[str], name: str, *args: Any, **options: Any) -> str:
    returned = available()[name](*args, **options)
    return capsys.readouterr().out + (returned or "")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("open_file", (), "open_file: missing a required argument: 'path'."),
        ("open_file", (None,), "open_file: path must be a text, not None."),
        ("open_file", ("",), "There is no file ''."),
        ("open_file", ("a\0b",), "open_file: path has a zero byte in it: 'a\\x00b'."),
        ("open_file", ("lines", "7"), "open_file: line_number must be a whole number, not '7'."),
        ("open_file", ("lines", True), "open_file: line_number must be a whole number, not True."),
        ("open_file", ("lines", 251), "The line number must be between 1 and 250."),
        ("open_file", ("lines", 0), "The line number must be between 1 and 250."),
        ("open_file", ("lines", 7, 2.5), "open_file: context_lines must be a whole number, not 2.5."),
        ("open_file", (".",), ". is a folder."),
        ("open_file", ("/dev/zero",), "/dev/zero is no regular file."),
        ("search_dir", (5,), "search_dir: search_term must be a text, not 5."),
        ("search_dir", ("x", "lines"), "lines is a file, not a folder."),
        ("search_file", ("x", "."), ". is a folder."),
        ("find_file", ("x", ""), "There is no folder ''."),
        ("parse_pdf", (".",), ". is a folder."),
        ("search_code_snippets", (None, ["2"], "code.py"), "each of line_nums must be a whole number, not '2'."),
        ("search_code_snippets", (None, [9], "code.py"), "code.py has no line 9; its lines are 1 to 3."),
        ("search_code_snippets", (None, [0], "code.py"), "code.py has no line 0; its lines are 1 to 3."),
        ("get_entity_contents", ([None],), "each of entity_names must be a text, not None."),
        ("explore_tree_structure", ("/", "downstream", "2"), "traversal_depth must be a whole number, not '2'."),
        ("file_editor", ("view", None), "file_editor: path must be a text, not None."),
        ("file_editor", ("create", "/x", 5), "file_editor: file_text must be a text, not 5."),
        ("file_editor", ("view", "/x", None, ["a", 2]), "each of view_range must be a whole number, not 'a'."),
    ],
)
def test_what_is_wrong_with_an_argument_is_said_in_a_sentence(
    name: str, arguments: tuple[Any, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said(capsys, name, *arguments)
    assert said.startswith("ERROR:")
    assert words in said


def test_a_single_value_counts_where_several_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert "def total(self)" in _said(capsys, "search_code_snippets", "total")
    assert "def total(self)" in _said(capsys, "search_code_snippets", None, 3, "code.py")
    assert "[class code.py:Cart, lines 1 to 3]" in _said(capsys, "get_entity_contents", "code.py:Cart")
    assert _said(capsys, "explore_tree_structure", "code.py", entity_type_filter="class").count("contains ->") == 1


def test_paths_may_be_objects_and_what_is_left_out_is_the_usual(capsys: pytest.CaptureFixture[str]) -> None:
    assert _said(capsys, "open_file", Path("lines"), 3, 1).endswith("\n3|line 3\n(247 more lines below)\n")
    for line, size in ((None, None), (1, 0), (1, -5), (1, 1000)):
        assert _said(capsys, "open_file", "lines", line, size).endswith("\n100|line 100\n(150 more lines below)\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_texts_in_any_encoding_are_shown_and_searched(encoding: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.txt").write_bytes("Café\r\nlast\r".encode(encoding))
    Path("odd.py").write_bytes("# café\nclass Odd: pass\n".encode(encoding))
    shown = _said(capsys, "open_file", "odd.txt")
    assert "(2 lines total)]" in shown
    assert "\n1|Café\n2|last\n(this is the end" in shown
    assert "Line 1: Café" in _said(capsys, "search_file", "Caf")
    assert "./odd.txt (Line 1): Café" in _said(capsys, "search_dir", "Caf")
    assert "# café" in _said(capsys, "get_entity_contents", ["odd.py"])
    Path("odd.tex").write_bytes("\\textbf{Café}".encode(encoding))
    assert _said(capsys, "parse_latex", "odd.tex").endswith("\nCafé\n")


def test_files_without_lines_and_without_text(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").touch()
    Path("bytes").write_bytes(b"line\0line")
    os.mkfifo("pipe")
    nothing = "(0 lines total)]\n(this is the beginning of the file)\n(this is the end of the file)\n"
    for step in (("open_file", "empty"), ("scroll_down",), ("scroll_up",), ("goto_line", 1)):
        assert _said(capsys, *step).endswith(nothing)
    assert _said(capsys, "goto_line", 2) == "ERROR: The line number must be between 1 and 1.\n"
    assert "No matches found" in _said(capsys, "search_file", "x")
    assert "bytes" not in _said(capsys, "search_dir", "line")
    assert _said(capsys, "open_file", "pipe") == "ERROR: pipe is no regular file.\n"


def test_scrolling_passes_no_line_over_and_ends_at_the_ends(capsys: pytest.CaptureFixture[str]) -> None:
    _said(capsys, "open_file", "lines", 1, 10)
    assert _bounds(_said(capsys, "scroll_down")) == (11, 110)
    assert _bounds(_said(capsys, "scroll_down")) == (111, 210)
    for _ in range(2):
        assert _bounds(_said(capsys, "scroll_down")) == (151, 250)
    _said(capsys, "open_file", "lines", 250, 10)
    assert _bounds(_said(capsys, "scroll_up")) == (141, 240)
    assert _bounds(_said(capsys, "scroll_up")) == (41, 140)
    for _ in range(2):
        assert _bounds(_said(capsys, "scroll_up")) == (1, 100)


def test_files_are_found_by_a_part_of_their_names_or_by_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    for wanted in ("od", "*.py", "c?de.*"):
        assert "\n./code.py\n" in _said(capsys, "find_file", wanted)
    assert _said(capsys, "find_file", "CODE") == 'No matches found for "CODE" in ./\n'


def _bounds(shown: str) -> tuple[int, int]:
    numbers = [int(line.partition("|")[0]) for line in shown.splitlines() if "|" in line]
    return numbers[0], numbers[-1]
