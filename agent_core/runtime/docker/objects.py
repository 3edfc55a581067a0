"""A conversation's container and volumes in the engine: hardened, limited, labelled, found by name and label."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agent_core.errors import SandboxError
from agent_core.runtime import injection
from agent_core.runtime.disk import LOOK_SECONDS, order_for, read_usage
from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError, ExecStream
from agent_core.runtime.injection import GIVEN_WORKSPACE, boot_command, serve_arguments
from agent_core.runtime.sandbox import (
    LABEL_CONFIGURED,
    LABEL_CONVERSATION,
    LABEL_CREATION,
    LABEL_INSTANCE,
    LABEL_MADE_FROM,
    LABEL_PROGRAM,
    LABEL_ROLE,
    RUNNER_ROOT,
    SOCKET,
    WORKSPACE,
    DiskUsage,
    SandboxLimits,
    SandboxSpec,
    instance_name,
)
from agent_core.runtime.seccomp import seccomp_profile
from agent_core.runtime.workspace_archive import WorkspaceArchive, WritableFile, archive_folder

UID = GID = 1000
USER = f"{UID}:{GID}"
PYTHON = boot_command("python3")
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - inside
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - inside
_SHARED_MEMORY_SIZE = 64 * 1024**2
ATTACH = [*PYTHON, "attach", "--socket", SOCKET]

_COPY = f"""
import os, shutil, stat
plain = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
special = lambda folder, names: [
    name for name in names if stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) not in plain
]
shutil.copytree("/from", "{WORKSPACE}", symlinks=True, ignore=special, dirs_exist_ok=True)
"""


def confinement(network: str, limits: SandboxLimits) -> dict[str, Any]:
    """The part of a ``HostConfig`` that holds whatever runs in a container of ours: no rights, and bounds on all."""
    return {
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_profile()}"],
        "Init": True,
        "IpcMode": "private",
        "NetworkMode": network,
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "NanoCpus": int(limits.cpus * 1e9),
        "PidsLimit": limits.processes,
        "OomScoreAdj": 500,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
    }


def sandbox_config(spec: SandboxSpec, volume: str, network: str, creation: str, quota: Quota) -> dict[str, Any]:
    """The container of a sandbox; `volume` is its workspace's, made with it if it is not there.

    `creation` labels a volume that this container brings into being, no older one; `quota` says what may have a size.
    """
    limits = spec.limits
    # Their entries are memory, without a bound of their own: too many would have the kernel end the whole sandbox.
    entries = f",nr_inodes={limits.inodes}" if limits.inodes else ""
    has_size = quota.root and bool(limits.disk) and not limits.read_only
    return {
        "Image": spec.image,
        "Hostname": "sandbox",
        "User": USER,
        "Entrypoint": PYTHON,
        "Cmd": serve_arguments(limits, ends_with_owner=spec.ends_with_owner),
        "WorkingDir": RUNNER_ROOT,
        "Env": [f"{name}={value}" for name, value in spec.environment.items()],
        "Labels": {
            **_labels(spec, "sandbox"),
            LABEL_MADE_FROM: made_from(spec),
            LABEL_CONFIGURED: configured(spec),
            **({LABEL_PROGRAM: "yes"} if spec.ends_with_owner else {}),
        },
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGINT",  # programs inside send the runner SIGTERM by mistake, see its watch_signals
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        "HostConfig": {
            **confinement(network, limits),
            "Privileged": False,
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                # One file alone cannot be more, whoever looks or does not.
                *([{"Name": "fsize", "Soft": limits.disk, "Hard": limits.disk}] if limits.disk else []),
            ],
            "ReadonlyRootfs": limits.read_only,
            "Tmpfs": {
                **dict.fromkeys(_TEMPORARY, f"rw,exec,nosuid,nodev,mode=1777,size={limits.tmp_size}{entries}"),
                # In place of the engine's own, whose entries have no bound.
                _SHARED_MEMORY: f"rw,noexec,nosuid,nodev,mode=1777,size={_SHARED_MEMORY_SIZE}{entries}",
            },
            "RestartPolicy": {"Name": "no"},
            **({"StorageOpt": {"size": str(limits.disk_bound)}} if has_size else {}),
            "Mounts": [
                _mount(spec, "workspace", volume, WORKSPACE, creation, quota),
                _mount(spec, "runner", f"{volume.removesuffix('-workspace')}-runner", RUNNER_ROOT, creation, quota),
                # Where the workspace is given to its user: a read-only root takes no files, and a volume itself cannot
                # be changed, so it is mounted once more within the runner's volume.
                _mount(spec, "workspace", volume, GIVEN_WORKSPACE, creation, quota),
            ],
        },
    }


def copy_config(spec: SandboxSpec, source: str, target: str, quota: Quota) -> dict[str, Any]:
    """The container that copies one workspace into another as the sandbox's own user, and ends."""
    config = sandbox_config(spec, target, "none", "", quota)
    config["Entrypoint"] = ["python3", "-E", "-s", "-S", "-c", _COPY]
    config["Cmd"] = []
    config["WorkingDir"] = "/"
    config["Labels"] = _labels(spec, "snapshot")
    config["HostConfig"]["ReadonlyRootfs"] = False  # nothing of the sandbox's runs in it, and its workspace is prepared
    config["HostConfig"]["Mounts"] = [
        _mount(spec, "workspace", target, WORKSPACE, "", quota),
        {"Type": "volume", "Source": source, "Target": "/from", "ReadOnly": True},
    ]
    return config


def _mount(spec: SandboxSpec, role: str, volume: str, target: str, creation: str, quota: Quota) -> dict[str, Any]:
    options: dict[str, Any] = {"Labels": {**_labels(spec, role), LABEL_CREATION: creation}}
    if quota.volumes and spec.limits.disk:
        options["DriverConfig"] = {"Options": {"size": str(spec.limits.disk_bound)}}
    return {"Type": "volume", "Source": volume, "Target": target, "VolumeOptions": options}


def made_from(spec: SandboxSpec) -> str:
    """What a container is made from, as its label says it."""
    return _digest(spec.image, spec.extra_deps.commands if spec.extra_deps is not None else "")


def configured(spec: SandboxSpec) -> str:
    """The variables and limits of a container, as its label says it: it keeps them for as long as it is there."""
    limits = spec.limits
    bounds = (limits.memory, limits.cpus, limits.processes, limits.tmp_size, limits.disk, limits.inodes)
    return _digest(spec.conversation_id, *map(str, bounds), *(f"{k}={v}" for k, v in sorted(spec.environment.items())))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _labels(spec: SandboxSpec, role: str) -> dict[str, str]:
    return {LABEL_INSTANCE: spec.instance_id, LABEL_CONVERSATION: spec.conversation_id, LABEL_ROLE: role}


_QUOTA_ROLE = "quota"
_TRIED_BYTES = 16 * 1024**2


class Quota(NamedTuple):
    """Kinds of objects that an engine limits in size: new volumes; the writable layer of a container."""

    volumes: bool = False
    root: bool = False


class DockerQuota:
    """Knows what one engine takes a size for; an engine that refuses one is not asked again."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self._known: Quota | None = None
        self._looking = asyncio.Lock()

    async def find(self, instance_id: str) -> Quota:
        """Try it with a volume for this instance, which is removed again."""
        async with self._looking:
            if self._known is None:
                try:
                    self._known = await self._look(instance_id)
                except EngineRefusedError as error:
                    if error.status >= 500 and not _is_about_quota(error):
                        return Quota()  # it has some other trouble, which may pass
                    self._known = Quota()
            return self._known

    async def keeping(self, spec: SandboxSpec, make: Callable[[Quota], Awaitable[T]]) -> T:
        """What `make` gives, told what may have a size; told that nothing may, where the engine refuses it."""
        quota = await self.find(spec.instance_id) if spec.limits.disk else Quota()
        try:
            return await make(quota)
        except EngineRefusedError as error:
            if not quota.volumes or not _is_about_quota(error):
                raise
        self._known = Quota()
        return await make(self._known)

    async def _look(self, instance_id: str) -> Quota:
        name = f"{instance_name(instance_id)}-quota-{secrets.token_hex(4)}"
        labels = {LABEL_INSTANCE: instance_id, LABEL_ROLE: _QUOTA_ROLE}

        def look(client: Any) -> Quota:
            client.create_volume(name, driver_opts={"size": str(_TRIED_BYTES)}, labels=labels)
            try:
                info = client.info()
                backing = {str(fact[0]): fact[1] for fact in info.get("DriverStatus") or () if len(fact) == 2}
                holds_roots = info.get("Driver") == "overlay2" and backing.get("Backing Filesystem") == "xfs"
                return Quota(volumes=True, root=holds_roots)
            finally:
                client.remove_volume(name, force=True)

        return await self._engine.call("look whether volumes can have a size", look)


def _is_about_quota(error: EngineRefusedError) -> bool:
    return "quota" in error.explanation.lower()


T = TypeVar("T")

ARCHIVE_SECONDS = 3600.0
"""How long reading one workspace through the engine may take."""
_PAUSE_ATTEMPTS = 4
_LOG_LINES = 15
_LOG_TAIL = 1500


class DockerObjects:
    """Calls about one sandbox's container and volumes; all raise `SandboxError` as `DockerEngine.call` does."""

    def __init__(self, engine: DockerEngine, quota: DockerQuota, spec: SandboxSpec, name: str) -> None:
        self.name = name
        self._engine = engine
        self._quota = quota
        self._spec = spec
        self._volume = f"{name}-workspace"

    async def inspect(self) -> Mapping[str, Any] | None:
        return await self._engine.call_unless(
            "look at the sandbox", lambda client: dict(client.inspect_container(self.name)), 404
        )

    async def create(self, network: str, creation: str, image: str = "") -> None:
        """Make the container, of this image or else the spec's; its volumes are made with it if they are not there."""

        async def make(quota: Quota) -> None:
            config = sandbox_config(self._spec, self._volume, network, creation, quota) | {
                "Image": image or self._spec.image
            }
            await self._engine.call(
                "create the sandbox", lambda client: client.create_container_from_config(config, self.name)
            )

        await self._quota.keeping(self._spec, make)

    async def inject_and_start(self, *, with_workspace: bool) -> None:
        """Put the runner into the container and start it; `with_workspace` gives the workspace to its user."""
        archive = injection.runner_archive(UID, GID, with_workspace)

        def work(client: Any) -> None:
            client.put_archive(self.name, RUNNER_ROOT, archive)
            client.start(self.name)

        await self._engine.call("start the sandbox", work)

    async def disconnect(self, network: str) -> None:
        await self._engine.call_unless(
            "disconnect the sandbox",
            lambda client: client.disconnect_container_from_network(self.name, network, force=True),
            *(403, 404, 500),
        )

    async def connect(self, network: str) -> None:
        """Put the container into this network, in the place of one of the same name that is gone."""
        await self.disconnect(network)
        await self._engine.call(
            "connect the sandbox", lambda client: client.connect_container_to_network(self.name, network)
        )

    async def open_exec(self) -> ExecStream:
        return await self._engine.open_exec(self.name, ATTACH, user=USER, folder=RUNNER_ROOT)

    async def pause(self) -> None:
        for left in reversed(range(_PAUSE_ATTEMPTS)):
            try:
                # Not there, not running, or paused already.
                await self._engine.call_unless("pause the sandbox", lambda client: client.pause(self.name), 404, 409)
                return
            except EngineRefusedError as error:
                if error.status != 500 or not left:  # 500: processes that come and go are not always frozen at once
                    raise

    async def resume(self) -> None:
        # Not there, or not paused, which older engines answer with 500.
        await self._engine.call_unless("resume the sandbox", lambda client: client.unpause(self.name), 404, 409, 500)

    async def stop(self, grace: int) -> None:
        """Ask the container to end, and kill it after `grace` seconds."""
        await self._engine.call_unless(
            "stop the sandbox", lambda client: client.stop(self.name, timeout=grace), 304, 404
        )

    async def kill(self) -> None:
        await self._engine.call_unless("stop the sandbox", lambda client: client.kill(self.name), 404, 409)

    async def remove_container(self) -> None:
        await self._engine.call_unless(
            "remove the sandbox",
            lambda client: client.remove_container(self.name, v=True, force=True),
            *(404, 409),  # not there, or being removed already
        )

    async def remove_volumes(self, creation: str = "") -> None:
        """Remove the conversation's volumes; with `creation` only the one that this creation brought into being."""
        labels = [f"{LABEL_INSTANCE}={self._spec.instance_id}", f"{LABEL_CONVERSATION}={self._spec.conversation_id}"]
        if creation:
            labels.append(f"{LABEL_CREATION}={creation}")

        def remove(client: Any) -> None:
            for volume in client.volumes(filters={"label": labels})["Volumes"] or ():
                client.remove_volume(volume["Name"], force=True)

        await self._engine.call_unless("remove the sandbox's workspace", remove, 404)

    async def copy_workspace(self) -> str:
        """Copy the workspace into a volume of its own, as the sandbox's user; returns its name."""
        name = f"{self._volume}-{secrets.token_hex(4)}"
        helper = f"{name}-copy"
        archive = injection.workspace_archive(UID, GID)
        limit = self._spec.limits.start_seconds

        async def copied(quota: Quota) -> int:
            config = copy_config(self._spec, self._volume, name, quota)

            def copy(client: Any) -> int:
                client.create_container_from_config(config, helper)
                try:
                    client.put_archive(helper, "/", archive)
                    client.start(helper)
                    return int(client.wait(helper, timeout=limit)["StatusCode"])
                finally:
                    client.remove_container(helper, v=True, force=True)

            return await self._engine.call("keep the workspace", copy, limit=limit * 2)

        if await self._quota.keeping(self._spec, copied) != 0:
            raise SandboxError("The workspace could not be copied.", code="snapshot_failed", fix="Is the disk full?")
        return name

    async def archive_workspace(self, file: WritableFile, *, direct: bool) -> list[str]:
        """Write a tar file of the workspace; `direct`: read past the engine, where its folder is on this machine."""
        most = self._spec.limits.disk_bound

        def read(client: Any) -> list[str]:
            with WorkspaceArchive(file, most) as archive:
                chunks, _ = client.get_archive(self.name, WORKSPACE)
                archive.add_tar(chunks)
                return archive.left_out

        found = await self._engine.call_unless(
            "find the sandbox's workspace", lambda client: dict(client.inspect_volume(self._volume)), 404
        )
        folder = str((found or {}).get("Mountpoint") or "")
        if direct and os.path.isabs(folder) and os.access(folder, os.R_OK | os.X_OK):
            return await asyncio.to_thread(archive_folder, Path(folder), file, most)
        try:
            left_out = await self._engine.call_unless("read the workspace", read, 404, limit=ARCHIVE_SECONDS)
        except tarfile.TarError as error:  # an engine gives up where a file becomes shorter while it is read
            raise SandboxError(f"Its files were changed while they were read ({error}).", code="changed") from error
        if left_out is None and found is None:
            raise SandboxError("Its workspace is gone.", code="lost")
        if left_out is None:
            raise SandboxError("Its container was removed.", fix="Its next start makes another one for its volume.")
        return left_out

    async def measure_within(self, most_entries: int) -> DiskUsage | None:
        """What its volumes take, measured by a program in it; None when that says nothing."""
        source = dict(injection.runner_files())["core/disk_usage.py"].decode()
        order = order_for([WORKSPACE, f"{RUNNER_ROOT}/state", f"{RUNNER_ROOT}/home"], None, most_entries)
        command = ["python3", "-I", "-S", "-c", source, order]

        def look(client: Any) -> bytes:
            made = client.exec_create(self.name, command, stderr=False, user=USER, workdir="/")
            return bytes(client.exec_start(made["Id"]))

        # 404, 409: it has ended, or is frozen.
        printed = await self._engine.call_unless("look at the sandbox's disk", look, 404, 409, limit=LOOK_SECONDS)
        return read_usage(printed or b"")

    async def log(self) -> str:
        try:
            text = await self._engine.call(
                "read the sandbox's log",
                lambda client: client.logs(self.name, tail=_LOG_LINES, stdout=True, stderr=True),
            )
        except SandboxError:
            return ""
        return str(text, "utf-8", "replace").strip()[-_LOG_TAIL:]
