"""The server's reserve on its disk, on a small file system of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.sandbox import SandboxStatus
from agent_core.testing.fake_sandbox import FakeAnswer, FakeBehaviour, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from server.session import sandboxes
from server.session.sandboxes import DiskReserve
from tests.contract.rest.conftest import MODEL_SECONDS, facts, kill, serving, shell
from tests.small_disk import fill, small_disk

MEGABYTE = 1024**2
FULL = FakeBehaviour(error=SandboxError("The sandbox did not start.", code="disk_full", fix="Free some space."))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder with 128 MiB."""
    with small_disk(tmp_path / "small", 128) as folder:
        yield folder


async def test_below_the_reserve_nothing_starts_what_runs_is_frozen_and_it_goes_on_by_itself(small: Path) -> None:
    async with serving(small, disk_reserve_mb=32) as server:
        made = (await server.client.post("/api/conversations", json={"initial_user_msg": "hello"})).json()
        ident = made["conversation_id"]
        await server.until_running(ident)
        (sandbox,) = [one for one in server.provider.sandboxes.values() if one.spec.conversation_id == ident]
        filling = fill(small, 20 * MEGABYTE)

        async def is_paused() -> bool:
            return sandbox.status is SandboxStatus.PAUSED

        await server.until(is_paused)
        refused = await server.client.post("/api/conversations", json={})
        assert refused.status_code == 507
        assert "32 MiB are kept in reserve (disk_reserve_mb)" in refused.text
        assert "20 MiB are free" in refused.text or "19 MiB are free" in refused.text
        info = await server.info(ident)
        assert info["runtime_status"] == "STATUS$ERROR_DISK_RESERVE"
        assert "those that run are frozen" in info["runtime_warning"]
        started = await server.client.post(f"/api/conversations/{ident}/start", json={})
        assert started.status_code == 507
        files = await server.client.get(f"/api/conversations/{ident}/list-files")
        assert (files.status_code, "nearly full" in files.text) == (507, True)
        assert await is_paused()

        filling.unlink()

        async def goes_on() -> bool:
            return sandbox.status is SandboxStatus.RUNNING

        await server.until(goes_on)
        info = await server.info(ident)
        assert (info["runtime_status"], info["runtime_warning"]) == ("STATUS$READY", None)
        assert (await server.client.post("/api/conversations", json={})).status_code == 200


async def test_an_agent_whose_sandbox_is_frozen_waits_with_its_next_action_and_goes_on(small: Path) -> None:
    """It is not told again and again that nothing can be run, until it gives up."""
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def run(request: FakeRequest) -> FakeAnswer:
        begun.set()
        await goes_on.wait()
        return await shell(request)

    def answer(request: ModelRequest) -> Turn:
        results = sum(message["role"] == "tool" for message in request.messages)
        return finish("Done.") if results == 2 else call("terminal", {"command": f"echo {results}"})

    async with ModelServer(answer) as model:
        values = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "k", "generate_titles": False}
        provider = FakeProvider(handlers={"shell.run": run, "workspace.facts": facts, "shell.kill": kill})
        async with serving(small, provider, disk_reserve_mb=32, **values) as server:
            ident = await server.create(initial_user_msg="hello")

            async def told() -> list[str]:
                return [str(one.get("observation") or one.get("action")) for one in await server.events(ident)]

            async def is_frozen() -> bool:
                return str((await server.info(ident))["runtime_status"]) == "STATUS$ERROR_DISK_RESERVE"

            async def waits() -> bool:
                return (await told())[-2:] == ["run", "run"] and model.request_count == 2

            async def is_done() -> bool:
                return "finish" in await told()

            async with asyncio.timeout(MODEL_SECONDS):
                await begun.wait()
            filling = fill(small, 20 * MEGABYTE)
            await server.until(is_frozen)
            goes_on.set()  # what it had begun before ends
            await server.until(waits, seconds=MODEL_SECONDS)
            await asyncio.sleep(0.2)
            assert await waits()
            filling.unlink()
            await server.until(is_done, seconds=MODEL_SECONDS)
            results = [one["content"] for one in await server.events(ident) if one.get("observation") == "run"]
            assert ["ran echo 0" in results[0], "ran echo 1" in results[1], len(results)] == [True, True, 2]


async def test_without_a_reserve_what_a_full_disk_kept_from_starting_starts_when_there_is_room(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.conversation_manager.failed_starts.FIRST_WAIT_SECONDS", 20.0)
    async with serving(small, FakeProvider(behaviour=FULL), disk_reserve_mb=0) as server:
        filling = fill(small, 8 * MEGABYTE)
        conversation_id = await server.create(initial_user_msg="hello")

        async def failed() -> bool:
            return str((await server.info(conversation_id))["runtime_status"]) == "STATUS$ERROR"

        async def goes_on() -> bool:
            return str((await server.info(conversation_id))["runtime_status"]) == "STATUS$READY"

        await server.until(failed)
        for sandbox in server.provider.sandboxes.values():
            sandbox.behaviour = FakeBehaviour()
        server.provider.behaviour = FakeBehaviour()
        await asyncio.sleep(0.6)
        assert await failed(), "nobody has freed space yet"
        filling.unlink()
        await server.until(goes_on)


async def test_what_found_a_disk_full_is_not_tried_again_for_room_that_comes_and_goes(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a second it was, with three events each time: its own trying had freed what it had taken."""
    monkeypatch.setattr(sandboxes, "_LONGEST", 0.04)
    reserve = DiskReserve([str(tmp_path), "/no/such/folder"], MEGABYTE)
    reserve.watch([str(small)])
    filling, own = fill(small, 6 * MEGABYTE), small / "own"
    own.write_bytes(bytes(6 * MEGABYTE))
    began = time.monotonic()
    waiting = asyncio.create_task(reserve.until_more_room(10))
    await asyncio.sleep(0.1)
    own.unlink()
    await asyncio.sleep(0.1)
    own.write_bytes(bytes(6 * MEGABYTE))
    await asyncio.sleep(1)
    assert not waiting.done()
    filling.unlink()
    await waiting
    assert 1 <= time.monotonic() - began < 30
    monkeypatch.setattr(sandboxes, "_FULL", 64 * MEGABYTE)
    waiting = asyncio.create_task(reserve.until_more_room(0.5))  # a quota has no room, its disk has
    own.unlink()
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await waiting


def test_there_is_room_again_only_with_something_to_spare(small: Path) -> None:
    reserve = DiskReserve([str(small), str(small / "none")], 32 * MEGABYTE)
    assert reserve.problem() == ""
    fill(small, 31 * MEGABYTE)
    assert "31 MiB are free" in reserve.problem()
    (small / "filling").unlink()
    fill(small, 33 * MEGABYTE)
    assert reserve.problem()
    (small / "filling").unlink()
    fill(small, 37 * MEGABYTE)
    assert reserve.problem() == ""
    assert DiskReserve([str(small)], 0).problem() == ""
