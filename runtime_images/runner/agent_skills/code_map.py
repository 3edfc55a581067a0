"""A map of a project's Python code: folders, files, classes and functions, and their dependencies.

An entity is named by its path below the mapped folder, and within a file by its qualified name behind a colon:
``src/shop.py:Cart.total``.
"""

from __future__ import annotations

import ast
import fnmatch
import os
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from .files import read_lines

FILES_LIMIT = 5000
SIZE_LIMIT = 2 * 1024 * 1024
KINDS = ("directory", "file", "class", "function")
RELATIONS = ("contains", "imports", "inherits", "invokes")

_LEFT_OUT = ("node_modules", "__pycache__", "site-packages", "venv")

_SNIPPETS_LIMIT = 10
_LINES_LIMIT = 200
_HITS_LIMIT = 50
_TREE_LIMIT = 300
_DEPTH_LIMIT = 10


class Entity(NamedTuple):
    """A part of the code; ``start`` and ``end`` are lines, 0 for what is no part of a file."""

    name: str
    kind: str
    path: str
    start: int = 0
    end: int = 0


class CodeMap:
    """Entities by name, in order, and the relations of each: pairs of a relation and an entity's name."""

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
        known = self._named.get(short.rpartition(".")[2], [])
        return [name for name in known if f".{name.partition(':')[2]}".endswith(f".{short}")]

    def around(self, path: str, line: int) -> Optional[Entity]:
        inside = [one for one in self.entities.values() if one.path == path and one.start <= line <= one.end]
        return max(inside, key=lambda one: one.start) if inside else None

    def related(self, name: str, direction: str) -> List[Tuple[str, str]]:
        """The entity's dependencies (``downstream``) or dependents (``upstream``), with the relation."""
        if direction == "downstream":
            return list(self._relations.get(name, ()))
        return [(how, one) for one, pairs in self._relations.items() for how, other in pairs if other == name]

    def text(self, path: str) -> List[str]:
        return _read(os.path.join(self.root, path))

    def _add_files(self) -> Iterator[Tuple[str, ast.Module]]:
        count = 0
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _LEFT_OUT)
            place = os.path.relpath(folder, self.root)
            prefix = "" if place == "." else f"{place}{os.sep}"
            self.entities.setdefault(prefix or "/", Entity(prefix or "/", "directory", prefix))
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
        self.entities.setdefault(path, Entity(path, "file", path))
        self._link(folder, "contains", path)
        place, name = os.path.split(path)
        module = os.path.basename(place) if name == "__init__.py" else name[: -len(".py")]
        self._modules.setdefault(module, []).append(path)
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
                self.entities[name] = Entity(name, kind, path, start, node.end_lineno or node.lineno)
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
        """Resolve names in the file itself, else in those it imports, else where only one is of that name."""
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
            if f"{os.sep}{path}".endswith((f"{os.sep}{tail}.py", f"{os.sep}{tail}{os.sep}__init__.py"))
        ]
        return min(found, key=len) if found else None

    def _link(self, name: str, relation: str, other: str) -> None:
        self._relations.setdefault(name, {})[(relation, other)] = None


def _imported(node: ast.AST, path: str) -> List[str]:
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    parts = path.split(os.sep)[: -node.level] if node.level else []
    base = ".".join([*parts, *([node.module] if node.module else [])])
    return [*(f"{base}.{one.name}" if base else one.name for one in node.names), *([base] if base else [])]


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _read(path: str) -> List[str]:
    try:
        return [] if not os.path.isfile(path) or os.path.getsize(path) > SIZE_LIMIT else read_lines(path)
    except OSError:
        return []


def search_code_snippets(
    search_terms: Optional[Sequence[str]] = None,
    line_nums: Optional[Sequence[int]] = None,
    file_path_or_pattern: str = "**/*.py",
) -> None:
    """Show the code that words or lines belong to.

    Args:
        search_terms: names of classes and functions, or any text; the definitions of those names, else the lines.
        line_nums: lines of the one file that is named; the class or function around each.
        file_path_or_pattern: the file, or a pattern for the paths of files.
    """
    code = CodeMap(os.getcwd())
    pattern = file_path_or_pattern
    plain = os.path.relpath(pattern, os.getcwd()) if os.path.isabs(pattern) else os.path.normpath(pattern)

    def fits(path: str) -> bool:
        return path == plain or fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(path, pattern.replace("**/", ""))

    paths = [name for name, one in code.entities.items() if one.kind == "file" and fits(name)]
    if not paths:
        print(f"ERROR: There is no Python file that fits {file_path_or_pattern}.")
        return
    if not search_terms and not line_nums:
        print("ERROR: Give search_terms, or line_nums with the path of a file.")
        return
    if line_nums and len(paths) > 1:
        print("ERROR: line_nums needs the path of one file as file_path_or_pattern.")
        return
    total = len(code.text(paths[0])) if line_nums else 0
    for line in line_nums or ():
        if not 1 <= line <= total:
            print(f"ERROR: {paths[0]} has no line {line}; its lines are 1 to {total}.")
            continue
        found = code.around(paths[0], line)
        _show(code, found or Entity(f"{paths[0]}, line {line}", "lines", paths[0], max(1, line - 10), line + 10))
    for term in search_terms or ():
        _search(code, term, paths)


def get_entity_contents(entity_names: Sequence[str]) -> None:
    """Show files, classes and functions whole.

    Args:
        entity_names: such as ``src/shop.py``, ``src/shop.py:Cart`` or ``src/shop.py:Cart.total``.
    """
    code = CodeMap(os.getcwd())
    for name in entity_names:
        path, _, own = name.partition(":")
        path = os.path.relpath(path, code.root) if os.path.isabs(path) else os.path.normpath(path)
        found = code.entities.get(f"{path}:{own}" if own else path)
        if found is None or found.kind == "directory":
            others = code.named(own or os.path.basename(path))
            hint = f" There is: {', '.join(others[:_SNIPPETS_LIMIT])}." if others else ""
            print(f"ERROR: There is no {name}.{hint}")
        else:
            _show(code, found)


def explore_tree_structure(
    start_entities: Sequence[str] = ("/",),
    direction: str = "downstream",
    traversal_depth: int = 2,
    entity_type_filter: Optional[Sequence[str]] = None,
    dependency_type_filter: Optional[Sequence[str]] = None,
) -> None:
    """Show what entities consist of and depend on, or what depends on them, as a tree.

    Args:
        start_entities: where to begin; ``/`` is the whole project.
        direction: ``downstream``, ``upstream`` or ``both``.
        traversal_depth: how far; -1 for as far as it goes.
        entity_type_filter: only ``directory``, ``file``, ``class`` or ``function``.
        dependency_type_filter: only ``contains``, ``imports``, ``inherits`` or ``invokes``.
    """
    for names, known in ((entity_type_filter, KINDS), (dependency_type_filter, RELATIONS)):
        unknown = [one for one in names or () if one not in known]
        if unknown:
            print(f"ERROR: {unknown[0]!r} is none of {', '.join(known)}.")
            return
    if direction not in ("downstream", "upstream", "both"):
        print(f"ERROR: direction is {direction!r}; it can be downstream, upstream or both.")
        return
    code = CodeMap(os.getcwd())
    depth = _DEPTH_LIMIT if traversal_depth < 0 else min(traversal_depth, _DEPTH_LIMIT)
    for start in start_entities:
        name = _entity_name(code, start)
        if name is None:
            print(f"ERROR: There is no {start}.")
            continue
        for one in ("downstream", "upstream") if direction == "both" else (direction,):
            print(f"{name} ({one})" if direction == "both" else name)
            lines = _tree(code, name, one, depth, entity_type_filter or KINDS, dependency_type_filter or RELATIONS)
            for count, line in enumerate(lines):
                if count == _TREE_LIMIT:
                    print(f"[more than {_TREE_LIMIT} are not shown: begin elsewhere, or go less far]")
                    break
                print(line)


def _search(code: CodeMap, term: str, paths: List[str]) -> None:
    names = [name for name in code.named(term) if name.partition(":")[0] in paths]
    names += [name for name in [term] if name in code.entities and ":" in name and name not in names]
    for name in names[:_SNIPPETS_LIMIT]:
        _show(code, code.entities[name])
    if len(names) > _SNIPPETS_LIMIT:
        print(f"[{len(names) - _SNIPPETS_LIMIT} more are called {term}: {', '.join(names[_SNIPPETS_LIMIT:])}]")
    if names:
        return
    hits = []
    for path in paths:
        for number, line in enumerate(code.text(path), 1):
            if term.lower() in line.lower():
                around = code.around(path, number)
                inside = f" (in {around.name.partition(':')[2]})" if around else ""
                hits.append(f"{path}:{number}{inside}: {line.strip()[:200]}")
    print(f"[{len(hits)} lines have {term!r}]")
    for hit in hits[:_HITS_LIMIT]:
        print(hit)
    if len(hits) > _HITS_LIMIT:
        print(f"[{len(hits) - _HITS_LIMIT} more are not shown]")


def _show(code: CodeMap, entity: Entity) -> None:
    lines = code.text(entity.path)
    start, end = entity.start or 1, min(entity.end or len(lines), len(lines))
    print(f"[{entity.kind} {entity.name}, lines {start} to {end}]")
    for number in range(start, min(end, start + _LINES_LIMIT - 1) + 1):
        print(f"{number:>5} | {lines[number - 1]}")
    if end - start >= _LINES_LIMIT:
        print(f"[{end - start + 1 - _LINES_LIMIT} more lines are not shown]")


def _entity_name(code: CodeMap, query: str) -> Optional[str]:
    plain = query[2:] if query.startswith("./") else query
    for name in (plain, plain + os.sep, "/" if plain in ("", ".") else plain):
        if name in code.entities:
            return name
    found = code.named(plain)
    return found[0] if len(found) == 1 else None


def _tree(
    code: CodeMap, name: str, direction: str, depth: int, kinds: Sequence[str], relations: Sequence[str]
) -> Iterator[str]:
    seen: Set[str] = {name}

    def below(one: str, level: int) -> Iterator[str]:
        if level > depth:
            return
        for relation, other in code.related(one, direction):
            entity = code.entities.get(other)
            if entity is None or relation not in relations or entity.kind not in kinds:
                continue
            arrow = f"{relation} ->" if direction == "downstream" else f"<- {relation}"
            again = " (see above)" if other in seen else ""
            yield f"{'  ' * level}{arrow} {other}{again}"
            if not again:
                seen.add(other)
                yield from below(other, level + 1)

    yield from below(name, 1)
