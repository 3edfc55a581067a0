"""The engine proxy before an engine that is made up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.engine_proxy.ownership import ServedInstance
from deploy.engine_proxy.proxy import EngineProxy
from tests.listening import listening_at
from tests.unit.deploy.fake_engine import INSTANCE, FakeEngine


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[FakeEngine]:
    engine = FakeEngine(tmp_path / "engine.sock")
    async with listening_at(engine.path, engine.connected):
        yield engine


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The file that keeps whom the proxy serves: the instance of the fake engine's own things."""
    path = tmp_path / "instance"
    path.write_text(f"{INSTANCE}\n")
    return path


@pytest.fixture
async def port(engine: FakeEngine, served: Path) -> AsyncIterator[int]:
    async with EngineProxy(str(engine.path), ServedInstance(served)).serving("127.0.0.1", 0) as port:
        yield port
