"""Finding the places in a project's Python code that matter: by word, by name, and by what depends on what."""

from __future__ import annotations

import fnmatch
import os
from typing import Iterator, List, Optional, Sequence, Set

from .code_map import KINDS, RELATIONS, CodeMap, Entity

_SNIPPETS_LIMIT = 10
_LINES_LIMIT = 200
_HITS_LIMIT = 50
_TREE_LIMIT = 300
_DEPTH_LIMIT = 10


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
    paths = [name for name, one in code.entities.items() if one.kind == "file" and _fits(name, file_path_or_pattern)]
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
    for given, known in ((entity_type_filter, KINDS), (dependency_type_filter, RELATIONS)):
        unknown = [one for one in given or () if one not in known]
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


def _entity_name(code: CodeMap, given: str) -> Optional[str]:
    plain = given if given == "/" else given.replace("./", "", 1) if given.startswith("./") else given
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


def _fits(path: str, pattern: str) -> bool:
    plain = os.path.relpath(pattern, os.getcwd()) if os.path.isabs(pattern) else os.path.normpath(pattern)
    return path == plain or fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(path, pattern.replace("**/", ""))
