"""Rules for the bodies that make containers, execs, volumes and networks."""

from __future__ import annotations

import hashlib
from typing import Final

from deploy.engine_proxy.rules import (
    ADDED_RIGHTS,
    ForbiddenCallError,
    Rule,
    absolute_path,
    anything,
    flag,
    image_name,
    is_empty,
    like,
    list_of,
    map_of,
    natural,
    never,
    number,
    object_of,
    one_of,
    only_null,
    own_label,
    own_name,
    own_reference,
    text,
)

_NO_NEW_PRIVILEGES: Final = ("no-new-privileges", "no-new-privileges:true", "no-new-privileges=true")
_SECCOMP: Final = "seccomp="
SECCOMP_DIGEST: Final = "dd34838324544c6e8ea0af3754140013a33c8e450acc9513228425227c236199"
"""SHA-256 of the server's seccomp filter, the only one allowed beside the engine's own; one release has both."""


_labels: Final = map_of(own_label, text)

# Bytes, and nothing else that a driver may be told: of its other options some name a folder of the host.
_size: Final = map_of(one_of("size"), like(r"[1-9][0-9]{0,17}", "a number of bytes"))


def _each(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


def _needing(rule: Rule, *names: str) -> Rule:
    def check(value: object, key: str) -> None:
        rule(value, key)
        for name in names:
            if not isinstance(value, dict) or is_empty(value.get(name)):
                raise ForbiddenCallError(f"{name} is missing")

    return check


def _network(value: object, key: str) -> None:
    """None, or one of ours; the engine's default bridge is shared with others' containers."""
    if value != "none":
        own_name(value, key)


def _security_option(value: object, key: str) -> None:
    if isinstance(value, str) and value.startswith(_SECCOMP):
        if hashlib.sha256(value.removeprefix(_SECCOMP).encode("utf-8", "replace")).hexdigest() != SECCOMP_DIGEST:
            raise ForbiddenCallError(f"{key} may name no filter of system calls but the server's of the same release")
    elif value not in _NO_NEW_PRIVILEGES:
        raise ForbiddenCallError(f"{key} may only be {_NO_NEW_PRIVILEGES[0]} and the server's filter of system calls")


_mount_keys: Final = object_of(
    {
        "Type": one_of("volume", "tmpfs"),
        "Source": own_name,
        "Target": absolute_path,
        "ReadOnly": flag,
        "VolumeOptions": object_of(
            {
                "NoCopy": flag,
                "Labels": _labels,
                "DriverConfig": object_of({"Name": one_of("local"), "Options": _size}),
            },
            "Subpath",
        ),
        "TmpfsOptions": object_of({"SizeBytes": number, "Mode": number}, "Options"),
    },
    "Consistency BindOptions ClusterOptions ImageOptions",
)


def _mount(value: object, key: str) -> None:
    _mount_keys(value, key)
    if not isinstance(value, dict) or is_empty(value.get("Type")):
        raise ForbiddenCallError("a mount needs a Type")
    if value["Type"] == "volume" and is_empty(value.get("Source")):
        raise ForbiddenCallError("a mount of a volume needs a Source")


_host_config_keys: Final = object_of(
    {
        **_each(flag, "AutoRemove Init ReadonlyRootfs"),
        **_each(number, "BlkioWeight CpuPeriod CpuQuota CpuShares NanoCpus PidsLimit ShmSize"),
        **_each(number, "Memory MemoryReservation MemorySwap MemorySwappiness"),
        "CapAdd": list_of(one_of(*sorted(ADDED_RIGHTS))),
        **_each(list_of(text), "CapDrop Dns DnsOptions DnsSearch"),
        "CgroupnsMode": one_of("private"),
        "ConsoleSize": anything,
        "IpcMode": one_of("private", "none"),
        "LogConfig": object_of(
            {
                "Type": one_of("json-file", "local", "none"),
                "Config": map_of(one_of("max-size", "max-file", "compress"), text),
            }
        ),
        "MaskedPaths": only_null,
        "Mounts": list_of(_mount),
        "NetworkMode": _network,
        "OomScoreAdj": natural,
        "ReadonlyPaths": only_null,
        "RestartPolicy": object_of({"Name": one_of("no", "on-failure"), "MaximumRetryCount": number}),
        "Runtime": one_of("runc", "runsc"),
        "SecurityOpt": list_of(_security_option),
        "StorageOpt": _size,
        "Tmpfs": map_of(absolute_path, text),
        "Ulimits": list_of(object_of({"Name": text, "Soft": number, "Hard": number})),
    },
    """
    Annotations Binds BlkioDeviceReadBps BlkioDeviceReadIOps BlkioDeviceWriteBps BlkioDeviceWriteIOps BlkioWeightDevice
    Cgroup CgroupParent ContainerIDFile CpuCount CpuPercent CpuRealtimePeriod CpuRealtimeRuntime CpusetCpus
    CpusetMems DeviceCgroupRules DeviceRequests Devices ExtraHosts GroupAdd IOMaximumBandwidth IOMaximumIOps Isolation
    KernelMemory KernelMemoryTCP Links OomKillDisable PidMode PortBindings Privileged PublishAllPorts Sysctls UTSMode
    UsernsMode VolumeDriver VolumesFrom
    """,
)


def _host_config(value: object, key: str) -> None:
    _host_config_keys(value, key)
    if not isinstance(value, dict) or "ALL" not in (value.get("CapDrop") or []):
        raise ForbiddenCallError("CapDrop must contain ALL")
    if not set(value.get("SecurityOpt") or []) & set(_NO_NEW_PRIVILEGES):
        raise ForbiddenCallError("SecurityOpt must contain no-new-privileges")
    if is_empty(value.get("NetworkMode")):
        raise ForbiddenCallError("NetworkMode must be none or name a network that begins with drydock-")


def _plain_endpoint(value: object, key: str) -> None:
    if not isinstance(value, dict) or not all(is_empty(option) for option in value.values()):
        raise ForbiddenCallError(f"{key} takes no options")


container: Final[Rule] = _needing(
    object_of(
        {
            **_each(flag, "AttachStderr AttachStdin AttachStdout NetworkDisabled OpenStdin StdinOnce Tty"),
            **_each(text, "Domainname Hostname StopSignal User WorkingDir"),
            **_each(anything, "Cmd Entrypoint Healthcheck Shell"),
            "Env": list_of(text),
            "ExposedPorts": map_of(text, never),
            "HostConfig": _host_config,
            "Image": image_name,
            "Labels": _labels,
            "StopTimeout": number,
            "Volumes": map_of(absolute_path, never),
        },
        "ArgsEscaped MacAddress NetworkingConfig OnBuild Runtime",
    ),
    "Image",
    "HostConfig",
)
"""A container without privileges: it gives up all capabilities, but for some over its own files if it asks for them."""

exec_in_container: Final[Rule] = object_of(
    {
        **_each(flag, "AttachStderr AttachStdin AttachStdout Detach Tty"),
        **_each(text, "Container DetachKeys User WorkingDir"),
        **_each(anything, "Cmd ConsoleSize"),
        "Env": list_of(text),
    },
    "Privileged",
)

exec_start: Final[Rule] = object_of({"Detach": flag, "Tty": flag, "ConsoleSize": anything})

# All only make a network more private: containers that cannot reach one another, nor the host. By the device's name the
# rules of the host's packet filter know whom to keep off; it can be no other device's.
_BRIDGE_OPTIONS: Final = object_of(
    {
        "com.docker.network.bridge.enable_icc": text,
        "com.docker.network.bridge.inhibit_ipv4": text,
        "com.docker.network.bridge.name": like(r"drydock-[0-9a-f]{7}", "drydock- and seven hexadecimal digits"),
    }
)

volume: Final[Rule] = _needing(
    object_of(
        {"Driver": one_of("local"), "DriverOpts": _size, "Labels": _labels, "Name": own_name}, "ClusterVolumeSpec"
    ),
    "Name",
)
network: Final[Rule] = _needing(
    object_of(
        {
            "CheckDuplicate": flag,
            "Driver": one_of("bridge"),
            "EnableIPv4": flag,
            "IPAM": object_of({"Driver": one_of("default")}, "Config Options"),
            "Internal": flag,
            "Labels": _labels,
            "Name": own_name,
            "Options": _BRIDGE_OPTIONS,
        },
        "Attachable ConfigFrom ConfigOnly EnableIPv6 Ingress Scope",
    ),
    "Name",
)
connect: Final[Rule] = _needing(object_of({"Container": own_reference, "EndpointConfig": _plain_endpoint}), "Container")
disconnect: Final[Rule] = _needing(object_of({"Container": own_reference, "Force": flag}), "Container")
