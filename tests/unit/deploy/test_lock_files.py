"""The lock files of the Python packages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)(?:\[[a-z0-9,_-]+\])?==(\S+)(?: ; .+)? \\$", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pinned(name: str) -> dict[str, str]:
    return dict(PINNED.findall((ROOT / name).read_text("utf-8")))


@pytest.mark.parametrize(
    "name",
    [
        *("requirements.lock", "requirements-dev.lock", "requirements-setup.lock"),
        *("requirements-postgresql.lock", "requirements-kubernetes.lock", "requirements-redis.lock"),
    ],
)
def test_a_lock_file_names_exact_versions_with_hashes_and_no_host(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)
    assert "/tmp" not in text
    blocks = re.split(r"\n(?=\S)", text)
    for block in blocks:
        if not block.startswith("#"):
            assert PINNED.match(block), block[:80]
            assert HASH.search(block), block[:80]


def test_what_is_developed_with_contains_what_is_run() -> None:
    assert pinned("requirements.lock").items() <= pinned("requirements-dev.lock").items()
    assert pinned("requirements-postgresql.lock").items() <= pinned("requirements-dev.lock").items()
    assert pinned("requirements-kubernetes.lock").items() <= pinned("requirements-dev.lock").items()
    assert pinned("requirements-redis.lock").items() <= pinned("requirements-dev.lock").items()
    assert "redis" in pinned("requirements-redis.lock")
    assert "kubernetes-asyncio" in pinned("requirements-kubernetes.lock")
    assert "asyncpg" in pinned("requirements-postgresql.lock")


def test_every_declared_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    names = [
        re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()
        for requirement in [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    ]
    assert set(names) <= set(pinned("requirements.lock"))
    developed = [
        re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()
        for requirement in project["project"]["optional-dependencies"]["dev"]
    ]
    assert set(developed) <= set(pinned("requirements-dev.lock"))


def test_every_declared_dependency_has_its_reason_in_the_decisions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    declared = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["dev"],
        *project["build-system"]["requires"],
    ]
    reasons = (ROOT / "docs" / "decisions.md").read_text("utf-8").partition("## Dependencies")[2]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in declared}
    assert {name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", reasons)} == set()
