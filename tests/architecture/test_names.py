"""One name, one thing: a reader who looks for a class finds one."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.architecture.test_imports import ROOT, sources, tree_of

PRODUCT = ("agent_core", "deploy", "drydock_client", "migrations", "runtime_images", "server")

PUBLISHED_TWICE = {"Memory", "Repository", "SuggestedTask", "Trajectory"}
"""Both names are promises: of `docs/library.md`, or of the server's OpenAPI document."""


def named_by(node: ast.stmt) -> str:
    """The class, or the alias of a type, that a statement of a module names."""
    if isinstance(node, ast.ClassDef):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    name = targets[0].id if targets and isinstance(targets[0], ast.Name) else ""
    return name if re.fullmatch(r"[A-Z]+[a-z]\w*", name) else ""


def homes_of_public_types() -> dict[str, set[str]]:
    homes: dict[str, set[str]] = defaultdict(set)
    for path in sources(*PRODUCT):
        module = str(path.relative_to(ROOT))
        for node in tree_of(path).body:
            if (name := named_by(node)) and not name.startswith("_"):
                assert module not in homes[name], f"{module} defines {name} twice"
                homes[name].add(module)
    return homes


def test_no_two_public_types_share_a_name() -> None:
    """The client may name a reply or an event as the server does: it is the same thing, read by another program."""
    shared = {
        name: sorted(modules)
        for name, modules in homes_of_public_types().items()
        if len({module for module in modules if not module.startswith("drydock_client/")}) > 1
        or sum(module.startswith("drydock_client/") for module in modules) > 1
    }
    assert shared.keys() == PUBLISHED_TWICE, {name: at for name, at in shared.items() if name not in PUBLISHED_TWICE}


def test_no_folder_has_a_module_and_a_package_of_one_name() -> None:
    twice = [
        str(path.relative_to(ROOT)) for path in sources(*PRODUCT) if (path.with_suffix("") / "__init__.py").is_file()
    ]
    assert not twice, twice


ONE_SUBCLASS = {
    "AmortizedForgettingCondenser": "a condenser that configurations name (`amortized`)",
    "CriticMixin": "published: programs ask with it whether an agent has a critic",
    "ReadOnlyAgent": "an agent that settings name",
    "ResultArgs": "the body of a route",
    "SpelledModel": "the metaclass of models, which these name",
    "SseServer": "an entry of the servers that users configure",
}
"""Bases with one subclass that are made nowhere by name, and why they are there all the same."""


def called_or_passed(call: ast.Call) -> set[str]:
    """The names that are called, whose methods are called, or that are handed to a call."""
    values = [call.func, *call.args, *(keyword.value for keyword in call.keywords)]
    if isinstance(call.func, ast.Attribute):
        values.append(call.func.value)
    return set(map(bare_name, values))


def bare_name(node: ast.expr) -> str:
    """``Name`` of ``Name``, ``module.Name`` and ``Name[Argument]``."""
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def test_a_base_class_has_two_subclasses_or_is_something_by_itself() -> None:
    """A class is not cut into layers: who needs a part of it is given that part. Protocols are for others to fulfil."""
    nodes = [
        node
        for path in sources(*PRODUCT)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef | ast.Call)
    ]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    bases = {node.name: {bare_name(base) for base in node.bases} for node in classes}
    subclasses: dict[str, set[str]] = defaultdict(set)
    for node in classes:
        for base in map(bare_name, node.bases):
            subclasses[base].add(node.name)
    used = set[str]().union(*(called_or_passed(node) for node in nodes if isinstance(node, ast.Call)))
    layers = {
        name
        for name, names in bases.items()
        if len(subclasses[name]) == 1 and name not in used and "Protocol" not in names
    }
    assert layers == ONE_SUBCLASS.keys()
