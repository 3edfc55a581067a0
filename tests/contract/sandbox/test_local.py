"""The conformance suite of sandboxes under bubblewrap."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_core.runtime.channel.disk_watch import DISK_LIMIT
from agent_core.runtime.local.folder import RECORD, SandboxFolder, remove_tree
from agent_core.runtime.local.provider import LocalProvider
from agent_core.runtime.sandbox import SandboxSpec, SandboxStatus, object_name
from agent_core.testing.sandbox_contract import (
    SandboxBoundsContract,
    SandboxIsolationContract,
    SandboxKit,
    SandboxLifecycleContract,
    SandboxRequestContract,
    SandboxTogetherContract,
    output,
    run,
)
from tests.contract.suites.attacks_contract import SandboxAttacksContract
from tests.contract.suites.disk_contract import MEGABYTE, REACHED, SMALL, SandboxDiskContract
from tests.contract.suites.editor_contract import FileEditorContract
from tests.contract.suites.file_tools_contract import FileToolsContract
from tests.contract.suites.terminal_contract import TerminalContract

pytestmark = pytest.mark.bubblewrap


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[SandboxKit]:
    made = SandboxKit(LocalProvider(str(tmp_path)), str(tmp_path))
    yield made
    await made.close()


class TestLifecycle(SandboxLifecycleContract):
    pass


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
    async def test_what_writes_while_others_free_as_much_is_ended_and_not_the_sandbox(
        self, kit: SandboxKit, tmp_path: Path
    ) -> None:
        others = tmp_path / "others"
        with others.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1024 * MEGABYTE)
        sandbox = kit.connect(limits=SMALL)
        await run(sandbox, "sleep 0.3")  # the runner's first look
        others.unlink()
        result = await run(
            sandbox, "i=0; while :; do head -c 900000 /dev/zero > file$i; i=$((i + 1)); sleep 0.01; done"
        )
        assert REACHED in result["notice"], result
        assert await sandbox.sandbox.poll() is SandboxStatus.RUNNING
        assert DISK_LIMIT not in kit.statuses()


async def test_a_sandbox_that_was_about_to_end_when_it_was_found_is_started_anew(kit: SandboxKit) -> None:
    sandbox = kit.connect()
    await output(sandbox, "true")
    await sandbox.close()
    found = kit.provider.restore(kit.spec(), sandbox.sandbox.state)
    process = json.loads((Path(kit.data_dir) / "sandboxes" / str(found.state["name"]) / "process.json").read_text())
    os.kill(process["init"], signal.SIGSTOP)  # it is there, and answers nobody
    starting = asyncio.create_task(found.start(lambda *_: None))
    await asyncio.sleep(0.2)
    os.kill(process["init"], signal.SIGKILL)
    try:
        await starting
        assert not found.survived
        assert await found.poll() is SandboxStatus.RUNNING
    finally:
        await found.stop()


async def test_what_is_left_of_a_making_or_a_removal_that_was_broken_off_is_reaped(tmp_path: Path) -> None:
    provider = LocalProvider(str(tmp_path))
    folders = {name: tmp_path / "sandboxes" / object_name("instance", name) for name in ("gone", "kept")}
    for folder in folders.values():
        (folder / "workspace").mkdir(parents=True)
        (folder / "workspace" / "file").touch()
    try:
        assert await provider.reap("instance", ["kept"]) == []
    finally:
        await provider.close()
    assert [name for name, folder in folders.items() if folder.exists()] == ["kept"]


def test_whose_a_sandbox_is_can_be_read_until_all_else_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SandboxFolder(str(tmp_path), "drydock-x")
    folder.prepare(SandboxSpec("one", "instance", image="", data_dir=str(tmp_path)), confined=False)

    def broken_off(path: Path) -> None:
        assert path != folder.path
        if path.name == "workspace":
            raise InterruptedError
        remove_tree(path)

    with monkeypatch.context() as patched:
        patched.setattr("agent_core.runtime.local.folder.remove_tree", broken_off)
        with pytest.raises(InterruptedError):
            folder.remove()
    assert (folder.path / RECORD).exists()
    assert not (folder.path / "state").exists()
    folder.remove()
    assert not folder.path.exists()
