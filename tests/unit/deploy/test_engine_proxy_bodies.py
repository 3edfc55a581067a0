"""What a request may make behind the proxy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.runtime.network_border import BRIDGES
from agent_core.runtime.sandbox import bridge_name
from agent_core.runtime.seccomp import seccomp_profile
from deploy.engine_proxy import bodies
from deploy.engine_proxy.rules import ForbiddenCallError, read_json


def container(**host_config: Any) -> dict[str, Any]:
    return {
        "Image": "drydock/sandbox:base",
        "HostConfig": {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "NetworkMode": "none", **host_config},
    }


def mount_with(driver: dict[str, Any]) -> dict[str, Any]:
    options = {"Labels": {"a": "b"}, "DriverConfig": driver}
    return {"Type": "volume", "Source": "drydock-a-workspace", "Target": "/workspace", "VolumeOptions": options}


BEYOND_A_SIZE: list[Any] = [
    {"type": "none", "device": "/", "o": "bind"},
    {"size": "1048576", "device": "/"},
    {"size": "1048576", "type": "tmpfs"},
    {"size": "1048576", "o": ""},
    {"Size": "1048576"},
    {"size": "1048576,device=/"},
    {"size": "1048576\n"},
    {"size": "10m"},
    {"size": "-1"},
    {"size": "0"},
    {"size": "\u0661\u0662"},
    {"size": "9" * 19},
    {"size": 1048576},
    {"size": ["1048576"]},
    [["size", "1048576"]],
    "size=1048576",
]


@pytest.mark.parametrize("options", BEYOND_A_SIZE)
def test_drivers_are_told_a_size_and_nothing_else(options: Any) -> None:
    bodies.volume({"Name": "drydock-v", "DriverOpts": {"size": "1048576"}}, "body")
    with pytest.raises(ForbiddenCallError):
        bodies.volume({"Name": "drydock-v", "DriverOpts": options}, "body")
    with pytest.raises(ForbiddenCallError):
        bodies.container(container(Mounts=[mount_with({"Options": options})]), "body")
    with pytest.raises(ForbiddenCallError):
        bodies.container(container(StorageOpt=options), "body")


@pytest.mark.parametrize(
    "host_config",
    [
        {},
        {"Privileged": False, "CapAdd": None, "Devices": [], "Binds": None, "PidMode": "", "PortBindings": {}},
        {"NetworkMode": "none"},
        {"CapAdd": ["CHOWN", "SETUID"]},
        {"NetworkMode": "drydock-0123-full"},
        {"Mounts": [{"Type": "volume", "Source": "drydock-a-workspace", "Target": "/workspace"}]},
        {"Mounts": [mount_with({"Options": {"size": "1048576"}})]},
        {"Mounts": [mount_with({"Name": "local", "Options": {"size": "1048576"}})]},
        {"StorageOpt": {"size": "1048576"}},
        {"Memory": 2**32, "NanoCpus": 2 * 10**9, "PidsLimit": 512, "Init": True, "OomScoreAdj": 500},
        {"Tmpfs": {"/tmp": "rw,nosuid,size=1024"}, "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}}},
        {"MaskedPaths": None, "ReadonlyPaths": None, "Runtime": "runsc"},
        {"SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_profile()}"]},
    ],
)
def test_a_hardened_container_passes(host_config: dict[str, Any]) -> None:
    bodies.container(container(**host_config), "body")


@pytest.mark.parametrize(
    ("host_config", "named"),
    [
        ({"Privileged": True}, "Privileged"),
        ({"privileged": True}, "privileged"),
        ({"CapAdd": ["SYS_ADMIN"]}, "CapAdd"),
        ({"CapAdd": ["CHOWN", "NET_ADMIN"]}, "CapAdd"),
        ({"CapAdd": "CHOWN"}, "CapAdd"),
        ({"CapDrop": []}, "CapDrop"),
        ({"CapDrop": ["NET_RAW"]}, "CapDrop"),
        ({"SecurityOpt": []}, "SecurityOpt"),
        ({"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]}, "SecurityOpt"),
        ({"SecurityOpt": ["no-new-privileges:false"]}, "SecurityOpt"),
        ({"SecurityOpt": ["no-new-privileges", "seccomp="]}, "SecurityOpt"),
        ({"SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_profile()} "]}, "SecurityOpt"),
        ({"SecurityOpt": ["no-new-privileges", f"SECCOMP={seccomp_profile()}"]}, "SecurityOpt"),
        ({"SecurityOpt": [f"seccomp={seccomp_profile()}"]}, "SecurityOpt"),
        ({"SecurityOpt": ["no-new-privileges", "apparmor=unconfined"]}, "SecurityOpt"),
        ({"Devices": [{"PathOnHost": "/dev/sda"}]}, "Devices"),
        ({"DeviceRequests": [{"Count": -1}]}, "DeviceRequests"),
        ({"NetworkMode": "host"}, "NetworkMode"),
        ({"NetworkMode": "bridge"}, "NetworkMode"),
        ({"NetworkMode": "default"}, "NetworkMode"),
        ({"NetworkMode": ""}, "NetworkMode"),
        ({"NetworkMode": None}, "NetworkMode"),
        ({"NetworkMode": "container:drydock-b"}, "NetworkMode"),
        ({"NetworkMode": "drydock_engine"}, "NetworkMode"),
        ({"PidMode": "host"}, "PidMode"),
        ({"IpcMode": "host"}, "IpcMode"),
        ({"UTSMode": "host"}, "UTSMode"),
        ({"UsernsMode": "host"}, "UsernsMode"),
        ({"CgroupnsMode": "host"}, "CgroupnsMode"),
        ({"CgroupParent": "/"}, "CgroupParent"),
        ({"Binds": ["/:/host"]}, "Binds"),
        ({"Binds": ["/var/run/docker.sock:/s"]}, "Binds"),
        ({"Binds": ["drydock_data:/data"]}, "Binds"),
        ({"Binds": ["drydock-a-workspace:/workspace"]}, "Binds"),
        ({"Binds": ["drydock-a:/data:rshared"]}, "Binds"),
        ({"Mounts": [{"Type": "bind", "Source": "/", "Target": "/host"}]}, "Type"),
        ({"Mounts": [{"Type": "volume", "Source": "drydock_data", "Target": "/data"}]}, "Source"),
        ({"Mounts": [{"Type": "volume", "Target": "/data"}]}, "Source"),
        ({"Mounts": [{"Source": "drydock-a", "Target": "/data"}]}, "Type"),
        (
            {
                "Mounts": [
                    {
                        "Type": "volume",
                        "Source": "drydock-a",
                        "Target": "/x",
                        "VolumeOptions": {"DriverConfig": {"Options": {"o": "bind", "device": "/"}}},
                    }
                ]
            },
            "Options",
        ),
        ({"VolumesFrom": ["drydock_server_1"]}, "VolumesFrom"),
        ({"PortBindings": {"80/tcp": [{"HostPort": "80"}]}}, "PortBindings"),
        ({"PublishAllPorts": True}, "PublishAllPorts"),
        ({"MaskedPaths": []}, "MaskedPaths"),
        ({"ReadonlyPaths": []}, "ReadonlyPaths"),
        ({"Runtime": "other"}, "Runtime"),
        ({"Sysctls": {"kernel.shm_rmid_forced": "1"}}, "Sysctls"),
        ({"OomScoreAdj": -1000}, "OomScoreAdj"),
        ({"LogConfig": {"Type": "syslog"}}, "Type"),
        ({"ExtraHosts": ["a:host-gateway"]}, "ExtraHosts"),
        ({"SomethingNew": 1}, "SomethingNew"),
    ],
)
def test_a_container_with_more_rights_is_refused(host_config: dict[str, Any], named: str) -> None:
    with pytest.raises(ForbiddenCallError, match=named):
        bodies.container(container(**host_config), "body")


@pytest.mark.parametrize(
    "extra",
    [
        {"Privileged": True},
        {"Binds": ["/:/host"]},
        {"hostconfig": {"Privileged": True}},
        {"NetworkingConfig": {"EndpointsConfig": {"drydock_engine": {}}}},
        {"NetworkingConfig": {"EndpointsConfig": {"drydock-net": {}}}},
        {"Image": "../../containers/drydock-engine-1"},
        {"Labels": {"com.docker.compose.project": "drydock"}},
        {"Labels": {"COM.Docker.Compose.Project": "drydock"}},
        {"Labels": {"com.docker.compose.project": ""}},
        {"Labels": ["drydock.instance=x"]},
        {"NetworkingConfig": {"EndpointsConfig": {"drydock-net": {"IPAMConfig": {"IPv4Address": "1.2.3.4"}}}}},
        {"Image": ""},
        {"HostConfig": None},
        {"HostConfig": []},
    ],
)
def test_rights_cannot_be_had_beside_the_host_config(extra: dict[str, Any]) -> None:
    with pytest.raises(ForbiddenCallError):
        bodies.container({**container(), **extra}, "body")


def test_an_exec_gets_no_privileges() -> None:
    bodies.exec_in_container({"Cmd": ["sh"], "AttachStdin": True, "Privileged": False}, "body")
    with pytest.raises(ForbiddenCallError, match="Privileged"):
        bodies.exec_in_container({"Cmd": ["sh"], "Privileged": True}, "body")


@pytest.mark.parametrize(
    "body",
    [
        {"Name": "drydock-v", "DriverOpts": {"type": "none", "device": "/", "o": "bind"}},
        {"Name": "drydock_data"},
        {"Driver": "local"},
        {"Name": "drydock-v", "Labels": {"com.docker.compose.volume": "data"}},
        {"Name": "drydock-v", "Driver": "sshfs"},
    ],
)
def test_a_volume_is_a_plain_one_of_ours(body: dict[str, Any]) -> None:
    bodies.volume({"Name": "drydock-v", "Driver": "local", "DriverOpts": None, "Labels": {"a": "b"}}, "body")
    with pytest.raises(ForbiddenCallError):
        bodies.volume(body, "body")


@pytest.mark.parametrize(
    "body",
    [
        {"Name": "other"},
        {"Name": "drydock-n", "Driver": "macvlan"},
        {"Name": "drydock-n", "IPAM": {"Config": [{"Subnet": "10.0.0.0/8"}]}},
        {"Name": "drydock-n", "Options": {"com.docker.network.bridge.name": "docker0"}},
        {"Name": "drydock-n", "Options": {"com.docker.network.bridge.name": "drydock-"}},
        {"Name": "drydock-n", "Options": {"com.docker.network.bridge.name": "drydock-eth0"}},
        {"Name": "drydock-n", "Options": {"com.docker.network.bridge.name": "drydock-0123456\n"}},
        {"Name": "drydock-n", "Options": {"com.docker.network.bridge.name": ["drydock-0123456"]}},
        {"Name": "drydock-n", "Options": {"com.docker.network.bridge.gateway_mode_ipv4": "isolated"}},
        {"Name": "drydock-n", "ConfigFrom": {"Network": "x"}},
        {"Name": "drydock-n", "Labels": {"com.docker.compose.network": "engine"}},
    ],
)
def test_a_network_is_a_plain_one_of_ours(body: dict[str, Any]) -> None:
    bodies.network({"Name": "drydock-n", "Driver": "bridge", "Internal": True, "IPAM": None}, "body")
    named = {"com.docker.network.bridge.name": bridge_name(BRIDGES, "drydock-n")}
    bodies.network({"Name": "drydock-n", "Options": named}, "body")
    with pytest.raises(ForbiddenCallError):
        bodies.network(body, "body")


@pytest.mark.parametrize(
    "body",
    [
        {"Container": "drydock_server_1"},
        {"Container": "drydock-a/../postgres"},
        {},
        {"Container": "drydock-a", "EndpointConfig": {"IPAMConfig": {"IPv4Address": "172.17.0.2"}}},
        {"Container": "drydock-a", "EndpointConfig": {"Aliases": ["engine"]}},
    ],
)
def test_only_a_sandbox_is_connected_to_a_network_and_without_options(body: dict[str, Any]) -> None:
    bodies.connect({"Container": "drydock-a", "EndpointConfig": {}}, "body")
    bodies.connect({"Container": "ab" * 32}, "body")
    bodies.disconnect({"Container": "drydock-a", "Force": True}, "body")
    with pytest.raises(ForbiddenCallError):
        bodies.connect(body, "body")


@pytest.mark.parametrize(
    "text",
    [
        b'{"HostConfig": {}, "HostConfig": {}}',
        b'{"HostConfig": {}, "hostconfig": {}}',
        '{"SecurityOpt": [], "\u017fecurityOpt": []}'.encode(),
        b'{"a": NaN}',
        b"[]",
        b"",
        b"{} {}",
        b'{"a": 1',
        b"\xff\xfe{\x00}\x00",
        b'{"a":' * 5000,
    ],
)
def test_a_body_with_two_readings_is_refused(text: bytes) -> None:
    with pytest.raises(ForbiddenCallError):
        read_json(text)


def test_an_escaped_key_is_read_as_what_it_means() -> None:
    value = read_json(b'{"Image": "x", "HostConfig": {"CapDrop": ["ALL"], "\\u0050rivileged": true}}')
    with pytest.raises(ForbiddenCallError, match="Privileged"):
        bodies.container(value, "body")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["Privileged", "CapAdd", "Binds", "PidMode", "Devices", "Mounts"]), JSON))
def test_no_value_of_another_type_breaks_the_rules(host_config: dict[str, Any]) -> None:
    try:
        bodies.container(container(**host_config), "body")
    except ForbiddenCallError:
        return
    for key in ("Privileged", "CapAdd", "PidMode", "Devices", "Binds", "Mounts"):
        assert not host_config.get(key)
