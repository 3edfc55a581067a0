"""docs/coverage.md: what the project was asked for, each row with the tests that name it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coverage.md"
ROWS_OF_SEEDS = {"S0": 29, "S1": 22, "S2": 42, "S3": 27, "S4": 39, "S5": 32, "S6": 16, "S7": 18, "S8": 10}

ROW = re.compile(r"^\| (S\d) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


@cache
def functions_in(path: Path) -> frozenset[str]:
    names = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    return frozenset(
        node.name
        for node in names
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def rows() -> list[tuple[str, str, list[str]]]:
    found = ROW.findall(PAGE.read_text("utf-8"))
    return [(seed, name, proof.split("<br>")) for seed, name, _, proof in found]


def test_every_row_is_there_once() -> None:
    assert Counter(seed for seed, _, _ in rows()) == ROWS_OF_SEEDS
    names = Counter((seed, name) for seed, name, _ in rows())
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize(("seed", "name", "proofs"), rows(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_row_names_tests_that_there_are(seed: str, name: str, proofs: list[str]) -> None:
    for proof in proofs:
        path, _, test = proof.strip("`").partition("::")
        folder = ROOT if path.startswith("agent_core/testing/") else ROOT / "tests"
        assert test in functions_in(folder / path), f"{seed} {name}: {proof} is no test"
