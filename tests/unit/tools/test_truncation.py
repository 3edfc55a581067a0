"""Texts cut in their middle."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.tools.truncation import maybe_truncate


@given(st.text(max_size=300), st.integers(0, 200), st.text(max_size=60))
def test_a_cut_text_has_the_limits_length_and_both_its_ends(text: str, limit: int, notice: str) -> None:
    cut = maybe_truncate(text, limit, notice)
    if len(text) <= limit:
        assert cut == text
        return
    assert len(cut) == limit
    if len(notice) < limit and "{omitted}" not in notice:
        head = -(-(limit - len(notice)) // 2)
        assert cut == text[:head] + notice + text[len(text) - (limit - len(notice) - head) :]


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("0123456789", 10, "0123456789"),
        ("0123456789", 9, "01<...>89"),
        ("0123456789", 8, "01<...>9"),
        ("0123456789", 6, "0<...>"),
        ("0123456789", 5, "<...>"),
        ("0123456789", 2, "<."),
        ("0123456789", 0, ""),
    ],
)
def test_the_beginning_is_at_most_one_longer_than_the_end(text: str, limit: int, cut: str) -> None:
    assert maybe_truncate(text, limit, "<...>") == cut


def test_the_notice_says_how_much_is_missing() -> None:
    cut = maybe_truncate("a" * 1000, 100, "[{omitted}]")
    assert cut.count("a") == 95
    assert "[905]" in cut


def test_the_whole_text_is_saved_and_the_notice_names_the_file_and_the_first_hidden_line(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(1000))
    plain = maybe_truncate(text, 600)
    cut = maybe_truncate(text, 600, save_dir=tmp_path / "new", prefix="bash")
    (file,) = (tmp_path / "new").iterdir()
    assert file.name == f"bash_output_{hashlib.sha256(text.encode()).hexdigest()[:8]}.txt"
    assert file.read_text() == text
    assert len(cut) == 600
    head = plain.partition("\n[...")[0]
    assert cut.startswith(head + "\n[...")
    assert f"in {file}, where line {head.count(chr(10)) + 1} is" in cut
    assert text.endswith(cut.partition("...]\n")[2])


def test_a_saved_text_is_not_written_again_and_a_folder_that_takes_nothing_costs_nothing(tmp_path: Path) -> None:
    maybe_truncate("x" * 100, 80, save_dir=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text("as it was")
    maybe_truncate("x" * 100, 80, save_dir=tmp_path)
    assert file.read_text() == "as it was"
    assert maybe_truncate("x" * 100, 80, save_dir=file / "below") == maybe_truncate("x" * 100, 80)
