"""A map of a project's Python code: its folders, files, classes and functions, and how they depend on one another.

An entity is named by its path, relative to the folder that was mapped, and within a file by its qualified name behind a
colon: ``src/shop.py:Cart.total``.
"""

from __future__ import annotations

import ast
import os
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from .reading import read_lines

FILES_LIMIT = 5000
SIZE_LIMIT = 2 * 1024 * 1024
KINDS = ("directory", "file", "class", "function")
RELATIONS = ("contains", "imports", "inherits", "invokes")

_LEFT_OUT = ("node_modules", "__pycache__", "site-packages", "venv")


class Entity(NamedTuple):
    """A part of the code; ``start`` and ``end`` are lines, 0 for what is no part of a file."""

    name: str
    kind: str
    path: str
    start: int = 0
    end: int = 0


class CodeMap:
    """The entities by name, in their order, and the relations of each: pairs of a relation and an entity's name."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.entities: Dict[str, Entity] = {}
        self._relations: Dict[str, Dict[Tuple[str, str], None]] = {}
        self._named: Dict[str, List[str]] = {}
        self._modules: Dict[str, List[str]] = {}
        self._inside: Dict[str, List[Tuple[str, ast.AST]]] = {}
        trees = list(self._add_files())
        for path, tree in trees:
            self._relate(path, tree)
        self._inside.clear()

    def named(self, short: str) -> List[str]:
        """The classes and functions of this name, short or qualified."""
        return [name for name in self._named.get(short.rpartition(".")[2], []) if _ends_with(name, short)]

    def around(self, path: str, line: int) -> Optional[Entity]:
        """The innermost class or function of a file in which a line is."""
        inside = [one for one in self.entities.values() if one.path == path and one.start <= line <= one.end]
        return max(inside, key=lambda one: one.start) if inside else None

    def related(self, name: str, direction: str) -> List[Tuple[str, str]]:
        """What an entity depends on (``downstream``) or what depends on it (``upstream``), with the relation."""
        if direction == "downstream":
            return list(self._relations.get(name, ()))
        return [(how, one) for one, pairs in self._relations.items() for how, other in pairs if other == name]

    def text(self, path: str) -> List[str]:
        """The lines of a file."""
        return _read(os.path.join(self.root, path))

    def _add_files(self) -> Iterator[Tuple[str, ast.Module]]:
        count = 0
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _LEFT_OUT)
            place = os.path.relpath(folder, self.root)
            prefix = "" if place == "." else f"{place}{os.sep}"
            self._add(Entity(prefix or "/", "directory", prefix))
            for one in folders:
                self._link(prefix or "/", "contains", f"{prefix}{one}{os.sep}")
            for one in sorted(names):
                if not one.endswith(".py") or count >= FILES_LIMIT:
                    continue
                count += 1
                tree = self._add_file(prefix or "/", f"{prefix}{one}")
                if tree is not None:
                    yield f"{prefix}{one}", tree

    def _add_file(self, folder: str, path: str) -> Optional[ast.Module]:
        self._add(Entity(path, "file", path))
        self._link(folder, "contains", path)
        self._modules.setdefault(_module_name(path), []).append(path)
        try:
            tree = ast.parse("\n".join(_read(os.path.join(self.root, path))))
        except (SyntaxError, ValueError, RecursionError):
            return None
        self._add_definitions(path, path, "", tree)
        return tree

    def _add_definitions(self, path: str, parent: str, prefix: str, tree: ast.AST) -> None:
        for node in ast.iter_child_nodes(tree):
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            own = f"{prefix}{node.name}"
            name = f"{path}:{own}"
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            self._link(parent, "contains", name)
            if name not in self.entities:  # a property has its setter under the same name
                self._add(Entity(name, kind, path, start, node.end_lineno or node.lineno))
                self._named.setdefault(node.name, []).append(name)
                self._inside.setdefault(path, []).append((name, node))
                self._add_definitions(path, name, f"{own}.", node)

    def _relate(self, path: str, tree: ast.Module) -> None:
        imported = {}
        for node in ast.walk(tree):
            for module in _imported(node, path):
                target = self._module(module)
                if target is not None and target != path:
                    self._link(path, "imports", target)
                    imported[target] = True
        for name, definition in self._inside.get(path, ()):
            if isinstance(definition, ast.ClassDef):
                self._link_names(path, imported, name, "inherits", [_last_name(base) for base in definition.bases])
            else:
                calls = [_last_name(one.func) for one in ast.walk(definition) if isinstance(one, ast.Call)]
                self._link_names(path, imported, name, "invokes", calls)

    def _link_names(self, path: str, imported: Dict[str, bool], name: str, relation: str, others: List[str]) -> None:
        """Relate to what these names mean: what is in the file itself, or else in those it imports, or the only one."""
        for other in others:
            known = [one for one in self._named.get(other, ()) if one != name]
            near = [one for one in known if one.startswith(f"{path}:")]
            near = near or [one for one in known if one.partition(":")[0] in imported]
            for target in near or (known if len(known) == 1 else ()):
                self._link(name, relation, target)

    def _module(self, module: str) -> Optional[str]:
        tail = module.replace(".", os.sep)
        found = [
            path
            for path in self._modules.get(module.rpartition(".")[2], ())
            if _ends_at_folder(path, f"{tail}.py") or _ends_at_folder(path, os.path.join(tail, "__init__.py"))
        ]
        return min(found, key=len) if found else None

    def _add(self, entity: Entity) -> None:
        self.entities.setdefault(entity.name, entity)

    def _link(self, name: str, relation: str, other: str) -> None:
        self._relations.setdefault(name, {})[(relation, other)] = None


def _ends_with(name: str, short: str) -> bool:
    own = name.partition(":")[2]
    return own == short or own.endswith(f".{short}")


def _imported(node: ast.AST, path: str) -> List[str]:
    """The modules that an import names, with those that may be modules of a package."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    parts = path.split(os.sep)[: -node.level] if node.level else []
    base = ".".join([*parts, *([node.module] if node.module else [])])
    return [*(f"{base}.{one.name}" if base else one.name for one in node.names), *([base] if base else [])]


def _module_name(path: str) -> str:
    """The last part of a module's name."""
    folder, name = os.path.split(path)
    return os.path.basename(folder) if name == "__init__.py" else name[: -len(".py")]


def _ends_at_folder(path: str, tail: str) -> bool:
    return path == tail or path.endswith(f"{os.sep}{tail}")


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _read(path: str) -> List[str]:
    try:
        return [] if not os.path.isfile(path) or os.path.getsize(path) > SIZE_LIMIT else read_lines(path)
    except OSError:
        return []
