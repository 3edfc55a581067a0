"""Text files, encodings and diffs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_images.runner.files.diff import unified
from runtime_images.runner.files.text_file import TextFile, decode, encode, is_binary, readable

texts = st.lists(st.sampled_from(["a", "b", " ", "é", "漢", "\n", "\r\n"]), max_size=30).map("".join)


@given(st.binary(max_size=100))
def test_any_bytes_come_back_as_they_were(data: bytes) -> None:
    decoded = decode(data)
    assert encode(decoded.mark + decoded.text, decoded.encoding) == data


@given(texts, texts, st.data())
def test_replacing_a_range_touches_nothing_else(text: str, new: str, data: st.DataObject) -> None:
    raw = text.encode()
    file = TextFile(raw)
    start = data.draw(st.integers(0, len(file.text)))
    end = data.draw(st.integers(start, len(file.text)))
    edited = file.replaced(start, end, new)
    after = TextFile(edited).text
    assert after == (file.text[:start] + new + file.text[end:]).replace("\r\n", "\n")
    assert file.replaced(start, start, "") == raw


def test_stray_bytes_in_utf_8_stay_and_cost_the_rest_nothing() -> None:
    raw = "é漢字ü\n".encode() + b"\xff\xe6\n" + "größer\n".encode() * 2
    file = TextFile(raw)
    assert file.lines()[0] == "é漢字ü"
    assert readable(file.text).startswith("é漢字ü\n\ufffd")
    start = file.text.index("größer")
    assert file.replaced(start, start + 6, "更大") == raw.replace("größer".encode(), "更大".encode(), 1)
    assert TextFile("naïve café\n".encode("cp1252")).lines() == ["naïve café"]


def test_a_file_whose_lines_end_in_returns_alone_is_edited_in_its_own_way() -> None:
    file = TextFile(b"one\rtwo\rthree")
    assert file.lines() == ["one", "two", "three"]
    assert file.replaced(0, 7, "1\n2") == b"1\r2\rthree"
    assert TextFile(b"one\rtwo\n").lines() == ["one\rtwo"]


@given(texts)
def test_lines_are_counted_by_newlines_alone(text: str) -> None:
    file = TextFile(text.encode())
    lines = file.lines()
    assert "".join(line + "\n" for line in lines) in (file.text, file.text + "\n")
    assert [file.text[file.line_start(n) :][: len(line)] for n, line in enumerate(lines)] == lines


@pytest.mark.parametrize(
    ("data", "binary"),
    [
        (b"", False),
        (b"text\n\t", False),
        (b"a\0b", True),
        (b"\x7fELF\x02\x01", True),
        ("漢字".encode(), False),
        (b"\xff\xfea\0b\0", False),
        (bytes(range(1, 32)), True),
        (b"\x1b[31mred\x1b[0m\n", False),
    ],
)
def test_binary_files_are_told_from_texts(data: bytes, binary: bool) -> None:
    assert is_binary(data) is binary


@given(texts, texts)
@settings(max_examples=60, deadline=None)
def test_a_diff_applied_to_the_old_text_gives_the_new_one(
    tmp_path_factory: pytest.TempPathFactory, a: str, b: str
) -> None:
    folder: Path = tmp_path_factory.mktemp("diff")
    (folder / "file").write_bytes(a.encode())
    diff = unified(a, b, "file")
    if a == b:
        assert diff == ""
        return
    subprocess.run(["patch", "--binary", "-s", "file"], cwd=folder, input=diff.encode(), check=True)
    found = (folder / "file").read_bytes() if (folder / "file").exists() else b""  # patch removes an emptied file
    assert found == b.encode()


def test_changes_far_from_one_another_are_shown_apart_with_two_lines_around_each() -> None:
    lines = [f"line {n}\n" for n in range(1, 31)]
    new = [*lines[:4], "5th\n", *lines[5:24], "more\n", *lines[24:26], *lines[27:]]
    hunks = unified("".join(lines), "".join(new), "/f").split("@@ -")[1:]
    assert hunks[0] == "3,5 +3,5 @@\n line 3\n line 4\n-line 5\n+5th\n line 6\n line 7\n"
    assert hunks[1] == ("23,7 +23,7 @@\n line 23\n line 24\n+more\n line 25\n line 26\n-line 27\n line 28\n line 29\n")


def test_a_diff_of_a_huge_file_is_quick_and_bounded() -> None:
    old = "line of text\n" * 500_000
    new = old[: len(old) // 2] + "changed\n" + old[len(old) // 2 :]
    assert unified(old, new, "/file").count("\n") < 15
    assert len(unified("", old, "/file")) < 70_000
    shuffled = "".join(f"{n * 7919 % 100_000}\n" for n in range(100_000))
    assert len(unified(shuffled, "".join(sorted(shuffled.splitlines(keepends=True))), "/file")) < 70_000
