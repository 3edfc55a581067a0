from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.session.git_status import parse_status


def test_each_line_is_one_change() -> None:
    output = " M a.py\nA  new.py\n D gone.py\n?? untracked dir/b.txt\nUU both.py\nAA b2\nAM added.py\r\n!! ignored\n"
    assert [(change["status"], change["path"]) for change in parse_status(output)] == [
        ("M", "a.py"),
        ("A", "new.py"),
        ("D", "gone.py"),
        ("A", "untracked dir/b.txt"),
        ("U", "both.py"),
        ("U", "b2"),
        ("A", "added.py"),
    ]


def test_quoted_names_are_read() -> None:
    assert parse_status('?? "a\\"b\\\\c\\tA.txt"\n') == [{"status": "A", "path": 'a"b\\c\tA.txt'}]
    assert parse_status('?? "\\303\\244"\n') == [{"status": "A", "path": "ä"}]


@given(st.text())
def test_no_output_breaks_it(output: str) -> None:
    for change in parse_status(output):
        assert change["status"] in "MADU"
