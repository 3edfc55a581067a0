"""A program that uses the library and is killed: nothing that it started for itself stays behind."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import pytest

from agent_core.runtime.processes import marked_with

ROOT = Path(__file__).parents[3]
LIMIT_SECONDS = 60.0
PROGRAM = """
import asyncio, sys
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.library.workspace import LocalWorkspace

async def main(folder, confined):
    place = await LocalWorkspace(folder, confined=confined).open("c", "i", "")
    connection = SandboxConnection(place.sandbox)
    await connection.start()
    await connection.request("shell.run", {"command": "OWNER_GONE=1 setsid sleep 987654 & echo up", "timeout": 20})
    print(place.scratch, flush=True)
    if sys.stdin.readline() == "close\\n":
        await connection.close()
        await place.close()
        print("closed", flush=True)
        sys.stdin.readline()

asyncio.run(main(sys.argv[1], sys.argv[2] == "confined"))
"""


@pytest.mark.bubblewrap
@pytest.mark.parametrize(("kind", "end"), [("confined", "killed"), ("unconfined", "killed"), ("confined", "closed")])
async def test_the_sandbox_of_a_program_ends_with_it_however_it_ends(kind: str, end: str, tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(tmp_path / "work"), kind),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            scratch = Path((await program.stdout.readline()).decode().strip())
            assert scratch.parent == Path(tempfile.gettempdir())
            assert left(scratch)
            (tmp_path / "work" / "kept").touch()
            if end == "closed":
                program.stdin.write(b"close\n")
                assert await program.stdout.readline() == b"closed\n"
            else:
                program.kill()
            while left(scratch):  # noqa: ASYNC110 - processes that are not ours tell nobody when they end
                await asyncio.sleep(0.02)
    finally:
        if program.returncode is None:
            program.kill()
        await program.wait()
    assert (tmp_path / "work" / "kept").exists()


IN_DOCKER = """
import asyncio, sys
from agent_core.library.workspace import DockerWorkspace
from agent_core.runtime.channel.connection import SandboxConnection

async def main():
    place = await DockerWorkspace(network="internal").opened_for("c", "")
    connection = SandboxConnection(place.sandbox)
    await connection.start()
    print(place.sandbox.spec.instance_id, flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


@pytest.mark.docker
async def test_the_container_of_a_killed_program_is_removed_with_its_volumes_and_network() -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", IN_DOCKER), cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            instance = (await program.stdout.readline()).decode().strip()
            assert all(await in_engine(instance))
            program.kill()
            while any(await in_engine(instance)):  # noqa: ASYNC110 - nobody is told when the guard is done
                await asyncio.sleep(0.1)
    finally:
        if program.returncode is None:
            program.kill()
        await program.wait()


async def in_engine(instance: str) -> list[bytes]:
    """The ids of its containers, volumes and networks."""
    found = []
    for kind in (("ps", "-aq"), ("volume", "ls", "-q"), ("network", "ls", "-q")):
        asked = await asyncio.create_subprocess_exec(
            *("docker", *kind, "--filter", f"label=drydock.instance={instance}"), stdout=asyncio.subprocess.PIPE
        )
        found.append((await asked.communicate())[0])
    return found


def left(scratch: Path) -> set[str]:
    """What there is of it: its folder, and the processes whose command line or environment names it."""
    found = {str(scratch)} if scratch.exists() else set()
    found |= {str(pid) for pid in marked_with("OWNER_GONE=1")}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(scratch).encode() in (entry / "cmdline").read_bytes():
                    found.add(entry.name)
            except OSError:
                continue
    return found
