"""The programs in the documentation: their syntax, their imports, and the files that the pages point to."""

from __future__ import annotations

import ast
import json
import re
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from agent_core.mcp.config import McpServer, mcp_servers
from agent_core.security.hooks import HookConfig, HookEvent
from agent_core.session.settings import AgentOptions
from agent_core.skills.agent_catalog import agent_from_text
from agent_core.skills.files import skill_from_text
from server.session.sandbox_choice import SandboxOptions

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
OURS = ("agent_core", "server", "runtime_images")

MAP = ROOT / "docs" / "architecture.md"
PACKAGES = ("agent_core", "server", "runtime_images/runner", "frontend_stub", "")
STATION = re.compile(r"^ ?\d+ {2}(\S+)", re.MULTILINE)
PATH = re.compile(r"(?:[\w.-]+/)+[\w.*-]*|[\w*-]+\.(?:py|md|ts|toml)")

TEST = re.compile(r"`(?:tests/(?P<file>[\w/]+\.py))?(?:::)?(?P<test>test_\w+)?`")

PROGRAMS = [(page, number, code) for page in PAGES for number, code in enumerate(BLOCK.findall(page.read_text()))]


@pytest.mark.parametrize(("page", "number", "code"), PROGRAMS, ids=[f"{p.stem}-{n}" for p, n, _ in PROGRAMS])
def test_what_a_program_in_the_documentation_imports_is_there(page: Path, number: int, code: str) -> None:
    for node in ast.walk(ast.parse(code, f"{page.name}, program {number}")):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            module = import_module(node.module)
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert not missing, f"{page.name}: {node.module} has no {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_page_points_to_are_there(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_there_are_programs_in_the_documentation() -> None:
    assert PROGRAMS


def test_the_files_that_are_shown_as_examples_are_read_as_the_page_says() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    hooks, servers, options, sandbox = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    skill, agent = re.findall(r"^```markdown\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    config = HookConfig.from_json(hooks)
    assert len(config.for_event(HookEvent.PRE_TOOL_USE, "terminal")) == 1
    assert len(config.for_event(HookEvent.STOP)) == 1
    named = TypeAdapter(dict[str, McpServer]).validate_python(mcp_servers(json.loads(servers)))
    assert {name: server.kind for name, server in named.items()} == {"time": "stdio", "tickets": "http"}
    assert AgentOptions.model_validate(json.loads(options)["agent_options"]).tool_concurrency_limit == 4
    assert SandboxOptions.model_validate(json.loads(sandbox)["sandbox"]).image == "python:3.12"
    assert skill_from_text("skills/releases.md", skill).match_trigger("prepare the release") == "release"
    assert agent_from_text("reviewer.md", agent, "project").tools == ["terminal"]


def test_the_tests_that_the_page_of_attacks_names_are_there() -> None:
    named = [
        match for match in TEST.finditer((ROOT / "docs" / "security.md").read_text("utf-8")) if any(match.groups())
    ]
    files = {
        path.relative_to(ROOT / "tests").as_posix(): path.read_text("utf-8") for path in ROOT.glob("tests/**/*.py")
    }
    suites = [path.read_text("utf-8") for path in ROOT.glob("agent_core/testing/*.py")]
    everywhere = "".join([*files.values(), *suites])
    assert len(named) > 50
    for match in named:
        text = files[match["file"]] if match["file"] else everywhere
        assert f"def {match['test'] or ''}" in text, match[0]


def test_every_path_on_the_map_is_there() -> None:
    missing = []
    for section in re.split(r"^## ", MAP.read_text("utf-8"), flags=re.MULTILINE):
        if section.startswith("Processes and files"):  # of the data folder
            continue
        for line in section.splitlines():
            bases = [ROOT / package for package in PACKAGES]
            for path in (word for code in re.findall(r"`([^`]+)`", line) for word in code.split()):
                if PATH.fullmatch(path) is None:
                    continue
                found = [place for base in bases for place in base.glob(path.rstrip("/"))]
                missing += [] if found else [path]
                for place in found:  # what follows in the line may be written as seen from there
                    bases += [place, place.parent]
    assert not missing


def test_both_ways_lead_through_twelve_modules_at_most() -> None:
    ways = re.findall(r"^## The way of .*?^```\n(.*?)^```", MAP.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(ways) == 2
    for way in ways:
        stations = STATION.findall(way)
        assert len(stations) == len(way.splitlines()) <= 12
        assert not [station for station in stations if not (ROOT / station).is_file()]


def test_every_folder_of_the_repository_has_its_line_on_the_map() -> None:
    _, _, rest = MAP.read_text("utf-8").partition("\n## Folders\n")
    table = rest[: rest.index("\n\nInside")]
    named = {
        name
        for row in table.splitlines()
        for name in re.findall(r"`(\w+)/", row.split("|", 2)[1] if "|" in row else "")
    }
    made = {line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert not {name for name in folders - named if not any(fnmatch(name, ignored) for ignored in made)}


@pytest.mark.parametrize("package", PACKAGES[:3])
def test_every_folder_of_a_package_has_its_line_on_the_map(package: str) -> None:
    _, _, rest = MAP.read_text("utf-8").partition(f"\nInside `{package}`")
    table = rest[rest.index("|---|") :].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[1:]]
    named = [name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert not [
        name for name in named if not ((ROOT / package / name).is_dir() or (ROOT / package / f"{name}.py").is_file())
    ]
    folders = {path.parent.relative_to(ROOT / package).parts for path in (ROOT / package).rglob("__init__.py")}
    assert not {parts[0] for parts in folders if parts} - set(named)
    inner = {parts[-1] for parts in folders if len(parts) > 1}
    assert not [name for name in inner if f"`{name}/`" not in table]
