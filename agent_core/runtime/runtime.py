"""The runtime: the subscriber that executes actions and gives each of them exactly one answer.

Actions run one after another in the order of the log, or several calls of one answer together where the agent allows
that. Each runs under its idempotency key, so one that outlived its server is asked for again, not run again. A request
to stop, and a user's input to it, reach the running action at once; another action of the user is begun beside one that
takes long.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain, repeat

from agent_core.errors import EventStoreError, SandboxError, StreamClosedError
from agent_core.events.branches import Rewind
from agent_core.events.classification import ErrorClassification
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.messages import TextContent
from agent_core.events.schema import UnknownAction
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.runtime.action_runner import (
    BROKEN_OFF,
    FAILED_ID,
    LOST,
    NOT_BEGUN,
    STOPPED_BEFORE,
    ActionRunner,
    CallServices,
    LatestResults,
    failure,
    interrupted,
    rejection,
)
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.runtime.client_calls import ClientCalls
from agent_core.runtime.hook_calls import ConversationHooks
from agent_core.runtime.sandbox import KeyState
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import CallableTools

logger = logging.getLogger(__name__)

STOP_SECONDS = 10.0
USERS_WAIT_SECONDS = 0.5
"""How long what was begun last may run before a user's next action is begun beside it."""
MAX_BESIDE = 64
FIRST_STORE_RETRIES = (0.2, 1.0, 5.0, 15.0)
STORE_AGAIN_SECONDS = 1.0
"""The same while nothing can be stored, which may be over at any moment."""

_ENDING = frozenset(
    {AgentState.STOPPED, AgentState.PAUSED, AgentState.FINISHED, AgentState.REJECTED, AgentState.AWAITING_USER_INPUT}
)
_HALTED = frozenset({AgentState.STOPPED, AgentState.PAUSED, AgentState.REJECTED, AgentState.ERROR})
"""States in which nothing runs: an action that was stored just before its agent was stopped is not begun either."""


class Runtime:
    """Executes one conversation's actions, at most `concurrency` calls of one answer at the same time.

    `observe` takes the stored history, `recover` settles what a crash left unanswered, `run` follows the live log.
    """

    def __init__(
        self,
        stream: EventStream,
        tools: Mapping[str, ToolDefinition],
        sandbox: ConversationSandbox,
        services: CallServices,
        *,
        hooks: ConversationHooks,
        rules_for: Callable[[str], tuple[TextContent, list[str]] | None],
        concurrency: int,
        client_count: Callable[[], int] | None,
    ) -> None:
        self._hooks = hooks
        self._concurrency = concurrency
        self._stream = stream
        self._callable = CallableTools(tools)
        self._sandbox = sandbox
        self._unanswered: dict[int, ActionEvent] = {}
        self._decisions: dict[int, ActionDecision] = {}
        self._latest = LatestResults(tools, stream)
        self.client_calls = ClientCalls(stream, self._unanswered, self._decisions, self._is_for_client, client_count)
        services = replace(services, clients=self.client_calls)
        self._actions = ActionRunner(stream, tools, sandbox, self._latest, services, hooks=hooks, rules_for=rules_for)
        self._queue: deque[ActionEvent] = deque()
        self._begun: deque[ActionEvent] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._running: dict[int, asyncio.Task[AnyEvent]] = {}
        self._beside: dict[int, asyncio.Task[None]] = {}
        self._since: dict[int, float] = {}
        self._passing: asyncio.TimerHandle | None = None
        self._position = self.dealt_with = self._stopped_at = -1
        self._progress = asyncio.Event()

    def observe(self, event: AnyEvent) -> None:
        self._position = event.id
        self._latest.observe(event)
        self.client_calls.observe(event)
        match event:
            case ActionEvent():
                self._unanswered[event.id] = event
            case ActionDecision() if event.cause in self._unanswered:
                self._decisions[event.cause] = event
            case ChangeAgentState(source="user") if event.agent_state in _ENDING:
                self._stopped_at = event.id
            case Rewind():  # what waited on its branch is answered behind it
                self._unanswered.clear()
                self._decisions.clear()
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent() if event.cause is not None:
                self._unanswered.pop(event.cause, None)
                self._decisions.pop(event.cause, None)

    async def recover(self, *, resumes: bool, unbegun_since: int) -> None:
        """Settle the actions that an earlier process left without an answer; `observe` has seen the whole log.

        What the sandbox still knows is taken over: a finished action's result, a running action's end. What has
        certainly not begun is executed when the conversation `resumes`, because then nobody knows of a reason not to,
        when it belongs to the conversation's own beginning (the environment's), or when it came after the event
        `unbegun_since`, with which the present session began, or the first one before it whose starts have all failed;
        else, or when its user has stopped it since, it is answered as interrupted. Of what is left nobody knows whether
        it ran: it is never run again, and the answer says so.
        """
        for action in list(self._unanswered.values()):
            if action.action is None or self._waits_for_user(action):
                continue
            if (decision := self._decisions.get(action.id)) is not None and decision.decision == "rejected":
                await self._answer(action, rejection(action, decision))
                continue
            is_new = action.id > unbegun_since
            found = "unknown" if is_new else await self._what_became_of(action)
            if is_new and action.id < self._stopped_at:
                await self._answer(action, interrupted(action, STOPPED_BEFORE))
            elif found == "lost":
                lost = ErrorClassification.SANDBOX
                await self._answer(action, failure(action, LOST, classification=lost, error_id=FAILED_ID))
            elif found == "unknown" and not (resumes or is_new or action.source == "environment"):
                tool = self._callable.of(action)
                text = BROKEN_OFF if tool is not None and tool.resumable else NOT_BEGUN
                await self._answer(action, interrupted(action, text))
            else:
                self._enqueue(action)

    async def _what_became_of(self, action: ActionEvent) -> KeyState:
        """What the sandbox's `lookup` knows of an earlier process's action; ``unknown`` also when it may run twice."""
        definition = self._callable.of(action)
        if definition is None:  # a tool that is on its way, or gone: it may have run
            return "unknown" if isinstance(action.action, UnknownAction) else "lost"
        if definition.annotations.idempotentHint or definition.resumable:
            return "unknown"
        return await self._sandbox.lookup(self._actions.key(action)) if definition.journaled else "lost"

    async def run(self) -> None:
        """Follow the log and execute, until the stream is closed."""
        self.dealt_with = self._position
        try:
            async with self._stream.subscribe(after=self._position, acts=True) as events:
                async for event in events:
                    self.observe(event)  # type: ignore[arg-type] # no notices were asked for
                    await self._react(event)  # type: ignore[arg-type]
                    self.dealt_with = self._position
                    self._progress.set()
        finally:
            await self._abandon()

    async def has_dealt_with(self, event_id: int) -> None:
        while self.dealt_with < event_id:
            await self._progress.wait()
            self._progress.clear()

    async def _react(self, event: AnyEvent) -> None:
        match event:
            case ActionEvent() if event.action is not None and not event.awaits_confirmation:
                self._enqueue(event)
            case ActionDecision() if (action := self._unanswered.get(event.cause)) is not None:
                if event.decision == "confirmed":
                    self._enqueue(action)
                else:
                    await self._answer(action, rejection(action, event))
            case ChangeAgentState(source="user") if event.agent_state in _ENDING:
                await self.interrupt(keeps_questions=event.agent_state is AgentState.PAUSED)
            case AgentStateChanged() if event.agent_state in _HALTED:
                await self.interrupt()
            case Rewind():
                await self.interrupt()

    def _is_for_client(self, action: ActionEvent) -> bool:
        definition = self._callable.of(action)
        return definition is not None and definition.waits_for_client

    def _waits_for_user(self, action: ActionEvent) -> bool:
        return action.awaits_confirmation and action.id not in self._decisions

    def _enqueue(self, action: ActionEvent) -> None:
        self._queue.append(action)
        self._go_on()

    def _is_for_running(self, action: ActionEvent) -> bool:
        definition = self._callable.of(action) if action.source == "user" else None
        return definition is not None and action.action is not None and definition.reaches_running(action.action)

    def _go_on(self) -> None:
        self._begin_more()
        if self._begun and (self._worker is None or self._worker.done()):
            self._worker = asyncio.create_task(self._work(), name=f"runtime:{self._stream.conversation_id}")

    def _begin_more(self) -> None:
        while self._queue and self._may_begin(self._queue[0]):
            action = self._queue.popleft()
            if action.id in self._unanswered:
                self._begun.append(action)
                self._start(action).add_done_callback(lambda _task: self._begin_more())
        self._let_users_pass()

    def _let_users_pass(self) -> None:
        """Begin what users want beside what runs, in their order: input to it, and the rest where it runs for long."""
        if self._passing is not None:
            self._passing.cancel()
            self._passing = None
        loop = asyncio.get_running_loop()
        while len(self._beside) < MAX_BESIDE:
            action = next((waiting for waiting in self._queue if waiting.source == "user"), None)
            newest = max((self._since[ident] for ident, task in self._running.items() if not task.done()), default=None)
            if action is None or (newest is None and not self._is_for_running(action)):
                return
            left = 0.0 if newest is None else newest + USERS_WAIT_SECONDS - loop.time()
            if left > 0 and not self._is_for_running(action):
                self._passing = loop.call_later(left, self._go_on)
                return
            self._queue.remove(action)
            if action.id in self._unanswered:
                work = self._do_beside(action, self._start(action))
                self._beside[action.id] = asyncio.create_task(work, name=f"beside:{self._actions.key(action)}")

    def _may_begin(self, action: ActionEvent) -> bool:
        if not self._begun:
            return not self._beside
        first, busy = self._begun[0], sum(not task.done() for task in self._running.values())
        together = action.source == first.source == "agent" and action.llm_response_id == first.llm_response_id
        return together and self._concurrency > 1 and busy < self._concurrency

    def _start(self, action: ActionEvent) -> asyncio.Task[AnyEvent]:
        self._since[action.id] = asyncio.get_running_loop().time()
        task = asyncio.create_task(self._actions.execute(action), name=f"action:{self._actions.key(action)}")
        self._running[action.id] = task
        return task

    async def _do_beside(self, action: ActionEvent, task: asyncio.Task[AnyEvent]) -> None:
        await self._answer(action, await self._result(action, task))
        del self._running[action.id], self._since[action.id], self._beside[action.id]
        self._go_on()

    async def _work(self) -> None:
        while self._begun:
            # In the order of the calls, whichever is done first.
            action = self._begun[0]
            await self._answer(action, await self._result(action, self._running[action.id]))
            del self._running[action.id], self._since[action.id]
            self._begun.popleft()
            self._go_on()

    async def _result(self, action: ActionEvent, task: asyncio.Task[AnyEvent]) -> AnyEvent:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise  # it is the worker that was cancelled, not the action
            return await self._actions.stopped(action)
        except Exception as error:
            logger.exception("%s came to nothing", self._actions.key(action))
            return failure(action, f"{type(error).__name__}: {error}", classification=ErrorClassification.INTERNAL)

    async def _answer(self, action: ActionEvent, answer: AnyEvent) -> None:
        if self._unanswered.pop(action.id, None) is None:
            return
        decision = self._decisions.pop(action.id, None)
        if decision is not None:
            answer = answer.model_copy(update={"reissued_as": decision.id})
        delays = chain(FIRST_STORE_RETRIES, repeat(FIRST_STORE_RETRIES[-1]))
        while not self._stream.closed:
            try:
                self._latest.answered(await self._stream.add_event(answer))
                break
            except StreamClosedError:
                return
            except EventStoreError as error:
                # The result must not be lost (a full disk may get room again), and nothing else can go on without it.
                delay = STORE_AGAIN_SECONDS if error.code else next(delays)
                if not error.code:  # else the store's owner tells all, once
                    key = self._actions.key(action)
                    logger.error("the answer to %s is not stored yet, next try in %s s: %s", key, delay, error)
                    self._stream.publish(StatusNotice("STATUS$ERROR", str(error), "error"))
                await asyncio.sleep(delay)
            except ValueError as error:  # what no log can hold
                if isinstance(answer, AgentErrorEvent):
                    raise
                internal = ErrorClassification.INTERNAL
                answer = failure(action, f"The result cannot be kept: {error}", classification=internal)
        else:
            return
        try:
            await self._sandbox.ack([self._actions.key(action)])
        except SandboxError as error:
            logger.debug("%s was not acknowledged: %s", self._actions.key(action), error)

    async def interrupt(self, *, keeps_questions: bool = False) -> bool:
        """Stop what runs and answer all that wait; with `keeps_questions` not those that wait for the user.

        False: answers of what ran are still to be stored.
        """
        late: set[asyncio.Task[None]] = set()
        waiting = [
            action
            for action in self._unanswered.values()
            if action.action is not None and not (keeps_questions and self._waits_for_user(action))
        ]
        self._queue.clear()
        if self._running:
            running = list(self._running.values())
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            answering = [*self._beside.values(), *([self._worker] if self._worker is not None else [])]
            _, late = await asyncio.wait(answering, timeout=STOP_SECONDS)  # unless the store keeps them
        for action in waiting:
            await self._answer(action, interrupted(action, STOPPED_BEFORE))
        return not late

    async def _abandon(self) -> None:
        """Let go of what runs: it goes on in the sandbox, and the next owner takes its result over."""
        self._queue.clear()
        self._begun.clear()
        for task in (self._worker, *self._beside.values(), *self._running.values()):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        await self._hooks.close()
