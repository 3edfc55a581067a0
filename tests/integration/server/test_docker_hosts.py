"""Two Docker hosts: this machine's engine, and one of the test's own, which is lost and comes back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from docker.api.client import APIClient

from agent_core.runtime.docker import heartbeat
from agent_core.runtime.docker import hosts as hosts_module
from agent_core.runtime.docker.docker_host import DockerHost, EngineTls
from agent_core.runtime.docker.hosts import DockerHosts
from agent_core.testing.sandbox_contract import SandboxKit, SandboxLifecycleContract, eventually, output, run
from tests.bad_engine import bad_engine
from tests.certificates import Authority
from tests.integration.server.conftest import Follower, MakeProcess, ServerProcess, create, following
from tests.listening import listening
from tests.own_engine import IMAGE, connected_to, engine_of, load_image, started_engine
from tests.waiting import until

pytestmark = pytest.mark.docker

LEFT_BY_THE_SDK = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
"""A socket with which it found nobody it leaves to the collector of garbage."""
HERE = "unix:///var/run/docker.sock"
WAITING = "STATUS$WAITING_FOR_ENGINE"


class SecondEngine:
    """An engine of the test's own, as on another machine: its containers' processes are none of this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running = ExitStack()
        self.url = ""
        authority = Authority(folder)
        self.authority = authority.file
        self._own, self.ours = authority.vouch("engine", "127.0.0.1"), authority.vouch("drydock", "drydock")

    @property
    def path(self) -> str:
        return self.url.removeprefix("unix://")

    def begin(self) -> None:
        self.url = started_engine(self.folder, self._running, tls=(self.authority, *self._own))

    def end(self) -> None:
        self._running.close()

    def signal(self, number: int) -> None:
        os.kill(engine_of(self.folder), number)

    def containers(self) -> list[dict[str, Any]]:
        client: Any = APIClient(base_url=self.url, version="auto")
        try:
            return list(client.containers(all=True, filters={"label": ["drydock.conversation"]}))
        finally:
            client.close()


@pytest.fixture(scope="module")
def second() -> Iterator[SecondEngine]:
    if os.geteuid() != 0:
        pytest.skip("only root may start an engine")
    folder = Path(tempfile.mkdtemp(prefix="dh-"))  # short, for the sake of the sockets in it
    engine = SecondEngine(folder)
    try:
        engine.begin()
        load_image(engine.url)
        yield engine
    finally:
        engine.end()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def kit_of(*wishes: DockerHost, folder: Path) -> AsyncIterator[SandboxKit]:
    provider = DockerHosts(wishes)
    kit = SandboxKit(provider, str(folder), image=IMAGE)
    try:
        await provider.check()
        await provider.reap(kit.instance, ())
        await eventually(lambda: all(view.status == "up" for view in provider.hosts()), limit=30)
        await provider.reap(kit.instance, ())
        yield kit
    finally:
        await kit.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 3.0)


class TestLifecycleOnANamedHost:
    """What of the suite has to do with where a sandbox is; the rest is the same provider as of one engine."""

    test_check = SandboxLifecycleContract.test_a_provider_says_that_it_works_here
    test_steps = SandboxLifecycleContract.test_the_first_command_starts_the_sandbox_and_its_steps_are_told
    test_state = SandboxLifecycleContract.test_another_object_finds_the_sandbox_again_by_its_state
    test_stopped = SandboxLifecycleContract.test_a_stopped_sandbox_is_found_again_too
    test_reaping = SandboxLifecycleContract.test_reaping_removes_what_nobody_keeps_and_nothing_else

    @pytest.fixture
    async def kit(self, second: SecondEngine, tmp_path: Path) -> AsyncIterator[SandboxKit]:
        async with kit_of(DockerHost("second", second.url), folder=tmp_path) as kit:
            yield kit


@pytest.mark.usefixtures("impatient")
async def test_a_frozen_engine_is_lost_its_command_is_waited_for_and_new_sandboxes_go_elsewhere(
    second: SecondEngine, tmp_path: Path
) -> None:
    wishes = DockerHost("here", HERE, max_sandboxes=1000), DockerHost("second", second.url)
    async with kit_of(*wishes, folder=tmp_path) as kit:
        sandbox = kit.connect()  # only one of them has the image
        assert sandbox.sandbox.state["host"] == "second"
        command = asyncio.create_task(run(sandbox, "echo begun; sleep 2; echo $$ >> once; cat once | wc -l"))
        await eventually(lambda: sandbox.is_ready)
        await asyncio.sleep(0.3)
        second.signal(signal.SIGSTOP)
        try:
            await eventually(lambda: WAITING in kit.statuses(), limit=30)
            assert "The Docker host 'second' cannot be reached" in kit.notices[-1][2]
            assert kit.connect("new").sandbox.state["host"] == "here"
            assert not command.done()
        finally:
            second.signal(signal.SIGCONT)
        result = await command
        assert result["output"].split() == ["begun", "1"]  # it ran once
        assert "STATUS$SANDBOX_LOST" not in kit.statuses()
        assert await output(sandbox, "echo on") == "on"


async def test_an_engine_over_tls_is_trusted_by_its_authority_alone_and_shown_a_certificate(
    second: SecondEngine, tmp_path: Path
) -> None:
    """Its own TLS (``dockerd --tlsverify``), carried out of its network byte for byte."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(sock=connected_to(second.folder))

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
            target.close()

        try:
            await asyncio.gather(copy(reader, back), copy(there, writer))
        finally:
            back.close()

    async with listening(carry) as port:
        url = f"tcp://127.0.0.1:{port}"
        tls = EngineTls(str(second.authority), *map(str, second.ours))
        async with kit_of(DockerHost("far", url, tls), folder=tmp_path) as kit:
            assert await output(kit.connect(), "echo over TLS") == "over TLS"
        for wrong, reason in (
            (EngineTls(str(second.authority)), ""),
            (EngineTls(str(second.ours[0])), "certificate verify failed"),
        ):
            provider = DockerHosts([DockerHost("far", url, wrong)])
            found = await provider.check()
            await provider.close()
            assert not found.ok
            assert reason in found.reason


@pytest.mark.ssh
@pytest.mark.filterwarnings(LEFT_BY_THE_SDK)
async def test_an_engine_over_ssh_has_one_way_that_is_made_anew_and_that_ends_with_its_provider(
    second: SecondEngine, tmp_path: Path
) -> None:
    async with ssh_server(tmp_path) as (port, config):
        url = f"ssh://root@127.0.0.1:{port}{second.path}"
        async with kit_of(DockerHost("far", url, ssh_config=str(config)), folder=tmp_path) as kit:
            sandbox = kit.connect()
            assert await output(sandbox, "echo over ssh") == "over ssh"
            (way,) = ways(config)
            os.kill(way, signal.SIGKILL)
            assert await output(sandbox, "echo again") == "again"
            assert ways(config) not in ([], [way])
        assert ways(config) == []
    provider = DockerHosts([DockerHost("far", url, ssh_config=str(config))])
    found = await provider.check()
    await provider.close()
    assert "Connection refused" in found.reason
    assert ways(config) == []


def ways(config: Path) -> list[int]:
    """The processes of ssh with this configuration."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes().startswith(f"ssh\0-F\0{config}\0".encode()):
                found.append(int(process.name))
    return found


@asynccontextmanager
async def ssh_server(folder: Path) -> AsyncIterator[tuple[int, Path]]:
    """A server that lets in whoever has its key; its port, and the configuration of a client that has it."""
    for name in ("host", "client"):
        await ran("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    os.makedirs("/run/sshd", exist_ok=True)  # where it shuts up the part of itself that strangers talk to
    async with listening(hang_up) as port:
        pass  # it was free
    lines = {
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "client.pub",
        "ListenAddress": f"127.0.0.1:{port}",
        "PermitRootLogin": "prohibit-password",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
    }
    (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    config = folder / "ssh_config"
    ours = ("IdentitiesOnly yes", "StrictHostKeyChecking no", f"UserKnownHostsFile {folder / 'known'}")
    config.write_text("\n".join([f"IdentityFile {folder / 'client'}", *ours, ""]))
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, "scripts/real-parts ssh"
    with (folder / "sshd.log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            program,
            "-D",
            "-e",
            "-f",
            str(folder / "sshd_config"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        await eventually(lambda: "Server listening" in (folder / "sshd.log").read_text())
        yield port, config
    finally:
        server.terminate()
        await server.wait()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


async def ran(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


async def test_conversations_on_two_hosts_of_which_one_is_lost_and_comes_back(
    make_process: MakeProcess, second: SecondEngine, tmp_path: Path
) -> None:
    async with bad_engine(tmp_path, second.path) as way:
        hosts = {"here": {"url": HERE, "max_sandboxes": 1000}, "far": {"url": way.host, "max_sandboxes": 9}}
        settings = {"DOCKER_HOSTS": json.dumps(hosts), "SANDBOX_IMAGES": IMAGE, "SANDBOX_NETWORK": "none"}
        environment = {f"DRYDOCK_{name}": value for name, value in settings.items()}
        server = await make_process(environment=environment)
        far = await create(server, sandbox={"image": IMAGE})
        async with following(server, far) as follower:
            await answered(follower, "echo kept > kept")
            assert [one["Labels"]["drydock.conversation"] for one in second.containers()] == [far]
            await follower.run("echo begun > begun; sleep 4; echo $$ >> kept; echo done")
            await asyncio.sleep(1)
            way.vanish()
            await told_lost(server, far, follower)
            await until(lambda: is_lost(server))
            shown = {one["name"]: one for one in await shown_hosts(server)}
            assert (shown["here"]["status"], shown["far"]["status"]) == ("up", "lost")
            assert shown["here"]["memory_free"] > 0 == shown["far"]["memory_free"]
            async with server.client() as client:
                assert 'host_status{host="far",state="lost"} 1.0' in (await client.get("/metrics")).text
            other = await create(server)
            async with following(server, other) as another:
                await answered(another, "echo elsewhere")
            await server.kill()
            await follower.disconnect()
            await server.start()
            follower.frames.clear()
            await follower.connect()
            await told_lost(server, far, follower)
            way.come_back()
            await follower.until(lambda: follower.count(observation="run") == 2)
            assert "done" in follower.frames[-1]["content"]
            assert (await answered(follower, "wc -l < kept; cat begun")).split()[:2] == ["2", "begun"]  # it ran once
            async with server.client() as client:
                drained = await client.patch("/api/docker-hosts/far", json={"draining": True})
                assert drained.json()["status"] == "draining"
                assert (await client.patch("/api/docker-hosts/none", json={"draining": True})).status_code == 404
            assert "on" in await answered(follower, "echo on")
        assert await server.stop() == 0
        await server.start()
        assert [one["status"] for one in await shown_hosts(server)] == ["up", "draining"]
        await server.close()
        assert second.containers() == []


async def answered(follower: Follower, command: str) -> str:
    """What it prints."""
    before = follower.count(observation="run")
    await follower.run(command)
    await follower.until(lambda: follower.count(observation="run") == before + 1)
    return str(next(one for one in reversed(follower.frames) if one.get("observation") == "run")["content"])


async def told_lost(server: ServerProcess, conversation_id: str, follower: Follower) -> None:
    await follower.until(lambda: any(WAITING in str(one) for one in follower.frames))
    async with server.client() as client:
        info = (await client.get(f"/api/conversations/{conversation_id}")).json()
    assert info["runtime_status"] == WAITING
    assert "The Docker host 'far' cannot be reached" in info["runtime_warning"]


async def is_lost(server: ServerProcess) -> bool:
    return "lost" in [one["status"] for one in await shown_hosts(server)]


async def shown_hosts(server: ServerProcess) -> list[dict[str, Any]]:
    async def found() -> list[dict[str, Any]]:
        async with server.client() as client:
            return list((await client.get("/api/docker-hosts")).json()["results"])

    async with asyncio.timeout(30):
        while True:
            shown = await found()
            if shown and all(one["version"] for one in shown):
                return shown
            await asyncio.sleep(0.1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.filterwarnings(LEFT_BY_THE_SDK)
async def test_an_engine_that_was_ended_and_started_again_has_the_files(second: SecondEngine, tmp_path: Path) -> None:
    async with kit_of(DockerHost("second", second.url), folder=tmp_path) as kit:
        sandbox = kit.connect()
        await output(sandbox, "echo kept > kept")
        await asyncio.to_thread(second.end)
        reading = asyncio.create_task(output(sandbox, "cat kept"))
        await eventually(lambda: WAITING in kit.statuses(), limit=30)
        await asyncio.to_thread(second.begin)
        assert await reading == "kept"
    await asyncio.to_thread(second.end)  # which this test has begun: none follows
