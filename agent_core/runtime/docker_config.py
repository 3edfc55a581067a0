"""Containers as the engine's API wants them: hardened, limited, labelled (architecture section 6)."""

from __future__ import annotations

from typing import Any

from agent_core.runtime.injection import boot_command
from agent_core.runtime.naming import (
    LABEL_CONVERSATION,
    LABEL_INSTANCE,
    LABEL_MAKING,
    LABEL_ROLE,
    RUNNER_ROOT,
    SERVE,
    SOCKET,
    WORKSPACE,
)
from agent_core.runtime.sandbox import SandboxSpec

UID = GID = 1000
USER = f"{UID}:{GID}"
PYTHON = boot_command("python3")
ATTACH = [*PYTHON, "attach", "--socket", SOCKET]

_COPY = f"""
import os, shutil, stat
plain = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
special = lambda folder, names: [
    name for name in names if stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) not in plain
]
shutil.copytree("/from", "{WORKSPACE}", symlinks=True, ignore=special, dirs_exist_ok=True)
"""


def sandbox_config(spec: SandboxSpec, volume: str, network: str, making: str) -> dict[str, Any]:
    """The container of a sandbox.

    Args:
        spec: what is wanted.
        volume: name of the workspace's volume; made with the container if it is not there.
        network: name of a network of the engine.
        making: labels a volume that this container brings into being, and no older one.
    """
    limits = spec.limits
    labels = _labels(spec, "sandbox")
    return {
        "Image": spec.image,
        "Hostname": "sandbox",
        "User": USER,
        "Entrypoint": PYTHON,
        "Cmd": list(SERVE),
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
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": False,
            "Init": True,
            "IpcMode": "private",
            "NetworkMode": network,
            "Memory": limits.memory,
            "MemorySwap": limits.memory,
            "NanoCpus": int(limits.cpus * 1e9),
            "PidsLimit": limits.processes,
            "OomScoreAdj": 500,
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.tmp_size}"},  # noqa: S108 - inside
            "RestartPolicy": {"Name": "no"},
            "Mounts": [_workspace(spec, volume, making)],
        },
    }


def copy_config(spec: SandboxSpec, source: str, target: str) -> dict[str, Any]:
    """The container that copies one workspace into another as the sandbox's own user, and ends."""
    config = sandbox_config(spec, target, "none", "")
    config["Entrypoint"] = ["python3", "-E", "-s", "-S", "-c", _COPY]
    config["Cmd"] = []
    config["Labels"] = _labels(spec, "snapshot")
    config["HostConfig"]["Mounts"].append({"Type": "volume", "Source": source, "Target": "/from", "ReadOnly": True})
    return config


def _workspace(spec: SandboxSpec, volume: str, making: str) -> dict[str, Any]:
    labels = {**_labels(spec, "workspace"), LABEL_MAKING: making}
    return {"Type": "volume", "Source": volume, "Target": WORKSPACE, "VolumeOptions": {"Labels": labels}}


def _labels(spec: SandboxSpec, role: str) -> dict[str, str]:
    return {LABEL_INSTANCE: spec.instance_id, LABEL_CONVERSATION: spec.conversation_id, LABEL_ROLE: role}
