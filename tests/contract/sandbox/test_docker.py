"""The conformance suite of sandboxes on Docker containers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_core.runtime.docker.provider import DockerProvider
from agent_core.testing.sandbox_contract import (
    SandboxIsolationContract,
    SandboxKit,
    SandboxLifecycleContract,
    SandboxRequestContract,
    SandboxTogetherContract,
)
from tests.contract.suites.attacks_contract import SandboxAttacksContract
from tests.contract.suites.disk_contract import SandboxDiskContract
from tests.contract.suites.editor_contract import FileEditorContract
from tests.contract.suites.file_tools_contract import FileToolsContract
from tests.contract.suites.terminal_contract import TerminalContract

pytestmark = pytest.mark.docker


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[SandboxKit]:
    made = SandboxKit(DockerProvider(), str(tmp_path))
    yield made
    await made.close()


class TestLifecycle(SandboxLifecycleContract):
    pass


class TestRequests(SandboxRequestContract, SandboxTogetherContract):
    pass


class TestIsolation(SandboxIsolationContract, SandboxAttacksContract):
    pass


class TestFileTools(FileToolsContract):
    pass


class TestFileEditor(FileEditorContract):
    pass


class TestTerminal(TerminalContract):
    pass


class TestDisk(SandboxDiskContract):
    pass
