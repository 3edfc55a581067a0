"""A process that is killed while it takes a conversation back: log and files agree for whoever opens it next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from agent_core.errors import NoSuchEventError
from agent_core.events.branches import FilesRestored, Rewind, active_branch
from agent_core.events.control import AgentState
from agent_core.events.event import utc_now
from agent_core.events.llm_events import ObservationEvent
from agent_core.events.store import InMemoryEventStore, NewEvent, StoredEvent
from agent_core.session.rewind import StoredLog, fork_log
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest
from tests.unit.controller.stage import Stage
from tests.unit.controller.test_going_back import answer, at
from tests.waiting import until

THEN = {"a": "of then", "b": "of then"}
NOW = {"a": "of now", "c": "of now"}


@dataclass
class Killer:
    """Whoever passes the point `deadly`, counted since it was armed, goes no further, as in a process that is gone."""

    deadly: int = -1
    passed: int = -1
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def point(self) -> None:
        if self.passed < 0:
            return
        self.passed += 1
        if self.killed.is_set() or self.passed == self.deadly:
            self.killed.set()
            await self.is_over.wait()

    def arm(self, deadly: int) -> None:
        self.deadly, self.passed = deadly, 0

    def disarm(self) -> None:
        """The next process begins."""
        self.passed = -1


@dataclass
class Workspace:
    """Files, and those that are kept, as a runner has them; each half of each operation is a point."""

    killer: Killer
    files: dict[str, str] = field(default_factory=dict)
    kept: dict[str, dict[str, str]] = field(default_factory=dict)

    async def snapshot(self, call: FakeRequest) -> FakeAnswer:
        await self.killer.point()
        self.kept[call.args["name"]] = dict(self.files)
        await self.killer.point()
        return {}

    async def restore(self, call: FakeRequest) -> FakeAnswer:
        await self.killer.point()
        name = next((name for name in call.args["names"] if name in self.kept), None)
        self.kept[call.args["keep"]] = dict(self.files)
        if name is not None:
            for path in set(self.files) - set(self.kept[name]):
                del self.files[path]
            await self.killer.point()
            self.files.update(self.kept[name])
        await self.killer.point()
        return {"restored": name}


class DeadlyStore(InMemoryEventStore):
    """A store whose appends have a point before and one behind them."""

    def __init__(self, killer: Killer) -> None:
        super().__init__()
        self.killer = killer

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        await self.killer.point()
        first = await super().append(conversation_id, events, epoch=epoch)
        await self.killer.point()
        return first


async def staged() -> tuple[Stage, Workspace]:
    """A conversation with one call behind which the files are those of then; they are those of now by now."""
    stage, killer = Stage(), Killer()
    stage.store = DeadlyStore(killer)  # type: ignore[assignment] # the interface is the same
    workspace = Workspace(killer)
    stage.sandbox.runner.handlers |= {"workspace.snapshot": workspace.snapshot, "workspace.restore": workspace.restore}
    await stage.begin()
    await stage.say()
    await answer(stage, "one", 1)
    await until(stage.shell.open)
    await answer(stage, "text", 2)
    await at(stage, AgentState.AWAITING_USER_INPUT)
    workspace.kept[f"c:{await result(stage) - 1}"] = dict(THEN)
    workspace.files = dict(NOW)
    return stage, workspace


async def result(stage: Stage) -> int:
    return next(event.id for event in await stage.log() if isinstance(event, ObservationEvent))


async def killed_at(point: int) -> bool:
    """Take it back in a process that dies at this point; whether it came so far."""
    stage, workspace = await staged()
    place, end = await result(stage), stage.session.stream.last_id
    first, killer = stage.session, workspace.killer
    killer.arm(point)
    rewinding = asyncio.create_task(first.rewinder.rewind(place))
    dying = asyncio.create_task(killer.killed.wait())
    await asyncio.wait({rewinding, dying}, return_when=asyncio.FIRST_COMPLETED)
    dying.cancel()
    died = not rewinding.done()
    killer.disarm()
    try:
        await stage.begin()
        await at(stage, AgentState.AWAITING_USER_INPUT)
        log = await stage.log()
        was_taken_back = not any(event.id == end for event in active_branch(log))
        assert workspace.files == (THEN if was_taken_back else NOW)
        assert was_taken_back == any(isinstance(event, Rewind) for event in log)
        told = [event for event in log if isinstance(event, FilesRestored)]
        assert [event.files_of for event in told] == ([place - 1] if was_taken_back else [])
        if was_taken_back:
            again = await stage.session.rewinder.rewind(end)
            assert isinstance(again, Rewind)
            assert (again.to, again.note) == (end, "")
            assert workspace.files == NOW
    finally:
        killer.is_over.set()
        rewinding.cancel()
        await asyncio.wait({rewinding})
        await first.close(stopped=False)
        await stage.end()
    return died


async def test_wherever_a_process_dies_the_files_are_those_of_the_log_and_nothing_is_lost() -> None:
    point = 1
    while await killed_at(point):
        point += 1
    assert point > 9  # two of the snapshot, two of the rewind, three of the files, two of what is said of them


async def test_a_fork_of_such_a_conversation_gets_the_files_of_then() -> None:
    stage, workspace = await staged()
    place = await result(stage)
    workspace.killer.arm(5)  # the rewind is in the log, and nothing is brought back yet
    rewinding = asyncio.create_task(stage.session.rewinder.rewind(place))
    await workspace.killer.killed.wait()
    workspace.killer.disarm()
    try:
        assert not any(isinstance(event, FilesRestored) for event in await stage.log())
        moments = await fork_log(StoredLog(stage.store, "c"), StoredLog(stage.store, "fork"), upto=None)
        assert next(one for one in moments if f"c:{one}" in workspace.kept) == place - 1
    finally:
        workspace.killer.is_over.set()
        await rewinding
        await stage.end()


class VanishingStore(InMemoryEventStore):
    """Its log ``c`` is deleted by somebody else as soon as its length is known."""

    reads = 0

    async def last_id(self, conversation_id: str) -> int:
        last = await super().last_id(conversation_id)
        await self.delete("c")
        return last

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        self.reads += 1
        assert self.reads < 10, "it is read again and again"
        return await super().read(conversation_id, after=after, limit=limit)


async def test_a_fork_of_a_log_that_is_deleted_meanwhile_ends_with_an_error() -> None:
    store = VanishingStore()
    message = NewEvent("message", "user", None, utc_now(), b"{}")
    await store.append("c", [message, message], epoch=await store.claim("c"))
    with pytest.raises(NoSuchEventError, match="deleted meanwhile"):
        await fork_log(StoredLog(store, "c"), StoredLog(store, "fork"), upto=None)
