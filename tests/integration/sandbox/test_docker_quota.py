"""Sizes that an engine's file system keeps by itself: on an engine of its own whose disk has quotas.

Whether there can be one is a fact of the host: root, loop devices and an XFS with quotas in its kernel. Where there
cannot, what is found out about this host's engine is tested all the same.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.api.client import APIClient
from docker.errors import APIError

from agent_core.runtime.docker.objects import Quota
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.testing.sandbox_contract import LIMITS, SandboxKit, output
from deploy.engine_proxy.ownership import ServedInstance
from deploy.engine_proxy.proxy import EngineProxy
from server.cli.doctor import doctor
from server.settings.settings import Settings
from tests.own_engine import IMAGE, MEGABYTE, load_image, started_engine, unmount

SMALL = replace(LIMITS, cpus=1.0, disk=8 * MEGABYTE, read_only=False, start_seconds=120.0)
WRITER = "for i in {1..20}; do head -c 4000000 /dev/zero > $0/file$i || break; done; du -sB1 $0"
FULL = "No space left on device"

needs_xfs = pytest.mark.quota


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """Address of an engine whose data are on an XFS with quotas for projects."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="dq-"))  # short, for the sake of the sockets in it
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        mounted_xfs(folder, stack)
        address = started_engine(folder, stack)
        load_image(address)
        yield address


def mounted_xfs(folder: Path, stack: ExitStack) -> None:
    """Mount one at ``disk`` in this folder, or say which fact of this host stands against it."""
    image, disk = folder / "image", folder / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(1200 * MEGABYTE)
    subprocess.run(["mkfs.xfs", "-q", image], check=True, timeout=60)
    if (words := mounting(image, disk, "loop")) is not None:
        pytest.skip(f"this host mounts no XFS from a file: {words}")
    unmount(disk)
    if (words := mounting(image, disk, "loop,pquota")) is not None:
        pytest.skip(f"the XFS of this host's kernel has no quotas (CONFIG_XFS_QUOTA): {words}")
    stack.callback(unmount, disk)


def mounting(image: Path, disk: Path, options: str) -> str | None:
    command = ["mount", "-t", "xfs", "-o", options, str(image), str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


@pytest.fixture
async def kit(host: str, tmp_path: Path) -> AsyncIterator[SandboxKit]:
    made = SandboxKit(DockerProvider(host), str(tmp_path), image=IMAGE)
    yield made
    await made.close()


@pytest.fixture
def client(host: str) -> Iterator[Any]:
    made: Any = APIClient(base_url=host, version="auto")
    yield made
    made.close()


def inside(client: Any, container: str, *command: str) -> str:
    """What a program in a container prints that its runner knows nothing of."""
    made = client.exec_create(container, list(command), user="1000:1000")
    return str(client.exec_start(made["Id"]), "utf-8")


@pytest.mark.docker
@needs_xfs
async def test_nobody_writes_beyond_the_quota_whether_the_runner_watches_or_not(kit: SandboxKit, client: Any) -> None:
    sandbox, neighbour = kit.connect(limits=SMALL), kit.connect("second", limits=SMALL)
    assert await output(neighbour, "echo here") == "here"
    runner = await output(sandbox, "echo $PPID")
    container = sandbox.sandbox.state["container"]
    await asyncio.to_thread(inside, client, container, "kill", "-STOP", runner)
    for folder in ("/workspace", "/.drydock/home", "/home/agent"):
        told = await asyncio.to_thread(inside, client, container, "bash", "-c", WRITER, folder)
        assert FULL in told, (folder, told)
        taken = int(told.split()[-2])
        assert SMALL.disk < 0.9 * SMALL.disk_bound < taken <= SMALL.disk_bound, (folder, told)
    written = await output(neighbour, "head -c 3000000 /dev/zero > file; stat -c %s file")
    assert written == "3000000"
    await asyncio.to_thread(
        inside, client, container, "bash", "-c", "rm -f ~/file* /workspace/file* /.drydock/home/file*"
    )
    await asyncio.to_thread(inside, client, container, "kill", "-CONT", runner)
    assert await output(sandbox, "head -c 3000000 /dev/zero > file; stat -c %s file") == "3000000"


@pytest.mark.docker
@needs_xfs
async def test_a_workspace_that_was_there_before_stays_as_it_is(kit: SandboxKit, client: Any) -> None:
    first = kit.connect(limits=replace(SMALL, disk=0))
    assert await output(first, "echo kept > file; cat file") == "kept"
    container = first.sandbox.state["container"]
    await first.close()
    client.remove_container(container, force=True)
    again = kit.connect(limits=SMALL, state={"container": container})
    assert await output(again, "cat file") == "kept"
    volumes = {volume["Name"]: volume["Options"] for volume in client.volumes()["Volumes"]}
    assert volumes[f"{container}-workspace"] is None


@pytest.mark.docker
@needs_xfs
async def test_sizes_pass_the_proxy_before_an_engine(host: str, tmp_path: Path, client: Any) -> None:
    served = ServedInstance(tmp_path / "served")
    async with EngineProxy(host.removeprefix("unix://"), served).serving("127.0.0.1", 0) as port:
        kit = SandboxKit(DockerProvider(f"tcp://127.0.0.1:{port}"), str(tmp_path), image=IMAGE)
        try:
            sandbox = kit.connect(limits=SMALL)
            await output(sandbox, "echo here")
            found = client.inspect_container(sandbox.sandbox.state["container"])
            size = {"size": str(SMALL.disk_bound)}
            assert found["HostConfig"]["StorageOpt"] == size
            volumes = client.volumes(filters={"label": f"drydock.instance={kit.instance}"})["Volumes"]
            assert [volume["Options"] for volume in volumes] == [size, size]
        finally:
            await kit.close()


@pytest.mark.docker
@needs_xfs
def test_the_doctor_says_that_sizes_are_held(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    out = io.StringIO()
    settings = Settings(data_dir=tmp_path / "data", sandbox="docker", sandbox_network="none", sandbox_disk_mb=100)
    doctor(settings, out)
    assert "100 MiB and 1000000 files, which is watched and held by quotas of 121 MiB each" in out.getvalue()


@pytest.mark.docker
async def test_what_is_found_out_about_an_engine_is_true_and_leaves_nothing(engine: Any, tmp_path: Path) -> None:
    kit = SandboxKit(DockerProvider(), str(tmp_path))
    name = f"drydock-{kit.instance}"
    try:
        engine.create_volume(name, driver_opts={"size": str(16 * MEGABYTE)})
        volumes = True
    except APIError:
        volumes = False
    finally:
        with suppress(APIError):
            engine.remove_volume(name)
    provider = DockerProvider()
    try:
        found = await provider.quota(kit.instance)
        assert found == Quota(volumes, found.root and volumes)
        assert not engine.volumes(filters={"label": f"drydock.instance={kit.instance}"})["Volumes"]
        assert await output(kit.connect(limits=SMALL), "echo here") == "here"
    finally:
        await provider.close()
        await kit.close()
