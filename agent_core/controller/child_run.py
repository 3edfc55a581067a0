"""One sub-agent at one task: its session from the message that asks to the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agent_core.agent.base import AgentBase
from agent_core.controller.usage import metrics_of
from agent_core.errors import DrydockError, EventStoreError, StreamClosedError
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState, RecallAction
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    MetricsSnapshot,
    ObservationEvent,
    UsageTotals,
    UserRejectObservation,
)
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.tools.builtin import FinishObservation
from agent_core.tools.context import TaskReport
from agent_core.troubles import Trouble, coded

logger = logging.getLogger(__name__)

_DONE: Final = frozenset({AgentState.FINISHED, AgentState.AWAITING_USER_INPUT})
_ENDED: Final = _DONE | {AgentState.PAUSED, AgentState.STOPPED, AgentState.REJECTED, AgentState.ERROR}
MAX_REJECTIONS: Final = 3
STORE_AGAIN_SECONDS: Final = 2.0
SHOWN_CHARS: Final = 300
STOPPED: Final = "It was stopped before it was done."
REFUSED: Final = (
    "Nobody is there who could approve this, so it was refused. Do the task without it; or finish, and say exactly what"
    " is to be done, so that whoever asked you can do it."
)
UNAPPROVED: Final = "It was stopped, because it insists on what only a user may approve."
Confirm = Callable[[Sequence[ActionEvent]], Awaitable[bool]]
"""Whether a sub-agent may carry out these actions."""


class ChildRun:
    """Has one order carried out. One that was begun before goes on where it was; one that has ended is only read.

    `on_spending` gets the sub-agent's total cost and the number of new answers; `show` gets lines for people.
    """

    def __init__(
        self,
        order: DelegatedTask,
        open_session: Callable[[], Awaitable[ChildSession]],
        *,
        confirm: Confirm,
        on_spending: Callable[[UsageTotals, int], Awaitable[None]],
        show: Callable[[str], None],
    ) -> None:
        self.order = order
        self.session: ChildSession | None = None
        self._open_session = open_session
        self._is_suspended = False
        self._confirm = confirm
        self._on_spending = on_spending
        self._show = show
        self._round = TaskRound(order.key)
        self._is_unapproved = False
        self._is_stopping = False
        self._has_started = False

    async def run(self) -> TaskReport:
        """Carry it out; whatever goes wrong is in the report. Cancelling it lets go of the session as it is."""
        try:
            while not await self._has_followed():  # noqa: ASYNC110 - a disk says nothing by itself
                await asyncio.sleep(STORE_AGAIN_SECONDS)
        except DrydockError as error:
            return TaskReport("", " ".join(str(error).split()))
        except Exception:
            logger.exception("the sub-agent %s failed", self.order.name)
            return TaskReport("", "It failed for a reason that nobody has foreseen; the log says which.")
        finally:
            await self._close()
        report = self._round.report
        return TaskReport(report.result, UNAPPROVED) if self._is_unapproved else report

    async def stop(self) -> None:
        """Stop its model's answer and its commands; its `run` ends soon. Raises where its log cannot be written."""
        self._is_stopping = True
        if self._has_started and self.session is not None:
            waits = self._round.waits_for_word  # and would not be paused
            await self.session.send(ChangeAgentState(agent_state=AgentState.STOPPED if waits else AgentState.PAUSED))

    async def suspend(self) -> None:
        """Let go of it as it is: what it runs goes on, and the same order goes on from there later."""
        self._is_suspended = True
        await self._close()

    async def _close(self) -> None:
        if self.session is not None:
            await self.session.close(stopped=False)

    async def _has_followed(self) -> bool:
        """Follow it to its end; False where nothing can be stored at present: it goes on from its log then."""
        try:
            await self._follow()
        except EventStoreError as error:
            if not error.code or self._is_suspended or self._is_stopping:
                raise
            await self._close()
            return False
        return True

    async def _follow(self) -> None:
        progress = self._round = TaskRound(self.order.key)
        session = self.session = await self._open_session()
        if self._is_suspended:
            raise StreamClosedError("it was broken off")
        async for event in session.stream.history():
            progress.fold(event)
        await self._on_spending(progress.metrics, 0)
        if progress.has_ended or self._stop_requested():
            return
        position = session.stream.last_id
        message = None
        if progress.task_event_id < 0:
            message_text = Message.user(self.order.task)
            message = MessageEvent(source="user", llm_message=message_text, sender=self.order.key)
        await session.start(message)
        self._has_started = True
        if self._stop_requested():
            await self.stop()
        async with session.stream.subscribe(after=position) as events:
            async for live in events:
                if await self._take(session, live):  # type: ignore[arg-type] # no notices were asked for
                    return
        raise StreamClosedError("it was broken off")

    def _stop_requested(self) -> bool:
        return self._is_stopping  # which changes while this waits for something

    async def _take(self, session: ChildSession, event: AnyEvent) -> bool:
        """Take a live event into account; returns whether the task has ended with it."""
        before = self._round.metrics
        self._round.fold(event)
        if line := _line_for(event):
            self._show(f"[{self.order.label.partition(':')[2]}] {line[:SHOWN_CHARS]}\n")
        if self._round.metrics != before:
            answers = int(isinstance(event, ActionEvent | MessageEvent))
            await self._on_spending(self._round.metrics, answers)
        if isinstance(event, AgentStateChanged | ActionEvent) and self._round.waits_for_word:
            await self._decide(session)
        if isinstance(event, AgentStateChanged) and event.agent_state is AgentState.ERROR:
            text, where = "conversation %s: the sub-agent %s failed: %s", session.stream.conversation_id
            extra = coded(Trouble.SUBAGENT_FAILED, where)
            logger.warning(text, where, self.order.name, event.detail or event.reason, extra=extra)
        return self._round.has_ended

    async def _decide(self, session: ChildSession) -> None:
        waiting = list(self._round.undecided.values())
        answer: Any
        if self._stop_requested():
            answer = ChangeAgentState(agent_state=AgentState.STOPPED)
        elif await self._confirm(waiting):
            answer = ChangeAgentState(agent_state=AgentState.USER_CONFIRMED)
        elif self._round.rejections >= MAX_REJECTIONS:
            self._is_unapproved = True
            answer = ChangeAgentState(agent_state=AgentState.STOPPED)
        else:
            answer = MessageEvent(source="user", llm_message=Message.user(REFUSED))
        await session.send(answer)


class TaskRound:
    """One task, which is the message whose sender is `key`; takes the events in the order of their ids.

    `asked` is that message's id (-1 while it is not in the log); `metrics` the sub-agent's cost with all its tasks;
    `rejections` how often actions that wait for a user were refused during this one.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.task_event_id = -1
        self.metrics = MetricsSnapshot()
        self.undecided: dict[int, ActionEvent] = {}
        self.rejections = 0
        self._result = ""
        self._thought = ""
        self._failure = ""
        self._state = AgentState.LOADING
        self._since = -1
        self._unread: set[int] = set()
        self._unanswered: set[int] = set()

    def fold(self, event: AnyEvent) -> None:
        match event:
            case MessageEvent(source="user"):
                self._unread.add(event.id)
                if event.sender == self.key and self.task_event_id < 0:
                    self.task_event_id, self._result, self._thought = event.id, "", ""
            case MessageEvent(source="agent"):
                self._result = event.llm_message.text.strip() or self._result
            case ActionEvent():
                self._thought = event.thought_text.strip() or self._thought
                self._unanswered.add(event.id)
                if event.awaits_confirmation:
                    self.undecided[event.id] = event
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent() if event.cause is not None:
                self._unanswered.discard(event.cause)
                self.undecided.pop(event.cause, None)
                if isinstance(event, ObservationEvent) and isinstance(event.observation, FinishObservation):
                    self._result = event.observation.text.strip() or self._result
            case RecallAction() if event.cause in self._unread:
                self._unread.discard(event.cause)
                self._state, self._since = AgentState.RUNNING, event.id  # it is about to be
            case ActionDecision():
                self.undecided.pop(event.cause, None)
                self.rejections += event.decision == "rejected"
            case AgentStateChanged() if event.agent_state is not AgentState.LOADING:
                self._state, self._since = event.agent_state, event.id
                self._failure = event.detail or event.reason
        self.metrics = metrics_of(event) or self.metrics

    @property
    def waits_for_word(self) -> bool:
        return self._state is AgentState.AWAITING_USER_CONFIRMATION and bool(self.undecided) and not self._unread

    @property
    def has_ended(self) -> bool:
        is_read = self._state is AgentState.ERROR or not self._unread
        has_rest = is_read and not self._unanswered  # what it was doing is to be in its log before it is let go of
        return 0 <= self.task_event_id < self._since and self._state in _ENDED and has_rest

    @property
    def report(self) -> TaskReport:
        if self._state in _DONE:
            return TaskReport(self._result)
        problem = (self._failure or "It failed.") if self._state is AgentState.ERROR else STOPPED
        return TaskReport(self._result or self._thought, problem)


@dataclass(frozen=True, slots=True)
class DelegatedTask:
    """One task for one sub-agent, counted and shown under `label` (such as ``delegate:tests``).

    An order with the same `key`, of the asking action, is the same one. With `is_class`, `agent_type` may be the class
    of an agent, whose answers count as the asking one's.
    """

    name: str
    label: str
    agent_type: str
    task: str
    key: str
    is_class: bool = False


class ChildSession(Protocol):
    """A sub-agent's session; `agent_core.session.agent_session.AgentSession` says what each member does."""

    stream: EventStream
    agent: AgentBase

    async def start(self, initial_message: MessageEvent | None = None) -> None: ...

    async def send(self, event: AnyEvent) -> AnyEvent: ...

    async def close(self, *, stopped: bool) -> None: ...


def _line_for(event: AnyEvent) -> str:
    if isinstance(event, ActionEvent) and event.action is not None:
        return " ".join((event.summary or event.tool_name).split())
    if isinstance(event, MessageEvent) and event.source == "agent":
        return " ".join(event.llm_message.text.split())
    if isinstance(event, AgentStateChanged) and event.agent_state is AgentState.ERROR:
        return " ".join((event.detail or event.reason).split())
    return ""
