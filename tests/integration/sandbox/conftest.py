"""Providers of real sandboxes for tests of bad luck."""

from __future__ import annotations

import base64
import io
import secrets
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.api.client import APIClient
from docker.utils import kwargs_from_env

from agent_core.runtime.docker.images import DEFAULT_IMAGE
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.local.provider import LocalProvider
from agent_core.testing.sandbox_contract import SandboxKit


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


def instead_of_python(script: str) -> str:
    """A line of a Dockerfile that puts a shell script where the runner expects Python."""
    text = base64.b64encode(f"#!/bin/sh\n{script}\n".encode()).decode()
    return f"RUN echo {text} | base64 -d > /usr/local/bin/python3 && chmod 755 /usr/local/bin/python3"


@pytest.fixture
def engine() -> Iterator[Any]:
    client = APIClient(version="auto", **kwargs_from_env())
    yield client
    client.close()


@pytest.fixture
def image(engine: Any) -> Iterator[Any]:
    """Builds small images and removes them."""
    made: list[str] = []

    def build(*lines: str) -> str:
        name = f"drydock-test/{secrets.token_hex(6)}:1"
        if lines:
            dockerfile = "\n".join([f"FROM {DEFAULT_IMAGE}", "USER root", *lines])
            for step in engine.build(fileobj=io.BytesIO(dockerfile.encode()), tag=name, decode=True, rm=True):
                assert "error" not in step, step
        else:
            empty = io.BytesIO()
            with tarfile.open(fileobj=empty, mode="w") as archive:
                archive.addfile(tarfile.TarInfo("nothing"))
            engine.import_image_from_data(empty.getvalue(), repository=name.split(":")[0], tag="1")
        made.append(name)
        return name

    yield build
    for name in made:
        engine.remove_image(name, force=True)
