"""What a conversation's sandbox is made of in the engine: a container and volumes, found by name and label."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from agent_core.errors import SandboxError
from agent_core.runtime import injection
from agent_core.runtime.disk_look import LOOK_SECONDS, order_for, read_usage
from agent_core.runtime.docker import container_config as docker_config
from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError, ignoring
from agent_core.runtime.docker.exec_stream import ExecStream
from agent_core.runtime.docker.quota import DockerQuota, Quota
from agent_core.runtime.naming import LABEL_CONVERSATION, LABEL_INSTANCE, LABEL_MAKING, RUNNER_ROOT, WORKSPACE
from agent_core.runtime.sandbox import DiskUsage, SandboxSpec

T = TypeVar("T")

_PAUSE_ATTEMPTS = 4
_LOG_LINES = 15
_LOG_KEPT = 1500


class DockerObjects:
    """Calls about one sandbox's container and volumes; all raise `SandboxError` as `DockerEngine.call` does."""

    def __init__(self, engine: DockerEngine, quota: DockerQuota, spec: SandboxSpec, name: str) -> None:
        self.name = name
        self._engine = engine
        self._quota = quota
        self._spec = spec
        self._volume = f"{name}-workspace"

    async def inspect(self) -> Mapping[str, Any] | None:
        """The container as the engine describes it; None when there is none."""
        try:
            found = await self._engine.call("look at the sandbox", lambda client: client.inspect_container(self.name))
        except EngineRefusedError as error:
            if error.status == 404:
                return None
            raise
        return dict(found)

    async def create(self, network: str, making: str) -> None:
        """Make the container, and the workspace's volume unless it is there (see `docker_config.sandbox_config`)."""

        async def make(quota: Quota) -> None:
            config = docker_config.sandbox_config(self._spec, self._volume, network, making, quota)
            await self._engine.call(
                "create the sandbox", lambda client: client.create_container_from_config(config, self.name)
            )

        await self._keeping_quota(make)

    async def inject_and_start(self, *, with_workspace: bool) -> None:
        """Put the runner into the container and start it; `with_workspace` gives the workspace to its user."""
        archive = injection.runner_archive(docker_config.UID, docker_config.GID, with_workspace)

        def work(client: Any) -> None:
            client.put_archive(self.name, RUNNER_ROOT, archive)
            client.start(self.name)

        await self._engine.call("start the sandbox", work)

    async def disconnect(self, network: str) -> None:
        """Take the container out of this network, if it is in there as far as the engine knows."""
        with ignoring(403, 404, 500):
            await self._engine.call(
                "disconnect the sandbox",
                lambda client: client.disconnect_container_from_network(self.name, network, force=True),
            )

    async def connect(self, network: str) -> None:
        """Put the container into this network, in the place of one of the same name that is gone."""
        await self.disconnect(network)
        await self._engine.call(
            "connect the sandbox", lambda client: client.connect_container_to_network(self.name, network)
        )

    async def open_exec(self) -> tuple[ExecStream, asyncio.Transport]:
        """A stream to the program that attaches to the runner."""
        return await self._engine.open_exec(
            self.name, docker_config.ATTACH, user=docker_config.USER, folder=RUNNER_ROOT
        )

    async def pause(self) -> None:
        """Freeze the container, if it runs."""
        for left in reversed(range(_PAUSE_ATTEMPTS)):
            try:
                with ignoring(404, 409):  # not there, not running, or paused already
                    await self._engine.call("pause the sandbox", lambda client: client.pause(self.name))
                return
            except EngineRefusedError as error:
                if error.status != 500 or not left:  # 500: processes that come and go are not always frozen at once
                    raise

    async def resume(self) -> None:
        """Let the container go on, if it is frozen."""
        with ignoring(404, 409, 500):  # not there, or not paused, which older engines answer with 500
            await self._engine.call("resume the sandbox", lambda client: client.unpause(self.name))

    async def stop(self, grace: int) -> None:
        """Ask the container to end, and end it after `grace` seconds; one that has ended is left alone."""
        with ignoring(304, 404):
            await self._engine.call("stop the sandbox", lambda client: client.stop(self.name, timeout=grace))

    async def kill(self) -> None:
        """End the container at once."""
        with ignoring(404, 409):
            await self._engine.call("stop the sandbox", lambda client: client.kill(self.name))

    async def remove_container(self) -> None:
        """Remove the container, whatever it does."""
        with ignoring(404, 409):  # not there, or being removed already
            await self._engine.call(
                "remove the sandbox", lambda client: client.remove_container(self.name, v=True, force=True)
            )

    async def remove_volumes(self, making: str = "") -> None:
        """Remove the conversation's volumes; with `making` only the one that this making brought into being."""
        labels = [f"{LABEL_INSTANCE}={self._spec.instance_id}", f"{LABEL_CONVERSATION}={self._spec.conversation_id}"]
        if making:
            labels.append(f"{LABEL_MAKING}={making}")

        def remove(client: Any) -> None:
            for volume in client.volumes(filters={"label": labels})["Volumes"] or ():
                client.remove_volume(volume["Name"], force=True)

        with ignoring(404):
            await self._engine.call("remove the sandbox's workspace", remove)

    async def copy_workspace(self) -> str:
        """Copy the workspace into a volume of its own, as the sandbox's user; returns the volume's name.

        Raises:
            SandboxError: ``snapshot_failed``, or what the engine answers.
        """
        name = f"{self._volume}-{secrets.token_hex(4)}"
        helper = f"{name}-copy"
        archive = injection.workspace_archive(docker_config.UID, docker_config.GID)
        limit = self._spec.limits.start_seconds

        async def copied(quota: Quota) -> int:
            config = docker_config.copy_config(self._spec, self._volume, name, quota)

            def copy(client: Any) -> int:
                client.create_container_from_config(config, helper)
                try:
                    client.put_archive(helper, "/", archive)
                    client.start(helper)
                    return int(client.wait(helper, timeout=limit)["StatusCode"])
                finally:
                    client.remove_container(helper, v=True, force=True)

            return await self._engine.call("keep the workspace", copy, limit=limit * 2)

        if await self._keeping_quota(copied) != 0:
            raise SandboxError("The workspace could not be copied.", code="snapshot_failed", fix="Is the disk full?")
        return name

    async def measure_within(self, most_entries: int) -> DiskUsage | None:
        """What its volumes take, measured by a program that is put into it for that; None when it says nothing."""
        source = dict(injection.runner_files())["core/disk_usage.py"].decode()
        order = order_for([WORKSPACE, f"{RUNNER_ROOT}/state", f"{RUNNER_ROOT}/home"], None, most_entries)
        command = ["python3", "-I", "-S", "-c", source, order]

        def look(client: Any) -> bytes:
            made = client.exec_create(self.name, command, stderr=False, user=docker_config.USER, workdir="/")
            return bytes(client.exec_start(made["Id"]))

        printed = b""
        with ignoring(404, 409):  # it has ended, or is frozen
            printed = await self._engine.call("look at the sandbox's disk", look, limit=LOOK_SECONDS)
        return read_usage(printed)

    async def log(self) -> str:
        """The last lines that the container wrote; empty when they cannot be had."""
        try:
            text = await self._engine.call(
                "read the sandbox's log",
                lambda client: client.logs(self.name, tail=_LOG_LINES, stdout=True, stderr=True),
            )
        except SandboxError:
            return ""
        return str(text, "utf-8", "replace").strip()[-_LOG_KEPT:]

    async def _keeping_quota(self, make: Callable[[Quota], Awaitable[T]]) -> T:
        if not self._spec.limits.disk:
            return await make(Quota())
        return await self._quota.keeping(self._spec.instance_id, make)
