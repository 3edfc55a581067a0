"""Sizes of what an engine keeps: asked for where the engine takes them, and never twice where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError
from agent_core.runtime.docker.objects import DockerObjects, DockerQuota, Quota, sandbox_config
from agent_core.runtime.sandbox import SandboxLimits, SandboxSpec

NO_QUOTA = "create x: quota size requested but no quota support"
NO_ROOT_QUOTA = "--storage-opt is supported only for overlay over xfs with 'pquota' mount option"
SPEC = SandboxSpec("conversation", "instance", "image", "/nowhere", limits=SandboxLimits(read_only=False))
SIZE = str(SPEC.limits.disk_bound)


class Engine:
    """Keeps volumes and containers; refuses sizes of either with these words."""

    def __init__(self, volumes: str = "", root: str = "", status: int = 500, backing: str = "xfs") -> None:
        self.refuses_volumes, self.refuses_root, self.status, self.backing = volumes, root, status, backing
        self.volumes: dict[str, Any] = {}
        self.containers: list[Any] = []
        self.calls = 0

    async def call(self, what: str, work: Callable[[Any], Any], *, limit: float = 0) -> Any:
        self.calls += 1
        return work(self)

    def create_volume(self, name: str, driver_opts: dict[str, str], labels: dict[str, str]) -> None:
        assert labels["drydock.instance"] == "instance"
        if self.refuses_volumes:
            raise EngineRefusedError("make a volume", self.status, self.refuses_volumes)
        self.volumes[name] = driver_opts

    def remove_volume(self, name: str, *, force: bool) -> None:
        del self.volumes[name]

    def info(self) -> dict[str, Any]:
        return {
            "Driver": "overlay2",
            "DriverStatus": [["Backing Filesystem", self.backing], ["Supports d_type", "true"]],
        }

    def create_container_from_config(self, config: dict[str, Any], name: str) -> None:
        if "StorageOpt" in config["HostConfig"] and self.refuses_root:
            raise EngineRefusedError("create the sandbox", 500, self.refuses_root)
        self.containers.append(config)


def quota_of(engine: Engine) -> DockerQuota:
    return DockerQuota(cast(DockerEngine, engine))


def objects(engine: Engine, quota: DockerQuota, spec: SandboxSpec = SPEC) -> DockerObjects:
    return DockerObjects(cast(DockerEngine, engine), quota, spec, "drydock-name")


def sizes(config: dict[str, Any]) -> list[Any]:
    """Of the three mounts, and of the root."""
    drivers = [mount["VolumeOptions"].get("DriverConfig") for mount in config["HostConfig"]["Mounts"]]
    return [*(driver and driver["Options"] for driver in drivers), config["HostConfig"].get("StorageOpt")]


async def test_an_engine_with_quotas_is_asked_once_and_gives_every_volume_a_size() -> None:
    engine = Engine()
    quota = quota_of(engine)
    for _ in range(3):
        await objects(engine, quota).create("none", "making")
    assert engine.calls == 1 + 3
    assert engine.volumes == {}
    assert [sizes(config) for config in engine.containers] == [[{"size": SIZE}] * 4] * 3
    assert int(SIZE) > SPEC.limits.disk


async def test_an_engine_without_quotas_is_asked_once_and_never_for_a_size() -> None:
    engine = Engine(volumes=NO_QUOTA)
    quota = quota_of(engine)
    for _ in range(3):
        await objects(engine, quota).create("none", "making")
    assert engine.calls == 1 + 3
    assert [sizes(config) for config in engine.containers] == [[None] * 4] * 3


async def test_an_engine_that_takes_no_size_in_the_end_gets_none_from_then_on() -> None:
    engine = Engine(root=NO_ROOT_QUOTA)
    quota = quota_of(engine)
    for _ in range(2):
        await objects(engine, quota).create("none", "making")
    assert engine.calls == 1 + 2 + 1
    assert [sizes(config) for config in engine.containers] == [[None] * 4] * 2
    assert await quota.find("instance") == Quota()


async def test_other_trouble_of_an_engine_is_not_taken_for_an_answer() -> None:
    engine = Engine(volumes="no space left on device")
    quota = quota_of(engine)
    assert await quota.find("instance") == Quota()
    engine.refuses_volumes = ""
    assert await quota.find("instance") == Quota(volumes=True, root=True)


async def test_a_proxy_that_refuses_sizes_is_an_engine_without_quotas() -> None:
    engine = Engine(volumes="DriverOpts is not allowed", status=403)
    quota = quota_of(engine)
    assert [await quota.find("instance") for _ in range(2)] == [Quota(), Quota()]
    assert engine.calls == 1


async def test_what_is_refused_for_another_reason_is_an_error() -> None:
    engine = Engine(root="no space left on device")
    with pytest.raises(EngineRefusedError, match="no space left"):
        await objects(engine, quota_of(engine)).create("none", "making")


@pytest.mark.parametrize(
    ("limits", "quota", "expected"),
    [
        (SandboxLimits(), Quota(volumes=True, root=True), [{"size": SIZE}] * 3 + [None]),
        (SandboxLimits(read_only=False), Quota(volumes=True), [{"size": SIZE}] * 3 + [None]),
        (SandboxLimits(disk=0, read_only=False), Quota(volumes=True, root=True), [None] * 4),
        (SandboxLimits(read_only=False), Quota(), [None] * 4),
    ],
)
def test_what_has_a_limit_and_can_be_written_has_a_size(
    limits: SandboxLimits, quota: Quota, expected: list[Any]
) -> None:
    assert sizes(sandbox_config(replace(SPEC, limits=limits), "drydock-v-workspace", "none", "", quota)) == expected


async def test_without_a_limit_no_engine_is_asked() -> None:
    engine = Engine()
    await objects(engine, quota_of(engine), replace(SPEC, limits=SandboxLimits(disk=0))).create("none", "making")
    assert engine.calls == 1


async def test_a_root_has_a_size_only_where_what_is_written_is_counted() -> None:
    assert await quota_of(Engine(backing="extfs")).find("instance") == Quota(volumes=True, root=False)
