"""Several Docker hosts: where a sandbox goes, and what becomes of a host that is drained, full, lost, or back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import SandboxAwayError, SandboxError, SandboxUnmadeError
from agent_core.runtime.docker import engine as engine_module
from agent_core.runtime.docker import heartbeat
from agent_core.runtime.docker import hosts as hosts_module
from agent_core.runtime.docker.docker_host import DockerHost
from agent_core.runtime.docker.hosts import DockerHosts
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.sandbox import SandboxLimits, SandboxSpec
from tests.played_engine import GIGABYTE, PlayedEngine, played_engines
from tests.waiting import until

IMAGE = "drydock/sandbox:base"
OTHER = "ghcr.io/owner/tools:2"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(hosts_module, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(hosts_module, "MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(hosts_module, "PLACED_SECONDS", 1000.0)
    monkeypatch.setattr(engine_module, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.3)


def spec(conversation: str = "one", image: str = IMAGE, **limits: Any) -> SandboxSpec:
    found = SandboxSpec(conversation, "instance", image, "/nowhere")
    return replace(found, limits=replace(SandboxLimits(memory=GIGABYTE, start_seconds=0.3), **limits))


@asynccontextmanager
async def hosts_of(
    *engines: PlayedEngine, swept: bool = True, most: int | None = None, draining: str = ""
) -> AsyncIterator[DockerHosts]:
    wishes = [
        DockerHost(engine.path.name, engine.url, max_sandboxes=most, draining=engine.path.name == draining)
        for engine in engines
    ]
    hosts = DockerHosts(wishes, connect_seconds=2)
    try:
        await hosts.check()
        if swept:
            await hosts.reap("instance", ())
        yield hosts
    finally:
        await hosts.close()


async def placed(hosts: DockerHosts, number: int = 1, **options: Any) -> list[str]:
    """The hosts that so many sandboxes go to, one after the other."""
    return [(await hosts.place(spec(f"c{one}", **options), lambda reason: None)).state["host"] for one in range(number)]


async def status_of(hosts: DockerHosts, name: str, status: str) -> None:
    await until(lambda: {view.name: view.status for view in hosts.hosts()}[name] == status)


async def test_the_host_with_more_memory_left_is_taken_and_what_was_placed_counts(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b):
        a.memory, b.memory = 3 * GIGABYTE, 4 * GIGABYTE
        async with hosts_of(a, b) as hosts:
            assert await placed(hosts, 8) == ["b", "b", "b", "b", "a", "b", "a", "b"]


async def test_what_containers_really_have_counts_also_of_those_that_are_no_sandboxes(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b):
        a.others["database"] = 6 * GIGABYTE
        b.running, b.instance = {"large": 3 * GIGABYTE, "small": 1}, "another"
        async with hosts_of(a, b) as hosts:
            expected = [9 * GIGABYTE, 12 * GIGABYTE - 256 * 1024**2]
            await until(lambda: [one.memory_free for one in hosts.hosts()] == expected)  # not with the first look
            of_a, of_b = hosts.hosts()
            assert (of_a.sandboxes, of_b.sandboxes) == (0, 2)
            assert await placed(hosts) == ["b"]


async def test_of_hosts_with_memory_the_one_that_has_the_image_is_taken(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b):
        a.images.append(OTHER)
        b.memory = 64 * GIGABYTE
        async with hosts_of(a, b) as hosts:
            assert await placed(hosts) == ["b"]
            assert await placed(hosts, image=OTHER) == ["a"]
            assert await placed(hosts, image=OTHER, memory=32 * GIGABYTE) == ["b"]  # pulled there


async def test_our_own_image_is_pulled_nowhere(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b):
        b.memory, b.images = 64 * GIGABYTE, []
        async with hosts_of(a, b) as hosts:
            assert await placed(hosts) == ["a"]
        a.images = []
        async with hosts_of(a, b) as hosts:
            with pytest.raises(SandboxError, match=r"no Docker host has it \(a, b\).*drydock image") as caught:
                await placed(hosts)
            assert caught.value.code == "image_missing"


async def test_a_drained_host_takes_nothing_new_and_keeps_what_it_has(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b), hosts_of(a, b, draining="a") as hosts:
        assert await placed(hosts, 2) == ["b", "b"]
        sandbox = hosts.restore(spec(), {"provider": "docker", "container": "x", "host": "a"})
        assert (await sandbox.poll()).value == "absent"  # it is asked all the same
        assert await hosts.image_id(IMAGE, sandbox.state) == ""
        hosts.drain("a", False)
        hosts.drain("b", True)
        assert await placed(hosts) == ["a"]
        assert await hosts.image_id(IMAGE, sandbox.state) == f"sha256:{IMAGE}"
        with pytest.raises(KeyError):
            hosts.drain("c", True)


async def test_a_full_host_takes_nothing_new_and_where_all_are_the_reason_of_each_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    async with played_engines(tmp_path, "a", "b") as (a, b), hosts_of(a, b, most=1) as hosts:
        assert sorted(await placed(hosts, 2)) == ["a", "b"]
        with pytest.raises(SandboxError, match=r"a is full \(1 sandboxes of 1\); b is full") as caught:
            await hosts.place(spec("third"), told.append)
        assert caught.value.code == "no_host"
        assert told[0] == str(caught.value)


async def test_what_waits_for_a_place_gets_the_first_that_there_is(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b), hosts_of(a, b) as hosts:
        for name in ("a", "b"):
            hosts.drain(name, True)
        waiting = asyncio.create_task(hosts.place(spec(start_seconds=30), lambda reason: hosts.drain("b", False)))
        assert (await waiting).state["host"] == "b"


async def test_a_stopped_engine_is_found_lost_when_a_sandbox_is_to_go_there_and_counts_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts_module, "LOOK_SECONDS", 1000.0)
    async with played_engines(tmp_path, "a", "b") as (a, b):
        a.memory = 64 * GIGABYTE
        async with hosts_of(a, b) as hosts:
            await a.end()
            assert await placed(hosts, 3) == ["b", "b", "b"]
            lost = hosts.hosts()[0]
            assert (lost.status, lost.memory_free, lost.memory) == ("lost", 0, 64 * GIGABYTE)
            assert "The Docker host 'a' cannot be reached" in lost.reason
            assert len([one for one in caplog.messages if "host a cannot be reached" in one]) == 1


async def test_what_was_not_begun_does_not_wait_for_its_host_and_is_placed_elsewhere(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b):
        a.memory = 64 * GIGABYTE
        async with hosts_of(a, b) as hosts:
            wish = spec(start_seconds=100)
            new = await hosts.place(wish, lambda reason: None)
            old = hosts.restore(wish, new.state)
            await a.end()
            await status_of(hosts, "a", "lost")
            with pytest.raises(SandboxUnmadeError, match="The Docker host 'a' cannot be reached"):
                await new.start(lambda *_: None)
            assert (await hosts.place(wish, lambda reason: None)).state["host"] == "b"
            told: list[str] = []
            waiting = asyncio.create_task(old.start(lambda *words: told.append(words[0])))
            await until(lambda: "STATUS$WAITING_FOR_ENGINE" in told)  # it has something there
            waiting.cancel()
            await asyncio.wait([waiting])


async def test_a_host_without_space_for_a_new_sandbox_gets_none_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b):
        a.memory = 64 * GIGABYTE
        a.refusals["/containers/create"] = "write /var/lib/docker/x: no space left on device"
        async with hosts_of(a, b) as hosts:
            wish = replace(spec(start_seconds=30), network="none")
            new = await hosts.place(wish, lambda reason: None)
            assert new.state["host"] == "a"
            with pytest.raises(SandboxUnmadeError, match="no space left on the engine's disk") as caught:
                await new.start(lambda *_: None)
            assert caught.value.code == "disk_full"
            assert "the Docker host a has no space left" in caplog.messages
            assert (await hosts.place(wish, lambda reason: None)).state["host"] == "b"
            hosts.drain("b", True)
            with pytest.raises(SandboxError, match="a has no space left on its disk; b is being drained"):
                hosts.create(wish)


async def test_a_hanging_engine_is_lost_within_seconds_fails_at_once_then_and_comes_back(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b), hosts_of(a, b) as hosts:
        [change] = [view for view in [await hosts.next_change(), await hosts.next_change()] if view.name == "a"]
        assert change.status == "up"
        a.hang()
        await status_of(hosts, "a", "lost")
        assert (await hosts.next_change()).status == "lost"
        sandbox = hosts.restore(spec(), {"provider": "docker", "container": "x", "host": "a"})
        asked = len(a.requests)
        with pytest.raises(SandboxAwayError, match="The Docker host 'a' cannot be reached: it gives no sign of life"):
            await sandbox.poll()
        assert not [one for one in a.requests[asked:] if "/containers/x" in one]
        assert (await hosts.check()).reason.startswith("1 of 2 Docker hosts answer (b); a cannot be reached")
        a.go_on()
        await status_of(hosts, "a", "up")
        assert (await sandbox.poll()).value == "absent"


async def test_a_host_that_comes_back_takes_nothing_before_it_was_swept(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b):
        a.memory = 64 * GIGABYTE
        a.running = {"deleted": 1, "kept": 1}
        await a.end()
        async with hosts_of(a, b) as hosts:
            assert (await hosts.next_change()).name == "b"
            await a.begin()
            back = await hosts.next_change()
            assert (back.name, back.status, back.is_swept) == ("a", "up", False)
            assert await placed(hosts) == ["b"]
            assert await hosts.sweep("a", "instance", ["kept"]) == ["deleted"]
            assert await placed(hosts) == ["a"]
            assert list(a.running) == ["kept"]


async def test_what_was_placed_and_runs_by_now_counts_once(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a") as (a,), hosts_of(a, most=2) as hosts:
        assert await placed(hosts) == ["a"]
        assert hosts.hosts()[0].sandboxes == 1
        a.running["c0"] = 1
        await until(lambda: hosts._hosts["a"].facts is not None and hosts._hosts["a"].facts.conversations == {"c0"})
        assert hosts.hosts()[0].sandboxes == 1


async def test_one_engine_alone_knows_that_it_is_not_the_host_of_a_sandbox() -> None:
    provider = DockerProvider("unix:///nowhere")
    with pytest.raises(SandboxError, match="on the Docker host 'a', and this server has none"):
        provider.restore(spec(), {"provider": "docker", "container": "x", "host": "a"})
    await provider.close()


async def test_a_sandbox_is_found_on_its_host_and_one_of_before_on_the_first(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b), hosts_of(a, b) as hosts:
        assert hosts.restore(spec(), {"provider": "docker", "container": "x", "host": "b"}).state["host"] == "b"
        assert hosts.restore(spec(), {"provider": "docker", "container": "x"}).state["host"] == "a"
        with pytest.raises(SandboxError, match="on the Docker host 'gone'") as caught:
            hosts.restore(spec(), {"provider": "docker", "container": "x", "host": "gone"})
        assert caught.value.code == "unknown_host"


async def test_an_engine_that_says_nonsense_is_lost_with_a_reason_and_ends_nothing(tmp_path: Path) -> None:
    async with played_engines(tmp_path, "a", "b") as (a, b):
        a.memory = "much"  # type: ignore[assignment]
        async with hosts_of(a, b) as hosts:
            lost = hosts.hosts()[0]
            assert "it says what cannot be understood" in lost.reason
            assert await placed(hosts) == ["b"]
            a.memory = GIGABYTE
            await status_of(hosts, "a", "up")
