"""Real sandboxes that are ready before their conversations, in servers that are killed and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent_core.runtime.local.folder import RECORD
from tests.integration.server.conftest import Follower, MakeProcess, ServerProcess, create, following
from tests.integration.server.test_docker import docker, instance_labels
from tests.waiting import until

ONE = {"DRYDOCK_WARM_SANDBOXES": "1"}


async def number_ready(server: ServerProcess) -> int:
    async with server.client() as client:
        for line in (await client.get("/metrics")).text.splitlines():
            if line.startswith("drydock_warm_sandboxes "):
                return int(float(line.split()[1]))
    raise AssertionError("it is not counted")


async def until_ready(server: ServerProcess) -> None:
    await until(lambda: _is_ready(server))


async def _is_ready(server: ServerProcess) -> bool:
    return await number_ready(server) == 1


async def local_sandboxes(server: ServerProcess) -> dict[str, int]:
    """Conversations with a folder, each with its first process (0: none)."""
    found = {}
    for record in await asyncio.to_thread(lambda: list((server.data_dir / "sandboxes").glob(f"*/{RECORD}"))):
        process = record.with_name("process.json")
        pid = json.loads(process.read_text())["init"] if process.exists() else 0
        found[json.loads(record.read_text())["conversation"]] = pid
    return found


async def inspected(ids: list[str]) -> list[dict[str, Any]]:
    """What the engine says of containers, those left out that were removed after they had been listed."""
    process = await asyncio.create_subprocess_exec(
        "docker", "inspect", *ids, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    assert all("no such object" in line.lower() for line in error.decode().splitlines()), error.decode()
    described: list[dict[str, Any]] = json.loads(out)
    return described


async def containers(server: ServerProcess) -> dict[str, dict[str, Any]]:
    """Conversations with a container, as the engine describes it."""
    labels = [*(instance_labels(server.data_dir.parent)), "label=drydock.conversation"]
    filters = [word for label in labels for word in ("--filter", label)]
    ids = await docker("ps", "-aq", "--no-trunc", *filters)
    described = await inspected(ids) if ids else []
    return {one["Config"]["Labels"]["drydock.conversation"]: one for one in described}


Found = Callable[[ServerProcess], Awaitable[dict[str, Any]]]
PROVIDERS = [
    pytest.param("local", local_sandboxes, id="local"),
    pytest.param("docker", containers, id="docker", marks=pytest.mark.docker),
]


@pytest.mark.parametrize(("provider", "sandboxes"), PROVIDERS)
async def test_it_is_a_conversations_or_nobodys_whatever_becomes_of_the_server(
    make_process: MakeProcess, provider: str, sandboxes: Found
) -> None:
    server = await make_process("--sandbox", provider, environment=ONE)
    first = await create(server)
    await until_ready(server)
    (ready,) = set(await sandboxes(server)) - {first}
    await server.kill()
    await server.start()
    await until(lambda: _has(sandboxes, server, {first}))
    assert await number_ready(server) == 0

    second = await create(server)
    await until_ready(server)
    (ready,) = set(found := await sandboxes(server)) - {first, second}
    third = await create(server)
    assert third == ready
    async with following(server, third) as follower:
        await follower.run("pwd; ls -A; echo kept > kept")
        await follower.until(lambda: follower.count(observation="run") == 1)
        assert outputs(follower) == ["/workspace"]
        again = (await sandboxes(server))[third]
        if provider == "docker":
            assert again["Id"] == found[ready]["Id"]
            assert same_but_for_its_name(again, (await sandboxes(server))[second])
        else:
            assert again == found[ready]
        await server.kill()
        await follower.disconnect()
        await server.start()
        await follower.connect()
        await follower.run("cat kept")
        await follower.until(lambda: follower.count(observation="run") == 2)
        assert outputs(follower) == ["/workspace", "kept"]
        await until(lambda: _has(sandboxes, server, {first, second, third}))

        await create(server)
        await until_ready(server)
        assert len(await sandboxes(server)) == 5
        await server.stop()
        assert len(await sandboxes(server)) == 4


def outputs(follower: Follower) -> list[str]:
    return [one["content"].strip() for one in follower.events.values() if one.get("observation") == "run"]


async def _has(sandboxes: Found, server: ServerProcess, wanted: set[str]) -> bool:
    return set(await sandboxes(server)) == wanted


def same_but_for_its_name(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two containers are made alike, the ports apart that each has for its applications."""

    def facts(container: dict[str, Any]) -> list[str]:
        config, host = container["Config"], container["HostConfig"]
        name, label = container["Name"].removeprefix("/"), config["Labels"]["drydock.conversation"]
        config["Labels"]["drydock.configured"] = config["Hostname"] = ""
        config["Env"] = sorted(line for line in config["Env"] if not line.startswith("APP_PORT_"))
        mounts = [mount["VolumeOptions"]["Labels"].pop("drydock.making") and mount for mount in host["Mounts"]]
        text = json.dumps([config, host, mounts, sorted(container["NetworkSettings"]["Networks"])], sort_keys=True)
        return text.replace(name, "NAME").replace(label, "LABEL").split(",")

    assert facts(one) == facts(other)
    return True


async def test_one_that_somebody_has_ended_is_not_handed_out(make_process: MakeProcess) -> None:
    server = await make_process("--sandbox", "local", environment=ONE)
    first = await create(server)
    await until_ready(server)
    ((ready, pid),) = ((one, pid) for one, pid in (await local_sandboxes(server)).items() if one != first)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{pid}").exists())
    second = await create(server)
    async with following(server, second) as follower:
        await follower.run("echo there")
        await follower.until(lambda: follower.count(observation="run") == 1)
    assert second != ready
    await until_ready(server)
    assert ready not in await local_sandboxes(server)
    await server.stop()
