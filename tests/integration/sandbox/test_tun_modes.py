"""The network of local sandboxes for root and for an ordinary user, whatever the mode of /dev/net/tun."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sandbox.test_local_user import ROOT, USER, readable_python
from tests.machines import Outside, needs_root, outside

pytestmark = [pytest.mark.bubblewrap, needs_root]

OWN_TUN = 'mount -t tmpfs tmpfs /dev/net && mknod /dev/net/tun c 10 200 && chmod "$0" /dev/net/tun && exec "$@"'
NO_TUN = 'mount -t tmpfs tmpfs /dev/net && exec "$@"'
PROGRAM = """
import asyncio, json, sys
from agent_core.runtime.local.provider import LocalProvider
from agent_core.testing.sandbox_contract import SandboxKit, output

REACH = '''
import socket
def reach(address):
    try:
        with socket.create_connection((address, 80), 10) as peer:
            text = peer.makefile("rb").read().decode()
            return text if len(text) < 100 else len(text)
    except OSError as error:
        return type(error).__name__
'''

async def main(folder, beyond, host):
    kit = SandboxKit(LocalProvider(folder), folder)
    try:
        sandbox = kit.connect(network="full")
        program = f"{REACH}\\nprint(reach({beyond!r}), reach({host!r}))"
        reached = await output(sandbox, f"python3 - <<'EOF'\\n{program}\\nEOF")
        print(json.dumps({
            "reached": reached.split(),
            "devices": (await output(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1")).split(),
            "warnings": [text for _, status, text in kit.notices if status == "STATUS$NETWORK_WARNING"],
        }))
    finally:
        await kit.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="drydock-tun-") as name:
        yield Path(name)


@pytest.fixture
def beyond() -> Iterator[Outside]:
    with outside() as made:
        made.machine.listen(("AF_INET", "SOCK_STREAM", 80, "beyond"))
        yield made


async def tried(folder: Path, beyond: Outside, user: int | None, script: str, mode: str) -> dict[str, Any]:
    """What a sandbox finds that this user starts where /dev/net/tun has this mode; the machine's own stays as it is."""
    if user is not None:
        os.chown(folder, user, user)
    python = await readable_python(str(folder), user)
    become = () if user is None else ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
    site = next(path for path in sys.path if path.endswith("site-packages"))
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--propagation", "private", "sh", "-c", script, mode, *become),
        *(python, "-c", PROGRAM, str(folder), beyond.address, beyond.host),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={
            **{"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(folder), "TMPDIR": str(folder)},
            **{"PYTHONPATH": f"{ROOT}:{site}", "PYTHONDONTWRITEBYTECODE": "1"},
        },
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-4000:]
    found: dict[str, Any] = json.loads(said.decode().splitlines()[-1])
    return found


@pytest.mark.parametrize("mode", ["0600", "0666"])
@pytest.mark.parametrize("user", [None, USER], ids=["root", "ordinary user"])
async def test_a_sandbox_has_its_network(folder: Path, beyond: Outside, user: int | None, mode: str) -> None:
    found = await tried(folder, beyond, user, OWN_TUN, mode)
    assert found["warnings"] == []
    assert found["reached"] == ["beyond", "OSError"]
    assert "tap0" in found["devices"]


@pytest.mark.parametrize("user", [None, USER], ids=["root", "ordinary user"])
async def test_a_sandbox_has_its_network_where_there_is_no_such_device(
    folder: Path, beyond: Outside, user: int | None
) -> None:
    found = await tried(folder, beyond, user, NO_TUN, "")
    assert (found["warnings"], found["reached"]) == ([], ["beyond", "OSError"])


async def test_a_lot_of_data_passes_where_frames_are_relayed(folder: Path) -> None:
    """More than fits into any buffer."""
    with outside() as beyond:
        beyond.machine.listen(("AF_INET", "SOCK_STREAM", 80, "x"), times=5_000_000)
        found = await tried(folder, beyond, USER, NO_TUN, "")
    assert found["reached"] == ["5000000", "OSError"]
