"""One step of the agent: the prompt from the view, the model's answer into the log."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from agent_core.agent.base import AgentBase
from agent_core.agent.critic import criticised
from agent_core.agent.step import StepInput, StepOutcome
from agent_core.agent.switch_llm import SwitchedModel
from agent_core.agent.vision import renderer
from agent_core.controller.guards import blind, error_events, failure_of, rephrase
from agent_core.controller.replay import ReplayManager
from agent_core.controller.state import ControllerState
from agent_core.controller.stuck import USUAL_THRESHOLDS, StuckDetectionThresholds, StuckDetector
from agent_core.controller.usage import UsageTracker
from agent_core.errors import (
    AgentStuckInLoopError,
    DrydockError,
    LLMContentPolicyError,
    LLMContextWindowError,
    LLMMalformedHistoryError,
    LLMRateLimitError,
    NoCondensationError,
    StreamClosedError,
)
from agent_core.events.branches import Branches, read_branch
from agent_core.events.classification import ErrorClassification
from agent_core.events.control import AgentState, AgentStateChanged, CondensationRequest
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, SystemPromptEvent
from agent_core.events.masking import StreamingMask
from agent_core.events.messages import Message, MessageToolCall
from agent_core.events.risk import SecurityRisk
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import PAGE, EventStream
from agent_core.events.transient import StatusNotice, TextDelta, TextDiscarded
from agent_core.llm.llm import CallContext, RetryNotice
from agent_core.llm.registry import StoredModels
from agent_core.llm.response import LLMResponse
from agent_core.memory.condenser import condensed_by
from agent_core.memory.transcript import PromptCache
from agent_core.memory.view import View, shared_tools
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationGate, policy_in_force
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import present_tools
from agent_core.troubles import Trouble, coded
from agent_core.version import VERSION

logger = logging.getLogger(__name__)

NOTHING_DONE: Final = "Your last step came to nothing: say something, make a call, or finish."
WARNING: Final = (
    "The same call has failed several times now. Do not repeat it: read the error again, change the call, or try"
    " another way. If there is none, say so to the user."
)
_UNSAID: Final[dict[str, Any]] = {"thought": [], "reasoning_content": None, "thinking_blocks": []}


class Step:
    """Takes the steps of one conversation's agent; at most one at a time.

    `models` are those that the agent may switch to, `usage` is what all that are asked cost; `loops` says when an agent
    that repeats itself is stopped (None: never).
    """

    def __init__(
        self,
        stream: EventStream,
        agent: AgentBase,
        *,
        tools: Mapping[str, ToolDefinition],
        models: StoredModels,
        gate: ConfirmationGate,
        max_budget: float | None,
        loops: StuckDetectionThresholds | None = USUAL_THRESHOLDS,
        context: CallContext | None = None,
        payer: Callable[[LLMResponse], None] | None = None,
    ) -> None:
        self._view = View()
        self._replay = ReplayManager()
        self._loops = loops
        self._stuck = StuckDetector(loops) if loops else None
        self.log = BranchReader(stream, self._see, self._forget)
        self._stream = stream
        self._agent = agent
        self._models = SwitchedModel(agent, models, stream.secrets.add)
        self._tools = tools
        self._offer(dict(tools))
        own = [*agent.get_all_llms(), agent.llm]
        self.usage = UsageTracker(stream, own, max_budget=max_budget, context=context, payer=payer)
        self._gate = gate
        self._prompts = PromptCache(renderer(agent.llm, tools))

    def _offer(self, tools: dict[str, ToolDefinition]) -> None:
        self._offered = tools
        self._schemas = shared_tools([self._agent.shown_tool(tool) for tool in tools.values()])

    async def _present_tools(self) -> dict[str, ToolDefinition]:
        tools = await present_tools(self._tools)
        if list(map(id, tools.values())) != list(map(id, self._offered.values())):
            self._offer(tools)
            self._gate = ConfirmationGate.for_tools(self._gate.policy, self._gate.analyzer, tools)
        return self._offered

    def gate(self, state: ControllerState | None) -> ConfirmationGate:
        stored = None if state is None else state.policy
        return replace(self._gate, policy=policy_in_force(stored, self._gate.policy))

    def init_state(self, first_events: Sequence[AnyEvent], secrets: Mapping[str, str]) -> SystemPromptEvent | None:
        """What a log that begins with these events lacks before anything else; `secrets` are descriptions by name."""
        return self._agent.missing_prompt(first_events, self._schemas, version=VERSION, secrets=secrets)

    def set_analyzer(self, analyzer: SecurityAnalyzer | None) -> None:
        self._gate = replace(self._gate, analyzer=analyzer)

    def system_prompt(self, secrets: Mapping[str, str]) -> SystemPromptEvent:
        """The prompt for a branch that begins before there was one; `secrets` are descriptions by name."""
        return self._agent.system_prompt_event(self._schemas, version=VERSION, secrets=secrets)

    async def take(self, state: ControllerState) -> None:
        """Ask the model and store what comes of it.

        Cancelling it ends the request; the text streamed so far is declared void. Raises `AgentStuckInLoopError`,
        `LLMError`, or `EventStoreError` where the answer could not be stored.
        """
        seen = state.last_event_id
        await self.log.read(until=seen)
        if self._replay.should_replay():
            recorded = self._replay.step(self._input(await self._present_tools(), []))
            outcome, must_confirm = await self._judged(recorded, state)
            await self._store_whole(outcome, seen, [], must_confirm=must_confirm)
            return
        if await self._warned():
            return
        if (answer := blind(self._agent.llm, state, self._offered)) is not None:
            await self._stream.add_event(answer)
            return
        view = await self._fitting_view()
        if view is None:
            return
        tools = await self._present_tools()
        deltas = Deltas(self._stream)
        retries = Retries(self._stream)
        try:
            step = self._input(tools, self._prompts.prompt(view.transcript))
            step = replace(step, on_delta=deltas.offer, on_retry=retries.note, view=view)
            outcome = completed(await self._agent.astep(step))
            await retries.settle()
            if (critic := self._agent.critic) is not None:
                outcome = replace(outcome, events=await criticised(critic, self._view.events, outcome.events))
            outcome, must_confirm = await self._judged(outcome, state)
            stored = await self._store_whole(outcome, seen, retries.recovery(), must_confirm=must_confirm)
        except BaseException as error:
            deltas.discard()
            await retries.settle()
            if (way_out := self._way_out(error, state)) is None:
                raise
            await self._stream.add_events([*retries.recovery(), way_out])
            return
        agent_events = [one for one in outcome.events if one.source == "agent"]
        if all(isinstance(one, MessageEvent) and one.is_blank for one in agent_events):
            deltas.discard()  # nothing of it is in the log
        await self.log.read(until=stored)  # the tools are at work: what is done now is not left for their end

    def _way_out(self, error: BaseException, state: ControllerState) -> AnyEvent | None:
        """What lets the agent go on after this error, in the log; None where nothing does."""
        if isinstance(error, LLMContentPolicyError):
            return rephrase(error, state)
        if isinstance(error, LLMContextWindowError | LLMMalformedHistoryError) and self._agent.condenses_on_overflow:
            condenser = self._agent.condenser
            if condenser is not None and condenser.handles_condensation_requests():
                return CondensationRequest()
        return None

    def _input(self, tools: Mapping[str, ToolDefinition], prompt: Sequence[dict[str, Any]]) -> StepInput:
        return StepInput(
            prompt=prompt,
            tools=tools,
            tool_schemas=self._schemas,
            predicts_risk=self._gate.analyzer is not None,
            context=self.usage.context,
        )

    def _forget(self) -> None:
        self._view, self._replay = View(), ReplayManager()
        self._stuck = StuckDetector(self._loops) if self._loops else None
        self._work_with(self._models.forgotten())

    def _see(self, event: AnyEvent) -> None:
        self._view.add(event)
        self._work_with(self._models.after(event))
        self._replay.observe(event)
        if self._stuck is not None:
            self._stuck.fold(event)
        if event.id % PAGE == 0:
            self._prompts.render_settled(self._view.transcript)

    def _work_with(self, agent: AgentBase) -> None:
        if agent is not self._agent:
            self._agent, self._prompts = agent, PromptCache(renderer(agent.llm, self._tools))
            self._offer(self._offered)

    async def _warned(self) -> bool:
        """Raise for a stuck agent; warn one that is about to be, which is all that this step does."""
        if self._stuck is None:
            return False
        if (pattern := self._stuck.pattern()) is not None:
            raise AgentStuckInLoopError(str(pattern), start=self._stuck.start_of(pattern))
        if (error_id := self._stuck.to_nudge()) is None:
            return False
        word = MessageEvent(source="environment", cause=error_id, llm_message=Message.user(WARNING))
        await self._stream.add_event(word)
        return True

    async def _fitting_view(self) -> View | None:
        """The view as the model is to see it; None when its condensation is all that this step does."""
        if self._agent.condenser is None:
            return self._view
        try:
            outcome = await condensed_by(self._agent.condenser, self._view, self._agent.llm, self.usage.context)
        except NoCondensationError as error:
            if self._view.is_too_long or not self._view.wants_condensation:
                raise
            detail = failure_of(error)[1]  # a wish that cannot be fulfilled: nothing more
            self._stream.publish(StatusNotice("STATUS$ERROR", detail, "error"))
            await self._stream.add_events(error_events(error, detail))
            return None
        if isinstance(outcome, View):
            return outcome
        await self._stream.add_event(outcome.model_copy(update={"metrics": self.usage.note()}))
        return None

    async def _judged(self, outcome: StepOutcome, state: ControllerState) -> tuple[StepOutcome, bool]:
        gate = self.gate(state)
        places, actions = [], []
        for place, event in enumerate(outcome.events):
            if isinstance(event, ActionEvent) and event.action is not None:
                places.append(place)
                actions.append(event)
        classified = await gate.aclassify(actions, self._view.events)
        must_confirm = gate.decide(classified)
        events = list(outcome.events)
        for place, (action, risk) in zip(places, classified, strict=True):
            if risk is SecurityRisk.MEDIUM:
                where, tool = self._stream.conversation_id, action.tool_name
                logger.warning("conversation %s: a call of %s is of MEDIUM risk", where, tool)
            judged = {"security_risk": risk, "awaits_confirmation": must_confirm}
            events[place] = action.model_copy(update=judged)
        return replace(outcome, events=events), must_confirm

    async def _store_whole(
        self, outcome: StepOutcome, seen: int, before: Sequence[AnyEvent], *, must_confirm: bool
    ) -> int:
        """Store an answer and its errors, even when cancelled meanwhile; returns the id of the answer's last event."""
        storing = asyncio.create_task(
            self._store(outcome, seen, before, must_confirm=must_confirm),
            name=f"store-answer:{self._stream.conversation_id}",
        )
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            await asyncio.wait([storing])
            if not storing.cancelled():
                storing.exception()  # seen; whoever cancelled has other things to do
            raise

    async def _store(self, outcome: StepOutcome, seen: int, before: Sequence[AnyEvent], *, must_confirm: bool) -> int:
        common = {"seen": seen, "metrics": self.usage.note()}
        events: list[AnyEvent] = [
            event.model_copy(update=common) if isinstance(event, ActionEvent | MessageEvent) else event
            for event in outcome.events
        ]
        errors = sorted(outcome.errors.items())
        if must_confirm:
            # The state comes first: clients draw the question when the action arrives, below
            # the newest event. So no error may come behind what is asked about.
            failed, events = failed_first(events, [position for position, _ in errors])
            answered = (await self._stream.add_events([*before, *failed]))[len(before) :]
            await self._stream.add_events(
                [error_for(call, text) for call, (_, text) in zip(answered, errors, strict=True)]
            )
            before, errors = [AgentStateChanged(agent_state=AgentState.AWAITING_USER_CONFIRMATION)], []
        stored = (await self._stream.add_events([*before, *events]))[len(before) :]
        await self._stream.add_events([error_for(stored[position], text) for position, text in errors])
        return stored[-1].id if stored else seen


class BranchReader:
    """Shows each event of the active branch once, in order, to `see`; before it begins again it calls `forget`."""

    def __init__(self, stream: EventStream, see: Callable[[AnyEvent], None], forget: Callable[[], None]) -> None:
        self._stream = stream
        self._see = see
        self._forget = forget
        self._unread = stream.subscribe(after=-1)
        self._branches = Branches()
        self._shown_of = 0

    @contextmanager
    def following(self) -> Iterator[None]:
        """Within this, the stream keeps what is still to be read."""
        self._stream.attach(self._unread)
        try:
            yield
        finally:
            self._stream.detach(self._unread)

    async def read(self, *, until: int) -> None:
        """Go on to event `until`; raises `StreamClosedError`, or `EventStoreError` where the log cannot be read."""
        while self._unread.position < until:
            event = await anext(self._unread, None)
            if event is None:
                raise StreamClosedError(f"the log of conversation {self._stream.conversation_id} is gone")
            counts = self._branches.fold(event)  # type: ignore[arg-type] # no notices were asked for
            if counts and self._branches.rewinds == self._shown_of:
                self._see(event)  # type: ignore[arg-type] # likewise
        if self._branches.rewinds != self._shown_of:
            self._forget()
            async for event in read_branch(self._stream, self._branches):
                self._see(event)
            self._shown_of = self._branches.rewinds  # only now: who is cancelled before begins anew


class Deltas:
    """Passes streamed text on, with secrets masked across the borders of its pieces."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._response_id = ""
        self._masks: dict[str, StreamingMask] = {}

    def offer(self, delta: TextDelta | TextDiscarded) -> None:
        if isinstance(delta, TextDiscarded):
            self._masks.clear()
            self._response_id = ""
            self._stream.publish(delta)
            return
        self._response_id = delta.response_id
        mask = self._masks.setdefault(delta.channel, StreamingMask(self._stream.secrets))
        if text := mask.feed(delta.text):
            self._stream.publish(TextDelta(delta.response_id, text, delta.channel))

    def discard(self) -> None:
        if self._response_id:
            self._stream.publish(TextDiscarded(self._response_id))
            self._response_id = ""


class Retries:
    """Tells the user about retries; a limited rate is a state of its own."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._writing: asyncio.Task[object] | None = None
        self.was_limited = False

    def note(self, notice: RetryNotice) -> None:
        text = (
            f"Retrying LLM request, {notice.attempt} / {notice.max_attempts}"
            f" in {notice.wait_seconds:.0f} s: {notice.error}"
        )
        self._stream.publish(StatusNotice("STATUS$LLM_RETRY", text))
        where = self._stream.conversation_id
        logger.info("conversation %s: %s", where, text, extra=coded(Trouble.MODEL_RETRIED, where))
        if isinstance(notice.error, LLMRateLimitError) and not self.was_limited:
            self.was_limited = True
            limited = AgentStateChanged(agent_state=AgentState.RATE_LIMITED, detail=str(notice.error))
            self._writing = asyncio.create_task(self._stream.add_event(limited), name="rate-limited")

    async def settle(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])
            if error := self._writing.exception():
                raise error

    def recovery(self) -> list[AnyEvent]:
        """The end of the state `rate_limited`, where it was entered."""
        return [AgentStateChanged(agent_state=AgentState.RUNNING)] if self.was_limited else []


def completed(outcome: StepOutcome) -> StepOutcome:
    """The outcome with all that the log needs to count steps, and to tell the calls of one answer.

    A step without events tells the agent so, and counts as an empty reply. Raises `DrydockError` where a call that is
    not the first of its response has a thought.
    """
    events = outcome.events or [MessageEvent(llm_message=Message.user(NOTHING_DONE))]
    if not outcome.events or not all(map(_is_complete, events)):
        response_id = f"step-{uuid4().hex}"
        named = [_named(event, response_id) for event in events]
        sizes = Counter(event.llm_response_id for event in named if isinstance(event, ActionEvent))
        events = [
            event.model_copy(update={"calls_in_response": sizes[event.llm_response_id]})
            if isinstance(event, ActionEvent) and not event.calls_in_response
            else event
            for event in named
        ]
    begun: set[str] = set()
    for event in events:
        if not isinstance(event, ActionEvent):
            continue
        if event.llm_response_id in begun and (event.thought or event.reasoning_content or event.thinking_blocks):
            raise DrydockError(
                f"the call of {event.tool_name!r} is not the first of its response and has a thought; only the first"
                " may have one"
            )
        begun.add(event.llm_response_id)
    return outcome if events is outcome.events else replace(outcome, events=events)


def _is_complete(event: AnyEvent) -> bool:
    if isinstance(event, ActionEvent):
        return bool(event.llm_response_id and event.calls_in_response and event.tool_call and event.tool_call_id)
    return not isinstance(event, MessageEvent) or bool(event.llm_response_id)


def _named(event: AnyEvent, response_id: str) -> AnyEvent:
    if isinstance(event, MessageEvent):
        return event.model_copy(update={"llm_response_id": event.llm_response_id or response_id})
    if not isinstance(event, ActionEvent):
        return event
    call_id = event.tool_call_id or (event.tool_call.id if event.tool_call else "") or f"call-{uuid4().hex}"
    action = event.action
    arguments = "{}" if action is None else action.model_dump_json(exclude={"kind"}, exclude_none=True)
    call = event.tool_call or MessageToolCall(id=call_id, name=event.tool_name, arguments=arguments)
    fields: dict[str, Any] = {"tool_call": call, "tool_call_id": call_id}
    return event.model_copy(update={**fields, "llm_response_id": event.llm_response_id or response_id})


def error_for(call: AnyEvent, text: str) -> AgentErrorEvent:
    """The answer to a call that could not be understood; raises `TypeError` for what is no call."""
    if not isinstance(call, ActionEvent):
        raise TypeError(f"only calls are answered by errors, not {call.kind}")
    return AgentErrorEvent.answering(call, text, ErrorClassification.AGENT_ACTION)


def failed_first(events: Sequence[AnyEvent], places: Sequence[int]) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """The calls of an answer at these places, then all others; the first of all carries what was said with them.

    Their order says nothing to the model: they are made at the same time.
    """
    failed = [events[place] for place in places]
    others = [event for place, event in enumerate(events) if place not in places]
    if failed and others and places[0] != 0:
        fields = {name: getattr(others[0], name) for name in _UNSAID}
        failed[0], others[0] = failed[0].model_copy(update=fields), others[0].model_copy(update=_UNSAID)
    return failed, others
