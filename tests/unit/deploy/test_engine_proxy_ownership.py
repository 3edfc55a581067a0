"""Whose a thing is, is asked of the engine with each call; its name says nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from deploy.engine_proxy.__main__ import main
from deploy.engine_proxy.ownership import ServedInstance
from deploy.engine_proxy.proxy import EngineProxy
from deploy.engine_proxy.rules import ForbiddenCallError
from tests.listening import listening_at
from tests.unit.deploy.fake_engine import INSTANCE, OK, OURS, FakeEngine

LIMIT = 60.0
PROJECT = {"com.docker.compose.project": "drydock", "com.docker.compose.service": "engine"}
OTHERS: dict[str, dict[str, str]] = {
    "nothing": {},
    "its compose project": PROJECT,
    "a compose project that says it is ours": {**OURS, **PROJECT},
    "only one label of compose": {**OURS, "com.docker.compose.oneoff": "False"},
    "another instance": {"drydock.instance": "fedcba9876543210"},
    "an empty instance": {"drydock.instance": ""},
    "a label like ours": {"Drydock.Instance": INSTANCE, "drydock.instance.": INSTANCE},
}
IN_ONE_CONTAINER = [
    ("GET", "/json"),
    ("GET", "/logs?stdout=1"),
    ("POST", "/start"),
    ("POST", "/stop?t=1"),
    ("POST", "/kill?signal=KILL"),
    ("POST", "/wait"),
    ("POST", "/pause"),
    ("POST", "/unpause"),
    ("POST", "/exec"),
    ("GET", "/archive?path=/"),
    ("HEAD", "/archive?path=/"),
    ("PUT", "/archive?path=/"),
    ("DELETE", "?force=1&v=1"),
]


class Client:
    """Asks the proxy."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, method: str, target: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON (or the text) of an answer."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} /v1.41{target} HTTP/1.1\r\nContent-Length: {len(content)}\r\n"
        kind = "Content-Type: application/json\r\n\r\n"
        async with asyncio.timeout(LIMIT):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                writer.write(f"{head}{kind}".encode() + content)
                answered = await reader.read(-1)
            finally:
                writer.close()
                await writer.wait_closed()
        status, text = int(answered[9:12]), answered.partition(b"\r\n\r\n")[2].decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text


@pytest.fixture
def client(port: int) -> Client:
    return Client(port)


@pytest.fixture
async def unbound(engine: FakeEngine, tmp_path: Path) -> AsyncIterator[Client]:
    """A proxy that serves nobody yet."""
    instance = ServedInstance(tmp_path / "nobody-yet")
    async with EngineProxy(str(engine.path), instance).serving("127.0.0.1", 0) as port:
        yield Client(port)


def container_body(network: str = "none", volume: str = "", **more: Any) -> dict[str, Any]:
    host: dict[str, Any] = {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "NetworkMode": network}
    if volume:
        host["Mounts"] = [{"Type": "volume", "Source": volume, "Target": "/workspace"}]
    return {"Image": "drydock/sandbox:base", "Labels": dict(OURS), "HostConfig": host, **more}


def clients_calls(engine: FakeEngine) -> list[str]:
    return [bytes(call).split(b" HTTP/", 1)[0].decode() for call in engine.received]


@pytest.mark.parametrize("labels", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("name", ["drydock-engine-1", "drydock-server-1", "drydock-0123456789ab"])
async def test_a_container_of_others_is_out_of_reach_whatever_its_name(
    client: Client, engine: FakeEngine, name: str, labels: dict[str, str]
) -> None:
    made = engine.add_container(name, labels)
    for reference in (name, made, made[:12]):
        for method, rest in IN_ONE_CONTAINER:
            body = {"Cmd": ["id"]} if rest == "/exec" else None
            status, words = await client.ask(method, f"/containers/{reference}{rest}", body)
            assert status == 403, (method, reference, rest, words)
    assert engine.received == []


@pytest.mark.parametrize("name", ["drydock_engine_1", "drydock_server_1", "postgres"])
async def test_a_name_that_is_none_of_ours_is_not_even_asked_for(client: Client, engine: FakeEngine, name: str) -> None:
    engine.add_container(name, OURS)
    for method, rest in IN_ONE_CONTAINER:
        assert (await client.ask(method, f"/containers/{name}{rest}"))[0] == 403
    assert (engine.received, engine.asked) == ([], [])


@pytest.mark.parametrize(
    ("host_config", "mounts"),
    [
        ({"Privileged": True}, []),
        ({"CapAdd": ["SYS_ADMIN"]}, []),
        ({"CapDrop": None}, []),
        ({"Binds": ["/:/host"]}, [{"Type": "bind", "Source": "/"}]),
        ({}, [{"Type": "bind", "Source": "/var/run/docker.sock"}]),
        ({}, [{"Type": "volume", "Name": "drydock_data"}]),
        *(({"SecurityOpt": ["no-new-privileges", f"{lifted}=unconfined"]}, []) for lifted in ("seccomp", "apparmor")),
        ({"SecurityOpt": ["systempaths=unconfined"]}, []),
        ({"SecurityOpt": ["label:disable"]}, []),
        ({"Sysctls": {"net.ipv4.ip_forward": "1"}}, []),
        ({"PidMode": "host"}, []),
        ({"IpcMode": "host"}, []),
        ({"NetworkMode": "host"}, []),
        ({"NetworkMode": "container:postgres"}, []),
        ({"Devices": [{"PathOnHost": "/dev/sda"}]}, []),
        ({"PortBindings": {"80/tcp": [{"HostPort": "80"}]}}, []),
    ],
)
async def test_a_label_alone_does_not_let_a_container_with_more_rights_through(
    client: Client, engine: FakeEngine, host_config: dict[str, Any], mounts: list[dict[str, str]]
) -> None:
    """As one that somebody has made from an image of a sandbox, whose labels come along."""
    made = engine.add_container("drydock-a", OURS)
    exec_id = engine.add_exec(made)
    engine.containers["drydock-a"]["HostConfig"] |= host_config
    engine.containers["drydock-a"]["Mounts"] = mounts
    for target, body in ((f"/containers/{made}/exec", {"Cmd": ["id"]}), (f"/exec/{exec_id}/start", {"Detach": True})):
        assert (await client.ask("POST", target, body))[0] == 403
    assert engine.received == []


async def test_a_container_with_volumes_of_its_own_is_ours(client: Client, engine: FakeEngine) -> None:
    engine.add_container("drydock-a", OURS)
    engine.containers["drydock-a"]["Mounts"] = [
        {"Type": "volume", "Name": "drydock-a-workspace"},
        {"Type": "volume", "Name": "0f" * 32},
        {"Type": "tmpfs"},
    ]
    assert (await client.ask("POST", "/containers/drydock-a/stop"))[0] == 200


async def test_what_was_checked_is_what_is_used(client: Client, engine: FakeEngine) -> None:
    made = engine.add_container("drydock-a", OURS)
    for reference in ("drydock-a", made, made[:12]):
        assert await client.ask("POST", f"/containers/{reference}/stop?t=1") == (200, "OK")
    assert clients_calls(engine) == [f"POST /v1.41/containers/{made}/stop?t=1"] * 3


async def test_a_thing_that_is_not_there_is_answered_as_the_engine_does(client: Client) -> None:
    for path in ("/containers/drydock-a/json", "/networks/drydock-a", "/volumes/drydock-a"):
        assert await client.ask("GET", path) == (404, {"message": "no such thing: drydock-a"})


@pytest.mark.parametrize("labels", OTHERS.values(), ids=OTHERS.keys())
async def test_an_exec_of_others_is_out_of_reach(client: Client, engine: FakeEngine, labels: dict[str, str]) -> None:
    exec_id = engine.add_exec(engine.add_container("drydock-engine-1", labels))
    for method, rest, body in (("POST", "/start", {}), ("POST", "/resize?h=1&w=1", None), ("GET", "/json", None)):
        assert (await client.ask(method, f"/exec/{exec_id}{rest}", body))[0] == 403
    assert engine.received == []


async def test_an_exec_of_ours_is_in_reach_unless_somebody_gave_it_privileges(
    client: Client, engine: FakeEngine
) -> None:
    container = engine.add_container("drydock-a", OURS)
    plain, privileged = engine.add_exec(container), engine.add_exec(container, privileged=True)
    assert await client.ask("POST", f"/exec/{plain}/start", {"Detach": True}) == (200, "OK")
    assert (await client.ask("POST", f"/exec/{privileged}/start", {"Detach": True}))[0] == 403
    assert (await client.ask("POST", f"/exec/{'ab' * 32}/start", {"Detach": True}))[0] == 404
    assert clients_calls(engine) == [f"POST /v1.41/exec/{plain}/start"]


@pytest.mark.parametrize(
    "made",
    [
        {"Driver": "local", "Options": {"type": "none", "o": "bind", "device": "/"}},
        {"Driver": "sshfs", "Options": None},
    ],
    ids=["a folder of the host", "a driver of others"],
)
async def test_a_label_alone_does_not_let_a_volume_through_that_is_a_place_elsewhere(
    client: Client, engine: FakeEngine, made: dict[str, Any]
) -> None:
    engine.volumes["drydock-v"] = {"Name": "drydock-v", "Labels": OURS, **made}
    for method, target, body in (
        ("GET", "/volumes/drydock-v", None),
        ("POST", "/volumes/create", {"Name": "drydock-v", "Labels": OURS}),
        ("POST", "/containers/create?name=drydock-b", container_body(volume="drydock-v")),
    ):
        status, words = await client.ask(method, target, body)
        assert status == 403, (method, target, words)
    assert engine.containers == {}
    engine.volumes["drydock-v"] |= {"Driver": "local", "Options": {"size": "4096"}}
    assert (await client.ask("GET", "/volumes/drydock-v"))[0] == 200


async def test_a_label_alone_does_not_let_a_network_through_that_is_no_bridge(
    client: Client, engine: FakeEngine
) -> None:
    engine.add_network("drydock-n", OURS)
    engine.networks["drydock-n"]["Driver"] = "macvlan"
    assert (await client.ask("GET", "/networks/drydock-n"))[0] == 403
    body = container_body(network="drydock-n")
    assert (await client.ask("POST", "/containers/create?name=drydock-b", body))[0] == 403
    assert engine.containers == {}


@pytest.mark.parametrize("labels", OTHERS.values(), ids=OTHERS.keys())
async def test_volumes_and_networks_of_others_are_out_of_reach(
    client: Client, engine: FakeEngine, labels: dict[str, str]
) -> None:
    engine.add_volume("drydock-v", labels)
    other = engine.add_network("drydock-n", labels)
    ours = engine.add_container("drydock-a", OURS)
    for method, target, body in (
        ("GET", "/volumes/drydock-v", None),
        ("DELETE", "/volumes/drydock-v?force=1", None),
        ("GET", "/networks/drydock-n", None),
        ("DELETE", f"/networks/{other}", None),
        ("POST", "/networks/drydock-n/connect", {"Container": "drydock-a"}),
        ("POST", f"/networks/{other}/connect", {"Container": ours}),
        ("POST", "/networks/drydock-n/disconnect", {"Container": "drydock-a"}),
        ("POST", "/volumes/create", {"Name": "drydock-v", "Labels": OURS}),
        ("POST", "/containers/create?name=drydock-b", container_body(network="drydock-n")),
        ("POST", "/containers/create?name=drydock-b", container_body(volume="drydock-v")),
    ):
        status, words = await client.ask(method, target, body)
        assert status == 403, (method, target, words)
    assert engine.received == []
    assert set(engine.containers) == {"drydock-a"}


@pytest.mark.parametrize("labels", OTHERS.values(), ids=OTHERS.keys())
async def test_a_container_of_others_is_not_put_into_a_network_of_ours(
    client: Client, engine: FakeEngine, labels: dict[str, str]
) -> None:
    engine.add_network("drydock-n", OURS)
    made = engine.add_container("drydock-engine-1", labels)
    for reference in ("drydock-engine-1", made):
        for step in ("connect", "disconnect"):
            assert (await client.ask("POST", f"/networks/drydock-n/{step}", {"Container": reference}))[0] == 403
    assert engine.received == []


async def test_a_network_and_its_container_are_named_by_what_was_checked(client: Client, engine: FakeEngine) -> None:
    async def read_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: FakeEngine) -> None:
        engine.received[-1] += await reader.readexactly(len(json.dumps({"Container": "ab" * 32})))
        writer.write(OK)

    engine.behaviour = read_body
    network, container = engine.add_network("drydock-n", OURS), engine.add_container("drydock-a", OURS)
    assert await client.ask("POST", "/networks/drydock-n/connect", {"Container": "drydock-a"}) == (200, "OK")
    assert clients_calls(engine) == [f"POST /v1.41/networks/{network}/connect"]
    assert json.loads(engine.received[0].partition(b"\r\n\r\n")[2]) == {"Container": container}


async def test_what_is_made_carries_our_label_and_nobody_elses(client: Client, engine: FakeEngine) -> None:
    engine.images["drydock/sandbox:base"] = {"Config": {"Labels": {**PROJECT, "drydock.instance": "x", "kept": "1"}}}
    engine.add_network("drydock-n", OURS)
    status, _ = await client.ask(
        "POST", "/containers/create?name=drydock-a", container_body("drydock-n", "drydock-v", Labels={**OURS, "a": "b"})
    )
    assert status == 201
    body = engine.containers["drydock-a"]["body"]
    assert body["Labels"] == {**dict.fromkeys(PROJECT, ""), **OURS, "a": "b"}
    assert body["HostConfig"]["Mounts"][0]["VolumeOptions"] == {"Labels": OURS}
    assert (await client.ask("POST", "/volumes/create", {"Name": "drydock-w", "Labels": OURS}))[0] == 201
    assert (await client.ask("POST", "/networks/create", {"Name": "drydock-m", "Labels": OURS}))[0] == 201
    assert engine.networks["drydock-m"]["body"]["CheckDuplicate"] is True
    assert (await client.ask("GET", "/containers/drydock-a/json"))[0] == 200


@pytest.mark.parametrize(
    "labels", [None, {}, {"drydock.instance": "fedcba9876543210"}, {**OURS, "com.docker.compose.project": "drydock"}]
)
async def test_nothing_is_made_that_would_not_be_ours(client: Client, engine: FakeEngine, labels: Any) -> None:
    for target, body in (
        ("/containers/create?name=drydock-a", container_body(Labels=labels)),
        ("/volumes/create", {"Name": "drydock-v", "Labels": labels}),
        ("/networks/create", {"Name": "drydock-n", "Labels": labels}),
    ):
        assert (await client.ask("POST", target, body))[0] == 403
    assert (engine.containers, engine.volumes, engine.networks) == ({}, {}, {})


async def test_a_volume_that_somebody_made_between_the_check_and_its_use_is_let_go_again(
    client: Client, engine: FakeEngine
) -> None:
    def be_faster(asked: str) -> None:
        if asked.startswith("POST /v1.41/containers/create"):
            engine.add_volume("drydock-v", PROJECT)

    engine.before_answer = be_faster
    status, words = await client.ask("POST", "/containers/create?name=drydock-a", container_body(volume="drydock-v"))
    assert (status, "drydock-v" in words["message"]) == (403, True)
    assert engine.containers == {}
    assert "drydock-v" in engine.volumes


@pytest.mark.parametrize("labels", [{}, PROJECT])
async def test_a_container_is_not_started_in_a_network_that_took_the_place_of_ours(
    client: Client, engine: FakeEngine, labels: dict[str, str]
) -> None:
    engine.add_network("drydock-n", OURS)
    engine.add_container("drydock-a", OURS, "drydock-n")
    assert (await client.ask("POST", "/containers/drydock-a/start"))[0] == 200
    engine.add_network("drydock-n", labels)
    assert (await client.ask("POST", "/containers/drydock-a/start"))[0] == 403
    del engine.networks["drydock-n"]
    assert (await client.ask("POST", "/containers/drydock-a/start"))[0] == 200, "the engine says what is missing"
    assert len(engine.received) == 2


async def test_lists_tell_of_nothing_but_ours(client: Client, engine: FakeEngine) -> None:
    ours = engine.add_container("drydock-a", OURS)
    engine.add_network("drydock-n", OURS)
    engine.add_volume("drydock-v", OURS)
    for number, labels in enumerate(OTHERS.values()):
        engine.add_container(f"drydock-{number}", labels)
        engine.add_network(f"drydock-{number}", labels)
        engine.add_volume(f"drydock-{number}", labels)
    engine.add_volume("drydock-bare", None)
    filters = quote(json.dumps({"label": {"drydock.role=sandbox": True}}))
    status, containers = await client.ask("GET", f"/containers/json?all=1&filters={filters}")
    assert (status, [one["Id"] for one in containers]) == (200, [ours])
    assert engine.asked[-1].endswith("?all=1&filters=" + "%7B%22label%22%3A+%5B%22drydock.role%3Dsandbox%22%5D%7D")
    assert [one["Name"] for one in (await client.ask("GET", "/networks"))[1]] == ["drydock-n"]
    assert [one["Name"] for one in (await client.ask("GET", "/volumes"))[1]["Volumes"]] == ["drydock-v"]


@pytest.mark.parametrize(("name", "tag"), [("python", "3.12"), ("python", "sha256:" + "ab" * 32), ("h:5000/a/b", "1")])
async def test_an_image_that_is_here_is_not_pulled_over(
    client: Client, engine: FakeEngine, name: str, tag: str
) -> None:
    target = f"/images/create?fromImage={quote(name, safe='')}&tag={quote(tag, safe='')}"
    assert await client.ask("POST", target) == (200, "OK")
    assert len(engine.received) == 1
    engine.images[f"{name}{'@' if ':' in tag else ':'}{tag}"] = {"Id": "x"}
    status, words = await client.ask("POST", target)
    assert (status, words) == (200, {"status": "The image is here already"})
    assert len(engine.received) == 1


@pytest.mark.parametrize(
    "name",
    [
        "drydock/engine-proxy",
        "registry.example/drydock/server",
        "registry.example:5000/drydock/sandbox",
        "drydock",
        "Drydock/server",
    ],
)
async def test_our_own_images_are_never_pulled(client: Client, engine: FakeEngine, name: str) -> None:
    status, words = await client.ask("POST", f"/images/create?fromImage={quote(name, safe='')}&tag=latest")
    assert (status, "built, never pulled" in words["message"]) == (403, True)
    assert engine.received == []


FIRST_CALLS: list[tuple[str, str, Any]] = [
    ("GET", f"/containers/json?filters={quote(json.dumps({'label': [f'drydock.instance={INSTANCE}']}))}", None),
    ("POST", "/containers/create?name=drydock-x", container_body()),
    ("POST", "/networks/create", {"Name": "drydock-x", "Labels": OURS}),
    ("POST", "/volumes/create", {"Name": "drydock-x", "Labels": OURS}),
]


@pytest.mark.parametrize("first", FIRST_CALLS, ids=["list", "container", "network", "volume"])
async def test_the_first_instance_that_asks_is_served_and_no_other_ever_again(
    unbound: Client, engine: FakeEngine, tmp_path: Path, first: tuple[str, str, Any]
) -> None:
    engine.add_container("drydock-a", OURS)
    engine.add_container("drydock-b", {"drydock.instance": "other"})
    assert (await unbound.ask("GET", "/containers/drydock-a/json"))[0] == 403
    assert (await unbound.ask("GET", "/containers/json"))[1] == []
    assert not (tmp_path / "nobody-yet").exists()
    assert (await unbound.ask(*first))[0] in (200, 201)
    assert (tmp_path / "nobody-yet").read_text() == f"{INSTANCE}\n"
    others = quote(json.dumps({"label": ["drydock.instance=other"]}))
    assert "other" not in str(await unbound.ask("GET", f"/containers/json?filters={others}"))
    again = EngineProxy(str(engine.path), ServedInstance(tmp_path / "nobody-yet"))
    async with again.serving("127.0.0.1", 0) as port:
        assert (await Client(port).ask("GET", "/containers/drydock-a/json"))[0] == 200
        assert (await Client(port).ask("GET", "/containers/drydock-b/json"))[0] == 403


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 129, "a\nb"])
def test_what_cannot_be_an_instance_is_not_served(tmp_path: Path, name: str) -> None:
    with pytest.raises(ForbiddenCallError):
        ServedInstance(tmp_path / "instance").learn(name)
    (tmp_path / "instance").write_text(name)
    with pytest.raises(ValueError, match="remove it"):
        ServedInstance(tmp_path / "instance")


async def test_a_proxy_that_cannot_write_down_whom_it_serves_serves_nobody(engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    instance = ServedInstance(tmp_path / "full" / "instance")
    (tmp_path / "full").rmdir()
    engine.add_container("drydock-a", OURS)
    async with EngineProxy(str(engine.path), instance).serving("127.0.0.1", 0) as port:
        assert (await Client(port).ask("POST", "/volumes/create", {"Name": "drydock-v", "Labels": OURS}))[0] == 403
        assert (await Client(port).ask("GET", "/containers/drydock-a/json"))[0] == 403
    assert engine.volumes == {}


def test_it_does_not_start_without_a_place_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["engine_proxy", "--instance", str(tmp_path / "nothing" / "instance")])
    with pytest.raises(SystemExit):
        main()
    assert "is not there" in capsys.readouterr().err


@pytest.mark.parametrize(
    "answered", [b"", b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n[]", b"nonsense\r\n\r\n"]
)
async def test_an_engine_that_answers_nonsense_lets_nothing_through(
    tmp_path: Path, served: Path, answered: bytes
) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answered)

    path = tmp_path / "nonsense.sock"
    async with (
        listening_at(path, say),
        EngineProxy(str(path), ServedInstance(served)).serving("127.0.0.1", 0) as port,
    ):
        assert (await Client(port).ask("POST", "/containers/drydock-a/start"))[0] in (403, 503)
