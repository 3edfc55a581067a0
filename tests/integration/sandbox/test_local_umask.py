"""Local sandboxes of a server that gives others no rights, or all, to what it writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agent_core.runtime.local.provider import LocalProvider
from agent_core.testing.sandbox_contract import SandboxKit, output

pytestmark = pytest.mark.bubblewrap


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
async def test_a_sandbox_runs_whatever_the_servers_mask_is(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    kit = SandboxKit(LocalProvider(str(data)), str(data))
    try:
        sandbox = kit.connect()
        # Its own files are to be read, and what it makes has the modes of any other program's.
        assert await output(sandbox, "id -un; umask; cat /etc/resolv.conf > x; stat -c %a x") == "agent\n0022\n644"
        wide = [
            path
            for path in (data / "sandboxes").rglob("*")
            if not path.is_symlink() and "workspace" not in path.parts and path.stat().st_mode & stat.S_IWOTH
        ]
        assert [path for path in wide if not path.is_socket()] == []
    finally:
        os.umask(before)
        await kit.close()
