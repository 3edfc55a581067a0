"""The runner keeps to Python 3.8 and the standard library, and starts without loading much of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "runtime_images/runner"
APART = ("agent_skills", "browser_driver", "kernel_driver")
"""What runs in processes of its own, with libraries; the browser's needs a younger Python."""
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent.name not in APART)
CELLS = sorted((*PACKAGE.glob("agent_skills/*.py"), *PACKAGE.glob("kernel/kernel_driver/*.py")))
# Methods and functions younger than Python 3.8 that are easily written by habit.
YOUNGER = {"removeprefix", "removesuffix", "pidfd_open", "bit_count", "batched", "pairwise", "to_thread", "cache"}


@pytest.mark.parametrize("path", [*MODULES, *CELLS], ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_valid_python_3_8(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Match)
        if isinstance(node, ast.Attribute):
            assert node.attr not in YOUNGER, node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
            assert not [keyword for keyword in node.keywords if keyword.arg == "strict"], node.lineno


@pytest.mark.parametrize("path", [*MODULES, *CELLS], ids=lambda path: str(path.relative_to(PACKAGE)))
def test_generic_types_and_unions_are_evaluated_nowhere(path: Path) -> None:
    """``list[int]`` and ``X | None`` may stand in annotations, which are not evaluated, and nowhere else."""
    tree = ast.parse(path.read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert path.name == "__init__.py" or any(node.module == "__future__" for node in imports)
    builtins = {"list", "dict", "tuple", "set", "frozenset", "type", "deque", "OrderedDict"}
    annotations = {
        id(inner)
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and id(node) not in annotations:
            assert node.value.id not in builtins, node.lineno


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_the_standard_library_and_its_own_package_only(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            assert name.partition(".")[0] in sys.stdlib_module_names, (path.name, name)


def test_serving_loads_no_slow_module() -> None:
    code = "import runner.server, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    ).stdout.split()
    slow = {"asyncio", "subprocess", "logging", "argparse", "ssl", "http", "urllib", "email", "concurrent", "difflib"}
    assert slow & set(loaded) == set()


def test_attaching_loads_next_to_nothing() -> None:
    code = "import runner.attach, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"json", "typing", "re", "threading", "runner.wire"} & set(loaded) == set()
