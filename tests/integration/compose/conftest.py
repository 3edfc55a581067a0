"""The real engine, and the proxy in front of it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.api.client import APIClient
from docker.errors import APIError

from deploy.engine_proxy.ownership import ServedInstance
from deploy.engine_proxy.proxy import EngineProxy

SOCKET = "/var/run/docker.sock"
IMAGE = "drydock/sandbox:base"


@pytest.fixture
def instance() -> str:
    """Whom the proxy serves from the first request on."""
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture
async def proxy_address(tmp_path: Path, instance: str) -> AsyncIterator[str]:
    """Address of a proxy before the real engine."""
    served = ServedInstance(tmp_path / "served")
    served.learn(instance)
    async with EngineProxy(SOCKET, served).serving("127.0.0.1", 0) as port:
        yield f"tcp://127.0.0.1:{port}"


@pytest.fixture
def engine() -> Iterator[Any]:
    """The real engine's own client, without the proxy."""
    client: Any = APIClient(base_url=f"unix://{SOCKET}", version="auto")
    yield client
    client.close()


@pytest.fixture
def own_name(engine: Any) -> Iterator[str]:
    """A name that the proxy lets through; what was made under it is removed afterwards."""
    name = f"drydock-test-{secrets.token_hex(4)}"
    yield name
    # Most tests make only one of these.
    with contextlib.suppress(APIError):
        engine.remove_container(name, force=True, v=True)
    with contextlib.suppress(APIError):
        engine.remove_volume(name, force=True)
    with contextlib.suppress(APIError):
        engine.remove_network(name)
