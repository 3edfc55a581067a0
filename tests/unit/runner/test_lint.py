"""What is told of files whose syntax is broken, language by language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime_images.runner.files import lint


@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        ("a.py", "x = 1\ny = (\n", 2, "SyntaxError: '(' was never closed"),
        ("a.pyi", "def f(:\n", 1, "SyntaxError: invalid syntax"),
        ("a.json", '{\n"a": 1,\n}', 2, "JSON: "),
        ("a.toml", "a = 1\nb = \n", 2, "TOML: Invalid value"),
        ("a.toml", "[x]\na = 1\na = 2\n", 3, "TOML: Cannot overwrite a value"),
        ("a.sh", "if true; then\n", 2, "unexpected end of file"),
        ("a.js", "let a = 1;\nlet x = ;\n", 2, "SyntaxError: Unexpected token ';'"),
        ("a.cjs", "const a = 1;\nconst a = 2;\n", 2, "SyntaxError: Identifier 'a' has already been declared"),
        ("a.mjs", "export const a = 1;\nimport x from ;\n", 2, "SyntaxError: Unexpected token ';'"),
    ],
)
def test_a_broken_file_is_told_with_its_line_in_the_words_of_its_language(
    name: str, text: str, line: int, said: str
) -> None:
    (problem, *_) = lint.problems(name, text.encode())
    assert problem.text.startswith(said) or said in problem.text
    assert problem.line in (line, line + 1), "readers differ about where a broken end is"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", b"a = 1\n[x]\nb = [1, 2]\n"),
        ("a.mjs", b"import x from 'y';\nexport const a = await x();\n"),
        ("a.js", b"#!/usr/bin/env node\nmodule.exports = { a: 1 };\n"),
        ("a.js", b"\0\1 binary"),
        ("a.unknown", b"let x = ;"),
        ("Makefile", b"x = ("),
    ],
)
def test_whole_files_and_those_of_unknown_languages_are_not_complained_of(name: str, text: bytes) -> None:
    assert lint.problems(name, text) == []


def order(path: Path, first: int, last: int, text: str) -> dict[str, Any]:
    return {"path": str(path), "first": first, "last": last, "text": text}


@pytest.mark.parametrize(("name", "broken"), [("a.js", "let b = ;"), ("a.toml", "b = ")])
def test_only_what_an_edit_breaks_is_reported_and_wherever_it_moved_to(tmp_path: Path, name: str, broken: str) -> None:
    path = tmp_path / name
    path.write_text("a = 1\n")
    assert [problem.line for problem in lint.report(order(path, 2, 1, f"{broken}\n"))] == [2]
    path.write_text(f"{broken}\n")
    assert lint.report(order(path, 1, 0, "c = 1\n")) == [], "it was broken before, in another line"


def test_without_the_program_that_reads_a_language_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert lint.problems("a.js", b"let x = ;") == []
