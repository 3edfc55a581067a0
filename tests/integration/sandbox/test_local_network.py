"""The network of local sandboxes: out into the world, but not to what this host keeps for itself."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_core.runtime.local_launch import has_loopback
from agent_core.runtime.processes import identify
from agent_core.testing.sandbox_kit import SandboxKit, eventually, output, run
from tests.listening import listening

pytestmark = pytest.mark.bubblewrap


async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"greetings from the host\n")


def own_address() -> str:
    """An address of this host that others use (nothing is sent)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def reach(address: str, port: int) -> str:
    return f"timeout 3 bash -c 'cat < /dev/tcp/{address}/{port}'"


async def test_a_full_network_leads_out_but_not_to_the_hosts_loopback(local_kit: SandboxKit) -> None:
    assert shutil.which("slirp4netns"), "slirp4netns is missing: scripts/real-parts bubblewrap"
    sandbox = local_kit.connect(network="full")
    await sandbox.start()
    assert ("first", "STATUS$RUNTIME_STARTED", "The sandbox runs") in local_kit.told
    address = own_address()
    async with listening(greet, address) as port:
        assert "greetings" in await output(sandbox, reach(address, port))
    async with listening(greet) as port:
        for gateway in ("127.0.0.1", "10.0.2.2", "10.0.2.3"):
            assert "greetings" not in (await run(sandbox, reach(gateway, port)))["output"]


@pytest.mark.parametrize("network", ["none", "internal"])
async def test_any_lesser_network_has_no_device_but_its_own_loopback(local_kit: SandboxKit, network: str) -> None:
    sandbox = local_kit.connect(network=network)
    assert (await output(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1")).split() == ["lo"]


async def test_without_the_program_for_it_there_is_no_network_and_people_are_told(
    local_kit: SandboxKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bwrap").symlink_to(shutil.which("bwrap") or "/usr/bin/bwrap")
    monkeypatch.setenv("PATH", str(folder))
    assert "no slirp4netns" in (await local_kit.provider.check()).reason
    sandbox = local_kit.connect(network="full")
    assert (await output(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1")).split() == ["lo"]
    assert any("slirp4netns, which is not installed" in text for _, _, text in local_kit.told)


async def test_the_networks_process_ends_with_its_sandbox(local_kit: SandboxKit) -> None:
    sandbox = local_kit.connect(network="full")
    for end in (sandbox.stop, sandbox.destroy):
        await sandbox.start()
        record = recorded(local_kit, sandbox.sandbox.state["name"])
        network = identify(record["network"])
        assert network is not None
        await end()
        assert not network.alive


async def test_a_sandbox_killed_from_outside_leaves_no_network_once_it_is_reaped(local_kit: SandboxKit) -> None:
    sandbox = local_kit.connect(network="full")
    await sandbox.start()
    record = recorded(local_kit, sandbox.sandbox.state["name"])
    network = identify(record["network"])
    assert network is not None
    os.kill(record["init"], signal.SIGKILL)
    await eventually(lambda: not sandbox.is_ready)
    await sandbox.close()
    assert await local_kit.provider.reap(local_kit.instance, []) == ["first"]
    assert not network.alive


def recorded(kit: SandboxKit, name: str) -> dict[str, int]:
    """What a local sandbox has noted of its processes."""
    found = json.loads(Path(kit.data_dir, "sandboxes", name, "process.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.docker
async def test_its_start_takes_no_mount_away_from_the_host(
    local_kit: SandboxKit, docker_kit: SandboxKit, engine: Any
) -> None:
    """A container's files are a mount that the engine shares: without it the engine finds none of its users."""
    container = docker_kit.connect("container")
    await container.start()
    await local_kit.connect("local", network="full").start()
    (found,) = engine.containers(filters={"label": f"drydock.instance={docker_kit.instance}"})
    command = engine.exec_create(found["Id"], ["id", "-un"], user="agent")
    assert engine.exec_start(command).decode().strip() == "agent"


# A process in a network of its own that sets its loopback interface up when it is told to.
WAITS_WITH_ITS_LOOPBACK = """
import fcntl, socket, struct
print("here", flush=True)
input()
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 1))
input()
"""


def test_the_network_waits_until_the_sandbox_has_its_loopback_address() -> None:
    """The two would otherwise race for the address, and the sandbox fails when it comes second."""
    argv = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", WAITS_WITH_ITS_LOOPBACK]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "here\n"
        assert not has_loopback(process.pid, 0.05)
        print(file=process.stdin, flush=True)
        assert has_loopback(process.pid, 10)
    finally:
        process.communicate("\n", timeout=10)
    assert not has_loopback(process.pid, 10)
