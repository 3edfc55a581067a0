"""Going back in a conversation, with the files of its workspace, and branching off from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, Literal

from agent_core.controller.state import ControllerState, opening_of, state_of_branch
from agent_core.errors import STORAGE_UNAVAILABLE, EventStoreError, NoSuchEventError, NotStuckError
from agent_core.events.branches import Branches, FilesRestored, Rewind, read_branch
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    ConfirmationPolicyChanged,
    LoopRecovery,
    MetricsUpdated,
)
from agent_core.events.event import UNSTORED, utc_now
from agent_core.events.llm_events import MessageEvent, MetricsSnapshot, SystemPromptEvent
from agent_core.events.serialization import AnyEvent, encoded, from_payload, to_payload
from agent_core.events.store import EventReader, EventStore, NewEvent
from agent_core.events.stream import EventStream
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.channel.shared_sandbox import SharedSandbox
from agent_core.runtime.snapshots import Restored, has_files, keep, moments_of, restore
from agent_core.session.running_agent import RunningAgent

INTERRUPT_SECONDS: Final = 15.0


class Rewinder:
    """Takes one conversation back, one request at a time; nothing is taken back while `lock` is held."""

    def __init__(
        self,
        stream: EventStream,
        sandbox: SandboxConnection | SharedSandbox,
        prompt: Callable[[], SystemPromptEvent],
        running: Callable[[], RunningAgent | None],
        loads: Callable[[], bool],
    ) -> None:
        self._stream = stream
        self._sandbox = sandbox
        self._prompt = prompt
        self._running = running
        self._loads = loads
        self._interrupting: asyncio.Task[bool] | None = None
        self._branches = Branches()
        self.lock = asyncio.Lock()

    async def rewind(self, to: int | None, *, client_key: str | None = None) -> Rewind:
        """Go on behind event `to` (None: before the first one), as if nothing had come after it.

        What the agent does is ended first; then it waits for its user. Returns the `Rewind` as stored, and with what
        became of the files. Raises `NoSuchEventError`, `StreamClosedError`, or `EventStoreError`: then nothing has
        changed but that the agent was interrupted, or the next open brings the files back.
        """
        last = self._stream.last_id
        place = checked_place(to, last)
        name = f"rewind:{self._stream.conversation_id}"
        # Shielded: an agent that went on between the two halves would find the files of before.
        return await asyncio.shield(asyncio.create_task(self._rewind(place, place < last, client_key), name=name))

    async def _rewind(self, place: int, is_back: bool, client_key: str | None) -> Rewind:
        async with self.lock, AsyncExitStack() as rest:
            if (agent := self._running()) is not None:
                await rest.enter_async_context(agent.controller.paused())
                await self._interrupt(agent)
            await self.bring_back_files()
            state = await self._state(place)
            rewind = Rewind(to=place, client_key=client_key)
            if is_back and await has_files(self._sandbox):
                # Kept first, so that the rewind can be taken back; brought back last, so that what the log says is
                # always done in the end: a process that is killed in between leaves it to the next one.
                problem = await keep(self._sandbox, self._stream.conversation_id, self._stream.last_id)
                rewind = rewind.model_copy(update={"restores": not problem, "note": problem})
            opening = opening_of(rewind, state, self._prompt())
            if self._loads():  # and goes on to do so
                opening.append(AgentStateChanged(agent_state=AgentState.LOADING))
            stored = (await self._stream.add_events(opening))[0]
            files = await self.bring_back_files()
            known = {"files_of": files.event_id, "note": files.note} if rewind.restores else {}
            return rewind.model_copy(update={"id": stored.id, "timestamp": stored.timestamp, **known})

    async def _interrupt(self, agent: RunningAgent) -> None:
        """End what runs; `EventStoreError` where that cannot be stored for long: then it ends as soon as it can be."""
        if self._interrupting is None or self._interrupting.done():
            self._interrupting = asyncio.create_task(agent.runtime.interrupt(), name="interrupt for a rewind")
        await asyncio.wait([self._interrupting], timeout=INTERRUPT_SECONDS)
        # An answer that is stored later would be a second one to what is answered by going back.
        if not (self._interrupting.done() and self._interrupting.result()):
            outage = self._stream.outage
            raise EventStoreError(
                f"What the agent does could not be ended within {INTERRUPT_SECONDS:g} s, so it was not taken back"
                + (f": {outage.error}" if outage is not None else ""),
                code=outage.error.code if outage is not None else STORAGE_UNAVAILABLE,
            )

    def observe(self, event: AnyEvent) -> None:
        if event.id > self._branches.last_id:
            self._branches.fold(event)

    async def bring_back_files(self) -> Restored:
        await self._catch_up()
        rewind = self._branches.unrestored
        if rewind is None:
            return Restored(None)
        state = await self._state(rewind.to)
        moments = moments_of(self._branches.path(rewind.to), state.unanswered)
        files = await restore(self._sandbox, self._stream.conversation_id, moments)
        await self._stream.add_event(FilesRestored(cause=rewind.id, files_of=files.event_id, note=files.note))
        return files

    async def recover(self, option: Literal[1, 2, 3], *, client_key: str | None = None) -> AnyEvent:
        """Do the user's wish for a looping agent, else `NotStuckError`; returns the `LoopRecovery` as stored."""
        loop = (await self._state(None)).loop
        if loop is None:
            raise NotStuckError("loop_recovery: the agent was not found in a loop; send a message to go on")
        stored = await self._stream.add_event(LoopRecovery(option=option, client_key=client_key))
        if option == 3:
            stopped = AgentState.STOPPED
            events: list[AnyEvent] = [ChangeAgentState(agent_state=stopped, source="user")]
            if self._running() is None:
                events.append(AgentStateChanged(agent_state=stopped))
            await self._stream.add_events(events)
            return stored
        message: MessageEvent | None = None
        async for event in read_branch(self._stream, self._branches, loop.start - 1):
            if isinstance(event, MessageEvent) and event.source == "user":
                message = event
        await self.rewind(loop.start - 1)
        if option == 2 and message is not None:
            changes = {"id": UNSTORED, "timestamp": utc_now(), "client_key": None}
            await self._stream.add_events([message.model_copy(update=changes)])
        return stored

    async def _catch_up(self) -> None:
        async for event in self._stream.history(after=self._branches.last_id):
            self.observe(event)

    async def _state(self, leaf: int | None) -> ControllerState:
        await self._catch_up()
        return await state_of_branch(self._stream, self._branches, leaf)


def checked_place(to: int | None, last_id: int) -> int:
    """The id of the last event that is to count, -1 for none; raises `NoSuchEventError`."""
    if to is None:
        return -1
    if isinstance(to, bool) or not isinstance(to, int) or not -1 <= to <= last_id:
        known = f"the log has the events 0 to {last_id}" if last_id >= 0 else "the log is empty"
        raise NoSuchEventError(f"there is no event {to!r}: {known}")
    return to


PAGE = 200


class ReadableLog:
    """One log, page by page."""

    store: EventReader

    def __init__(self, store: EventReader, conversation_id: str) -> None:
        self.store = store
        self.conversation_id = conversation_id

    async def page(self, *, after: int = -1) -> list[AnyEvent]:
        stored = await self.store.read(self.conversation_id, after=after, limit=PAGE)
        return [from_payload(one.payload, one.id, self.conversation_id) for one in stored]


class StoredLog(ReadableLog):
    """One log of a store."""

    store: EventStore

    def __init__(self, store: EventStore, conversation_id: str) -> None:
        super().__init__(store, conversation_id)


async def fork_log(
    source: ReadableLog,
    target: StoredLog,
    *,
    upto: int | None,
    reset_metrics: bool = True,
    prompt: SystemPromptEvent | None = None,
) -> list[int]:
    """Begin the empty log `target` with the events 0 to `upto` of `source`, under their ids; None takes all.

    What is open behind them is closed, and the agent waits for its user. What the user has decided for good, later as
    well, is in force in the fork. With `reset_metrics` the fork has cost nothing yet. `prompt` is what its agent is
    told, where that is another one. Returns the ids of the events at which the source may have kept its files, newest
    first; none where its files are to be taken as they are now.

    Raises:
        NoSuchEventError: the source has no event `upto`, or is deleted meanwhile.
        EventStoreError: a log cannot be read or written; what was written of the fork is no use.
    """
    last = await source.store.last_id(source.conversation_id)
    place = last if upto is None else checked_place(upto, last)
    epoch = await target.store.claim(target.conversation_id)
    branches, after = Branches(), -1
    while after < place:
        records: list[NewEvent] = []
        for one in await source.store.read(source.conversation_id, after=after, limit=min(PAGE, place - after)):
            event = from_payload(one.payload, one.id, source.conversation_id)
            branches.fold(event)
            payload = one.payload
            if prompt is not None and isinstance(event, SystemPromptEvent):
                payload = to_payload(prompt.model_copy(update={"timestamp": event.timestamp}))
            records.append(NewEvent(event.kind, event.source, event.cause, event.timestamp, payload))
        if not records:
            raise NoSuchEventError(f"there is no event {after + 1} any more: the log was deleted meanwhile")
        await target.store.append(target.conversation_id, records, epoch=epoch)
        after += len(records)
    if place < 0:
        return []
    state = await state_of_branch(target, branches, place)
    opening = opening_of(Rewind(to=place, forked_from=source.conversation_id), state)
    # What the user has decided for good, later as well, is in force in the fork.
    after, decided = place, None
    while page := await source.page(after=after):
        after = page[-1].id
        decided = next((event for event in reversed(page) if isinstance(event, ConfirmationPolicyChanged)), decided)
    if decided is not None:
        opening.append(decided.model_copy(update={"id": UNSTORED}))
    if reset_metrics:
        opening.append(MetricsUpdated(metrics=MetricsSnapshot()))
    records = [
        NewEvent(event.kind, event.source, event.cause, event.timestamp, payload)
        for event, payload in map(encoded, opening)
    ]
    await target.store.append(target.conversation_id, records, epoch=epoch)
    is_now = place == last and branches.unrestored is None
    return [] if is_now else moments_of(branches.path(place), state.unanswered)
