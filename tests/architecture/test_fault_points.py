"""Whatever writes into the database or the payloads is among the points at which `make chaos` kills a server."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.chaos.points import POINTS

ROOT = Path(__file__).parents[2]
_WRITES: Final = {"change", "execute", "append", "append_prepared"}
_ELSEWHERE: Final = {
    "server.db.event_store:SqlEventStore.delete": "for programs of one's own; a server deletes with the conversation",
    "server.db.repositories.audit:AuditLog.prune": "a command of the operator's, all of it in one transaction",
    **dict.fromkeys(
        (f"server.db.repositories.waiting_files:WaitingFileRepository.{name}" for name in ("keep", "forget")),
        "of several servers over one database: tests/integration/server/test_cluster.py",
    ),
    **dict.fromkeys(
        (
            f"server.db.repositories.{name}"
            for name in (
                *(f"credentials:CredentialRepository.{one}" for one in ("_end", "begin", "make_token", "note_use")),
                *(f"users:UserRepository.{one}" for one in ("add", "change", "make_link", "renew_hash")),
                *(f"users:UserRepository.{one}" for one in ("set_password", "use_link")),
                *(f"identities:IdentityRepository.{one}" for one in ("add", "take")),
            )
        ),
        "one transaction each, where the server has accounts: tests/contract/stores/test_users.py",
    ),
    "server.db.repositories.drained_hosts:DrainedHosts.say": "one row, of several Docker hosts alone",
}
"""What is not in the table, and why."""


def writing_functions() -> Iterator[str]:
    """``module:Class.name`` of every function below `server` that asks the writer for a change."""
    for path in sorted((ROOT / "server").rglob("*.py")):
        if path.name == "writer.py":
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text("utf-8")).body:
            members = node.body if isinstance(node, ast.ClassDef) else [node]
            owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            for one in members:
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_asks_writer, ast.walk(one))):
                    yield f"{module}:{owner}{one.name}"


def _asks_writer(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WRITES):
        return False
    asked = node.func.value
    name = asked.attr if isinstance(asked, ast.Attribute) else getattr(asked, "id", "")
    return name in ("writer", "_writer")


def test_whatever_writes_is_a_place_at_which_servers_are_killed() -> None:
    found, known = set(writing_functions()), {point.function for point in POINTS}
    assert "server.db.repositories.notes:NoteRepository.add" in found
    assert sorted(found - known - _ELSEWHERE.keys()) == [], "add a point in tests/chaos/points.py, and what passes it"
    assert sorted(_ELSEWHERE.keys() - found) == [], "does not write any more"
    assert sorted(_ELSEWHERE.keys() & known) == [], "is in the table by now"
