from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.sandbox import Sandbox, SandboxState, SandboxStatus
from agent_core.testing.fake_sandbox import FakeProvider
from agent_core.troubles import Trouble
from server.db.repositories.conversations import ConversationRecord
from server.metrics import ServerMetrics
from server.session.agents.deferred_sandbox import DeferredSandbox
from server.session.sandboxes import Sandboxes, SandboxSelection
from server.settings.settings import Settings
from tests.waiting import until

RECORD = ConversationRecord(id="a", sandbox={"provider": "fake", "name": "a"})


async def no_ids() -> list[str]:
    return []


def make(
    choose: Callable[[], Awaitable[SandboxSelection]],
    tmp_path: Path,
    metrics: ServerMetrics | None = None,
    **settings: Any,
) -> Sandboxes:
    made = Settings(data_dir=tmp_path, **settings)
    return Sandboxes(made, instance_id="i", choose=choose, known_ids=no_ids, metrics=metrics)


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider()


@pytest.fixture
async def sandboxes(provider: FakeProvider, tmp_path: Path) -> AsyncIterator[Sandboxes]:
    async def choose() -> SandboxSelection:
        return SandboxSelection(provider, "it is there")

    async with make(choose, tmp_path) as entered:
        yield entered


async def test_what_cannot_be_had_is_told_and_tried_again_when_it_is_needed_again(tmp_path: Path) -> None:
    answers: list[SandboxSelection | SandboxError] = [
        SandboxError("no engine answers.", fix="Start it."),
        SandboxSelection(FakeProvider(), "started by now"),
    ]

    async def choose() -> SandboxSelection:
        answer = answers.pop(0)
        if isinstance(answer, SandboxError):
            raise answer
        return answer

    async with make(choose, tmp_path) as sandboxes:
        assert (await sandboxes.chosen()).name == "none"
        choice = sandboxes.choice
        assert choice is not None
        assert choice.reason == "no engine answers. Start it."
        assert (await sandboxes.provider()).name == "fake"
        assert (await sandboxes.chosen()).reason == "started by now"


async def test_an_engine_that_is_away_when_the_server_starts_is_waited_for_as_long_as_a_start_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.session.sandboxes.ENGINE_RETRY_SECONDS", 0.01)
    engine = SandboxError("no engine answers.", code="engine_unavailable")
    answers: list[SandboxError | None] = [engine, engine, engine, None]

    async def choose() -> SandboxSelection:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is not None:
            raise answer
        return SandboxSelection(FakeProvider(), "it answers by now")

    told: list[str] = []
    async with make(choose, tmp_path) as sandboxes:
        await sandboxes.until_engine_answers(told.append)
        assert (await sandboxes.provider()).name == "fake"
        await sandboxes.until_engine_answers(told.append)
    assert told == ["no engine answers."] * len(told)
    assert told
    answers[:] = [engine]
    async with make(choose, tmp_path, sandbox_start_seconds=0.05) as sandboxes:
        await sandboxes.until_engine_answers(told.append)
        with pytest.raises(SandboxError, match="no engine answers"):
            await sandboxes.provider()
    answers[:] = [SandboxError("no image.", code="image_missing")]
    told.clear()
    async with make(choose, tmp_path) as sandboxes:
        await sandboxes.until_engine_answers(told.append)
    assert told == []


async def test_without_any_provider_a_sandbox_is_an_error_in_words(tmp_path: Path) -> None:
    async def choose() -> SandboxSelection:
        raise SandboxError("no engine answers.")

    async with make(choose, tmp_path) as sandboxes:
        with pytest.raises(SandboxError, match="no engine answers"):
            await sandboxes.sandbox(RECORD)
        await sandboxes.destroy(RECORD)
        await sandboxes.stop(RECORD)


async def test_leaving_while_it_still_looks_ends_the_search(tmp_path: Path) -> None:
    async def choose() -> SandboxSelection:
        await asyncio.sleep(60)
        raise AssertionError

    async with asyncio.timeout(30), make(choose, tmp_path) as sandboxes:
        assert sandboxes.choice is None


async def test_leaving_while_it_removes_what_is_left_lets_go_of_the_provider(tmp_path: Path) -> None:
    removing, closed = asyncio.Event(), asyncio.Event()

    class Slow(FakeProvider):
        async def reap(self, instance_id: str, keep: Collection[str]) -> list[str]:
            removing.set()
            await asyncio.sleep(60)
            raise AssertionError

        async def close(self) -> None:
            closed.set()

    async def choose() -> SandboxSelection:
        return SandboxSelection(Slow(), "it is there")

    async with asyncio.timeout(30), make(choose, tmp_path):
        await removing.wait()
    assert closed.is_set()


async def test_the_spec_says_what_the_settings_say(sandboxes: Sandboxes, tmp_path: Path) -> None:
    spec = sandboxes.spec(ConversationRecord(id="a", options={"sandbox": {"image": "mine:1"}}))
    assert (spec.conversation_id, spec.instance_id, spec.image) == ("a", "i", "mine:1")
    assert (spec.data_dir, spec.network, spec.limits.memory) == (str(tmp_path), "full", 4 * 1024**3)


@pytest.mark.parametrize(
    ("wish", "provider", "image", "host_has_one", "expected"),
    [
        ("auto", "docker", None, True, False),
        ("auto", "docker", "mine:1", False, True),
        ("auto", "local", None, True, True),
        ("auto", "local", "mine:1", False, False),
        ("always", "docker", None, False, True),
        ("never", "local", "mine:1", True, False),
    ],
)
async def test_agents_get_a_browser_where_their_sandbox_may_have_one(
    wish: str,
    provider: str,
    image: str | None,
    host_has_one: bool,
    expected: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.session.sandboxes.host_has_browser", lambda: host_has_one)
    fake = FakeProvider()
    fake.name = provider

    async def choose() -> SandboxSelection:
        return SandboxSelection(fake, "chosen")

    record = ConversationRecord(id="a", options={"sandbox": {"image": image}} if image else {})
    async with make(choose, tmp_path, enable_browsing=wish) as sandboxes:
        assert await sandboxes.may_have_browser(record) is expected


async def test_where_a_local_sandbox_was_asked_for_nobody_waits_for_the_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.session.sandboxes.host_has_browser", lambda: True)

    async def never() -> SandboxSelection:
        await asyncio.Event().wait()
        raise AssertionError

    async with make(never, tmp_path, sandbox="local") as sandboxes:
        assert await sandboxes.may_have_browser(ConversationRecord(id="a"))


async def test_who_asks_before_the_choice_is_made_waits_for_it_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not known within five seconds counted as none: an agent began without its browser, for good."""
    monkeypatch.setattr("server.session.sandboxes.host_has_browser", lambda: True)
    is_made = asyncio.Event()

    async def choose() -> SandboxSelection:
        await is_made.wait()
        fake = FakeProvider()
        fake.name = "local"
        return SandboxSelection(fake, "chosen")

    loop, ahead = asyncio.get_running_loop(), 0.0
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + ahead)
    async with make(choose, tmp_path) as sandboxes:
        asked = asyncio.create_task(sandboxes.may_have_browser(ConversationRecord(id="a")))
        lacks = asyncio.create_task(sandboxes.lacks())
        await asyncio.sleep(0.01)
        ahead = 50.0
        await asyncio.sleep(0.01)
        assert not asked.done()
        assert not lacks.done()
        is_made.set()
        assert await asked
        assert await lacks == {}


async def test_what_could_not_be_chosen_is_not_tried_again_for_a_look(tmp_path: Path) -> None:
    tried = 0

    async def choose() -> SandboxSelection:
        nonlocal tried
        tried += 1
        raise SandboxError("no engine answers.")

    async with make(choose, tmp_path) as sandboxes:
        for _ in range(3):
            assert not await sandboxes.may_have_browser(ConversationRecord(id="a"))
        assert tried == 1


async def test_an_unloaded_conversations_sandbox_is_stopped_and_removed(
    sandboxes: Sandboxes, provider: FakeProvider
) -> None:
    sandbox = await sandboxes.sandbox(RECORD)
    await sandbox.start(lambda *_: None)
    await sandboxes.stop(RECORD)
    assert await sandbox.poll() is SandboxStatus.STOPPED
    await sandboxes.destroy(RECORD)
    assert await sandbox.poll() is SandboxStatus.ABSENT
    await sandboxes.destroy(ConversationRecord(id="never-had-one"))
    assert len(provider.sandboxes) == 1


async def test_a_deferred_sandbox_is_found_when_it_is_needed_and_not_before(sandboxes: Sandboxes) -> None:
    asked = 0

    async def find(unmade: SandboxState | None) -> Sandbox:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise SandboxError("not yet")
        return await sandboxes.sandbox(RECORD)

    sandbox = DeferredSandbox(sandboxes.spec(RECORD), find)
    assert (asked, sandbox.state, sandbox.working_dir) == (0, {}, "/workspace")
    with pytest.raises(SandboxError, match="not yet"):
        await sandbox.poll()
    await sandbox.start(lambda *_: None)
    assert await sandbox.poll() is SandboxStatus.RUNNING
    await sandbox.pause()
    assert await sandbox.poll() is SandboxStatus.PAUSED
    await sandbox.resume()
    assert sandbox.state == {"provider": "fake", "name": "a"}
    attachment = await sandbox.attach()
    attachment.writer.close()
    assert await sandbox.snapshot() == "snapshot-of-a"
    await sandbox.stop()
    await sandbox.destroy()
    assert await sandbox.poll() is SandboxStatus.ABSENT
    assert asked == 2


async def test_a_sandbox_that_cannot_be_removed_now_is_removed_once_it_can(
    provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.session.sandboxes.AGAIN_SECONDS", 0.01)
    engine_is_there, tried = False, 0

    async def choose() -> SandboxSelection:
        nonlocal tried
        tried += 1
        if not engine_is_there:
            raise SandboxError("no engine answers", code="engine_unavailable")
        return SandboxSelection(provider, "it is there")

    sandbox = provider.restore(make(choose, tmp_path).spec(RECORD), {"provider": "fake", "name": "a"})
    await sandbox.start(lambda *_: None)
    metrics = ServerMetrics()
    async with make(choose, tmp_path, metrics=metrics) as sandboxes:
        await sandboxes.destroy(RECORD)
        await until(lambda: tried > 3)
        assert await sandbox.poll() is SandboxStatus.RUNNING
        engine_is_there = True
        await until(lambda: provider.sandboxes["i", "a"].status is SandboxStatus.ABSENT)
    assert metrics.troubles(Trouble.SANDBOX_NOT_REMOVED) >= 2
