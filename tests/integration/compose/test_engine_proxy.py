"""The filtering proxy before a real Docker engine."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from docker.api.client import APIClient
from docker.errors import APIError

from agent_core.runtime.channel.channel import RunnerChannel
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.sandbox import ExtraDeps, SandboxSpec, SandboxStatus

pytestmark = pytest.mark.docker

IMAGE = "drydock/sandbox:base"
HARDENED = {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "NetworkMode": "none"}
ASK_THE_ENGINE = ["curl", "-s", "--unix-socket", "/var/run/docker.sock", "http://engine/version"]


def nobody_listens(_status: str, _text: str) -> None:
    """Progress is of no interest here."""


@pytest.fixture
async def client(proxy_address: str) -> AsyncIterator[Any]:
    """Docker's own client library behind the proxy."""
    client = await asyncio.to_thread(APIClient, base_url=proxy_address, version="auto", timeout=90)
    yield client
    client.close()


async def refusal(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(APIError) as raised:
        await asyncio.to_thread(call, *args, **options)
    assert raised.value.status_code == 403
    return str(raised.value.explanation)


async def test_what_is_wanted_in_the_image_is_installed_behind_the_proxy_under_a_name_that_nobody_else_has(
    client: Any, engine: Any, own_name: str, proxy_address: str, instance: str, tmp_path: Path
) -> None:
    deps = ExtraDeps("chown 12:34 /opt && touch /opt/installed", 60)
    spec = SandboxSpec("c", instance, image=IMAGE, data_dir=str(tmp_path), network="none", extra_deps=deps)
    provider = DockerProvider(proxy_address, direct=False)
    sandbox = provider.create(spec)
    try:
        await sandbox.start(nobody_listens)
        [image] = engine.images("drydock/derived", filters={"label": f"drydock.instance={instance}"})
        name = image["RepoTags"][0]
        assert [one["Id"] for one in await asyncio.to_thread(client.images)] == [image["Id"]]
        config = {"Image": IMAGE, "Labels": {"drydock.instance": instance}, "HostConfig": HARDENED}
        await asyncio.to_thread(client.create_container_from_config, config, own_name)
        again = await refusal(client.commit, own_name, "drydock/derived", name.partition(":")[2])
        assert "is there already" in again
    finally:
        await sandbox.destroy()
        await provider.reap(instance, [])
        await provider.close()
    await asyncio.to_thread(client.remove_image, name)
    assert engine.images("drydock/derived", filters={"label": f"drydock.instance={instance}"}) == []


async def test_an_image_of_somebody_else_is_neither_replaced_nor_removed(
    client: Any, engine: Any, own_name: str, instance: str
) -> None:
    tag = secrets.token_hex(20)
    engine.tag(IMAGE, "drydock/derived", tag)
    try:
        config = {"Image": IMAGE, "Labels": {"drydock.instance": instance}, "HostConfig": HARDENED}
        await asyncio.to_thread(client.create_container_from_config, config, own_name)
        await refusal(client.commit, own_name, "drydock/derived", tag)
        await refusal(client.remove_image, f"drydock/derived:{tag}")
        assert await asyncio.to_thread(client.images) == []
        assert engine.inspect_image(f"drydock/derived:{tag}")["Id"] == engine.inspect_image(IMAGE)["Id"]
    finally:
        engine.remove_image(f"drydock/derived:{tag}")


async def test_a_privileged_container_is_refused(client: Any, own_name: str, engine: Any) -> None:
    config = {"Image": IMAGE, "HostConfig": {**HARDENED, "Privileged": True}}
    reason = await refusal(client.create_container_from_config, config, own_name)
    assert "Privileged is not allowed" in reason
    assert engine.containers(all=True, filters={"name": own_name}) == []


async def test_a_container_with_a_folder_of_the_host_is_refused(client: Any, own_name: str) -> None:
    config = {"Image": IMAGE, "HostConfig": {**HARDENED, "Binds": ["/:/host"]}}
    assert "Binds" in await refusal(client.create_container_from_config, config, own_name)


async def test_a_container_of_somebody_else_is_out_of_reach(client: Any, engine: Any) -> None:
    name = f"other-{secrets.token_hex(4)}"
    config = {"Image": IMAGE, "Cmd": ["sleep", "60"], "HostConfig": {"NetworkMode": "none"}}
    other = engine.create_container_from_config(config, name)["Id"]
    try:
        for reference in (name, other, other[:12]):
            await refusal(client.inspect_container, reference)
            await refusal(client.start, reference)
            await refusal(client.exec_create, reference, ["id"])
            await refusal(client.put_archive, reference, "/", b"")
            await refusal(client.remove_container, reference, force=True)
        assert engine.inspect_container(other)["State"]["Status"] == "created"
    finally:
        engine.remove_container(other, force=True)


@pytest.mark.parametrize("pattern", ["drydock_{}_engine_1", "drydock-{}-engine-1", "drydock-engine-{}"])
@pytest.mark.parametrize("labelled", [False, True], ids=["plain", "labelled as ours"])
async def test_the_container_that_has_the_engines_socket_is_out_of_reach_under_every_name(
    client: Any, engine: Any, instance: str, pattern: str, labelled: bool
) -> None:
    """As Compose 1 and 2 name and label the proxy's own container, by whose exec somebody would be root on the host."""
    name = pattern.format(secrets.token_hex(4))
    project = {"com.docker.compose.project": "drydock", "com.docker.compose.service": "engine"}
    config = {
        "Image": IMAGE,
        "User": "0",
        "Cmd": ["sleep", "60"],
        "Labels": {**project, **({"drydock.instance": instance} if labelled else {})},
        "HostConfig": {"NetworkMode": "none", "Binds": ["/var/run/docker.sock:/var/run/docker.sock"]},
    }
    host = engine.create_container_from_config(config, name)["Id"]
    try:
        engine.start(host)
        made = engine.exec_create(host, ASK_THE_ENGINE)["Id"]
        assert b"ApiVersion" in engine.exec_start(made), "whoever gets an exec in here has the engine"
        prepared = engine.exec_create(host, ASK_THE_ENGINE)["Id"]
        for reference in (name, host, host[:12]):
            await refusal(client.exec_create, reference, ASK_THE_ENGINE)
            await refusal(client.inspect_container, reference)
            await refusal(client.put_archive, reference, "/", b"")
            await refusal(client.kill, reference)
            await refusal(client.remove_container, reference, force=True)
        await refusal(client.exec_start, prepared)
        await refusal(client.exec_inspect, prepared)
        assert host not in str(await asyncio.to_thread(client.containers, all=True))
        assert engine.inspect_container(host)["State"]["Running"]
    finally:
        engine.remove_container(host, force=True)


async def test_a_compose_projects_volumes_and_networks_are_out_of_reach(
    client: Any, engine: Any, instance: str, own_name: str
) -> None:
    ours = {"drydock.instance": instance}
    theirs = {**ours, "com.docker.compose.project": "drydock"}
    engine.create_volume(own_name, labels=theirs)
    engine.create_network(own_name, driver="bridge", internal=True, labels=theirs)
    await refusal(client.create_volume, own_name, labels=ours)
    await refusal(client.remove_volume, own_name)
    await refusal(client.remove_network, own_name)
    mount = {"Type": "volume", "Source": own_name, "Target": "/x"}
    for host in ({**HARDENED, "Mounts": [mount]}, {**HARDENED, "NetworkMode": own_name}):
        config = {"Image": IMAGE, "Labels": ours, "HostConfig": host}
        assert own_name in await refusal(client.create_container_from_config, config, own_name)
    config = {"Image": IMAGE, "Labels": ours, "HostConfig": HARDENED}
    await asyncio.to_thread(client.create_container_from_config, config, own_name)
    await refusal(client.connect_container_to_network, own_name, own_name)
    assert own_name not in str(await asyncio.to_thread(client.volumes)) + str(await asyncio.to_thread(client.networks))


async def test_a_sandbox_does_not_become_part_of_the_project_that_built_its_image(
    client: Any, engine: Any, instance: str, own_name: str
) -> None:
    """Compose 2 labels what it builds."""
    label = "com.docker.compose.project"
    engine.create_container_from_config({"Image": IMAGE, "Cmd": ["true"]}, own_name)
    built = engine.commit(own_name, "drydock-test-built", own_name, changes=[f"LABEL {label}=drydock"])["Id"]
    engine.remove_container(own_name, force=True)
    try:
        config = {"Image": built, "Labels": {"drydock.instance": instance}, "HostConfig": HARDENED}
        await asyncio.to_thread(client.create_container_from_config, config, own_name)
        found = await asyncio.to_thread(client.inspect_container, own_name)
        assert found["Config"]["Labels"][label] == ""
        assert found["Id"] not in str(engine.containers(all=True, filters={"label": [f"{label}=drydock"]}))
        engine.remove_container(own_name, force=True)
    finally:
        engine.remove_image(built, force=True)


async def test_building_and_committing_images_is_refused(client: Any, own_name: str) -> None:
    await refusal(client.commit, own_name)
    await refusal(client.remove_image, IMAGE)
    await refusal(client.import_image_from_data, b"", repository="x")


async def test_dockers_own_client_can_use_a_hardened_container(client: Any, own_name: str, instance: str) -> None:
    def use() -> tuple[bytes, int]:
        labels = {"drydock.instance": instance}
        config = {"Image": IMAGE, "Cmd": ["sleep", "60"], "Labels": labels, "HostConfig": HARDENED}
        made = client.create_container_from_config(config, own_name)
        client.start(own_name)
        exec_id = client.exec_create(own_name, ["sh", "-c", "seq 20000; exit 3"])["Id"]
        output = client.exec_start(exec_id)
        code = client.exec_inspect(exec_id)["ExitCode"]
        client.remove_container(made["Id"], force=True)  # by id: the proxy asks whose it is
        return output, code

    output, code = await asyncio.to_thread(use)
    assert output.split()[-1] == b"20000"
    assert code == 3


async def test_a_whole_sandbox_lives_behind_the_proxy(
    proxy_address: str, tmp_path: Path, engine: Any, instance: str
) -> None:
    spec = SandboxSpec("through-the-proxy", instance, IMAGE, str(tmp_path), network="internal")
    provider = DockerProvider(proxy_address)
    try:
        assert (await provider.check()).ok
        assert (await provider.check_image(IMAGE)).ok
        sandbox = provider.create(spec)
        await sandbox.start(nobody_listens)
        channel = await RunnerChannel.open(await sandbox.attach())
        reply = await channel.request("shell.run", {"command": "echo $((6 * 7)) | tee answer"})
        assert reply.result["output"].strip() == "42"
        await channel.close()
        await sandbox.pause()
        assert await sandbox.poll() is SandboxStatus.PAUSED
        await sandbox.resume()
        snapshot = await sandbox.snapshot()
        await sandbox.stop()
        assert await sandbox.poll() is SandboxStatus.STOPPED
        engine.remove_network(engine.inspect_container(sandbox.state["container"])["HostConfig"]["NetworkMode"])
        await sandbox.start(nobody_listens)
        await sandbox.stop()
        assert snapshot in [volume["Name"] for volume in engine.volumes()["Volumes"]]
        await provider.reap(instance, ())
        assert await sandbox.poll() is SandboxStatus.ABSENT
    finally:
        await provider.reap(instance, ())
        await provider.close()
    filters = {"label": [f"drydock.instance={instance}"]}
    assert engine.containers(all=True, filters=filters) == []
    assert (engine.volumes(filters=filters)["Volumes"] or []) == []
    assert engine.networks(filters=filters) == []
