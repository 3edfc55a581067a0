"""Real sandboxes that try to get to their host, to its cloud and to its other networks, and those that may."""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_core.runtime.docker.networks import border_config
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.testing.sandbox_contract import SandboxKit, output
from deploy.engine_proxy.ownership import ServedInstance
from deploy.engine_proxy.proxy import EngineProxy
from server.cli.doctor import doctor
from server.settings.settings import Settings
from tests.machines import Outside, ip, needs_root, outside

pytestmark = needs_root

REACH = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reach(address, port):
    try:
        with socket.create_connection((address, port), 4) as peer:
            return peer.recv(100).decode()
    except OSError as error:
        return "no"
targets = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps(list(pool.map(lambda target: reach(*target), targets))))
"""
GATEWAY = """
import socket
rows = [line.split() for line in open("/proc/net/route")][1:]
print(*[socket.inet_ntoa(bytes.fromhex(row[2])[::-1]) for row in rows if row[1] == "00000000"])
"""
HOST = """
import socket, sys
with socket.create_server(("", 0), dualstack_ipv6=True, family=socket.AF_INET6) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        with listener.accept()[0] as peer:
            peer.sendall(b"host")
"""


@pytest.fixture
def beyond() -> Iterator[Outside]:
    with outside() as made:
        made.machine.listen(("AF_INET", "SOCK_STREAM", 80, "beyond"))
        yield made


@pytest.fixture
def host_port() -> Iterator[int]:
    """Port of a program that listens on all addresses of this host."""
    program = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout
        yield int(program.stdout.readline())
    finally:
        program.kill()
        program.communicate()


async def reached(kit: SandboxKit, network: str, *targets: tuple[str, int], name: str = "first") -> list[str]:
    """What a sandbox with this network gets at each place: a word, or ``no``; ``gateway`` is its own one."""
    sandbox = kit.connect(name, network=network)
    gateway = (await output(sandbox, f"python3 -c '{GATEWAY}'")).strip() or "10.0.2.2"
    wanted = [(gateway if address == "gateway" else address, port) for address, port in targets]
    text = await output(sandbox, f"python3 - '{json.dumps(wanted)}' <<'EOF'\n{REACH}\nEOF")
    return [str(word) for word in json.loads(text)]


def own_addresses() -> list[str]:
    """This host's addresses of both versions, without those of its loopback."""
    words = [line.split() for line in ip("-o", "addr", "show", "scope", "global").splitlines()]
    return [line[3].partition("/")[0] for line in words]


async def test_full_leads_out_and_not_to_the_host_nor_to_link_local_addresses(
    kit: SandboxKit, beyond: Outside, host_port: int
) -> None:
    beyond.machine.listen(("AF_INET", "SOCK_STREAM", 8000, "metadata"))
    own = [beyond.host, *own_addresses(), "gateway", "10.0.2.3"]
    targets = [*((address, host_port) for address in own), (beyond.link_local, 8000), (beyond.address, 80)]
    assert await reached(kit, "full", *targets) == ["no"] * (len(targets) - 1) + ["beyond"]
    assert "STATUS$NETWORK_WARNING" not in kit.statuses()


async def test_names_are_still_resolved(kit: SandboxKit) -> None:
    """Whatever the resolver of this host says of a name, it is the resolver that says it."""
    sandbox = kit.connect(network="full")
    ask = "import socket; s = socket.socket(2, 2); s.settimeout(10); s.connect((SERVER, 53)); s.send(QUERY)"
    query = b"dd\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07invalid\x00\x00\x01\x00\x01"
    server = (await output(sandbox, "sed -n 's/^nameserver //p' /etc/resolv.conf")).split()[0]
    program = f"{ask}; print(s.recv(99)[:2])".replace("SERVER", repr(server)).replace("QUERY", repr(query))
    assert await output(sandbox, f"python3 - <<'EOF'\n{program}\nEOF") == "b'dd'"


async def test_host_access_leads_to_the_host_too(kit: SandboxKit, beyond: Outside, host_port: int) -> None:
    targets = ((beyond.host, host_port), (beyond.link_local, 80), (beyond.address, 80))
    assert await reached(kit, "host-access", *targets) == ["host", "beyond", "beyond"]


async def test_internal_leads_nowhere(kit: SandboxKit, beyond: Outside, host_port: int) -> None:
    targets = ((beyond.host, host_port), ("gateway", host_port), (beyond.address, 80))
    assert await reached(kit, "internal", *targets) == ["no", "no", "no"]


@contextmanager
def other_container(engine: Any, image: str) -> Iterator[tuple[str, str, int]]:
    """A stranger's container in a network of its own: its address, that network's gateway, its published port."""
    name = f"ddtest-{secrets.token_hex(4)}"
    program = HOST.replace('("", 0)', '("", 80)')
    host_config = engine.create_host_config(network_mode=name, port_bindings={80: None}, cap_drop=["ALL"])
    engine.create_network(name, driver="bridge")
    try:
        engine.create_container(
            image, ["python3", "-c", program], name=name, host_config=host_config, ports=[80], user="0:0",
            entrypoint=[],
        )  # fmt: skip
        engine.start(name)
        found = engine.inspect_container(name)["NetworkSettings"]
        here = found["Networks"][name]
        with socket.create_connection(("127.0.0.1", int(found["Ports"]["80/tcp"][0]["HostPort"])), 30):
            yield here["IPAddress"], here["Gateway"], int(found["Ports"]["80/tcp"][0]["HostPort"])
    finally:
        try:
            engine.remove_container(name, force=True)
        finally:
            engine.remove_network(name)


@pytest.mark.docker
async def test_other_containers_of_the_host_are_out_of_reach(
    kit: SandboxKit, beyond: Outside, host_port: int, engine: Any
) -> None:
    with other_container(engine, kit.image or "drydock/sandbox:base") as (address, gateway, published):
        targets = ((address, 80), (gateway, host_port), (gateway, published), (beyond.host, published))
        assert await reached(kit, "full", *targets) == ["no"] * 4
        assert (await reached(kit, "host-access", *targets, name="second"))[3] == "host"


@pytest.mark.docker
async def test_a_datagram_from_an_internal_network_does_not_get_to_the_host(
    docker_kit: SandboxKit, beyond: Outside
) -> None:
    """There is no way back, but one of a single direction is one: any address of a host answers on any cable."""
    send = "import socket; s = socket.socket(2, 2); s.setsockopt(1, 25, b'eth0'); s.sendto(b'hello', (HOST, PORT))"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind((beyond.host, 0))
        program = f"{send}; print('sent')".replace("HOST", repr(beyond.host)).replace(
            "PORT", str(listener.getsockname()[1])
        )
        sandbox = docker_kit.connect(network="internal")
        assert "sent" in await output(sandbox, f"python3 - 2>&1 <<'EOF'\n{program}\nEOF")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.sendto(b"own", listener.getsockname())
        listener.settimeout(10)
        assert listener.recv(100) == b"own"


@pytest.mark.docker
async def test_a_sandbox_follows_the_network_that_is_wished_for(
    docker_kit: SandboxKit, beyond: Outside, host_port: int, engine: Any
) -> None:
    targets = ((beyond.host, host_port), (beyond.address, 80))
    assert await reached(docker_kit, "host-access", *targets) == ["host", "beyond"]
    for wish, expected in (("full", ["no", "beyond"]), ("internal", ["no", "no"]), ("full", ["no", "beyond"])):
        running = docker_kit.connect(network=wish)
        assert await reached(docker_kit, wish, *targets) == expected, wish
        if wish == "internal":
            await running.start()
            await running.stop()
        (found,) = engine.containers(all=True, filters={"label": f"drydock.instance={docker_kit.instance}"})
        assert len(engine.inspect_container(found["Id"])["NetworkSettings"]["Networks"]) == 1


@pytest.mark.docker
async def test_an_engine_that_lets_no_border_be_set_is_told_of_and_sandboxes_run(
    docker_kit: SandboxKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the kernel has no packet filter: the program that sets the rules fails."""
    monkeypatch.setattr(
        "agent_core.runtime.docker.networks.border_program", lambda: "raise SystemExit('no such filter')"
    )
    sandbox = docker_kit.connect(network="full")
    assert await output(sandbox, "echo runs") == "runs"
    (warning,) = [text for _, status, text in docker_kit.notices if status == "STATUS$NETWORK_WARNING"]
    assert "can reach the host" in warning
    assert "no such filter" in warning
    provider = DockerProvider()
    try:
        found = await provider.try_network(
            SandboxSpec("", secrets.token_hex(4), docker_kit.image or "", "", network="full")
        )
        assert not found.ok
        assert "no such filter" in found.reason
    finally:
        await provider.close()


@pytest.mark.docker
async def test_what_a_killed_server_has_made_for_the_border_goes_when_it_starts_anew(engine: Any) -> None:
    spec = SandboxSpec("", secrets.token_hex(8), "drydock/sandbox:base", "", network="full")
    left = engine.create_container_from_config(border_config(spec), f"drydock-border-{secrets.token_hex(4)}")["Id"]
    provider = DockerProvider()
    try:
        await provider.reap(spec.instance_id, ())
    finally:
        await provider.close()
    assert left not in {one["Id"] for one in engine.containers(all=True)}


@pytest.mark.docker
async def test_where_the_rules_were_taken_away_the_doctor_finds_out_from_a_sandboxs_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program says that all is well, for bridges that have another name."""
    provider = DockerProvider()
    monkeypatch.setattr("agent_core.runtime.docker.networks.BRIDGES", "ddtest-")
    try:
        found = await provider.try_network(
            SandboxSpec("", secrets.token_hex(4), "drydock/sandbox:base", "", network="full")
        )
        assert not found.ok
        assert "can reach the host" in found.reason
    finally:
        await provider.close()


@pytest.mark.docker
async def test_the_doctor_is_the_server_for_whatever_watches_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine proxy serves the first instance that it hears of, and none besides."""
    served = ServedInstance(tmp_path / "served")
    async with EngineProxy("/var/run/docker.sock", served).serving("127.0.0.1", 0) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        settings = Settings(data_dir=tmp_path / "data", sandbox="docker", sandbox_network="internal", sandbox_disk_mb=0)
        await asyncio.to_thread(doctor, settings, io.StringIO())
    assert served.name == (tmp_path / "data" / "instance-id").read_text().strip()
