"""The conformance suite of sandboxes on Docker containers."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_core.runtime.docker.provider import DockerProvider
from agent_core.testing.sandbox_contract import (
    SandboxBoundsContract,
    SandboxIsolationContract,
    SandboxKit,
    SandboxLifecycleContract,
    SandboxRequestContract,
    SandboxTogetherContract,
    output,
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
    async def test_a_workspace_is_the_same_through_the_engine_as_past_it(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await output(sandbox, "mkdir -p a/b; head -c 5000000 /dev/urandom > a/b/large; ln a/b/large same; ln -s a link")
        await output(sandbox, "mkfifo pipe; printf x > $'odd\\xff'; chmod 0700 a; chmod 0640 a/b/large")
        found = []
        for direct in (True, False):
            provider = DockerProvider(direct=direct)
            file = io.BytesIO()
            try:
                assert await provider.restore(kit.spec(), sandbox.sandbox.state).archive(file) == []
            finally:
                await provider.close()
            file.seek(0)
            with tarfile.open(fileobj=file) as tar:
                contents = {one.name: tar.extractfile(one).read() for one in tar if one.isreg() or one.islnk()}  # type: ignore[union-attr]
                kinds = sorted((one.name, one.mode, one.mtime) for one in tar)
            found.append((kinds, contents))
        assert len(found[0][1]["same"]) == 5_000_000
        assert found[0] == found[1]


class TestRequests(SandboxRequestContract, SandboxTogetherContract):
    pass


class TestIsolation(SandboxIsolationContract, SandboxBoundsContract, SandboxAttacksContract):
    pass


class TestFileTools(FileToolsContract):
    pass


class TestFileEditor(FileEditorContract):
    pass


class TestTerminal(TerminalContract):
    pass


class TestDisk(SandboxDiskContract):
    pass
