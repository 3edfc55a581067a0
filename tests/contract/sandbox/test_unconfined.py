"""The conformance suite of sandboxes without isolation: all of it but what isolation means."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_core.runtime.local.provider import LocalProvider
from agent_core.testing.sandbox_contract import (
    SandboxKit,
    SandboxLifecycleContract,
    SandboxRequestContract,
    SandboxTogetherContract,
    output,
)
from tests.contract.suites.disk_contract import SandboxDiskContract


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[SandboxKit]:
    made = SandboxKit(LocalProvider(str(tmp_path), confined=False), str(tmp_path), confined=False)
    yield made
    await made.close()


class TestLifecycle(SandboxLifecycleContract):
    pass


async def test_a_long_path_is_worked_around_and_nothing_of_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as short:  # pytest's own may be too long already
        monkeypatch.setattr(tempfile, "tempdir", short)
        long = str(tmp_path / ("long" * 30))
        kit = SandboxKit(LocalProvider(long, confined=False), long, confined=False)
        sandbox = kit.connect()
        assert await output(sandbox, "echo fine") == "fine"
        await sandbox.stop()
        assert await output(sandbox, "echo fine") == "fine"
        await kit.close()
        assert os.listdir(short) == []


class TestRequests(SandboxRequestContract, SandboxTogetherContract):
    pass


class TestDisk(SandboxDiskContract):
    pass
