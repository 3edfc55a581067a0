"""Containers that cannot be had: no engine, no image, no Python; each with its cause, what to do, and nothing left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.seccomp import seccomp_profile
from agent_core.testing.sandbox_contract import LIMITS, SandboxKit, drop_stream, output, run
from tests.integration.sandbox.conftest import instead_of_python
from tests.listening import listening_at

pytestmark = pytest.mark.docker


def objects_of(engine: Any, kit: SandboxKit) -> list[str]:
    """Names of all containers and volumes of the test's instance."""
    filters = {"label": f"drydock.instance={kit.instance}"}
    containers = [found["Id"] for found in engine.containers(all=True, filters=filters)]
    return containers + [found["Name"] for found in engine.volumes(filters=filters)["Volumes"] or ()]


async def failure(kit: SandboxKit, **changes: Any) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        await kit.connect("failing", **changes).start()
    assert kit.statuses("failing")[-1] == "STATUS$ERROR"
    return caught.value


async def test_no_engine_is_said_with_what_to_do(tmp_path: Path) -> None:
    provider = DockerProvider(f"unix://{tmp_path}/none.sock")
    found = await provider.check()
    assert not found.ok
    assert "No Docker engine answers" in found.reason
    assert "DOCKER_HOST" in found.fix
    kit = SandboxKit(provider, str(tmp_path))
    error = await failure(kit)
    assert error.code == "engine_unavailable"
    await provider.close()


def _http(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "speaks like none"),
        (_http("200 OK", "<html>Welcome</html>"), "speaks like none"),
        (_http("200 OK", '{"hello": "there"}'), "speaks like none"),
        (_http("200 OK", "[1]"), "speaks like none"),
        (_http("404 Not Found", "<html>nginx</html>"), "refused to say its version (404"),
        (_http("400 Bad Request", '{"message": "client version 1.44 is too old"}'), "1.44 is too old"),
        (_http("200 OK", '{"ApiVersion": "1.12"}'), "is too old: its API is 1.12"),
        (_http("200 OK", '{"ApiVersion": "new"}'), "speaks like none"),
        (b"", "No Docker engine answers: "),
    ],
)
async def test_what_is_no_engine_or_one_of_another_time_is_said(tmp_path: Path, answer: bytes, words: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async with listening_at(tmp_path / "other.sock", serve) as path:
        provider = DockerProvider(f"unix://{path}")
        found = await provider.check()
        await provider.close()
    assert not found.ok
    assert words in found.reason
    assert "Update Docker" in found.fix or "DOCKER_HOST" in found.fix


@asynccontextmanager
async def silent_engine(folder: Path) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening_at(folder / "silent.sock", serve) as path:
        yield f"unix://{path}"


async def test_an_engine_that_hangs_is_given_up_in_time(tmp_path: Path) -> None:
    async with silent_engine(tmp_path) as host:
        provider = DockerProvider(host, connect_seconds=0.2)
        began = time.monotonic()
        assert not (await provider.check()).ok
        assert time.monotonic() - began < 14  # by default it is 15
        await provider.close()


async def test_an_engine_that_hangs_when_it_is_looked_at_has_as_long_as_for_its_first_answer(tmp_path: Path) -> None:
    version = b'{"ApiVersion":"1.41","Version":"20.10","Os":"linux"}'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal version
        await reader.readuntil(b"\r\n\r\n")
        answer, version = version, b""
        if answer:  # the first one, with which its client finds out what it speaks
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(answer))
            writer.write(b"\r\n" + answer)
        await reader.read()

    async with listening_at(tmp_path / "tired.sock", serve) as path:
        provider = DockerProvider(f"unix://{path}", connect_seconds=1)
        found = await provider.check()
        assert not found.ok
        assert "within 1 s" in found.reason
        await provider.close()


async def test_an_image_of_ours_that_was_not_built_is_not_pulled(docker_kit: SandboxKit, engine: Any) -> None:
    error = await failure(docker_kit, image="drydock/sandbox:not-built")
    assert error.code == "image_missing"
    assert "make sandbox-image" in str(error)
    assert "STATUS$BUILDING_RUNTIME" not in docker_kit.statuses("failing")
    assert objects_of(engine, docker_kit) == []
    assert engine.networks(filters={"label": f"drydock.instance={docker_kit.instance}"}) == []


async def test_an_image_that_cannot_be_pulled_is_named_with_the_command(docker_kit: SandboxKit, engine: Any) -> None:
    # A registry that refuses connections: nothing of the network is needed.
    error = await failure(docker_kit, image="127.0.0.1:1/nobody/nothing:1")
    assert error.code == "image_missing"
    assert "docker pull 127.0.0.1:1/nobody/nothing:1" in str(error)
    assert "STATUS$BUILDING_RUNTIME" in docker_kit.statuses("failing")
    assert objects_of(engine, docker_kit) == []
    assert engine.networks(filters={"label": f"drydock.instance={docker_kit.instance}"}) == []


async def test_an_image_without_python_gets_one_command_that_derives_a_usable_one(
    docker_kit: SandboxKit, engine: Any, image: Any
) -> None:
    name = image()
    error = await failure(docker_kit, image=name)
    assert error.code == "no_python"
    assert f"FROM {name}" in str(error)
    assert "docker build -t" in str(error)
    assert objects_of(engine, docker_kit) == []
    assert engine.networks(filters={"label": f"drydock.instance={docker_kit.instance}"}) == []


async def test_a_path_without_python_is_told_as_that_and_not_as_the_images_fault(docker_kit: SandboxKit) -> None:
    error = await failure(docker_kit, environment={"PATH": "/nowhere"})
    assert error.code == "no_python"
    assert "on the PATH '/nowhere' that was chosen" in str(error)
    assert "Leave PATH out of runtime_startup_env_vars" in str(error)


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ("echo drydock: Python 3.8 or newer is needed, this is 3.6.9 >&2; exit 1", "no_python", ["3.6.9"]),
        ("echo the flux capacitor is broken; exit 3", "start_failed", ["exit code 3", "flux capacitor"]),
    ],
    ids=["a Python that is too old", "last words"],
)
async def test_a_container_that_ends_at_once_is_told_of_with_what_it_said(
    docker_kit: SandboxKit, engine: Any, image: Any, program: str, code: str, words: list[str]
) -> None:
    error = await failure(docker_kit, image=image(instead_of_python(program)))
    assert error.code == code
    assert all(word in str(error) for word in words)
    assert objects_of(engine, docker_kit) == []
    assert engine.networks(filters={"label": f"drydock.instance={docker_kit.instance}"}) == []


async def test_a_runner_that_never_answers_ends_the_start_in_time(
    docker_kit: SandboxKit, engine: Any, image: Any
) -> None:
    name = image(instead_of_python("exec sleep 1000"))
    began = time.monotonic()
    error = await failure(docker_kit, image=name, limits=replace(LIMITS, start_seconds=2.0))
    assert error.code == "start_timeout"
    assert time.monotonic() - began < 60
    assert objects_of(engine, docker_kit) == []
    assert engine.networks(filters={"label": f"drydock.instance={docker_kit.instance}"}) == []


async def test_a_failed_start_keeps_an_older_workspace(docker_kit: SandboxKit, engine: Any, image: Any) -> None:
    first = docker_kit.connect()
    await output(first, "echo kept > file")
    await first.close()
    engine.remove_container(first.sandbox.state["container"], force=True)
    broken = image(instead_of_python("exit 3"))
    with pytest.raises(SandboxError):
        await docker_kit.connect(image=broken).start()
    assert await output(docker_kit.connect(), "cat file") == "kept"


async def test_an_image_without_our_user_or_workspace_works_unbuilt(docker_kit: SandboxKit, image: Any) -> None:
    name = image("RUN userdel -r agent; rm -rf /workspace /opt/drydock; ! getent passwd 1000")
    sandbox = docker_kit.connect(image=name)
    assert await output(sandbox, "id -u; touch file ~/file && echo $PWD") == "1000\n/workspace"
    await sandbox.stop()
    assert await output(sandbox, "ls") == "file"


async def test_in_an_image_without_bash_its_sh_is_kept_instead(docker_kit: SandboxKit, image: Any) -> None:
    sandbox = docker_kit.connect(image=image("RUN rm /bin/bash"))
    result = await run(sandbox, "mkdir sub; cd sub; export KEPT=1; say() { echo said $1; }; (exit 4)")
    assert (result["exit_code"], result["working_dir"]) == (4, "/workspace/sub")
    assert await output(sandbox, "echo $0 $KEPT; say it") == "sh 1\nsaid it"
    assert (await run(sandbox, "exit 3"))["exit_code"] == 3
    assert await output(sandbox, "echo $KEPT; pwd") == "1\n/workspace/sub"


async def test_what_the_image_has_in_its_home_is_found_in_the_one_that_can_be_written(
    docker_kit: SandboxKit, image: Any
) -> None:
    name = image(
        "RUN mkdir -p ~agent/.tool/bin",
        "RUN echo 'echo the tool' > ~agent/.tool/bin/tool && chmod +x ~agent/.tool/bin/tool",
        "RUN echo setting > ~agent/.toolrc && chown -R agent ~agent",
    )
    sandbox = docker_kit.connect(image=name)
    assert await output(sandbox, "cat ~/.toolrc; ~/.tool/bin/tool") == "setting\nthe tool"
    await output(sandbox, "echo changed > ~/.toolrc; touch ~/.tool/bin/more")
    await sandbox.stop()
    assert await output(sandbox, "cat ~/.toolrc; ls -1 ~/.tool/bin") == "changed\nmore\ntool"


async def test_a_package_of_the_users_own_can_be_installed_and_its_program_is_found(docker_kit: SandboxKit) -> None:
    sandbox = docker_kit.connect()
    setup = "from setuptools import setup; setup(name='own', py_modules=['own'], scripts=['own-program'])"
    await output(sandbox, f'mkdir own; cd own; echo "{setup}" > setup.py; echo value = 7 > own.py')
    await output(sandbox, "printf '#!/bin/sh\necho it runs\n' > own-program; chmod 755 own-program")
    await output(sandbox, "pip install --user --no-build-isolation --no-index -q . 2>&1; cd ..; rm -r own")
    assert await output(sandbox, "own-program; python3 -c 'import own; print(own.value)'") == "it runs\n7"


async def test_an_image_can_be_changed_where_that_is_allowed(docker_kit: SandboxKit) -> None:
    for allowed in (True, False):
        sandbox = docker_kit.connect(f"allowed-{allowed}", limits=replace(LIMITS, read_only=not allowed))
        result = await run(sandbox, "touch /home/agent/file && echo $HOME")
        assert (result["exit_code"] == 0) is allowed
        await output(sandbox, "touch ~/other file /tmp/file /var/tmp/file")


async def test_a_disk_that_is_not_seen_from_here_is_measured_within(
    docker_kit: SandboxKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = docker_kit.connect()
    await output(sandbox, "head -c 5000000 /dev/urandom > ~/file; head -c 3000000 /dev/urandom > file; sync")
    seen = await sandbox.sandbox.usage()
    monkeypatch.setattr("agent_core.runtime.docker.sandbox.os.path.isdir", lambda path: False)
    again = docker_kit.connect()
    monkeypatch.setattr("agent_core.runtime.disk._UNSEEN_SECONDS", 0)
    await again.start()
    within = await again.sandbox.usage()
    assert seen is not None
    assert within is not None
    assert within.whole
    assert 8_000_000 < within.bytes < 10_000_000
    assert within.bytes < seen.bytes < within.bytes + 8_000_000  # with the runner's code


async def test_files_of_an_image_do_not_change_what_the_runner_imports(docker_kit: SandboxKit, image: Any) -> None:
    name = image(
        "ENV PYTHONPATH=/planted PYTHONSTARTUP=/planted/json.py",
        "RUN mkdir /planted && for name in json os socket runner; do echo 'exit(9)' > /planted/$name.py; done",
        "RUN cp /planted/json.py /workspace/json.py",
    )
    assert await output(docker_kit.connect(image=name), "ls /workspace") == "json.py"


async def test_the_container_is_hardened_limited_and_labelled(docker_kit: SandboxKit, engine: Any) -> None:
    sandbox = docker_kit.connect("first", network="full")
    await sandbox.start()
    found = engine.inspect_container(sandbox.sandbox.state["container"])
    host = found["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges", f"seccomp={seccomp_profile()}"]
    assert not host["Privileged"]
    assert not host["Binds"]
    assert {mount["Type"] for mount in found["Mounts"]} == {"volume"}
    assert host["ReadonlyRootfs"]
    assert host["Tmpfs"].keys() == {"/tmp", "/var/tmp", "/dev/shm"}
    assert all(f"size={LIMITS.tmp_size}" in host["Tmpfs"][at] for at in ("/tmp", "/var/tmp"))
    room = await output(sandbox, "for at in /tmp /var/tmp /dev/shm; do df --output=itotal $at | tail -1; done")
    assert list(map(int, room.split())) == [LIMITS.inodes] * 3
    assert "noexec" in await output(sandbox, "grep ' /dev/shm ' /proc/mounts")
    assert {"Name": "fsize", "Hard": LIMITS.disk, "Soft": LIMITS.disk} in host["Ulimits"]
    assert host["PortBindings"] in (None, {})
    assert (host["Memory"], host["MemorySwap"]) == (LIMITS.memory, LIMITS.memory)
    assert (host["PidsLimit"], host["NanoCpus"], host["Init"]) == (LIMITS.processes, 2_000_000_000, True)
    assert host["LogConfig"]["Config"]["max-size"]
    assert host["RestartPolicy"]["Name"] in ("no", "")
    assert found["Config"]["User"] == "1000:1000"
    labels = {"drydock.instance": docker_kit.instance, "drydock.conversation": "first"}
    volumes = [engine.inspect_volume(mount["Name"]) for mount in found["Mounts"]]
    network = engine.inspect_network(host["NetworkMode"])
    assert labels.items() <= found["Config"]["Labels"].items()
    assert all(labels.items() <= volume["Labels"].items() for volume in volumes)
    assert network["Labels"]["drydock.instance"] == docker_kit.instance


@pytest.mark.parametrize("network", ["full", "internal"])
async def test_sandboxes_on_a_network_cannot_reach_one_another(docker_kit: SandboxKit, network: Any) -> None:
    one, two = docker_kit.connect("one", network=network), docker_kit.connect("two", network=network)
    address = await output(one, "python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'")
    await output(
        one,
        "cd /tmp && (python3 -m http.server 8123 >/dev/null 2>&1 &) ; curl -s --retry 50 --retry-delay 1"
        " --retry-connrefused 127.0.0.1:8123",
    )
    probe = f"import socket; socket.create_connection(('{address}', 8123), 1)"
    assert "OK" not in await output(two, f"python3 -c \"{probe}; print('OK')\" 2>&1 || true")


@pytest.mark.parametrize("when", ["before it is created", "before it is started again"])
async def test_a_network_that_somebody_removed_is_made_again(docker_kit: SandboxKit, engine: Any, when: str) -> None:
    first = docker_kit.connect("first", network="internal")
    await output(first, "echo kept > ~/file")
    network = engine.inspect_container(first.sandbox.state["container"])["HostConfig"]["NetworkMode"]
    await (first.destroy() if when == "before it is created" else first.stop())
    engine.remove_network(network)
    again = docker_kit.connect("first", network="internal")
    assert await output(again, "tail -n +3 /proc/net/dev | wc -l") == "2"
    if when != "before it is created":
        assert await output(again, "cat ~/file") == "kept"


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[SandboxKit]:
    made = SandboxKit(DockerProvider(), str(tmp_path))
    yield made
    await made.close()


async def test_networks_in_which_nothing_runs_go_with_their_provider_and_old_ones_with_any(
    docker_kit: SandboxKit, other: SandboxKit, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, running = other.connect("one", network="internal"), other.connect("two", network="full")
    await asyncio.gather(stopped.start(), running.start())
    await stopped.stop()

    def left() -> list[str]:
        return [found["Name"] for found in engine.networks(filters={"label": f"drydock.instance={other.instance}"})]

    assert await docker_kit.provider.reap(docker_kit.instance, []) == []
    assert len(left()) == 2
    label = f"drydock.instance={other.instance}"
    times = {found["Created"] for found in engine.networks(filters={"label": label})}
    monkeypatch.setattr("agent_core.runtime.docker.networks.age", lambda created: 1e9 if created in times else 0)
    assert await docker_kit.provider.reap(docker_kit.instance, []) == []
    assert [name.rsplit("-", 1)[1] for name in left()] == ["full"]
    assert await output(stopped, "tail -n +3 /proc/net/dev | wc -l") == "2"
    await stopped.stop()
    last = DockerProvider()
    assert await last.reap(other.instance, ["one", "two"]) == []  # as a server begins
    assert len(left()) == 2
    await last.close()  # and as it ends: what still runs keeps its network
    assert [name.rsplit("-", 1)[1] for name in left()] == ["full"]
    await running.stop()
    ended = DockerProvider()
    reaping = asyncio.create_task(ended.reap(other.instance, []))
    await asyncio.sleep(0)
    reaping.cancel()
    await ended.close()  # the server ends as soon as it has begun
    assert left() == []


async def test_reaping_everything_leaves_no_object_of_the_instance(docker_kit: SandboxKit, engine: Any) -> None:
    sandbox = docker_kit.connect(network="internal")
    await sandbox.start()
    await sandbox.sandbox.snapshot()
    await sandbox.close()
    assert len(objects_of(engine, docker_kit)) == 4  # the container, two volumes, and the copy of one
    assert await docker_kit.provider.reap(docker_kit.instance, []) == ["first"]
    assert objects_of(engine, docker_kit) == []
    assert engine.networks(filters={"label": f"drydock.instance={docker_kit.instance}"}) == []


@pytest.mark.parametrize("direct", [True, False], ids=["past the engine", "through an exec"])
async def test_a_runner_is_reached_and_kept_by_either_way(tmp_path: Path, engine: Any, direct: bool) -> None:
    kit = SandboxKit(DockerProvider(direct=direct), str(tmp_path))
    try:
        sandbox = kit.connect()
        assert await output(sandbox, "x=kept; echo begun") == "begun"
        name = sandbox.sandbox.state["container"]
        assert bool(engine.inspect_container(name)["ExecIDs"]) is not direct
        drop_stream(sandbox)
        assert await output(sandbox, "echo $x") == "kept"
        await sandbox.stop()
        assert await output(sandbox, "echo ${x-new}") == "new"
        assert await output(sandbox, "head -c 300000 /dev/zero | wc -c") == "300000"
    finally:
        await kit.close()
