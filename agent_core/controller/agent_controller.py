"""The controller: the subscriber of a stream that decides when the agent steps.

It acts only when it has folded the log to the end: so its own writes are always part of what it decides from. The step
runs in a task of its own, so that a stop or a new message takes effect while the model is still thinking.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Literal

from agent_core.agent.base import AgentBase
from agent_core.controller.guards import answers_to_invalid_calls, error_events, failure_of, has_name, refinement
from agent_core.controller.state import INTERRUPTING, RESUMABLE, ControllerState, Move, state_of_branch
from agent_core.controller.step import Step
from agent_core.errors import DrydockError, EventStoreError, StaleOwnerError, StreamClosedError
from agent_core.events.branches import Branches, Rewind
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    ConfirmationPolicyChanged,
    RecallAction,
)
from agent_core.events.llm_events import ActionDecision, ActionEvent
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.llm.transport.exchange import calls_made_for
from agent_core.runtime.hook_calls import ConversationHooks
from agent_core.security.confirmation import NeverConfirm
from agent_core.security.hooks import HookEvent
from agent_core.spans import PRESENT, Span
from agent_core.spelling import spelled
from agent_core.tools.builtin import FinishAction, FinishTool
from agent_core.tools.execution import exit_as_error
from agent_core.troubles import Trouble, coded

logger = logging.getLogger(__name__)

STORE_RETRY_SECONDS: Final = 2.0
_ANSWERABLE = frozenset(
    {
        AgentState.LOADING,
        AgentState.AWAITING_USER_INPUT,
        AgentState.PAUSED,
        AgentState.STOPPED,
        AgentState.FINISHED,
        AgentState.REJECTED,
        AgentState.ERROR,
    }
)


TakeTurn = Callable[[], Awaitable[None]]


async def no_wait() -> None:
    """Every agent's turn is now."""


@spelled
class AgentController:
    """Drives one conversation's agent.

    `observe` takes the stored history, `begin` enters the first state, `run` follows the live log until it is closed.
    After `steps_left` steps the agent is paused (None: never). `check` raises when the agent may not ask its model
    again; `failure` is what it failed with the last time. Each step waits for `take_turn`: a server has many agents.
    """

    def __init__(
        self,
        stream: EventStream,
        agent: AgentBase,
        state: ControllerState,
        step: Step,
        hooks: ConversationHooks,
        *,
        check: Callable[[ControllerState], None],
        steps_left: int | None,
        take_turn: TakeTurn = no_wait,
    ) -> None:
        self._check = check
        self._take_turn = take_turn
        self.state = state
        self.steps_left = steps_left
        self.failure: Exception | None = None
        self._hooks = hooks
        self._reviewing: asyncio.Task[None] | None = None
        self._reviewed: set[int] = set()
        self._free_to_rest: tuple[int, int] | None = None
        self._stream = stream
        self._agent = agent
        self._step = step
        self._branches = Branches()
        self._is_stale = False
        self._step_task: asyncio.Task[None] | None = None
        self._entered: AnyEvent | None = None
        self._again: asyncio.Task[None] | None = None
        self._requests: deque[ChangeAgentState] = deque()
        self._begun = asyncio.Event()
        # Protects a decision until its events are read: a step that ends and an event that comes must not both decide.
        self._deciding = asyncio.Lock()

    def observe(self, event: AnyEvent) -> None:
        if self._branches.fold(event):
            self.state.fold(event)
        else:
            self.state.last_event_id = event.id
        self._is_stale = self._is_stale or isinstance(event, Rewind)

    async def rejoin(self) -> None:
        """Forget what a rewind among the observed events undid."""
        if self._is_stale:
            branch = await state_of_branch(self._stream, self._branches)
            branch.keep(self.state)
            self.state = branch
            self._is_stale = False

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Within this the agent does nothing: its step is cancelled, and none begins."""
        async with self._deciding:
            await self._cancel_step()
            try:
                yield
            except Exception:
                self._decide_again()  # nothing came of what it was paused for: no event says that it goes on
                raise

    async def begin(self, initial: Sequence[AnyEvent] = ()) -> None:
        """Enter the first state, with the `initial` events (a user's message) before it; raises `EventStoreError`."""
        self.steps_left = self.state.max_steps if self.steps_left is None else self.steps_left
        await self._stream.add_events([*initial, *first_state(self.state, has_initial=bool(initial))])
        self._begun.set()

    async def run(self) -> None:
        """Follow the log and act, until the stream is closed; waits for `begin` before it reads what that wrote."""
        await self._begun.wait()
        await self.rejoin()  # where that failed before, which is why this runs again
        with self._step.log.following():
            try:
                async with self._stream.subscribe(after=self.state.last_event_id, acts=True) as events:
                    await self._guarded(
                        self._advance
                    )  # where this runs again, and the step that was under way is ended
                    async for event in events:
                        self.observe(event)  # type: ignore[arg-type] # no notices were asked for
                        await self.rejoin()
                        await self._guarded(partial(self._react, event))  # type: ignore[arg-type] # likewise
            finally:
                for task in (self._again, self._reviewing):
                    if task is not None:
                        task.cancel()
                await self._cancel_step()

    async def _react(self, event: AnyEvent) -> None:
        if isinstance(event, AgentStateChanged) and event.agent_state is AgentState.STOPPED:
            await self._cancel_step()  # its session is being closed
        if isinstance(event, ChangeAgentState) and event.source == "user":
            self._requests.append(event)
        await self._advance()

    async def _guarded(self, decide: Callable[[], Awaitable[None]]) -> None:
        """Take a decision; when it could not be stored, see to it that it is taken again."""
        try:
            await decide()
        except StreamClosedError:
            return
        except EventStoreError as error:
            # Nothing was stored, so nothing was decided either: the next event tries again, or else time does.
            self._tell_unstored(error)
            if not isinstance(error, StaleOwnerError):
                self._decide_again()

    def _tell_unstored(self, error: EventStoreError) -> None:
        if not error.code:  # else the store's owner tells all, once
            logger.error("conversation %s: %s", self._stream.conversation_id, error)
            self._stream.publish(StatusNotice("STATUS$ERROR", str(error), "error"))

    def _decide_again(self) -> None:
        """Decide what comes next a moment later."""
        if self._again is not None and not self._again.done():
            return

        async def decide_again() -> None:
            await asyncio.sleep(STORE_RETRY_SECONDS)
            self._again = None
            await self._guarded(self._advance)

        self._again = asyncio.create_task(decide_again(), name=f"decide-again:{self._stream.conversation_id}")

    async def _on_request(self, event: ChangeAgentState) -> None:
        target, present = event.agent_state, self._present()
        if target in (AgentState.RUNNING, AgentState.USER_CONFIRMED):
            self.steps_left = event.max_steps
        if present is AgentState.AWAITING_USER_CONFIRMATION and target in (
            AgentState.USER_CONFIRMED,
            AgentState.USER_REJECTED,
        ):
            await self._decide(target, reason=event.reason, remember=event.remember, only=event.action_ids)
        elif target is AgentState.RUNNING:
            if present in _ANSWERABLE:
                await self._enter(AgentState.RUNNING)
        elif target is AgentState.PAUSED and present is AgentState.AWAITING_USER_CONFIRMATION:
            return  # it rests already, and its question stands
        elif target in INTERRUPTING and target is not present:
            await self._cancel_step()
            await self._enter(target)

    async def _advance(self) -> None:
        """Do what the user asks for, and what comes next, once the whole log is read; else the next event decides."""
        async with self._deciding:
            while self._requests:  # one that could not be fulfilled, since nothing could be stored, is still wanted
                await self._on_request(self._requests[0])
                self._requests.popleft()
            if self._begun.is_set() and self.state.last_event_id >= self._stream.newest_id:
                await self._do_next()

    async def _do_next(self) -> None:
        state = self.state
        unreviewed = {place: text for place, text in state.unrecalled.items() if place not in self._reviewed}
        if unreviewed and not state.is_held and self._hooks.has(HookEvent.USER_PROMPT_SUBMIT):
            if self._reviewing is None:
                name = f"review:{self._stream.conversation_id}"
                self._reviewing = asyncio.create_task(self._review(unreviewed), name=name)
            return
        if state.is_blocked and state.agent_state in (AgentState.LOADING, AgentState.AWAITING_USER_INPUT):
            await self._enter(AgentState.FINISHED)
            return
        if state.unrecalled and not state.is_held and state.agent_state is AgentState.AWAITING_USER_CONFIRMATION:
            await self._decide(AgentState.USER_REJECTED, reason="\n".join(state.unrecalled.values()))
            return
        if state.unrecalled and state.agent_state in _ANSWERABLE and state.wants_attention:
            entering = [*recalls(state), AgentStateChanged(agent_state=AgentState.RUNNING)]
            (*_, self._entered) = await self._stream.add_events(entering)
            return
        if self._step_task is not None and not self._step_task.done():
            if state.unrecalled and state.agent_state is AgentState.RUNNING:
                await self._stream.add_events(recalls(state))
            return
        if state.agent_state is AgentState.RUNNING and (lost := answers_to_invalid_calls(state)):
            await self._stream.add_events(lost)  # the step that made them could not store these
            return
        match state.next_move():
            case Move.RECALL:
                await self._stream.add_events(recalls(state))
            case Move.STEP if state.wants_exit and self._agent.leaves_on_exit:
                await self._leave()
            case Move.STEP if self.steps_left == 0:
                await self._enter(AgentState.PAUSED)
            case Move.STEP:
                self.steps_left = None if self.steps_left is None else self.steps_left - 1
                self._start(self._run_step())
            case Move.FINISH | Move.AWAIT_INPUT if self._has_to_ask_to_rest():
                self._start(self._ask_to_rest())
            case Move.FINISH:
                if (word := refinement(self._agent.critic, state)) is not None:
                    await self._stream.add_event(word)
                else:
                    await self._enter(AgentState.FINISHED)
            case Move.AWAIT_INPUT:
                await self._enter(AgentState.AWAITING_USER_INPUT)
            case Move.RESUME:
                await self._enter(AgentState.RUNNING)

    async def _leave(self) -> None:
        """Finish without the model, which is not shown that either: no answer of its own says it."""
        finish = ActionEvent(
            action=FinishAction(message=""), tool_name=FinishTool.tool_name, hidden=True, seen=self.state.last_event_id
        )
        left = AgentStateChanged(agent_state=AgentState.FINISHED)
        (*_, self._entered) = await self._stream.add_events([finish, left])

    async def _decide(
        self, target: AgentState, *, reason: str, remember: bool = False, only: Sequence[int] | None = None
    ) -> None:
        """Confirm or reject what awaits it, in the order of the calls: all of it, or (rejecting) only these."""
        waiting = self.state.undecided
        if target is AgentState.USER_REJECTED and only is not None and (left := waiting.keys() - set(only)):
            chosen, entered = [one for key, one in waiting.items() if key not in left], []
        else:
            chosen, entered = list(waiting.values()), [AgentStateChanged(agent_state=target)]
        decision: Literal["confirmed", "rejected"] = "confirmed" if target is AgentState.USER_CONFIRMED else "rejected"
        decided: list[AnyEvent] = [
            ActionDecision(cause=action.id, decision=decision, action=action, reason=reason) for action in chosen
        ]
        if remember and target is AgentState.USER_CONFIRMED:
            decided.append(ConfirmationPolicyChanged(policy=NeverConfirm().model_dump(mode="json")))
        stored = await self._stream.add_events([*decided, *entered])
        self._entered = stored[-1] if entered else self._entered

    async def _enter(
        self, state: AgentState, *, reason: str = "", detail: str = "", because: Sequence[AnyEvent] = ()
    ) -> None:
        if state is not self._present():
            changed = AgentStateChanged(agent_state=state, reason=reason, detail=detail)
            (*_, self._entered) = await self._stream.add_events([*because, changed])

    def _present(self) -> AgentState:
        """The state as it will be once this controller's last word is read: two requests may come close together."""
        entered = self._entered
        if isinstance(entered, AgentStateChanged) and entered.id > self.state.last_event_id:
            return entered.agent_state
        return self.state.agent_state

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._step_task = asyncio.create_task(work, name=f"step:{self._stream.conversation_id}")

    async def _review(self, messages: dict[int, str]) -> None:
        async def review() -> None:
            for message_id, text in sorted(messages.items()):
                await self._hooks.submitted(message_id, text)
                self._reviewed.add(message_id)
            self._reviewing = None
            await self._advance()

        try:
            await self._guarded(review)
        finally:
            self._reviewing = None

    def _place(self) -> tuple[int, int]:
        """Where the agent has come to; another answer or another message is another place."""
        return (self.state.iterations, self.state.user_messages)

    def _has_to_ask_to_rest(self) -> bool:
        if self.state.agent_state is not AgentState.RUNNING or self.state.is_blocked:
            return False  # its user has just refused an action of it, or a hook the message
        return self._hooks.has(HookEvent.STOP) and self._free_to_rest != self._place()

    async def _ask_to_rest(self) -> None:
        """Ask the hooks whether the agent may rest; a refusal is logged as a word to the agent that lets it go on."""

        async def ask() -> None:
            place = self._place()
            if not (await self._hooks.stopping(self.state.last_words)).blocked:
                self._free_to_rest = place

        await self._guarded(ask)
        self._step_task = None
        await self._guarded(self._advance)

    async def _run_step(self) -> None:
        if self._stream.asked_in is None and PRESENT.get() is None:
            with Span("resumed_run", conversation=self._stream.conversation_id) as self._stream.asked_in:
                pass  # nobody has asked for it in this process: its steps belong together all the same
        if self._stream.asked_in is not None:
            PRESENT.set(self._stream.asked_in)  # this task was made in whatever span its conversation was loaded in
        try:
            await self._take_turn()
            self._check(self.state)
            # An agent, a condenser, an analyzer or a critic may be the user's own.
            with (
                Span("step", conversation=self._stream.conversation_id) as self._stream.step,
                exit_as_error(),
                calls_made_for(self._step.usage.context),
            ):
                await self._step.take(self.state)
        except StreamClosedError:
            return
        except EventStoreError as error:
            if not error.code:
                await self._fail(error)
                return
            # Nothing can be stored at present: nothing of the step was, and it is taken again from the log.
            self._step_task = None
            self.steps_left = None if self.steps_left is None else self.steps_left + 1
            self._decide_again()
            return
        except Exception as error:  # noqa: BLE001 - the boundary: whatever a step runs into becomes the state `error`
            await self._fail(error)
            return
        # The events of the step may have been read while it was still busy; then nobody has decided on them yet.
        self._step_task = None
        await self._guarded(self._advance)

    async def _fail(self, error: Exception) -> None:
        """Enter the state `error`; returns once the log says so, or cannot say anything any more."""
        self.failure = error
        reason, detail = failure_of(error)
        where = self._stream.conversation_id
        if not isinstance(error, DrydockError):
            extra = coded(Trouble.UNEXPECTED, where)
            logger.exception("conversation %s: the step failed", where, exc_info=error, extra=extra)
        elif not has_name(error):
            logger.warning(
                "conversation %s: the step failed: %s", where, error, extra=coded(Trouble.STEP_FAILED, where)
            )
        self._stream.publish(StatusNotice(reason if "$" in reason else "STATUS$ERROR", detail, "error"))
        while not self._stream.closed:
            try:
                await self._step.usage.settle()
                await self._enter(AgentState.ERROR, reason=reason, detail=detail, because=error_events(error, detail))
                return
            except (StaleOwnerError, StreamClosedError):
                return
            except EventStoreError as unwritten:
                level = logging.DEBUG if unwritten.code else logging.ERROR
                logger.log(level, "conversation %s: its error is not stored yet: %s", where, unwritten)
                await asyncio.sleep(STORE_RETRY_SECONDS)

    async def _cancel_step(self) -> None:
        if (task := self._step_task) is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
        self._step_task = None


def first_state(state: ControllerState, *, has_initial: bool) -> list[AnyEvent]:
    """The first state of a loaded conversation: as it was, or by what its user has said since.

    Where actions await the user's word it waits still: a message that came meanwhile refuses them then.
    """
    before = state.resumable if state.resumable in RESUMABLE else None
    if state.undecided and state.resumable not in INTERRUPTING:
        return [AgentStateChanged(agent_state=AgentState.AWAITING_USER_CONFIRMATION)]
    if has_initial or state.wants_attention:
        return [ChangeAgentState(agent_state=AgentState.RUNNING)]
    if before is None or before is AgentState.AWAITING_USER_INPUT:
        target = AgentState.AWAITING_USER_INPUT
        return [ChangeAgentState(agent_state=target), AgentStateChanged(agent_state=target)]
    if before is AgentState.AWAITING_USER_CONFIRMATION:
        before = AgentState.AWAITING_USER_INPUT
    return [AgentStateChanged(agent_state=before)]


def recalls(state: ControllerState) -> list[AnyEvent]:
    """A question to the memory for each message of the user that needs one; the first is a wider one."""
    first = state.user_messages == len(state.unrecalled)
    requests: list[AnyEvent] = []
    for message_id, text in sorted(state.unrecalled.items()):
        kind = "workspace_context" if first and not requests else "knowledge"
        requests.append(RecallAction(recall_type=kind, query=text, cause=message_id))
    return requests
