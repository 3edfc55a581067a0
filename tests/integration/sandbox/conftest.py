"""Providers of real sandboxes for tests of bad luck."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_core.runtime.docker_provider import DockerProvider
from agent_core.runtime.local import LocalProvider
from agent_core.testing.sandbox_kit import SandboxKit


@pytest.fixture
async def docker_kit(tmp_path: Path) -> AsyncIterator[SandboxKit]:
    made = SandboxKit(DockerProvider(), str(tmp_path))
    yield made
    await made.close()


@pytest.fixture
async def local_kit(tmp_path: Path) -> AsyncIterator[SandboxKit]:
    made = SandboxKit(LocalProvider(str(tmp_path)), str(tmp_path))
    yield made
    await made.close()


@pytest.fixture(
    params=[pytest.param("docker", marks=pytest.mark.docker), pytest.param("local", marks=pytest.mark.bubblewrap)]
)
async def kit(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxKit]:
    provider = DockerProvider() if request.param == "docker" else LocalProvider(str(tmp_path))
    made = SandboxKit(provider, str(tmp_path))
    yield made
    await made.close()
