"""Files with the whole of outputs that were cut: bounded each and together."""

from __future__ import annotations

import os
from pathlib import Path

from runtime_images.runner.core.text import SavedText
from runtime_images.runner.terminal.output import BoundedText, WholeOutputs


def test_an_output_over_the_limit_of_a_file_has_its_beginning_there_and_the_notice_says_so(tmp_path: Path) -> None:
    transcript = BoundedText(400, WholeOutputs(str(tmp_path), "terminal", limit=2000, folder_limit=10_000))
    for _ in range(100):
        transcript.append("line of text\n" * 10)
    text = transcript.take().text
    assert len(text) == 400
    assert "its beginning is in" in text
    (file,) = tmp_path.iterdir()
    assert file.read_text() == ("line of text\n" * 1000)[:2000]


def test_the_oldest_files_make_room(tmp_path: Path) -> None:
    files = WholeOutputs(str(tmp_path), "terminal", limit=1000, folder_limit=3000)
    kept: list[SavedText] = []
    for number in range(5):
        one = files.begin()
        one.write(str(number) * 900)
        done = one.keep()
        assert done is not None
        os.utime(done.path, (number, number))
        kept.append(done)
    assert sorted(str(path) for path in tmp_path.iterdir()) == sorted(one.path for one in kept[-3:])


def test_what_nobody_takes_leaves_no_file(tmp_path: Path) -> None:
    transcript = BoundedText(10, WholeOutputs(str(tmp_path), "terminal"))
    transcript.append("more than ten characters")
    transcript.close()
    assert list(tmp_path.iterdir()) == []


def test_a_piece_within_the_limit_leaves_no_file(tmp_path: Path) -> None:
    transcript = BoundedText(100, WholeOutputs(str(tmp_path / "none"), "terminal"))
    transcript.append("short")
    assert transcript.take() == ("short", 0)
    assert not (tmp_path / "none").exists()
