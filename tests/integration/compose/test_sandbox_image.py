"""The default sandbox image, as `make sandbox-image` builds it."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.docker

IMAGE = "drydock/sandbox:base"
MOST_BYTES = 500_000_000


def run(engine: Any, name: str, script: str) -> str:
    """What a script prints in a container of the image, under the restrictions of a sandbox."""
    host = {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "NetworkMode": "none"}
    config = {"Image": IMAGE, "Cmd": ["bash", "-c", script], "HostConfig": host}
    engine.create_container_from_config(config, name)
    engine.start(name)
    code = engine.wait(name, timeout=60)["StatusCode"]
    output = engine.logs(name, stdout=True, stderr=True).decode()
    assert code == 0, output
    return str(output)


def test_the_image_is_small(engine: Any) -> None:
    assert engine.inspect_image(IMAGE)["Size"] < MOST_BYTES


def test_an_agent_finds_its_tools(engine: Any, own_name: str) -> None:
    tools = "bash curl file git jq less make patch pip3 ps python3 rg ssh unzip xz"
    script = f"set -e; for tool in {tools}; do command -v $tool; done; test -s /etc/ssl/certs/ca-certificates.crt"
    run(engine, own_name, script)


def test_the_kernels_library_is_in_nobodys_way(engine: Any, own_name: str) -> None:
    look = "python3 -c 'import ipykernel; print(1)'"
    script = f"{look} 2>/dev/null || PYTHONPATH=/opt/drydock-kernel {look}"
    assert run(engine, own_name, script).split() == ["1"]


def test_an_agent_is_an_ordinary_user_with_a_workspace(engine: Any, own_name: str) -> None:
    assert run(engine, own_name, "id -u; id -un; pwd; touch x && git init -q . && ls").split() == [
        "1000",
        "agent",
        "/workspace",
        "x",
    ]
