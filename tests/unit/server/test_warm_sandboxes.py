"""Sandboxes that are ready before their conversations: whose they are, how many there are, and when they go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.sandbox import SandboxSpec, SandboxState, SandboxStatus
from agent_core.testing.fake_sandbox import BROKEN, FakeBehaviour, FakeProvider, FakeSandbox
from agent_core.troubles import Trouble
from server.metrics import ServerMetrics
from server.session import warm_sandboxes
from server.session.sandbox_choice import ChosenSandbox
from server.session.sandboxes import Sandboxes, SandboxSelection, app_ports
from server.session.warm_sandboxes import WarmSandboxes
from server.settings.settings import Settings
from tests.waiting import ticks, until


class ImageProvider(FakeProvider):
    """Fake sandboxes of images whose names stand for `images` of theirs, or for one of their own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.images: dict[str, str] = {}
        self.answers = asyncio.Event()
        self.answers.set()

    async def image_id(self, image: str, state: SandboxState) -> str:
        await self.answers.wait()
        return self.images.get(image, f"sha256:{image}")


class House:
    """A server's sandboxes, of which some are kept ready."""

    def __init__(self, sandboxes: Sandboxes, warm: WarmSandboxes, provider: ImageProvider) -> None:
        self.sandboxes = sandboxes
        self.warm = warm
        self.provider = provider
        self.room = 100
        self.taken: list[str] = []
        warm.serve(lambda: self.room, self.taken.append)

    def kind(self, **chosen: Any) -> SandboxSpec:
        environment = chosen.pop("environment", {})
        return self.sandboxes.kind(ChosenSandbox(**chosen), environment)

    async def begin(self, kind: SandboxSpec | None = None) -> str:
        """A conversation's id; it has taken the sandbox that was ready for it, if there was one."""
        async with self.warm.id_for(kind or self.kind()) as new_id:
            await self.warm.taken(new_id)
        return new_id

    async def until_ready(self, number: int) -> None:
        await until(lambda: self.warm.count == number)

    @property
    def ready(self) -> list[str]:
        return [one.id for kind in self.warm._kinds for one in kind.ready]

    def sandbox(self, conversation_id: str) -> FakeSandbox | None:
        return self.provider.sandboxes.get(("i", conversation_id))

    def is_gone(self, conversation_id: str) -> bool:
        sandbox = self.sandbox(conversation_id)
        return sandbox is None or sandbox.status is SandboxStatus.ABSENT


@asynccontextmanager
async def keeping(folder: Path, most: int = 3, behaviour: FakeBehaviour | None = None) -> AsyncIterator[House]:
    provider, metrics = ImageProvider(behaviour=behaviour or FakeBehaviour()), ServerMetrics()

    async def choose() -> SandboxSelection:
        return SandboxSelection(provider, "it is there")

    async def known_ids() -> set[str]:
        return set()

    async with AsyncExitStack() as stack:
        settings = Settings(data_dir=folder, disk_reserve_mb=0)
        sandboxes = await stack.enter_async_context(
            Sandboxes(settings, instance_id="i", choose=choose, known_ids=known_ids, metrics=metrics)
        )
        await sandboxes.chosen()
        yield House(sandboxes, await stack.enter_async_context(WarmSandboxes(sandboxes, most, metrics)), provider)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_sandboxes, "PAUSE_SECONDS", 0.01)


async def test_there_is_none_before_the_first_conversation_and_the_next_one_has_what_is_ready(tmp_path: Path) -> None:
    async with keeping(tmp_path) as house:
        await ticks(100)
        assert (house.warm.count, house.provider.sandboxes) == (0, {})
        first = await house.begin()
        assert house.sandbox(first) is None  # made for it when it starts, as ever
        await house.until_ready(1)
        (ready,) = house.ready
        sandbox = house.sandbox(ready)
        assert sandbox is not None
        assert (sandbox.status, sandbox.starts, sandbox.spec.conversation_id) == (SandboxStatus.RUNNING, 1, ready)
        assert set(sandbox.spec.environment.values()) == {str(port) for port in app_ports(ready)}
        assert await house.begin() == ready
        assert house.taken == [ready]
        await house.until_ready(2)  # as many as have begun within a minute
        assert ready not in house.ready
        assert sandbox.status is SandboxStatus.RUNNING


async def test_what_is_taken_is_what_the_conversation_would_have_had(tmp_path: Path) -> None:
    async with keeping(tmp_path) as house:
        kind = house.kind(memory_mb=100, network="none", environment={"A": "b"})
        await house.begin(kind)
        await house.until_ready(1)
        sandbox = house.sandbox(house.ready[0])
        assert sandbox is not None
        spec = sandbox.spec
        assert (spec.limits.memory, spec.network, spec.environment["A"]) == (100 * 1024**2, "none", "b")
        async with house.warm.id_for(kind) as new_id:
            assert house.warm.state_for(new_id) == dict(sandbox.state)
            assert house.warm.state_for("another") is None
            await house.warm.taken(new_id)
            assert house.warm.state_for(new_id) is None


@pytest.mark.parametrize("number", [1, 3])
async def test_of_many_that_begin_at_once_no_two_have_the_same(tmp_path: Path, number: int) -> None:
    async with keeping(tmp_path, most=number) as house:
        for _ in range(number):
            await house.begin()
        await house.until_ready(number)
        ready = set(house.ready)
        house.provider.answers.clear()  # all have looked what there is before the first one takes it
        begun = [asyncio.create_task(house.begin()) for _ in range(10)]
        await ticks(20)
        house.provider.answers.set()
        ids = await asyncio.gather(*begun)
        assert len(set(ids)) == 10
        assert set(house.taken) & ready == ready


async def test_another_kind_is_another_sandbox(tmp_path: Path) -> None:
    async with keeping(tmp_path) as house:
        await house.begin()
        await house.until_ready(1)
        (ready,) = house.ready
        for other in (
            house.kind(environment={"A": "b"}),
            house.kind(memory_mb=100),
            house.kind(network="none"),
            house.kind(image="another"),
            house.kind(extra_deps="true"),
        ):
            assert await house.begin(other) != ready
        assert await house.begin() == ready


async def test_the_kinds_that_were_used_last_share_what_there_is(tmp_path: Path) -> None:
    def images() -> list[str]:
        return sorted(house.provider.sandboxes["i", one].spec.image for one in house.ready)

    async with keeping(tmp_path, most=3) as house:
        for used, ready in (("a", "a"), ("aa", "aaa"), ("bb", "abb"), ("c", "abc"), ("d", "bcd")):
            for image in used:
                await house.begin(house.kind(image=image))
            await until(lambda ready=ready: images() == list(ready))  # type: ignore[misc]
        made = [one for _, one in house.provider.sandboxes]
        await until(lambda: {one for one in made if not house.is_gone(one)} == {*house.ready, *house.taken} & {*made})


@pytest.mark.parametrize("refused", [True, False])
async def test_what_was_not_taken_stays_or_goes_as_its_id_may_be_written_down(tmp_path: Path, refused: bool) -> None:
    async with keeping(tmp_path) as house:
        await house.begin()
        await house.until_ready(1)
        (ready,) = house.ready
        with suppress(ValueError, RuntimeError):
            async with house.warm.id_for(house.kind(), unused_after=(ValueError,)) as new_id:
                assert new_id == ready
                assert house.warm.count == 0  # nobody else gets it meanwhile
                raise ValueError if refused else RuntimeError
        if refused:
            assert await house.begin() == ready
        else:
            assert await house.begin() != ready
            await until(lambda: house.is_gone(ready))


async def test_one_that_has_ended_is_nobodys_and_another_is_made(tmp_path: Path) -> None:
    async with keeping(tmp_path) as house:
        await house.begin()
        await house.until_ready(1)
        (dead,) = house.ready
        sandbox = house.sandbox(dead)
        assert sandbox is not None
        await sandbox.kill()
        await until(lambda: house.ready not in ([dead], []))
        assert house.is_gone(dead)
        assert await house.begin() != dead


async def test_one_that_ends_while_it_is_asked_for_is_left_out(tmp_path: Path) -> None:
    async with keeping(tmp_path) as house:
        await house.begin()
        await house.begin()
        await house.until_ready(2)
        dead, good = house.ready
        house.provider.answers.clear()
        beginning = asyncio.create_task(house.begin())
        await ticks(10)
        sandbox = house.sandbox(dead)
        assert sandbox is not None
        await sandbox.kill()
        connection = next(one.connection for one in house.warm._kinds[0].ready if one.id == dead)
        await until(lambda: not connection.is_ready)
        house.provider.answers.set()
        assert await beginning == good


async def test_one_of_a_former_image_is_nobodys(tmp_path: Path) -> None:
    async with keeping(tmp_path) as house:
        await house.begin()
        await house.until_ready(1)
        (former,) = house.ready
        house.provider.images[house.kind().image] = "sha256:new"
        assert await house.begin() != former
        await until(lambda: house.is_gone(former))


async def test_an_engine_that_says_nothing_holds_no_conversation_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_sandboxes, "CHECK_SECONDS", 0.01)
    async with keeping(tmp_path) as house:
        await house.begin()
        await house.until_ready(1)
        (ready,) = house.ready
        house.provider.answers.clear()
        assert await house.begin() != ready
        house.provider.answers.set()


async def test_what_waits_goes_before(tmp_path: Path) -> None:
    async with keeping(tmp_path) as house:
        await house.begin()
        await house.begin()
        await house.until_ready(2)
        house.room = 1
        await house.until_ready(1)
        house.room = 0
        (ready,) = house.ready
        assert await house.begin() != ready
        await house.until_ready(0)
        await until(lambda: house.is_gone(ready))


@pytest.mark.parametrize("what", ["memory", "reserve"])
async def test_there_is_none_while_memory_or_the_disk_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with keeping(tmp_path) as house:
        await house.begin()
        await house.until_ready(1)
        monkeypatch.setattr(getattr(house.sandboxes, what), "problem", lambda: "It is short.")
        await house.until_ready(0)
        await house.begin()
        await asyncio.sleep(0.05)
        assert house.warm.count == 0


async def test_they_go_when_no_conversation_begins_any_more_and_old_ones_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keeping(tmp_path) as house:
        await house.begin()
        await house.begin()
        await house.until_ready(2)
        monkeypatch.setattr(warm_sandboxes, "RATE_SECONDS", 0.0)
        await house.until_ready(1)
        (old,) = house.ready
        monkeypatch.setattr(warm_sandboxes, "OLDEST_SECONDS", 0.0)
        await until(lambda: old not in house.ready)
        monkeypatch.setattr(warm_sandboxes, "IDLE_SECONDS", 0.0)
        await house.until_ready(0)
        await until(lambda: all(house.is_gone(one) for _, one in house.provider.sandboxes))
        await until(lambda: not house.warm._kinds)


async def test_trouble_is_told_once_and_conversations_begin_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with keeping(tmp_path, behaviour=BROKEN) as house:
        await house.begin()
        await until(lambda: house.warm._metrics.troubles(Trouble.ENGINE_UNAVAILABLE) == 1)
        told = "no sandbox could be made ready for conversations to come: The engine is on fire. Fetch some water."
        assert told in caplog.text
        await house.begin()
        await asyncio.sleep(0.05)
        assert house.warm._metrics.troubles(Trouble.ENGINE_UNAVAILABLE) == 1  # not before a while is over
        house.provider.behaviour = FakeBehaviour()
        house.warm._not_before = 0.0
        await house.until_ready(2)


async def test_a_bug_in_making_one_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(spec: SandboxSpec, state: SandboxState) -> str:
        raise ZeroDivisionError

    async with keeping(tmp_path) as house:
        with monkeypatch.context() as patch:
            patch.setattr(house.sandboxes, "image_id", broken)
            await house.begin()
            await until(lambda: "no sandbox could be made ready" in caplog.text)
        house.warm._not_before = 0.0
        await house.until_ready(1)
    assert [one.levelno for one in caplog.records if one.exc_info] == [logging.ERROR]


@pytest.mark.parametrize("end", ["ready", "in the making", "being removed"])
async def test_left_it_leaves_nothing(tmp_path: Path, end: str) -> None:
    slow = FakeBehaviour(start_seconds=1000 if end == "in the making" else 0)
    async with keeping(tmp_path, behaviour=slow) as house:
        await house.begin()
        if end == "in the making":
            await until(lambda: any(one.starts for one in house.provider.sandboxes.values()))
        else:
            await house.until_ready(1)
        if end == "being removed":
            house.room = 0
            await house.until_ready(0)
    assert all(house.is_gone(one) for _, one in house.provider.sandboxes)


async def test_left_it_waits_only_so_long_for_an_engine_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hangs(self: FakeSandbox) -> None:
        await asyncio.sleep(1000)

    monkeypatch.setattr(warm_sandboxes, "END_SECONDS", 0.05)
    monkeypatch.setattr(FakeSandbox, "destroy", hangs)
    async with asyncio.timeout(60), keeping(tmp_path) as house:
        await house.begin()
        await house.until_ready(1)
    assert "1 sandboxes that were kept ready could not be removed in time" in caplog.text


async def test_one_that_cannot_be_removed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.session.sandboxes.AGAIN_SECONDS", 0.01)
    tries = 0

    async def refuses(self: FakeSandbox) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise SandboxError("it is busy.")
        await self.kill(SandboxStatus.ABSENT)

    async with keeping(tmp_path) as house:
        await house.begin()
        await house.until_ready(1)
        (ready,) = house.ready
        monkeypatch.setattr(FakeSandbox, "destroy", refuses)
        house.room = 0
        await until(lambda: house.is_gone(ready))


async def test_with_none_wished_for_there_is_none(tmp_path: Path) -> None:
    async with keeping(tmp_path, most=0) as house:
        await house.begin()
        await asyncio.sleep(0.05)
        assert house.provider.sandboxes == {}
