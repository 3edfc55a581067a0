"""The SERVER subscriber: reads a conversation's log and keeps its listed facts (state, costs, branch) up to date."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from agent_core.controller.usage import metrics_of
from agent_core.errors import DrydockError, EventStoreError
from agent_core.events.classification import ErrorClassification
from agent_core.events.control import AgentState, AgentStateChanged, ConversationError, LoopDetected
from agent_core.events.event import Event
from agent_core.events.llm_events import AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.session.repository import folder_of
from agent_core.tools.context import SandboxAccess
from agent_core.tools.terminal import TerminalObservation
from agent_core.troubles import Trouble, coded, trouble_of
from server.db.repositories.conversations import ConversationRepository

logger = logging.getLogger(__name__)

BUSY_STATES = frozenset({AgentState.RUNNING, AgentState.USER_CONFIRMED, AgentState.RATE_LIMITED, AgentState.LOADING})
"""An agent in one of these is at work, or was when its process ended."""

_OF_AGENTS: Final = frozenset({"ActionEvent", "MessageEvent", "Condensation"})


def is_step(kind: str, source: str) -> bool:
    """Whether an event of this kind shows that an agent gets on: its own doing, or the end of an action."""
    return kind == "ObservationEvent" or (source == "agent" and kind in _OF_AGENTS)


class Recorder:
    """Follows one stream until it is closed and read to its end.

    The callbacks must not block; `on_rest` is called once, when the agent is first seen at rest, and `on_step` with
    each event that shows that it gets on.
    """

    def __init__(
        self,
        stream: EventStream,
        conversations: ConversationRepository,
        *,
        on_user_message: Callable[[str], None],
        on_activity: Callable[[], None],
        on_step: Callable[[], None],
        on_trouble: Callable[[Trouble, str], None],
        on_state: Callable[[AgentState, int], None],
        on_rest: Callable[[], Awaitable[None]] | None = None,
        branches: BranchKeeper,
    ) -> None:
        self._stream = stream
        self._conversations = conversations
        self._on_user_message = on_user_message
        self._on_activity = on_activity
        self._on_step = on_step
        self._on_trouble = on_trouble
        self._on_state = on_state
        self._on_rest = on_rest
        self._branches = branches
        self.recorded_state: AgentState | None = None

    async def run(self, *, after: int) -> None:
        async with self._branches.at_work(), self._stream.subscribe(after=after) as events:
            while True:
                try:
                    event = await anext(events, None)
                except EventStoreError as error:
                    where, events.position = self._stream.conversation_id, self._stream.last_id
                    extra = coded(Trouble.STORAGE_UNREADABLE, where)
                    logger.warning(
                        "conversation %s: facts of it may be missing from the list: %s", where, error, extra=extra
                    )
                    continue
                if event is None:
                    return
                if isinstance(event, Event):  # no notices were asked for
                    await self._record(event)

    async def _record(self, event: AnyEvent) -> None:
        self._on_activity()
        if is_step(event.kind, event.source):
            self._on_step()
        self._branches.observe(event)
        conversation_id = self._stream.conversation_id
        self._conversations.touch(conversation_id, last_updated_at=event.timestamp)
        if (metrics := metrics_of(event)) is not None:
            self._conversations.touch(
                conversation_id,
                accumulated_cost=metrics.accumulated_cost,
                prompt_tokens=metrics.usage.prompt_tokens,
                completion_tokens=metrics.usage.completion_tokens,
            )
        if isinstance(event, MessageEvent) and event.source == "user":
            self._on_user_message(event.llm_message.text)
        if (trouble := _trouble_of(event)) is not None:
            self._on_trouble(*trouble)
        if isinstance(event, AgentStateChanged):
            self._on_state(event.agent_state, event.id)
            if event.agent_state is not self.recorded_state:
                await self.record_state(event.agent_state)

    async def noted_state(self) -> AgentState | None:
        """The state that the conversation's record has, perhaps of an earlier session."""
        if self.recorded_state is None:
            record = await self._conversations.get(self._stream.conversation_id)
            return next(
                (state for state in AgentState if record is not None and record.agent_state == state.value), None
            )
        return self.recorded_state

    async def note(self, state: AgentState) -> None:
        """Note the state with the conversation; raises `EventStoreError`."""
        self.recorded_state = state
        await self._conversations.update(self._stream.conversation_id, agent_state=state.value)

    async def record_state(self, state: AgentState | None) -> None:
        """Note the state with the conversation; where that cannot be stored, as soon as it can."""
        self.recorded_state = state
        try:
            await self._conversations.update(self._stream.conversation_id, agent_state=state and state.value)
            if self._on_rest is not None and state not in BUSY_STATES:
                await self._on_rest()
                self._on_rest = None
        except EventStoreError as error:
            level = logging.DEBUG if error.code else logging.WARNING
            logger.log(level, "the state of conversation %s is not noted yet: %s", self._stream.conversation_id, error)
            self._conversations.touch(self._stream.conversation_id, agent_state=state and state.value)


def _trouble_of(event: AnyEvent) -> tuple[Trouble, str] | None:
    """The trouble that an event tells of, and its sentence; None where there is none, or it is in the log already."""
    match event:
        case ConversationError() if (known := trouble_of(event.code)) is not None:
            return known, event.detail
        case LoopDetected():
            return Trouble.STUCK, event.headline
        case AgentErrorEvent(classification=ErrorClassification.INTERRUPTED):
            return Trouble.ACTION_STOPPED, event.error
        case AgentErrorEvent(classification=ErrorClassification.SANDBOX):
            return Trouble.ACTION_FAILED, event.error
        case _:
            return None


GIT_SECONDS: Final = 40.0
MAX_BRANCH_CHARS: Final = 500
_MAY_CHANGE_IT = re.compile(r"\bgit\b[^|;&\n]*\s(checkout|switch|merge|rebase|reset|branch)\b")


class BranchKeeper:
    """Asks for the repository's branch after each command that may have changed it, while it is `at_work`.

    It is the repository the conversation was begun with, else the workspace. A command meanwhile makes it ask once
    more.
    """

    def __init__(
        self, conversation_id: str, conversations: ConversationRepository, sandbox: Callable[[], SandboxAccess | None]
    ) -> None:
        self._id = conversation_id
        self._conversations = conversations
        self._sandbox = sandbox
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run(), name=f"branch-keeper:{self._id}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def observe(self, event: AnyEvent) -> None:
        if isinstance(event, ObservationEvent) and isinstance(event.observation, TerminalObservation):
            done = event.observation
            if done.exit_code == 0 and _MAY_CHANGE_IT.search(done.command):
                self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._look()
            except DrydockError as error:
                logger.info("the branch of conversation %s is not known: %s", self._id, error)

    async def _look(self) -> None:
        record = await self._conversations.get(self._id)
        sandbox = self._sandbox()
        if record is None or sandbox is None:
            return
        args = {"directory": folder_of((record.selected_repository or "").strip()), "since": "commit"}
        found = (await sandbox.request("git.status", args, limit_seconds=GIT_SECONDS)).result
        listed = found.get("repositories")  # of a form that nobody vouches for: it comes from a sandbox
        every = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        branch = next((one.get("branch") for one in every if one.get("path") == ""), None)
        if isinstance(branch, str) and branch and branch != record.selected_branch:
            await self._conversations.update(self._id, selected_branch=branch[:MAX_BRANCH_CHARS])
