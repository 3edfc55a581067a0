"""Sandboxes and servers that are killed, streams that break: each ends clearly, and the next request works."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent_core.errors import SandboxError, SandboxLostError
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.sandbox import SandboxStatus
from agent_core.testing.sandbox_contract import SandboxKit, drop_stream, eventually, output, run
from tests.integration.sandbox.conftest import instead_of_python
from tests.listening import listening

ROOT = Path(__file__).parents[3]


async def begin(sandbox: SandboxConnection, command: str, key: str = "first:1") -> asyncio.Task[dict[str, Any]]:
    """Start a command that says ``begun``, and return once it has."""
    heard: list[str] = []
    task = asyncio.create_task(run(sandbox, command, key=key, on_output=heard.append))
    await eventually(lambda: task.done() or "begun" in "".join(heard))
    return task


async def kill_sandbox(kit: SandboxKit, sandbox: SandboxConnection, whom: str) -> None:
    """Kill from outside: the whole sandbox, or the runner in it."""
    state = sandbox.sandbox.state
    if kit.provider.name == "docker":
        words = (
            ["kill", state["container"]]
            if whom == "sandbox"
            else ["exec", state["container"], "pkill", "-9", "-f", "serve"]
        )
        process = await asyncio.create_subprocess_exec("docker", *words, stdout=asyncio.subprocess.DEVNULL)
        await process.wait()
    else:
        os.kill(recorded(kit, state["name"])["init"], signal.SIGKILL)  # which is both


def recorded(kit: SandboxKit, name: str) -> dict[str, int]:
    """What a local sandbox has noted of its processes."""
    found = json.loads(Path(kit.data_dir, "sandboxes", name, "process.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("whom", ["sandbox", "runner"])
async def test_a_sandbox_that_is_killed_during_a_command_is_lost_and_then_replaced(kit: SandboxKit, whom: str) -> None:
    sandbox = kit.connect()
    await output(sandbox, "echo kept > file")
    task = await begin(sandbox, "echo begun; echo x >> count; sleep 100")
    await kill_sandbox(kit, sandbox, whom)
    began = time.monotonic()
    with pytest.raises(SandboxLostError):
        await task
    assert time.monotonic() - began < 60
    assert "STATUS$ERROR_RUNTIME_DISCONNECTED" in kit.statuses()
    assert await output(sandbox, "cat file; wc -l < count") == "kept\n1"
    assert kit.statuses()[-1] == "STATUS$READY"
    with pytest.raises(SandboxLostError, match="in part"):
        await run(sandbox, "echo x >> count", key="first:1")
    assert await output(sandbox, "wc -l < count") == "1"


async def test_a_sandbox_that_is_killed_while_idle_is_replaced_without_a_word_of_error(kit: SandboxKit) -> None:
    sandbox = kit.connect()
    await output(sandbox, "echo kept > file")
    await kill_sandbox(kit, sandbox, "sandbox")
    await eventually(lambda: not sandbox.is_ready)
    assert await output(sandbox, "cat file") == "kept"


class Killed(NamedTuple):
    state: dict[str, str]
    boot: str


async def killed_server(kit: SandboxKit, command: str) -> Killed:
    """Let another process start a sandbox and a command, and kill that process with SIGKILL while it runs."""
    script = str(Path(__file__).with_name("first_server.py"))
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        *(script, kit.provider.name, kit.data_dir, kit.instance, "first:1", command),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert server.stdout is not None
    try:
        async with asyncio.timeout(60):
            said = json.loads(await server.stdout.readline())
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        await server.wait()
    return Killed(said["state"], said["boot"])


async def test_a_command_outlives_the_server_that_asked_and_its_result_is_had_once(kit: SandboxKit) -> None:
    killed = await killed_server(kit, "echo begun; echo x >> count; sleep 1; echo lines: $(wc -l < count)")
    sandbox = kit.connect(state=killed.state)
    assert await sandbox.lookup("first:1") in ("running", "done")
    assert sandbox.hello is not None
    assert sandbox.hello.boot == killed.boot
    result = await run(sandbox, "echo must not run >> count", key="first:1")
    assert "lines: 1" in result["output"]
    assert result["exit_code"] == 0
    await eventually(lambda: done(sandbox))
    assert await output(sandbox, "wc -l < count") == "1"


async def done(sandbox: SandboxConnection) -> bool:
    return await sandbox.lookup("first:1") == "done"


async def test_what_a_killed_server_leaves_is_reaped_without_its_records(kit: SandboxKit) -> None:
    killed = await killed_server(kit, "echo begun; sleep 1000")
    sandbox = kit.provider.restore(kit.spec(), killed.state)
    assert await sandbox.poll() is SandboxStatus.RUNNING
    assert await kit.provider.reap(kit.instance, []) == ["first"]
    assert await sandbox.poll() is SandboxStatus.ABSENT


async def test_a_stream_that_breaks_again_and_again_repeats_nothing(kit: SandboxKit) -> None:
    sandbox = kit.connect()
    task = await begin(sandbox, "echo begun; echo x >> count; sleep 1.5; cat count")
    for _ in range(3):
        drop_stream(sandbox)
        await eventually(lambda: sandbox.is_ready)
    assert (await task)["output"].split()[-1] == "x"
    assert await output(sandbox, "wc -l < count") == "1"


@asynccontextmanager
async def relay(path: str = "/var/run/docker.sock") -> AsyncIterator[tuple[str, list[asyncio.StreamWriter]]]:
    """An engine over TCP whose connections can be cut: what a remote engine behind a bad network looks like."""
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(path)
        writers.extend((writer, inner_writer))
        try:
            await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
        finally:
            inner_writer.transport.abort()

    async with listening(serve) as port:
        yield f"tcp://127.0.0.1:{port}", writers


@pytest.mark.docker
async def test_an_engine_over_tcp_whose_connections_break_repeats_nothing(tmp_path: Path) -> None:
    async with relay() as (host, writers):
        kit = SandboxKit(DockerProvider(host), str(tmp_path))
        sandbox = kit.connect()
        task = await begin(sandbox, "echo begun; echo x >> count; sleep 1; cat count")
        for writer in writers:
            writer.transport.abort()
        assert (await task)["output"].split()[-1] == "x"
        await kit.close()


@pytest.mark.docker
async def test_garbage_instead_of_a_runner_is_named_and_nothing_is_left(docker_kit: SandboxKit, image: Any) -> None:
    frame = r'printf "\000\000\000\002{}"'  # it has the form of one, but is no greeting
    name = image(instead_of_python(f'case "$*" in *attach*) {frame}; exec sleep 100;; esac; exec sleep 1000'))
    with pytest.raises(SandboxError) as caught:
        await docker_kit.connect(image=name).start()
    assert caught.value.code == "protocol"
    assert "greeting" in str(caught.value)


@pytest.mark.docker
async def test_a_frame_over_its_limit_ends_the_stream_and_bounds_the_attempts(
    docker_kit: SandboxKit, image: Any
) -> None:
    hello = json.dumps({"hello": {"protocol": 1, "boot": "b"}})
    length = "".join(f"\\{byte:03o}" for byte in len(hello).to_bytes(4, "big"))
    attach = f"printf '{length}'; printf %s '{hello}'; head -c 10 > /dev/null; printf '\\377\\377\\377\\377'"
    name = image(instead_of_python(f'case "$*" in *attach*) {attach}; exec sleep 100;; esac; exec sleep 1000'))
    sandbox = docker_kit.connect(image=name)
    await sandbox.start()
    began = time.monotonic()
    with pytest.raises(SandboxLostError, match=r"dropped 4 times.*a frame of 4294967295 bytes where at most"):
        await run(sandbox, "true", key="first:1")
    assert time.monotonic() - began < 60
