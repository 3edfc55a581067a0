"""Containers as the engine's API wants them: hardened, limited, labelled."""

from __future__ import annotations

from typing import Any

from agent_core.runtime.docker.quota import Quota
from agent_core.runtime.docker.seccomp import seccomp_profile
from agent_core.runtime.injection import GIVEN_WORKSPACE, boot_command
from agent_core.runtime.naming import (
    LABEL_CONVERSATION,
    LABEL_INSTANCE,
    LABEL_MAKING,
    LABEL_ROLE,
    RUNNER_ROOT,
    SOCKET,
    WORKSPACE,
    serve_arguments,
)
from agent_core.runtime.sandbox import SandboxSpec

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


def sandbox_config(spec: SandboxSpec, volume: str, network: str, making: str, quota: Quota) -> dict[str, Any]:
    """The container of a sandbox.

    Args:
        spec: what is wanted.
        volume: name of the workspace's volume; made with the container if it is not there.
        network: name of a network of the engine.
        making: labels a volume that this container brings into being, and no older one.
        quota: what may have a size; a volume that is there already keeps the one that it was made with, or none.
    """
    limits = spec.limits
    labels = _labels(spec, "sandbox")
    # Their entries are memory, without a bound of their own: too many would have the kernel end the whole sandbox.
    entries = f",nr_inodes={limits.inodes}" if limits.inodes else ""
    has_size = quota.root and bool(limits.disk) and not limits.read_only
    return {
        "Image": spec.image,
        "Hostname": "sandbox",
        "User": USER,
        "Entrypoint": PYTHON,
        "Cmd": serve_arguments(limits),
        "WorkingDir": RUNNER_ROOT,
        "Env": [f"{name}={value}" for name, value in spec.environment.items()],
        "Labels": labels,
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGINT",  # programs inside send the runner SIGTERM by mistake, see its watch_signals
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        "HostConfig": {
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_profile()}"],
            "Privileged": False,
            "Init": True,
            "IpcMode": "private",
            "NetworkMode": network,
            "Memory": limits.memory,
            "MemorySwap": limits.memory,
            "NanoCpus": int(limits.cpus * 1e9),
            "PidsLimit": limits.processes,
            "OomScoreAdj": 500,
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                # One file alone cannot be more, whoever looks or does not.
                *([{"Name": "fsize", "Soft": limits.disk, "Hard": limits.disk}] if limits.disk else []),
            ],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            "ReadonlyRootfs": limits.read_only,
            "Tmpfs": {
                **dict.fromkeys(_TEMPORARY, f"rw,exec,nosuid,nodev,mode=1777,size={limits.tmp_size}{entries}"),
                # In place of the engine's own, whose entries have no bound.
                _SHARED_MEMORY: f"rw,noexec,nosuid,nodev,mode=1777,size={_SHARED_MEMORY_SIZE}{entries}",
            },
            "RestartPolicy": {"Name": "no"},
            **({"StorageOpt": {"size": str(limits.disk_bound)}} if has_size else {}),
            "Mounts": _mounts(spec, volume, making, quota),
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


def _mounts(spec: SandboxSpec, workspace: str, making: str, quota: Quota) -> list[dict[str, Any]]:
    """The workspace; the runner's own places; and the workspace once more, where it is given to its user.

    Nothing can be put into a root file system that is read-only, and no volume can be changed itself, only what is in
    it: within the runner's volume the other one is such a thing.
    """
    return [
        _mount(spec, "workspace", workspace, WORKSPACE, making, quota),
        _mount(spec, "runner", f"{workspace.removesuffix('-workspace')}-runner", RUNNER_ROOT, making, quota),
        _mount(spec, "workspace", workspace, GIVEN_WORKSPACE, making, quota),
    ]


def _mount(spec: SandboxSpec, role: str, volume: str, target: str, making: str, quota: Quota) -> dict[str, Any]:
    options: dict[str, Any] = {"Labels": {**_labels(spec, role), LABEL_MAKING: making}}
    if quota.volumes and spec.limits.disk:
        options["DriverConfig"] = {"Options": {"size": str(spec.limits.disk_bound)}}
    return {"Type": "volume", "Source": volume, "Target": target, "VolumeOptions": options}


def _labels(spec: SandboxSpec, role: str) -> dict[str, str]:
    return {LABEL_INSTANCE: spec.instance_id, LABEL_CONVERSATION: spec.conversation_id, LABEL_ROLE: role}
