"""The objects of a sandbox in a cluster: its pod, its volume, and what the sandboxes of an instance share.

A pod is as confined as the engine's containers are: its user is none, has no rights and cannot get any, its root cannot
be written, and no account of the cluster is in it. Its network is what the policies of its kind let through.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from agent_core.runtime.docker.images import is_own
from agent_core.runtime.docker.objects import GID, UID, made_from
from agent_core.runtime.injection import boot_command, runner_archive, runner_files, serve_arguments
from agent_core.runtime.kubernetes.options import KubernetesOptions
from agent_core.runtime.sandbox import (
    LABEL_CONVERSATION,
    LABEL_CREATION,
    LABEL_INSTANCE,
    LABEL_MADE_FROM,
    LABEL_ROLE,
    RUNNER_ROOT,
    SOCKET_NAME,
    STATE_DIR,
    WORKSPACE,
    NetworkWish,
    SandboxSpec,
    instance_name,
)

CONTAINER: Final = "sandbox"
PREPARATION: Final = "prepare"
LABEL_NETWORK: Final = "drydock.network"
ABOUT: Final = "drydock.about"
"""Annotation with the names that labels have only digests of, since those are short and of few characters."""
FROZEN: Final = "drydock.frozen"
VOLUME: Final = "/volume"
_RUN: Final = f"{RUNNER_ROOT}/run"
"""Where the runner listens: not every file system that a volume can have takes sockets."""
ATTACH: Final = [*boot_command("python3"), "attach", "--socket", f"{_RUN}/{SOCKET_NAME}"]
NETWORKING: Final = "networking.k8s.io/v1"

_CODE: Final = f"{RUNNER_ROOT}/code"
_CODE_FILE: Final = "runner.tar.gz"
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - inside
_SHARED_MEMORY_SIZE: Final = 64 * 1024**2
_LEAST_MEMORY: Final = 256 * 1024**2
_LEAST_CPUS: Final = 0.1
_ANY_SIZE: Final = 100 * 1024**3

_NOT_PUBLIC: Final = {
    "0.0.0.0/0": (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
    ),
    "::/0": ("::1/128", "fc00::/7", "fe80::/10", "ff00::/8", "64:ff9b::/96"),
}
"""What of each family of addresses is of the cluster, its nodes, their cloud, or nobody."""

_NAMES_OF_NODE: Final = "169.254.20.10/32"
"""Where a cluster has a cache of names on each node (NodeLocal DNSCache)."""

_PREPARE: Final = f"""
import sys
if sys.version_info < (3, 8):
    sys.exit("drydock: Python 3.8 or newer is needed, this is " + sys.version.split()[0])
import os, tarfile
for name, mode in (("workspace", 0o755), ("state", 0o700), ("home", 0o700)):
    path = os.path.join("{VOLUME}", name)
    if not os.path.isdir(path):
        os.mkdir(path)
        os.chmod(path, mode)
with tarfile.open("{_CODE}/{_CODE_FILE}") as archive:
    for member in archive:
        if member.name.startswith("runner/"):
            member.name, member.uid, member.gid = member.name[7:], os.getuid(), os.getgid()
            archive.extract(member, "{RUNNER_ROOT}/runner")
"""

ARCHIVE: Final = """
import os, stat, sys, tarfile
class Whole:
    def __init__(self, file):
        self.file = file
    def read(self, size):
        data = b""
        try:
            while len(data) < size:
                part = self.file.read(size - len(data))
                if not part:
                    break
                data += part
        except OSError:
            pass
        return data.ljust(size, b"\\0")
top, names = sys.argv[1], {}
if not os.path.isdir(top):
    sys.exit(4)
tar = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT)
def failed(error):
    print(os.path.relpath(error.filename, top), file=sys.stderr)
for folder, folders, files in os.walk(top, onerror=failed):
    folders.sort()
    for name in sorted(folders + files):
        path = os.path.join(folder, name)
        file = None
        try:
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode):
                file = open(path, "rb", 0)
                found = os.fstat(file.fileno())
            info = tar.gettarinfo(path, os.path.join("w", os.path.relpath(path, top)))
            if info is None or not (info.isreg() or info.isdir() or info.issym() or info.islnk()):
                continue
            if info.isreg():
                info.size = found.st_size
                tar.addfile(info, Whole(file))
            else:
                tar.addfile(info)
            tar.members = []
        except OSError:
            print(os.path.relpath(path, top), file=sys.stderr)
        finally:
            if file is not None:
                file.close()
tar.close()
"""
"""Prints the folder it is given as a tar file; its errors are the paths that are not in it, 4: there is no folder."""

COPY: Final = """
import os, shutil, stat, sys
plain = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
special = lambda folder, names: [
    name for name in names if stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) not in plain
]
os.makedirs(os.path.dirname(sys.argv[2]), 0o700, exist_ok=True)
shutil.copytree(sys.argv[1], sys.argv[2], symlinks=True, ignore=special)
"""

SIGNAL: Final = """
import os, signal, sys, time
number = getattr(signal, sys.argv[1])
for turn in range(100):
    busy = False
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()):
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                if parent == b"0":
                    continue
                stopped = state in b"TtZX"
                if (number == signal.SIGCONT) == stopped and state not in b"ZX":
                    busy = busy or not stopped
                    os.kill(int(name), number)
            except (OSError, ValueError):
                pass
    if not busy:
        break
    time.sleep(0.005)
"""
"""Stops, or lets go on, all that runs in a container but its first process, and what comes from outside.

An exec that is stopped while it begins holds up all others of the container.
"""


def digest(text: str, *more: str) -> str:
    """In the place of texts that a label cannot hold."""
    return hashlib.sha256("\0".join((text, *more)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def metadata(spec: SandboxSpec, name: str, role: str, **more: str) -> dict[str, Any]:
    """Name, labels and annotations of one of a conversation's objects."""
    about = {"instance": spec.instance_id, "conversation": spec.conversation_id, "image": spec.image}
    return {
        "name": name,
        "labels": {**labels_of(spec.instance_id, spec.conversation_id), LABEL_ROLE: role, **more},
        "annotations": {ABOUT: json.dumps(about)},
    }


def labels_of(instance_id: str, conversation_id: str = "") -> dict[str, str]:
    """By which objects are found."""
    found = {LABEL_INSTANCE: digest(instance_id)}
    return found | ({LABEL_CONVERSATION: digest(conversation_id)} if conversation_id else {})


def selector(labels: Mapping[str, str]) -> str:
    """Of objects that have these labels."""
    return ",".join(f"{name}={value}" for name, value in labels.items())


def conversation_of(item: Mapping[str, Any]) -> str:
    """Whose an object is; "" for one that does not say."""
    return _about(item, "conversation")


def instance_of(item: Mapping[str, Any]) -> str:
    """Of which server an object is; "" for one that does not say."""
    return _about(item, "instance")


def image_of(item: Mapping[str, Any]) -> str:
    """The image with which an object was made; "" for one that does not say."""
    return _about(item, "image")


def _about(item: Mapping[str, Any], what: str) -> str:
    try:
        return str(json.loads(item["metadata"]["annotations"][ABOUT])[what])
    except (LookupError, TypeError, ValueError):
        return ""


def claim(spec: SandboxSpec, options: KubernetesOptions, name: str, creation: str) -> dict[str, Any]:
    """The volume of a conversation: its workspace, its home, and what its runner knows."""
    size = spec.limits.disk_bound or _ANY_SIZE
    wish: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(size)}},
        **({"storageClassName": options.storage_class} if options.storage_class else {}),
    }
    about = metadata(spec, name, "workspace", **{LABEL_CREATION: creation})
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": wish}


@cache
def _code() -> bytes:
    # Without a time: the same code has the same digest everywhere.
    return gzip.compress(runner_archive(UID, GID, False), mtime=0)


@cache
def code_name(instance_id: str) -> str:
    """Of the object with the runner's code: of this release, so that another one's pods keep theirs."""
    parts = [f"{path}\0{hashlib.sha256(content).hexdigest()}" for path, content in runner_files()]
    return f"{instance_name(instance_id)}-runner-{digest(*parts)[:12]}"


def code_map(spec: SandboxSpec) -> dict[str, Any]:
    """The runner's code, which pods of this instance unpack."""
    labels = {**labels_of(spec.instance_id), LABEL_ROLE: "runner"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": code_name(spec.instance_id), "labels": labels},
        "immutable": True,
        "binaryData": {_CODE_FILE: base64.b64encode(_code()).decode()},
    }


def network_kind(spec: SandboxSpec, options: KubernetesOptions) -> str:
    """The label by which a pod gets the rules of its network; other rules have another."""
    return f"{spec.network}-{digest(json.dumps(egress(spec.network, options)))[:12]}"


def policy(spec: SandboxSpec, options: KubernetesOptions) -> dict[str, Any]:
    """What the network of all pods of this kind lets through: nobody comes in, and what `egress` says goes out."""
    kind = network_kind(spec, options)
    return {
        "apiVersion": NETWORKING,
        "kind": "NetworkPolicy",
        "metadata": {
            "name": f"{instance_name(spec.instance_id)}-{kind}",
            "labels": {**labels_of(spec.instance_id), LABEL_ROLE: "network"},
        },
        "spec": {
            "podSelector": {"matchLabels": {**labels_of(spec.instance_id), LABEL_NETWORK: kind}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": egress(spec.network, options),
        },
    }


def egress(network: NetworkWish, options: KubernetesOptions) -> list[dict[str, Any]]:
    """The rules for what a sandbox may reach; to `destinations` of the operator, where there are any."""
    if network in ("none", "internal"):
        return []
    if network == "host-access":
        return [{}]
    names: dict[str, Any] = {
        "to": [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            },
            {"ipBlock": {"cidr": _NAMES_OF_NODE}},
        ],
        "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
    }
    blocks: list[dict[str, Any]] = [{"cidr": one} for one in options.destinations]
    blocks = blocks or [{"cidr": family, "except": list(others)} for family, others in _NOT_PUBLIC.items()]
    return [names, {"to": [{"ipBlock": block} for block in blocks]}]


def pod(spec: SandboxSpec, options: KubernetesOptions, name: str, claim_name: str) -> dict[str, Any]:
    """The pod of a sandbox, whose files are on the volume of this claim."""
    limits = spec.limits
    disk = str(limits.disk_bound or _ANY_SIZE)
    whole = {"memory": str(limits.memory), "cpu": f"{round(limits.cpus * 1000)}m", "ephemeral-storage": disk}
    asked = {
        "memory": str(min(_LEAST_MEMORY, limits.memory)),
        "cpu": f"{round(min(_LEAST_CPUS, limits.cpus) * 1000)}m",
        "ephemeral-storage": "0",
    }
    data: dict[str, Any] = {"name": "data"}
    about = metadata(
        spec,
        name,
        "sandbox",
        **{
            LABEL_MADE_FROM: made_from(spec),
            LABEL_NETWORK: network_kind(spec, options),
        },
    )
    container = {
        "image": spec.image,
        "imagePullPolicy": options.pull_policy,
        "securityContext": _confined(read_only=limits.read_only),
        "resources": {"limits": whole, "requests": asked},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": about,
        "spec": {
            **_placed(options),
            "hostname": "sandbox",
            "terminationGracePeriodSeconds": max(1, round(limits.stop_seconds)),
            "initContainers": [
                {
                    **container,
                    "name": PREPARATION,
                    "command": ["python3", "-E", "-s", "-S", "-c", _PREPARE],
                    "workingDir": "/",
                    "volumeMounts": [
                        {**data, "mountPath": VOLUME},
                        {"name": "runner", "mountPath": f"{RUNNER_ROOT}/runner"},
                        {"name": "code", "mountPath": _CODE, "readOnly": True},
                    ],
                }
            ],
            "containers": [
                {
                    **container,
                    "name": CONTAINER,
                    "command": boot_command("python3", file_size=limits.disk, init=True),
                    "args": serve_arguments(
                        limits, ends_with_owner=spec.ends_with_owner, socket=f"{_RUN}/{SOCKET_NAME}"
                    ),
                    "workingDir": RUNNER_ROOT,
                    "env": [{"name": key, "value": _literal(value)} for key, value in spec.environment.items()],
                    "volumeMounts": [
                        {**data, "mountPath": WORKSPACE, "subPath": "workspace"},
                        {**data, "mountPath": STATE_DIR, "subPath": "state"},
                        {**data, "mountPath": f"{RUNNER_ROOT}/home", "subPath": "home"},
                        {"name": "runner", "mountPath": f"{RUNNER_ROOT}/runner", "readOnly": True},
                        {"name": "run", "mountPath": _RUN},
                        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - inside
                        {"name": "var-tmp", "mountPath": "/var/tmp"},  # noqa: S108 - inside
                        {"name": "shared-memory", "mountPath": _SHARED_MEMORY},
                    ],
                }
            ],
            "volumes": [
                {**data, "persistentVolumeClaim": {"claimName": claim_name}},
                {"name": "code", "configMap": {"name": code_name(spec.instance_id)}},
                {"name": "runner", "emptyDir": {"sizeLimit": str(64 * 1024**2)}},
                _in_memory("run", 1024**2),
                _in_memory("tmp", limits.tmp_size),
                _in_memory("var-tmp", limits.tmp_size),
                _in_memory("shared-memory", _SHARED_MEMORY_SIZE),
            ],
        },
    }


def look_pod(
    spec: SandboxSpec,
    options: KubernetesOptions,
    name: str,
    claim_name: str,
    image: str,
    node: str,
    seconds: float,
) -> dict[str, Any]:
    """A pod that sees a whole volume and does nothing, for as long as somebody may want to look at it."""
    rules = network_kind(SandboxSpec("", spec.instance_id, "", "", network="none"), options)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(spec, name, "look", **{LABEL_NETWORK: rules}),
        "spec": {
            **_placed(options),
            # A volume is on one node at a time.
            **({"nodeName": node} if node else {}),
            "activeDeadlineSeconds": max(1, round(seconds)),
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": CONTAINER,
                    "image": image,
                    "imagePullPolicy": options.pull_policy,
                    "command": ["python3", "-I", "-S", "-c", "import time; time.sleep(86400)"],
                    "securityContext": _confined(read_only=True),
                    "resources": {"limits": {"memory": str(_LEAST_MEMORY), "cpu": "1"}},
                    "volumeMounts": [{"name": "data", "mountPath": VOLUME}],
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}],
        },
    }


def _placed(options: KubernetesOptions) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UID,
            "runAsGroup": GID,
            "fsGroup": GID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **({"runtimeClassName": options.runtime_class} if options.runtime_class else {}),
        **({"imagePullSecrets": [{"name": one} for one in options.pull_secrets]} if options.pull_secrets else {}),
        **({"nodeSelector": dict(options.node_labels)} if options.node_labels else {}),
    }


def _confined(*, read_only: bool) -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": read_only,
        "capabilities": {"drop": ["ALL"]},
    }


def _in_memory(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}


def _literal(value: str) -> str:
    """A variable as it is: the cluster would put others in the place of their names."""
    return value.replace("$", "$$")


def pull_fix(image: str) -> str:
    """What to do where nodes cannot get an image."""
    if is_own(image):
        return (
            "Push it to a registry of yours that the nodes reach, and name it there: sandbox_image ="
            " registry.example/drydock/sandbox:base"
        )
    return "Look at its name; a registry that asks who wants it needs kubernetes_pull_secrets."
