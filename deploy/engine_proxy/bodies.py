"""What a request may make: the rules for containers, execs, volumes and networks."""

from __future__ import annotations

import re
from typing import Final

from deploy.engine_proxy.errors import RefusedError
from deploy.engine_proxy.rules import (
    OWN_NAME,
    Rule,
    absolute_path,
    anything,
    flag,
    is_empty,
    list_of,
    map_of,
    natural,
    never,
    number,
    object_of,
    one_of,
    only_null,
    own_name,
    text,
)

_NO_NEW_PRIVILEGES: Final = ("no-new-privileges", "no-new-privileges:true", "no-new-privileges=true")
_BIND: Final = re.compile(r"(?P<source>[^:]+):/[^:]*(:(rw|ro|nocopy)(,(rw|ro|nocopy))*)?")


def _network(value: object, key: str) -> None:
    if value not in ("none", "bridge", "default"):
        own_name(value, key)


def _bind(value: object, key: str) -> None:
    """Only a named volume of ours; a path of the host would begin with a slash."""
    matched = _BIND.fullmatch(value) if isinstance(value, str) else None
    if matched is None or not OWN_NAME.fullmatch(matched["source"]):
        raise RefusedError(f"{key} may only name volumes that begin with drydock-")


_mount_keys: Final = object_of(
    {
        "Type": one_of("volume", "tmpfs"),
        "Source": own_name,
        "Target": absolute_path,
        "ReadOnly": flag,
        "VolumeOptions": object_of({"NoCopy": flag, "Labels": map_of(anything, text)}, "DriverConfig Subpath"),
        "TmpfsOptions": object_of({"SizeBytes": number, "Mode": number}, "Options"),
    },
    "Consistency BindOptions ClusterOptions ImageOptions",
)


def _mount(value: object, key: str) -> None:
    _mount_keys(value, key)
    if not isinstance(value, dict) or is_empty(value.get("Type")):
        raise RefusedError("a mount needs a Type")
    if value["Type"] == "volume" and is_empty(value.get("Source")):
        raise RefusedError("a mount of a volume needs a Source")


_host_config_keys: Final = object_of(
    {
        "AutoRemove": flag,
        "Binds": list_of(_bind),
        "BlkioWeight": number,
        "CapDrop": list_of(text),
        "CgroupnsMode": one_of("private"),
        "ConsoleSize": anything,
        "CpuPeriod": number,
        "CpuQuota": number,
        "CpuShares": number,
        "Dns": list_of(text),
        "DnsOptions": list_of(text),
        "DnsSearch": list_of(text),
        "Init": flag,
        "IpcMode": one_of("private", "none"),
        "LogConfig": object_of(
            {
                "Type": one_of("json-file", "local", "none"),
                "Config": map_of(one_of("max-size", "max-file", "compress"), text),
            }
        ),
        "MaskedPaths": only_null,
        "Memory": number,
        "MemoryReservation": number,
        "MemorySwap": number,
        "MemorySwappiness": number,
        "Mounts": list_of(_mount),
        "NanoCpus": number,
        "NetworkMode": _network,
        "OomScoreAdj": natural,
        "PidsLimit": number,
        "ReadonlyPaths": only_null,
        "ReadonlyRootfs": flag,
        "RestartPolicy": object_of({"Name": one_of("no", "on-failure"), "MaximumRetryCount": number}),
        "Runtime": one_of("runc", "runsc"),
        "SecurityOpt": list_of(one_of(*_NO_NEW_PRIVILEGES)),
        "ShmSize": number,
        "StorageOpt": map_of(one_of("size"), text),
        "Tmpfs": map_of(absolute_path, text),
        "Ulimits": list_of(object_of({"Name": text, "Soft": number, "Hard": number})),
    },
    """
    Annotations BlkioDeviceReadBps BlkioDeviceReadIOps BlkioDeviceWriteBps BlkioDeviceWriteIOps BlkioWeightDevice
    CapAdd Cgroup CgroupParent ContainerIDFile CpuCount CpuPercent CpuRealtimePeriod CpuRealtimeRuntime CpusetCpus
    CpusetMems DeviceCgroupRules DeviceRequests Devices ExtraHosts GroupAdd IOMaximumBandwidth IOMaximumIOps Isolation
    KernelMemory KernelMemoryTCP Links OomKillDisable PidMode PortBindings Privileged PublishAllPorts Sysctls UTSMode
    UsernsMode VolumeDriver VolumesFrom
    """,
)


def _host_config(value: object, key: str) -> None:
    _host_config_keys(value, key)
    if not isinstance(value, dict) or "ALL" not in (value.get("CapDrop") or []):
        raise RefusedError("CapDrop must contain ALL")
    if not set(value.get("SecurityOpt") or []) & set(_NO_NEW_PRIVILEGES):
        raise RefusedError("SecurityOpt must contain no-new-privileges")


def _plain_endpoint(value: object, key: str) -> None:
    """A place in a network, without any options."""
    if not isinstance(value, dict) or not all(is_empty(option) for option in value.values()):
        raise RefusedError(f"{key} takes no options")


_container_keys: Final = object_of(
    {
        "AttachStderr": flag,
        "AttachStdin": flag,
        "AttachStdout": flag,
        "Cmd": anything,
        "Domainname": text,
        "Entrypoint": anything,
        "Env": list_of(text),
        "ExposedPorts": map_of(text, never),
        "Healthcheck": anything,
        "HostConfig": _host_config,
        "Hostname": text,
        "Image": text,
        "Labels": map_of(text, text),
        "NetworkDisabled": flag,
        "NetworkingConfig": object_of({"EndpointsConfig": map_of(_network, _plain_endpoint)}),
        "OpenStdin": flag,
        "Shell": anything,
        "StdinOnce": flag,
        "StopSignal": text,
        "StopTimeout": number,
        "Tty": flag,
        "User": text,
        "Volumes": map_of(absolute_path, never),
        "WorkingDir": text,
    },
    "ArgsEscaped MacAddress OnBuild Runtime",
)


def container(value: object, key: str) -> None:
    """A container without privileges; it must give up all capabilities and never gain new ones."""
    _container_keys(value, key)
    if not isinstance(value, dict) or is_empty(value.get("Image")):
        raise RefusedError("Image is missing")
    if is_empty(value.get("HostConfig")):
        raise RefusedError("HostConfig is missing")


exec_in_container: Final[Rule] = object_of(
    {
        "AttachStderr": flag,
        "AttachStdin": flag,
        "AttachStdout": flag,
        "Cmd": anything,
        "ConsoleSize": anything,
        "Container": text,
        "Detach": flag,
        "DetachKeys": text,
        "Env": list_of(text),
        "Tty": flag,
        "User": text,
        "WorkingDir": text,
    },
    "Privileged",
)

exec_start: Final[Rule] = object_of({"Detach": flag, "Tty": flag, "ConsoleSize": anything})

_volume_keys: Final = object_of(
    {"Driver": one_of("local"), "Labels": map_of(text, text), "Name": own_name}, "DriverOpts ClusterVolumeSpec"
)

# Both only make a network more private: containers that cannot reach one another, nor the host.
_BRIDGE_OPTIONS: Final = ("com.docker.network.bridge.enable_icc", "com.docker.network.bridge.inhibit_ipv4")

_network_keys: Final = object_of(
    {
        "CheckDuplicate": flag,
        "Driver": one_of("bridge"),
        "EnableIPv4": flag,
        "IPAM": object_of({"Driver": one_of("default")}, "Config Options"),
        "Internal": flag,
        "Labels": map_of(text, text),
        "Name": own_name,
        "Options": map_of(
            one_of("com.docker.network.bridge.enable_icc", "com.docker.network.bridge.inhibit_ipv4"), text
        ),
    },
    "Attachable ConfigFrom ConfigOnly EnableIPv6 Ingress Scope",
)


def _named(rule: Rule) -> Rule:
    def check(value: object, key: str) -> None:
        rule(value, key)
        if not isinstance(value, dict) or is_empty(value.get("Name")):
            raise RefusedError("Name is missing")

    return check


volume: Final[Rule] = _named(_volume_keys)
network: Final[Rule] = _named(_network_keys)


def _of_container(rule: Rule) -> Rule:
    """By name only: whose container an id is would have to be asked first."""

    def check(value: object, key: str) -> None:
        rule(value, key)
        if not isinstance(value, dict) or is_empty(value.get("Container")):
            raise RefusedError("Container is missing")

    return check


connect: Final[Rule] = _of_container(object_of({"Container": own_name, "EndpointConfig": _plain_endpoint}))
disconnect: Final[Rule] = _of_container(object_of({"Container": own_name, "Force": flag}))
