"""Who may import whom: the direction of imports is a test, not a habit."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = [
    {"library", "testing"},
    {"session"},
    {"controller"},
    {"agent"},
    {"memory", "runtime", "mcp"},
    {"tools", "skills", "security", "llm"},
    {"events"},
    {
        "errors",
        "troubles",
        "version",
        "templates",
        "destinations",
        "json_values",
        "bounded_regex",
        "lazy_names",
        "spans",
        "spelling",
    },
]
"""agent_core from the top down: a module may import its own row's own package and the rows below."""

SAME_ROW = {("security", "tools"), ("tools", "skills")}
"""Neighbours of one row that may meet: a policy of harmless tools; a skills tool."""

RUNNER_ROOMS = [{"browser", "git", "kernel"}, {"agent_skills"}, {"files", "terminal", "tunnels"}, {"core"}]
"""The runner from the top down: a room imports itself, rooms of the rows below, and the frames (`wire`)."""

SERVER_ROOMS = [
    {"__main__"},
    {"cli"},
    {"app"},
    {"parts"},
    {"openapi"},
    {"routes"},
    {"dependencies"},
    {"doors"},
    {"conversation_manager"},
    {"session"},
    {"git_providers", "sockets"},
    {"accounts"},
    {"single_sign_on"},
    {"http", "wire"},
    {"db"},
    {"auth"},
    {"settings"},
    {"traces"},
    {"errors", "listeners", "metrics", "clock"},
    {"measures"},
]
"""The server from the top down: a room imports itself and the rows below; services are handed in."""

HOMES = {
    "acp": {"server/doors/acp"},
    "litellm": {"agent_core/llm/transport"},
    "mcp": {"agent_core/mcp", "server/doors/mcp/sdk.py"},
    "httpx2": {"agent_core/mcp"},
    "httpx": {
        "server/git_providers/http.py",
        "server/doors/webhooks/sender.py",
        "server/http/forwarding.py",
        "server/auth/oidc.py",
        "agent_core/destinations.py",
        "agent_core/mcp/oauth.py",
        "agent_core/llm/transport",
        "drydock_client/http.py",
    },
    "jsonschema": {"agent_core/mcp"},
    "jwt": {"server/auth/id_token.py"},
    "regex": {"agent_core/bounded_regex.py"},
    "docker": {"agent_core/runtime/docker/engine.py", "agent_core/runtime/docker/images.py"},
    "sqlalchemy": {"server/db", "migrations"},
    "aiohttp": {"agent_core/llm/transport/connections.py", "agent_core/runtime/kubernetes/cluster.py"},
    "kubernetes_asyncio": {"agent_core/runtime/kubernetes/cluster.py"},
    "yarl": {"agent_core/llm/transport/connections.py"},
    "certifi": {"agent_core/llm/transport/connections.py"},
    "alembic": {"server/db", "migrations"},
    "aiosqlite": {"server/db"},
    "asyncpg": {"server/db"},
    "redis": {"server/db/redis_notices.py"},
    "socketio": {"server/sockets", "server/app.py"},
    "engineio": {"server/sockets"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "h11": {"server/doors/preview"},
    "websockets": {"server/doors/preview", "drydock_client/live.py"},
    "jinja2": {"agent_core/templates.py"},
    "opentelemetry": {"server/traces.py"},
    "rich": {"agent_core/library/console.py"},
    "yaml": {"agent_core/skills/files.py"},
    "cryptography": {"server/auth"},
    "playwright": {"runtime_images/runner/browser/browser_driver"},
    "tokenizers": {"agent_core/llm/llm.py"},
    "ipykernel": {"runtime_images/runner/kernel/kernel_driver"},
    "IPython": {"runtime_images/runner/kernel/kernel_driver"},
    "jupyter_client": {"runtime_images/runner/kernel/kernel_driver"},
    "tornado": {"runtime_images/runner/kernel/kernel_driver"},
    "traitlets": {"runtime_images/runner/kernel/kernel_driver"},
    "zmq": {"runtime_images/runner/kernel/kernel_driver"},
    "pypdf": {"runtime_images/runner/agent_skills"},
    "orjson": {"server", "agent_core/llm", "agent_core/runtime", "agent_core/testing"},
}
"""Each third-party library and the only places that import it."""

FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base_of_everything"}


class Import(NamedTuple):
    path: Path
    module: str
    line: int


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    return tuple(path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


@cache
def tree_of(path: Path) -> ast.Module:
    """The module, parsed once for all tests."""
    return ast.parse(path.read_text())


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly in one; expressions hold none."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        inner = getattr(node, field, ())
        yield from inner if isinstance(inner, list) else ()


@cache
def import_statements(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """All of a module, at its top or anywhere else, for its types too."""
    found: list[ast.Import | ast.ImportFrom] = []
    bodies: list[ast.AST] = [tree_of(path)]
    for node in bodies:  # grows while it is walked
        bodies.extend(statements_in(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
    return tuple(found)


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    found: list[Import] = []
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found.extend(Import(path, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(Import(path, node.module, node.lineno))
    return tuple(found)


@cache
def functions_of(path: Path) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    """Those at its top, and those of classes and blocks at its top."""
    found: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    bodies: list[ast.AST] = [tree_of(path)]
    for node in bodies:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node)
        else:
            bodies.extend(statements_in(node))
    return tuple(found)


def where(found: Import) -> str:
    return f"{found.path.relative_to(ROOT)}:{found.line} imports {found.module}"


def layer_of(package: str) -> int:
    return next((row for row, names in enumerate(LAYERS) if package in names), -1)


def test_agent_core_does_not_know_the_server() -> None:
    wrong = [
        where(found)
        for path in sources("agent_core")
        for found in imports_of(path)
        if found.module.split(".")[0] in {"server", "migrations", "fastapi", "starlette", "sqlalchemy"}
    ]
    assert not wrong, wrong


def test_only_conversations_of_a_server_know_its_client() -> None:
    wrong = [
        where(found)
        for path in sources("agent_core")
        for found in imports_of(path)
        if found.module.split(".")[0] == "drydock_client" and path.parent.name != "remote"
    ]
    assert not wrong, wrong


def test_the_client_package_imports_nothing_of_ours_but_itself() -> None:
    wrong = [
        where(found)
        for path in sources("drydock_client")
        for found in imports_of(path)
        if found.module.split(".")[0] in {"agent_core", "server", "runtime_images", "migrations"}
    ]
    assert not wrong, wrong


def test_the_runner_imports_nothing_of_ours_but_itself_and_that_relatively() -> None:
    """A sandbox knows its package by other names: the one it has here works in a test's own process only."""
    ours = {"agent_core", "drydock_client", "migrations", "runtime_images", "server"}
    wrong = [
        where(found)
        for path in sources("runtime_images/runner")
        for found in imports_of(path)
        if found.module.split(".")[0] in ours
    ]
    assert not wrong, wrong


def test_the_rooms_of_the_runner_import_from_the_top_down() -> None:
    runner = ROOT / "runtime_images/runner"
    row = {room: number for number, rooms in enumerate(RUNNER_ROOMS) for room in rooms}
    wrong: list[str] = []
    for path in sorted(runner.rglob("*/*.py")):
        inside = path.relative_to(runner).parent.parts
        for node in import_statements(path):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            target = [*inside[: len(inside) - node.level + 1], *(node.module or "").split(".")]
            wrong.extend(
                f"{path.relative_to(ROOT)}:{node.lineno} imports {found}"
                for found in ([target[0]] if target[0] else [alias.name for alias in node.names])
                if found not in (inside[0], "wire") and row.get(found, -1) <= row[inside[0]]
            )
    assert not wrong, wrong


def test_only_the_runtime_knows_the_runner_and_only_its_frames() -> None:
    wrong = [
        where(found)
        for path in sources("agent_core", "server")
        for found in imports_of(path)
        if found.module.startswith("runtime_images")
        and not (
            (
                path.is_relative_to(ROOT / "agent_core/runtime")
                or path.name == "fake_sandbox.py"  # the other end of the same stream
            )
            and found.module in {"runtime_images.runner.wire", "runtime_images.runner"}
        )
    ]
    assert not wrong, wrong


def test_agent_core_imports_from_the_top_down() -> None:
    wrong = []
    for path in sources("agent_core"):
        own = path.relative_to(ROOT / "agent_core").parts[0].removesuffix(".py")
        for found in imports_of(path):
            parts = found.module.split(".")
            if parts[0] != "agent_core" or len(parts) < 2 or own == "__init__" or parts[1] == own:
                continue
            upper, lower = layer_of(own), layer_of(parts[1])
            assert upper >= 0, f"{own} has no layer"
            assert lower >= 0, f"{parts[1]} has no layer"
            if lower < upper or (lower == upper and (own, parts[1]) not in SAME_ROW):
                wrong.append(where(found))
    assert not wrong, wrong


def test_the_server_imports_from_the_top_down_and_no_door_another() -> None:
    row = {room: number for number, rooms in enumerate(SERVER_ROOMS) for room in rooms}
    wrong = []
    for path in sources("server"):
        own = path.relative_to(ROOT / "server").with_suffix("").parts
        for found in imports_of(path):
            parts = tuple(found.module.split(".")[1:])
            if not found.module.startswith("server.") or own[0] == "__init__":
                continue
            if own[0] == parts[0]:
                is_allowed = own[0] != "doors" or parts[1] in (own[1], "stdio_program")
            else:
                is_allowed = row[own[0]] < row[parts[0]]
            if not is_allowed:
                wrong.append(where(found))
    assert not wrong, wrong


def test_the_editors_door_is_a_client_and_reaches_nothing_inside_the_server() -> None:
    allowed = (
        "server.doors.acp",
        "server.settings.running_server",
        "server.doors.stdio_program",
        "agent_core.version",
        "agent_core.errors",
    )
    wrong = [
        where(found)
        for path in sources("server/doors/acp")
        for found in imports_of(path)
        if found.module.split(".")[0] in {"server", "agent_core", "migrations"} and not found.module.startswith(allowed)
    ]
    assert not wrong, wrong


def test_the_door_of_mcp_clients_is_a_client_too_and_reaches_nothing_inside_the_server() -> None:
    inside = {"http_door"}
    door = {f"server.doors.mcp.{path.stem}": path for path in sources("server/doors/mcp") if path.stem not in inside}
    allowed = (
        *door,
        "server.settings.running_server",
        "server.doors.stdio_program",
        "agent_core.version",
        "agent_core.errors",
        "agent_core.tools",
    )
    wrong = [
        where(found)
        for path in door.values()
        for found in imports_of(path)
        if found.module.split(".")[0] in {"server", "agent_core", "migrations"}
        and not found.module.startswith((*allowed, "agent_core.mcp.tool"))
    ]
    assert not wrong, wrong


def modules_used(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The modules of ours that this one imports."""
    used: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            used.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parts[:-1]
            inside = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*inside, *(node.module or "").split(".")]).rstrip(".")
            names = {alias.name: f"{module}.{alias.name}" for alias in node.names}
            used.update(full if full in modules else module for full in names.values())
    return used & modules.keys()


@cache
def uses_of_modules() -> dict[str, set[str]]:
    whole = ("agent_core", "bench", "deploy", "drydock_client", "migrations", "runtime_images", "server")
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sources(*whole)
    }
    return {module: modules_used(path, modules) - {module} for module, path in modules.items()}


def in_circles(uses: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Those that are in circles, or between two of them, and what they use of each other."""
    left = dict(uses)
    ends = {name for name, used in left.items() if not used}
    while ends:  # what uses nothing of the rest, and what nothing of the rest uses
        left = {name: used - ends for name, used in left.items() if name not in ends}
        everything_used = set[str]().union(*left.values())
        ends = {name for name, used in left.items() if not used or name not in everything_used}
    return left


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert not in_circles(uses_of_modules())


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    """Among the packages (and loose modules) of each folder: each can be understood after those that it uses."""
    folders: dict[str, dict[str, set[str]]] = {}
    for module, used in uses_of_modules().items():
        parts = module.split(".")
        for depth, own in enumerate(parts):
            within = parts[:depth]
            rooms = folders.setdefault(".".join(within), {})
            others = (name.split(".") for name in used)
            found = {other[depth] for other in others if other[:depth] == within and len(other) > depth}
            rooms.setdefault(own, set()).update(found - {own})
    wrong = {folder: circles for folder, rooms in folders.items() if (circles := in_circles(rooms))}
    assert not wrong, wrong


def test_importing_a_module_does_nothing_but_define() -> None:
    """At the top of a module stand definitions and conditions (for types, for a program's start), and no work."""
    allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    values = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If)
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources("agent_core", "deploy", "drydock_client", "server", "runtime_images")
        for node in ast.parse(path.read_text()).body
        if not isinstance(node, (*allowed, *values))
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not ast.unparse(node).startswith("router.routes.extend(")
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("library", sorted(HOMES))
def test_each_library_has_one_home(library: str) -> None:
    wrong = [
        where(found)
        for path in sources("agent_core", "drydock_client", "server", "migrations", "runtime_images")
        for found in imports_of(path)
        if found.module.split(".")[0] == library
        and not any(path.is_relative_to(ROOT / home) for home in HOMES[library])
    ]
    assert not wrong, wrong


def test_no_module_is_named_after_nothing() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in sources("agent_core", "drydock_client", "server", "runtime_images", "tests", "bench")
        if path.stem in FORBIDDEN_NAMES
    ]
    assert not wrong, wrong


def test_our_own_modules_are_never_imported_inside_a_function() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} imports {node.module} late"
        for path in sources("agent_core", "drydock_client", "server")
        for node in import_statements(path)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] in {"agent_core", "drydock_client", "server"}
        and any(function.lineno <= node.lineno <= (function.end_lineno or 0) for function in functions_of(path))
    ]
    assert not wrong, wrong


def test_a_test_that_serves_does_it_with_what_leaves_nothing_behind() -> None:
    own = {Path(__file__), ROOT / "tests/listening.py", ROOT / "tests/serving.py"}
    texts = {path: path.read_text() for path in (ROOT / "tests").rglob("*.py") if path not in own}
    found = [path for path, text in texts.items() if "asyncio.start_" in text or "uvicorn.Server(" in text]
    assert found == [], "use tests/listening.py or tests/serving.py"
