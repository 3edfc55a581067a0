"""The server's ceiling of memory: what begins above it, what it gives back, and what a machine or its groups leave."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_core.errors import SandboxError
from server.session import memory_ceiling
from server.session.memory_ceiling import MemoryCeiling, machine_memory, server_memory
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer
from tests.contract.rest.test_waiting import Model, serving, until_position, until_state

MEGABYTE = 1024**2


async def test_above_the_ceiling_nothing_begins_what_is_idle_goes_and_all_goes_on_by_itself(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.conversation_manager.standalone.LOOK_SECONDS", 0.05)
    async with make_server(max_memory_mb=64 * 1024) as server:
        idle = await server.create(initial_user_msg="hello")
        await server.until_running(idle)
        waiting = await server.create()
        ceiling = server.app.services.sandboxes.memory
        assert ceiling.limit == 64 * 1024 * MEGABYTE

        ceiling.limit = server_memory() // 2
        refused = await server.post("/api/conversations", json={})
        assert refused.status_code == 503
        assert "max_memory_mb" in refused.text
        assert "Try again in a moment" in refused.text

        async def is_unloaded() -> bool:
            return bool((await server.info(idle))["status"] == "STOPPED")

        await server.until(is_unloaded)
        assert (await server.post(f"/api/conversations/{waiting}/start", json={})).status_code == 503
        metrics = (await server.get("/metrics")).text
        assert 'drydock_troubles_total{code="memory_ceiling"}' in metrics
        assert "drydock_memory_bytes" in metrics
        ceiling.limit = server_memory() * 100
        assert (await server.post("/api/conversations", json={})).status_code == 200


async def test_above_the_ceiling_whoever_reads_large_events_waits_for_memory_and_is_refused_in_the_end(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.db.event_store.LARGE_SECONDS", 0.3)
    async with make_server(max_memory_mb=64 * 1024) as server:
        conversation = await server.create(initial_user_msg="x" * (2 * MEGABYTE))
        ceiling, path = server.app.services.sandboxes.memory, f"/api/conversations/{conversation}"
        ceiling.limit = server_memory() // 2
        for answer in await asyncio.gather(*(server.get(f"{path}/{what}") for what in ("events", "log"))):
            assert answer.status_code == 503, answer.text[:300]
            assert answer.headers["retry-after"]
            assert "max_memory_mb" in answer.text
        assert (await server.get(path)).status_code == 200
        body = {"action": "message", "args": {"content": "x" * (3 * MEGABYTE)}}
        refused = await server.post(f"{path}/events", json=body)
        assert (refused.status_code, "max_memory_mb" in refused.text) == (503, True)
        monkeypatch.setattr("server.db.event_store.LARGE_SECONDS", 60)
        reading = asyncio.create_task(server.get(f"{path}/events"))
        await asyncio.sleep(0.3)
        assert not reading.done()
        ceiling.limit = server_memory() * 100
        assert (await reading).status_code == 200


async def test_a_message_above_the_ceiling_is_kept_and_waits_in_line_until_there_is_memory(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.conversation_manager.standalone.LOOK_SECONDS", 0.05)
    model = Model()
    async with model.server, serving(make_server, model, max_memory_mb=64 * 1024) as server:
        talks = await server.create(initial_user_msg="Do 'task-0'")
        await until_state(server, talks, "finished")

        async def rests() -> bool:
            return "drydock_working 0.0" in (await server.get("/metrics")).text

        await server.until(rests)
        ceiling = server.app.services.sandboxes.memory
        ceiling.limit = server_memory() // 2
        event = {"action": "message", "args": {"content": "Do 'task-1'"}}
        assert (await server.post(f"/api/conversations/{talks}/events", json=event)).status_code == 200
        info = await until_position(server, talks, 1)
        assert info["waiting"]["message"].startswith("First in line: The server has ")
        assert "(max_memory_mb)" in info["waiting"]["message"]
        assert model.order() == ["task-0"]
        ceiling.limit = server_memory() * 100

        async def has_asked() -> bool:
            return model.order() == ["task-0", "task-1"]

        await server.until(has_asked, seconds=MODEL_SECONDS)
        await until_state(server, talks, "finished")


async def test_what_could_not_be_started_for_want_of_memory_starts_by_itself(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.conversation_manager.standalone.LOOK_SECONDS", 0.05)
    model = Model()
    async with model.server, serving(make_server, model, max_memory_mb=64 * 1024) as server:
        fails = await server.create()
        await until_state(server, fails, "awaiting_user_input")
        await server.post(f"/api/conversations/{fails}/stop")
        ceiling = server.app.services.sandboxes.memory
        # As if memory had gone in the moment between its turn and the start of its sandbox.
        server.app.services.manager.queue._conditions = []  # type: ignore[attr-defined]
        ceiling.limit = server_memory() // 2
        event = {"action": "message", "args": {"content": "Do 'task-0'"}}
        assert (await server.post(f"/api/conversations/{fails}/events", json=event)).status_code == 200
        await until_state(server, fails, "error")
        assert "max_memory_mb" in str(await server.events(fails))
        ceiling.limit = server_memory() * 100
        await until_state(server, fails, "finished")
        assert model.order() == ["task-0"]


def test_the_default_is_half_of_what_there_is_and_a_little_of_it_is_kept() -> None:
    total = machine_memory().total
    ceiling = MemoryCeiling(None)
    assert ceiling.limit in (total // 2, 768 * MEGABYTE, total)
    assert 0 < ceiling.reserve <= 512 * MEGABYTE
    assert ceiling.problem() == ""
    assert MemoryCeiling(0).problem() == ""


def test_there_is_memory_again_only_with_something_to_spare() -> None:
    ceiling = MemoryCeiling(server_memory() * 2)
    ceiling.check()
    ceiling.limit = server_memory() // 2
    with pytest.raises(SandboxError, match="MiB of memory, and may have") as caught:
        ceiling.check()
    assert caught.value.code == "memory_ceiling"
    ceiling.limit = int(server_memory() * 1.05)
    assert ceiling.problem()
    ceiling.limit = server_memory() * 2
    assert ceiling.problem() == ""


def test_a_machine_without_memory_left_is_a_reason_too() -> None:
    ceiling = MemoryCeiling(server_memory() * 10)
    ceiling.reserve = machine_memory().free * 2
    assert "machine has" in ceiling.problem()


@pytest.mark.parametrize("version", [1, 2])
def test_processors_are_those_that_the_tightest_control_group_leaves(tmp_path: Path, version: int) -> None:
    root = tmp_path / "cpu" if version == 1 else tmp_path
    for path, quota in (("", None), ("outer", 250_000), ("outer/inner", 400_000)):
        folder = root / path
        folder.mkdir(parents=True, exist_ok=True)
        if version == 2:
            (folder / "cpu.max").write_text(f"{quota or 'max'} 100000\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{quota or -1}\n")
            (folder / "cpu.cfs_period_us").write_text("100000\n")
    membership = "4:cpu,cpuacct:/outer/inner\n" if version == 1 else "0::/outer/inner\n"
    assert memory_ceiling._processors(8, membership, tmp_path) == 2
    assert memory_ceiling._processors(1, membership, tmp_path) == 1
    assert memory_ceiling._processors(8, "", tmp_path) == 8
    file, least = ("cpu.max", "30000 100000\n") if version == 2 else ("cpu.cfs_quota_us", "30000\n")
    (root / "outer" / file).write_text(least)
    assert memory_ceiling._processors(8, membership, tmp_path) == 1, "less than one is one"


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_control_group_around_the_server_counts(tmp_path: Path, version: int) -> None:
    root = tmp_path / "memory" if version == 1 else tmp_path
    names = ("limit_in_bytes", "usage_in_bytes") if version == 1 else ("max", "current")
    for path, limit, used in (("", 1 << 62, 0), ("outer", 400, 300), ("outer/inner", 900, 100)):
        folder = root / path
        folder.mkdir(parents=True, exist_ok=True)
        no_limit = version == 2 and limit > 1 << 60
        (folder / f"memory.{names[0]}").write_text("max\n" if no_limit else f"{limit}\n")
        (folder / f"memory.{names[1]}").write_text(f"{used}\n")
        (folder / "memory.stat").write_text("inactive_file 30\nactive_file 20\nanon 3\n")
    membership = "0::/outer/inner\n" if version == 2 else "3:cpu:/x\n4:memory:/outer/inner\n0::/\n"
    found = set(memory_ceiling._control_groups(membership, tmp_path))
    assert found == {(400, 150), (900, 850)}
