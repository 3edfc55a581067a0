"""The network of local sandboxes: out into the world, but not to what this host keeps for itself."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_core.runtime import network_border
from agent_core.runtime.local.launch import has_loopback
from agent_core.runtime.processes import identify
from agent_core.testing.sandbox_contract import SandboxKit, eventually, output, run
from server.cli.doctor import doctor
from server.settings.settings import Settings
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


@pytest.mark.parametrize(("network", "reaches_host"), [("full", False), ("host-access", True)])
async def test_a_network_leads_to_the_host_where_that_is_wished_and_never_to_its_loopback(
    local_kit: SandboxKit, network: str, reaches_host: bool
) -> None:
    assert shutil.which("slirp4netns"), "slirp4netns is missing: scripts/real-parts bubblewrap"
    sandbox = local_kit.connect(network=network)
    await sandbox.start()
    assert local_kit.notices[-2:] == [
        ("first", "STATUS$RUNTIME_STARTED", "The sandbox runs"),
        ("first", "STATUS$READY", "The sandbox is ready"),
    ]
    assert "STATUS$NETWORK_WARNING" not in local_kit.statuses()
    address = own_address()
    async with listening(greet, address) as port:
        assert ("greetings" in (await run(sandbox, reach(address, port)))["output"]) is reaches_host
    async with listening(greet) as port:
        for gateway in ("127.0.0.1", "10.0.2.2"):
            assert "greetings" not in (await run(sandbox, reach(gateway, port)))["output"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder to which a sandbox's user can walk, which may not enter pytest's own ones."""
    with tempfile.TemporaryDirectory(prefix="drydock-open-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


async def test_a_sandbox_cannot_take_its_border_away(local_kit: SandboxKit) -> None:
    sandbox = local_kit.connect(network="full")
    program = f"{BORDER}\nkeep_in('10.0.2.3/32', [])"
    said = (await run(sandbox, f"python3 - <<'EOF'\n{program}\nEOF"))["output"]
    assert "PermissionError" in said


def test_the_doctor_tries_the_network_and_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def finding() -> str:
        out = io.StringIO()
        settings = Settings(data_dir=tmp_path / "data", sandbox="local", port=0)
        assert doctor(settings, out) == 0
        (line,) = [line for line in out.getvalue().splitlines() if line[7:].startswith("network")]
        return line

    assert finding() == (
        "  ok   network     full: leads out, but not to this host nor to link-local and metadata addresses"
    )
    program = tmp_path / "no_border.py"
    program.write_text('def keep_in(*_):\n    raise OSError(95, "the kernel\'s packet filter refuses a rule")\n')
    monkeypatch.setattr(network_border, "__file__", str(program))
    assert finding().startswith("  --   network     full: This sandbox has no network: [Errno 95]")
    assert "modprobe nf_tables" in finding()


async def test_without_a_border_there_is_no_network_and_people_are_told(
    local_kit: SandboxKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the kernel has no packet filter."""
    program = tmp_path / "no_border.py"
    program.write_text('def keep_in(*_):\n    raise OSError(95, "the kernel\'s packet filter refuses a rule")\n')
    monkeypatch.setattr(network_border, "__file__", str(program))
    sandbox = local_kit.connect(network="full")
    assert (await output(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1")).split() == ["lo"]
    (warning,) = [text for _, status, text in local_kit.notices if status == "STATUS$NETWORK_WARNING"]
    assert warning.startswith("This sandbox has no network: [Errno 95] the kernel's packet filter refuses a rule")
    assert "modprobe nf_tables" in warning
    assert "host-access" in warning


async def test_a_program_for_the_network_that_fails_is_told_with_its_words(
    local_kit: SandboxKit, monkeypatch: pytest.MonkeyPatch, open_folder: Path
) -> None:
    folder = open_folder
    (folder / "slirp4netns").write_text("#!/bin/sh\necho it has no mind to >&2\nexit 1\n")
    (folder / "slirp4netns").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    sandbox = local_kit.connect(network="full")
    assert await output(sandbox, "echo runs") == "runs"
    (warning,) = [text for _, status, text in local_kit.notices if status == "STATUS$NETWORK_WARNING"]
    assert "it has no mind to" in warning


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
    (warning,) = [text for _, status, text in local_kit.notices if status == "STATUS$NETWORK_WARNING"]
    assert "slirp4netns is not installed" in warning
    assert "apt-get install slirp4netns" in warning


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


BORDER = Path(network_border.__file__).read_text().partition("if __name__")[0]

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
