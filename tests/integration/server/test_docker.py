"""Conversations in real containers: made, adopted after a kill -9, and gone with their conversation."""

from __future__ import annotations

import asyncio
import io
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from server.cli.doctor import REMOVAL, doctor
from server.settings.settings import Settings
from tests.bad_engine import bad_engine
from tests.integration.server.conftest import MakeProcess, ServerProcess, create, following

pytestmark = pytest.mark.docker


async def docker(*arguments: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        "docker", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode().split()


def instance_labels(folder: Path) -> list[str]:
    return [f"label=drydock.instance={file.read_text().strip()}" for file in folder.glob("*/instance-id")]


@pytest.fixture(autouse=True)
async def nothing_stays(tmp_path: Path) -> AsyncIterator[None]:
    """Whatever a test leaves, its network too, is removed after it."""
    yield
    for label in instance_labels(tmp_path):
        if left := await docker("ps", "-aq", "--filter", label):
            await docker("rm", "-fv", *left)
        for kind in ("volume", "network"):
            if left := await docker(kind, "ls", "-q", "--filter", label):
                await docker(kind, "rm", *left)


async def containers(server: ServerProcess) -> list[str]:
    """Those of its sandboxes: one that sets their border lives for a moment at each start."""
    instance = (server.data_dir / "instance-id").read_text().strip()
    ours = ("--filter", f"label=drydock.instance={instance}", "--filter", "label=drydock.conversation")
    return await docker("ps", "-aq", "--no-trunc", *ours)


async def volumes(server: ServerProcess) -> list[str]:
    instance = (server.data_dir / "instance-id").read_text().strip()
    return await docker("volume", "ls", "-q", "--filter", f"label=drydock.instance={instance}")


async def test_a_container_outlives_a_killed_server_is_adopted_and_goes_with_its_conversation(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    server = await make_process("--sandbox", "docker")
    conversation_id = await create(server)
    async with following(server, conversation_id) as follower:
        await follower.run("echo kept > kept; export WORD=remembered")
        await follower.until(lambda: follower.count(observation="run") == 1)
        before = await containers(server)
        assert len(before) == 1
        printed = io.StringIO()
        await asyncio.to_thread(doctor, Settings(data_dir=tmp_path / "another", sandbox="docker"), printed)
        instance = (server.data_dir / "instance-id").read_text().strip()
        assert f" of {instance}" in printed.getvalue() or " more. What is of one" in printed.getvalue()
        assert REMOVAL in printed.getvalue()
        await server.kill()
        await follower.disconnect()
        await server.start()
        await follower.connect()
        await follower.run("cat kept; echo $WORD")
        await follower.until(lambda: follower.count(observation="run") == 2)
        assert "kept" in follower.frames[-1]["content"]
        assert "remembered" in follower.frames[-1]["content"]
        assert await containers(server) == before
    async with server.client() as client:
        assert (await client.delete(f"/api/conversations/{conversation_id}")).json() is True
    assert await containers(server) == []
    assert await volumes(server) == []


async def test_a_server_ends_in_its_time_while_its_engine_hangs(make_process: MakeProcess, tmp_path: Path) -> None:
    async with bad_engine(tmp_path) as engine:
        environment = {"DOCKER_HOST": engine.host, "DRYDOCK_SHUTDOWN_SECONDS": "1"}
        server = await make_process("--sandbox", "docker", environment=environment)
        await server.until_printed("a Docker engine answers")
        asked = len(engine.requests)
        engine.hang()
        async with following(server, await create(server)), asyncio.timeout(60):
            while len(engine.requests) == asked:  # noqa: ASYNC110 - the engine says nothing of it by itself
                await asyncio.sleep(0.05)
        began = time.monotonic()
        assert await server.stop() == 0
        assert time.monotonic() - began < 50  # a call that is never answered was waited for until its limit, 60 s
        engine.cut()
        engine.go_on()
        await server.close()


async def test_an_engine_that_comes_up_after_the_server_is_waited_for(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    """As when the host was started again."""
    way = tmp_path / "engine.sock"
    way.symlink_to("/var/run/docker.sock")
    server = await make_process("--sandbox", "docker", environment={"DOCKER_HOST": f"unix://{way}"})
    conversation_id = await create(server)
    async with following(server, conversation_id) as follower:
        await follower.run("echo here > kept")
        await follower.until(lambda: follower.count(observation="run") == 1)
        await server.kill()
    way.unlink()
    await server.start()
    async with following(server, conversation_id) as follower:
        await follower.until(lambda: any("STATUS$WAITING_FOR_ENGINE" in str(one) for one in follower.frames))
        async with server.client() as client:
            info = (await client.get(f"/api/conversations/{conversation_id}")).json()
        assert info["runtime_status"] == "STATUS$WAITING_FOR_ENGINE"
        assert info["runtime_warning"].startswith("Waiting for the Docker engine.")
        way.symlink_to("/var/run/docker.sock")
        await follower.run("cat kept")
        await follower.until(lambda: follower.count(observation="run") == 2)
        assert "here" in follower.frames[-1]["content"]


async def test_a_container_whose_conversation_is_gone_is_removed_at_the_next_start(make_process: MakeProcess) -> None:
    server = await make_process("--sandbox", "docker")
    conversation_id = await create(server)
    async with following(server, conversation_id) as follower:
        await follower.run("true")
        await follower.until(lambda: follower.count(observation="run") == 1)
        await server.kill()
    assert len(await containers(server)) == 1
    forget(server.data_dir / "drydock.db", conversation_id)
    await server.start()
    await server.until_printed("removed the sandboxes of 1 deleted conversations")
    assert await containers(server) == []
    assert await volumes(server) == []


async def test_a_containers_image_limits_network_and_variables_are_the_conversations_own(
    make_process: MakeProcess,
) -> None:
    variables = {"DRYDOCK_RUNTIME_STARTUP_ENV_VARS": '{"FROM": "server", "SERVERS_TOKEN": "do-not-tell-this"}'}
    server = await make_process("--sandbox", "docker", environment=variables)
    async with server.client() as client:
        assert (await client.post("/api/settings", json={"runtime_startup_env_vars": {"FROM": "user"}})).is_success
        sandbox = {
            "image": "drydock/sandbox:browser",
            "network": "none",
            "memory_mb": 300,
            "cpus": 0.5,
            "processes": 99,
        }
        made = await client.post("/api/conversations", json={"sandbox": sandbox})
        refused = await client.post("/api/conversations", json={"sandbox": {"image": "alpine:3"}})
        assert refused.status_code == 400
    conversation_id = made.json()["conversation_id"]
    async with following(server, conversation_id) as follower:
        await follower.run("echo from $FROM $SERVERS_TOKEN; ls /sys/class/net; which chromium-headless-shell chromium")
        await follower.until(lambda: follower.count(observation="run") == 1)
        printed = follower.frames[-1]["content"]
        assert "from user <secret_hidden>" in printed
        assert "eth0" not in printed
    asked = "{{.Config.Image}} {{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}}"
    found = await docker("inspect", "--format", asked, *await containers(server))
    assert found == ["drydock/sandbox:browser", str(300 * 1024**2), "500000000", "99"]


def forget(file: Path, conversation_id: str) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))


async def test_stopping_and_ending_leave_no_running_container(make_process: MakeProcess) -> None:
    server = await make_process("--sandbox", "docker")
    first, second = await create(server), await create(server)
    for conversation_id in (first, second):
        async with following(server, conversation_id) as follower:
            await follower.run("true")
            await follower.until(lambda follower=follower: follower.count(observation="run") == 1)  # type: ignore[misc]
    async with server.client() as client:
        stopped = await client.post(f"/api/conversations/{first}/stop")
        assert stopped.json()["message"] == "Conversation stopped successfully"
        running = await docker("ps", "-q", "--filter", f"label=drydock.conversation={first}")
        assert running == []
        assert await server.stop() == 0
        assert await docker("ps", "-q", "--filter", f"label=drydock.conversation={second}") == []
    await server.start()
    async with server.client() as client:
        for conversation_id in (first, second):
            assert (await client.delete(f"/api/conversations/{conversation_id}")).json() is True
    assert await containers(server) == []
    assert await volumes(server) == []
