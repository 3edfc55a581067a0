"""Functions of a kernel's cells that find places in Python code."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime_images.runner.agent_skills import available
from runtime_images.runner.agent_skills.code_map import (
    explore_tree_structure,
    get_entity_contents,
    search_code_snippets,
)

SHOP = '''"""A shop."""
from store import goods
from . import prices


class Cart:
    """Holds things."""

    @property
    def total(self):
        return prices.of(self.things)

    @total.setter
    def total(self, value):
        self.value = value


class GiftCart(Cart):
    def pay(self):
        def sign():
            return goods.find()
        return self.total
'''
PRICES = "def of(things):\n    return sum(things)\n\n\ndef find():\n    pass\n"
GOODS = "def find():\n    return 1\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"src/shop.py": SHOP, "src/prices.py": PRICES, "src/__init__.py": "", "store/goods.py": GOODS}
    more = {"broken.py": "def (", ".hidden/no.py": GOODS, "node_modules/no.py": GOODS, "note.txt": "find"}
    for name, text in {**files, **more}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


Said = pytest.CaptureFixture[str]


def test_cells_find_them_by_their_names() -> None:
    assert {"search_code_snippets", "get_entity_contents", "explore_tree_structure"} <= available().keys()


# --- searching ---


def test_a_name_shows_each_definition_that_has_it(capsys: Said) -> None:
    search_code_snippets(["find"])
    assert capsys.readouterr().out == (
        "[function src/prices.py:find, lines 5 to 6]\n    5 | def find():\n    6 |     pass\n"
        "[function store/goods.py:find, lines 1 to 2]\n    1 | def find():\n    2 |     return 1\n"
    )


def test_a_qualified_name_means_one_and_its_decorators_belong_to_it(capsys: Said) -> None:
    search_code_snippets(["Cart.total"])
    out = capsys.readouterr().out
    assert out.startswith("[function src/shop.py:Cart.total, lines 9 to 11]\n    9 |     @property\n")
    assert "setter" not in out


def test_other_words_show_their_lines_and_what_these_are_in(capsys: Said) -> None:
    search_code_snippets(["HOLDS", "nothing of the kind"])
    assert capsys.readouterr().out == (
        '[1 lines have \'HOLDS\']\nsrc/shop.py:7 (in Cart): """Holds things."""\n'
        "[0 lines have 'nothing of the kind']\n"
    )


@pytest.mark.parametrize("pattern", ["store/*.py", "store/goods.py", "./store/goods.py", "**/goods.py"])
def test_files_narrow_a_search(pattern: str, capsys: Said) -> None:
    search_code_snippets(["find"], file_path_or_pattern=pattern)
    out = capsys.readouterr().out
    assert "store/goods.py:find" in out
    assert "prices" not in out


def test_lines_show_what_is_around_them(project: Path, capsys: Said) -> None:
    search_code_snippets(line_nums=[11, 1], file_path_or_pattern=str(project / "src/shop.py"))
    out = capsys.readouterr().out
    assert out.startswith("[function src/shop.py:Cart.total, lines 9 to 11]")
    assert '[lines src/shop.py, line 1, lines 1 to 11]\n    1 | """A shop."""' in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "Give search_terms, or line_nums with the path of a file."),
        ({"line_nums": [1]}, "line_nums needs the path of one file"),
        ({"search_terms": ["x"], "file_path_or_pattern": "*.c"}, "There is no Python file that fits *.c."),
    ],
)
def test_a_search_that_cannot_be_says_why(arguments: dict[str, object], problem: str, capsys: Said) -> None:
    search_code_snippets(**arguments)  # type: ignore[arg-type] # cases
    assert f"ERROR: {problem}" in capsys.readouterr().out


def test_long_definitions_and_many_hits_are_cut(project: Path, capsys: Said) -> None:
    (project / "long.py").write_text("def long():\n" + "    word\n" * 300)
    search_code_snippets(["long", "word"])
    out = capsys.readouterr().out
    assert "  200 |     word\n[101 more lines are not shown]" in out
    assert "[300 lines have 'word']" in out
    assert "[250 more are not shown]" in out


# --- reading ---


def test_entities_are_shown_whole(project: Path, capsys: Said) -> None:
    get_entity_contents(["src/prices.py", str(project / "src/shop.py") + ":GiftCart.pay"])
    out = capsys.readouterr().out
    assert out.startswith("[file src/prices.py, lines 1 to 6]\n    1 | def of(things):\n")
    assert "[function src/shop.py:GiftCart.pay, lines 19 to 22]" in out


def test_what_is_not_there_is_said_with_what_is(capsys: Said) -> None:
    get_entity_contents(["src/shop.py:find", "nope.py", "src"])
    assert capsys.readouterr().out.splitlines() == [
        "ERROR: There is no src/shop.py:find. There is: src/prices.py:find, store/goods.py:find.",
        "ERROR: There is no nope.py.",
        "ERROR: There is no src.",
    ]


# --- exploring ---


def tree(capsys: Said, *starts: str, **options: object) -> list[str]:
    explore_tree_structure(list(starts) or ["/"], **options)  # type: ignore[arg-type] # cases
    return capsys.readouterr().out.splitlines()


def test_a_project_is_a_tree_of_what_it_contains(capsys: Said) -> None:
    assert tree(capsys) == [
        "/",
        "  contains -> src/",
        "    contains -> src/__init__.py",
        "    contains -> src/prices.py",
        "    contains -> src/shop.py",
        "  contains -> store/",
        "    contains -> store/goods.py",
        "  contains -> broken.py",
    ]


def test_a_file_contains_imports_and_its_parts_invoke_and_inherit(capsys: Said) -> None:
    lines = tree(capsys, "src/shop.py")
    assert "  imports -> store/goods.py" in lines
    assert "  imports -> src/prices.py" in lines
    assert "    inherits -> src/shop.py:Cart (see above)" in lines
    assert "    contains -> src/shop.py:Cart.total" in lines
    assert "  invokes -> src/prices.py:of" in tree(capsys, "Cart.total")
    # two functions are called find: the one in a file that is imported is meant, both here
    pay = tree(capsys, "src/shop.py:GiftCart.pay", dependency_type_filter=["invokes"])
    assert pay == ["src/shop.py:GiftCart.pay", "  invokes -> src/prices.py:find", "  invokes -> store/goods.py:find"]


def test_imports_mean_the_modules_that_python_would_find(project: Path, capsys: Said) -> None:
    (project / "store/prices.py").write_text("from .. import other\nfrom ..src import shop\nimport src.prices as p\n")
    (project / "store/more.py").write_text("from . import prices\nfrom .goods import find\nimport os, nowhere\n")

    def imports(path: str) -> list[str]:
        return tree(capsys, path, dependency_type_filter=["imports"], traversal_depth=1)[1:]

    assert imports("store/more.py") == ["  imports -> store/prices.py", "  imports -> store/goods.py"]
    assert imports("store/prices.py") == [
        "  imports -> src/shop.py",
        "  imports -> src/__init__.py",
        "  imports -> src/prices.py",
    ]
    assert "  imports -> src/prices.py" in imports("src/shop.py")


def test_upstream_shows_who_depends_on_it(capsys: Said) -> None:
    assert tree(capsys, "src/prices.py:of", direction="upstream", traversal_depth=1) == [
        "src/prices.py:of",
        "  <- contains src/prices.py",
        "  <- invokes src/shop.py:Cart.total",
    ]


def test_kinds_and_depth_narrow_it_and_both_directions_are_told_apart(capsys: Said) -> None:
    assert tree(capsys, "src/", entity_type_filter=["file"], traversal_depth=1, direction="both") == [
        "src/ (downstream)",
        "  contains -> src/__init__.py",
        "  contains -> src/prices.py",
        "  contains -> src/shop.py",
        "src/ (upstream)",
    ]
    assert tree(capsys, ".", traversal_depth=0) == ["/"]
    assert len(tree(capsys, "/", traversal_depth=-1)) > len(tree(capsys, "/"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"direction": "sideways"}, "direction is 'sideways'; it can be downstream, upstream or both."),
        ({"entity_type_filter": ["module"]}, "'module' is none of directory, file, class, function."),
        ({"dependency_type_filter": ["loves"]}, "'loves' is none of contains, imports, inherits, invokes."),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, object], problem: str, capsys: Said) -> None:
    assert tree(capsys, **options) == [f"ERROR: {problem}"]
    assert tree(capsys, "find") == ["ERROR: There is no find."], "two are called so"


def test_large_trees_are_cut(project: Path, capsys: Said) -> None:
    (project / "many.py").write_text("".join(f"def f{number}():\n    pass\n" for number in range(400)))
    lines = tree(capsys, "many.py")
    assert len(lines) == 302
    assert lines[-1] == "[more than 300 are not shown: begin elsewhere, or go less far]"
