"""An engine that hangs, is slow, restarts, or refuses: bounded waits, words that say so, and all goes on by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import SandboxError, SandboxLostError
from agent_core.runtime.docker import engine as engine_module
from agent_core.runtime.docker import heartbeat
from agent_core.runtime.docker.engine import DockerEngine, EngineUnavailableError
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.sandbox import SandboxStatus
from agent_core.testing.sandbox_contract import LIMITS, SandboxKit, eventually, output, run
from tests.bad_engine import BadEngine, bad_engine

pytestmark = pytest.mark.docker


@pytest.fixture
async def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BadEngine]:
    """Whoever waits for it has a fifth of the usual patience, or less."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 1.0)
    monkeypatch.setattr(engine_module, "_PATIENCE_SECONDS", 0.5)
    async with bad_engine(tmp_path) as made:
        yield made


@pytest.fixture
async def kit(bad: BadEngine, tmp_path: Path) -> AsyncIterator[SandboxKit]:
    provider = DockerProvider(bad.host)
    made = SandboxKit(provider, str(tmp_path))
    yield made
    bad.go_on()
    bad.refusals.clear()
    # What was asked for before it was given up is done by now, or else would be after everything has been removed.
    await eventually(lambda: not provider._engine._under_way, limit=60)
    await made.close()


IMPATIENT = replace(LIMITS, start_seconds=4)


async def test_an_engine_that_hangs_stops_nobody_who_works_and_is_given_up_by_who_needs_it(
    kit: SandboxKit, bad: BadEngine
) -> None:
    sandbox = kit.connect()
    await output(sandbox, "echo begun")
    bad.hang()
    began = time.monotonic()
    starts = [kit.connect(f"other-{number}", limits=IMPATIENT).start() for number in range(20)]  # more than threads
    starting = asyncio.gather(*starts, return_exceptions=True)
    assert await output(sandbox, "echo at work") == "at work"
    with pytest.raises(SandboxError, match="does not answer"):
        await sandbox.stop()
    assert time.monotonic() - began < 40
    for error in await starting:
        assert isinstance(error, EngineUnavailableError), error
        assert "restart it if it hangs" in str(error)
    assert time.monotonic() - began < 50
    assert any("Waiting for the Docker engine" in text for _, _, text in kit.notices)
    asked = len([line for line in bad.requests if b"/containers/create" in line])
    bad.go_on()
    assert await output(sandbox, "echo back") == "back"
    assert await output(kit.connect("new"), "echo new") == "new"
    # What was given up before its turn came was never asked for: a thread each, and the two sandboxes that run now.
    assert len([line for line in bad.requests if b"/containers/create" in line]) <= asked + 2


async def test_calls_that_wait_for_a_thread_of_a_hanging_engine_are_never_made(bad: BadEngine) -> None:
    engine = DockerEngine(bad.host, 5)
    await engine.call("say its version", lambda client: client.version())
    bad.hang()
    began: list[int] = []

    def work(client: Any) -> Any:
        began.append(1)
        return client.version()

    calls = [engine.call("say its version", work) for _ in range(60)]
    failed = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in failed} == {EngineUnavailableError}
    assert len(began) == engine_module._THREADS
    bad.go_on()
    assert (await engine.call("say its version", lambda client: client.version()))["Version"]
    assert len(began) == engine_module._THREADS
    await engine.close()


async def test_threads_that_a_hanging_engine_keeps_for_ever_are_replaced(bad: BadEngine) -> None:
    engine = DockerEngine(bad.host, 5)
    await engine.call("say its version", lambda client: client.version())
    bad.hang()
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stuck(client: Any) -> None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()

    try:
        calls = [engine.call("wait", stuck) for _ in range(engine_module._THREADS)]
        await asyncio.gather(*calls, return_exceptions=True)
        bad.go_on()
        assert (await engine.call("say its version", lambda client: client.version(), limit=5))["Version"]
    finally:
        release.set()
        await engine.close()


async def test_whatever_an_engine_is_asked_it_is_over_the_same_connections(bad: BadEngine) -> None:
    engine = DockerEngine(bad.host, 5)
    for number in range(30):
        assert await engine.call_unless("look", partial(_look, f"nonesuch-{number}"), 404) is None
    await eventually(lambda: bad.connections == 1)  # nor has the one that looked whether anybody listens stayed
    await engine.close()


def _look(name: str, client: Any) -> Any:
    return client.inspect_container(name)


async def test_a_slow_engine_is_no_hanging_one(kit: SandboxKit, bad: BadEngine) -> None:
    bad.delay = 0.1
    assert await output(kit.connect(), "echo slowly") == "slowly"


async def test_an_engine_that_restarts_and_takes_its_containers_along_costs_the_command_and_nothing_else(
    kit: SandboxKit, bad: BadEngine, engine: Any
) -> None:
    sandbox = kit.connect()
    await output(sandbox, "echo kept > file")
    command = asyncio.create_task(run(sandbox, "echo x >> count; sleep 100", key="first:1"))
    await eventually(lambda: _prints(sandbox, "wc -l < count", "1"))
    bad.hang()
    bad.cut()
    engine.kill(sandbox.sandbox.state["container"])
    asyncio.get_running_loop().call_later(1.5, bad.go_on)
    with pytest.raises(SandboxLostError):
        await command
    assert await output(sandbox, "cat file; wc -l < count") == "kept\n1"
    with pytest.raises(SandboxLostError, match="in part"):
        await run(sandbox, "echo x >> count", key="first:1")


async def test_a_container_that_ends_just_when_it_is_found_is_started_again(
    kit: SandboxKit, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kit.connect()
    await output(first, "echo kept > file")
    await first.close()
    second = kit.connect(state=dict(first.sandbox.state))
    look = second.sandbox._present  # type: ignore[attr-defined]

    async def found_and_gone() -> SandboxStatus:
        monkeypatch.setattr(second.sandbox, "_present", look)
        found: SandboxStatus = await look()
        engine.kill(second.sandbox.state["container"])
        await eventually(lambda: engine.inspect_container(second.sandbox.state["container"])["State"]["ExitCode"])
        return found

    monkeypatch.setattr(second.sandbox, "_present", found_and_gone)
    assert await output(second, "cat file") == "kept"
    assert not second.sandbox.survived


async def test_an_engine_that_is_away_is_waited_for(kit: SandboxKit, bad: BadEngine) -> None:
    await kit.connect("before").start()
    bad.hang()
    sandbox = kit.connect()
    starting = asyncio.create_task(sandbox.start())
    await eventually(lambda: any("Waiting for the Docker engine" in text for _, _, text in kit.notices))
    bad.go_on()
    await starting
    assert kit.statuses()[-1] == "STATUS$READY"


@pytest.mark.parametrize(
    ("request_line", "words", "code", "said"),
    [
        (b"POST /v1.41/containers/create", "mkdir /x: no space left on device", "disk_full", "docker system df"),
        (
            b"POST /v1.41/networks/create",
            "could not find an available, non-overlapping IPv4 address pool among the defaults",
            "no_addresses",
            "docker network prune",
        ),
    ],
)
async def test_an_engine_that_has_no_room_says_what_to_do_and_others_go_on(
    kit: SandboxKit, bad: BadEngine, engine: Any, request_line: bytes, words: str, code: str, said: str
) -> None:
    other = kit.connect("other")
    await other.start()
    bad.refuse(request_line.replace(b"v1.41", f"v{engine.api_version}".encode()), 500, words)
    sandbox = kit.connect(network="internal")
    with pytest.raises(SandboxError) as caught:
        await sandbox.start()
    assert (caught.value.code, said in str(caught.value)) == (code, True)
    assert "/x" not in str(caught.value), "paths of the engine's disk are nobody's business here"
    assert await output(other, "echo at work") == "at work"
    bad.refusals.clear()
    assert await output(sandbox, "echo again") == "again"


@pytest.mark.parametrize("what", ["container", "container and volumes"])
async def test_what_somebody_removes_behind_our_back_is_made_again(kit: SandboxKit, engine: Any, what: str) -> None:
    sandbox = kit.connect()
    await output(sandbox, "echo kept > file")
    engine.remove_container(sandbox.sandbox.state["container"], v=True, force=True)
    if what != "container":
        for volume in engine.volumes(filters={"label": f"drydock.instance={kit.instance}"})["Volumes"]:
            engine.remove_volume(volume["Name"], force=True)
    await eventually(lambda: not sandbox.is_ready)
    assert await output(sandbox, "cat file 2>/dev/null || echo empty") == ("kept" if what == "container" else "empty")


async def _prints(sandbox: Any, command: str, text: str) -> bool:
    found = await run(sandbox, command, args={"session": "second"})
    return bool(found["output"].strip() == text)


async def test_an_engine_that_answers_each_call_late_is_given_up_by_who_starts_and_holds_up_nobody_who_works(
    kit: SandboxKit, bad: BadEngine
) -> None:
    sandbox = kit.connect()
    await output(sandbox, "echo begun")
    bad.delay = 1.0  # twice the patience, and no heartbeat in time
    starting = asyncio.gather(
        *(kit.connect(f"other-{number}", limits=replace(LIMITS, start_seconds=2)).start() for number in range(3)),
        return_exceptions=True,
    )
    answered = 0
    async with asyncio.timeout(60):
        while not starting.done():
            assert await output(sandbox, "echo at work") == "at work"
            answered += 1
            await asyncio.sleep(0.1)
    for error in await starting:
        assert isinstance(error, SandboxError), error
        assert error.code in ("engine_unavailable", "start_timeout"), error
    assert answered > 2
    bad.delay = 0.0
    assert await output(kit.connect("new"), "echo new") == "new"


async def test_an_engine_says_where_it_keeps_what_sandboxes_write(kit: SandboxKit, bad: BadEngine, engine: Any) -> None:
    assert list(await kit.provider.folders()) == [engine.info()["DockerRootDir"]]


async def test_a_network_that_is_being_made_when_all_ends_does_not_stay(
    bad: BadEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any
) -> None:
    monkeypatch.setattr(engine_module, "_ABANDON_SECONDS", 0.01)  # who is cancelled waits no longer for its call
    kit = SandboxKit(DockerProvider(bad.host), str(tmp_path))
    networks = kit.provider._networks  # type: ignore[attr-defined]
    bad.late[b"/networks/create"] = 1.0
    making = asyncio.create_task(networks.ensure(kit.spec(network="internal")))
    await eventually(lambda: any(b"/networks/create" in line for line in bad.requests))
    making.cancel()
    await asyncio.wait({making})
    await kit.provider.close()
    await asyncio.sleep(1.0)
    assert engine.networks(filters={"label": [f"drydock.instance={kit.instance}"]}) == []
    with pytest.raises(SandboxError, match="the server ends"):
        await networks.ensure(kit.spec(network="internal"))
