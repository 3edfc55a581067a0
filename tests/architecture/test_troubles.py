"""Bad luck has one list of codes: each is used, and has its row where an operator looks it up."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from agent_core import errors
from agent_core.troubles import Trouble, trouble_of
from server.cli.troubles_reference import GROUPS, render

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for package in ("agent_core", "server")
    for path in (ROOT / package).rglob("*.py")
    if path.name not in {"troubles.py", "troubles_reference.py"} and "testing" not in path.parts
]


def test_each_code_has_one_row() -> None:
    rows = [code for group in GROUPS.values() for code in group]
    assert sorted(rows) == sorted(Trouble)


def test_the_page_has_these_rows() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert page.endswith(render()), "python -m server.cli.troubles_reference prints them; they end the page"


def test_each_code_is_used() -> None:
    """By its name; or as the code of an error or event that somebody raises or stores."""
    text = "\n".join(path.read_text("utf-8") for path in SOURCES)
    named, quoted = set(re.findall(r"Trouble\.(\w+)", text)), set(re.findall(r'"(\w+)"', text))
    kinds = dict(inspect.getmembers(errors, inspect.isclass))
    unused = [code for code in Trouble if code.name not in named and code not in kinds and code not in quoted]
    assert not unused


def test_whatever_a_model_does_has_its_code() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.LLMError)]
    assert len(kinds) > 10
    assert not [kind.__name__ for kind in kinds if trouble_of(kind.__name__) is None]
