"""One step of an agent: its input, its outcome, and classes with a blocking `step` in place of `astep`."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from agent_core.errors import DrydockError
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.llm import CallContext, LLMResponse, RetryNotice
from agent_core.memory.view import View
from agent_core.spelling import spelled
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import called


@spelled
@dataclass(frozen=True, slots=True)
class StepInput:
    """What one step works from.

    `predicts_risk`: whether what the model says of the risk of its calls counts. `view`, which the prompt was made
    from, is only to be read.
    """

    prompt: Sequence[dict[str, Any]]
    tools: Mapping[str, ToolDefinition]
    tool_schemas: Sequence[dict[str, Any]]
    predicts_risk: bool = True
    context: CallContext | None = None
    on_delta: Callable[[TextDelta | TextDiscarded], None] | None = None
    on_retry: Callable[[RetryNotice], None] | None = None
    view: View | None = None


@spelled
@dataclass(frozen=True, slots=True)
class StepOutcome:
    """Result of a step: `events`, appended together in this order, and the model's `response`, if one was asked.

    Response ids and the model's form of calls are completed. `errors` has, by position in `events`, the answers to
    invalid calls.
    """

    events: list[AnyEvent]
    response: LLMResponse | None = None
    errors: Mapping[int, str] = field(default_factory=dict)


AsyncStep = Callable[[Any, StepInput], Coroutine[Any, Any, StepOutcome]]

FINISHED = "finished"

_threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="agent-step")


def bridged(agent: type[Any]) -> AsyncStep | None:
    """The `astep` of a class that defines `step` and inherits `astep`; None for any other class.

    Raises `TypeError` where `step` is asynchronous.
    """
    if _place_of("step", agent) >= _place_of("astep", agent):
        return None
    if inspect.iscoroutinefunction(agent.step):
        raise TypeError(f"{agent.__name__}.step is asynchronous: call it astep, and have it take a StepInput")
    inherited: AsyncStep = getattr(agent.astep, "inherited", agent.astep)

    async def astep(self: Any, step: StepInput) -> StepOutcome:
        return await SteppedConversation(self, step, inherited).outcome()

    astep.inherited = inherited  # type: ignore[attr-defined] # what another bridge, built on this one, leads to
    return astep


def _place_of(name: str, agent: type[Any]) -> int:
    return next(place for place, each in enumerate(agent.__mro__) if name in vars(each))


class SteppedState:
    """The state of a conversation as a blocking `step` sees it; `events` are those that a model is shown."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.is_finished = False

    @property
    def events(self) -> Sequence[Event]:
        return tuple(self.view.events)

    @property
    def execution_status(self) -> str:
        """A step may set it to ``finished``: the agent rests after the step then."""
        return FINISHED if self.is_finished else "running"

    @execution_status.setter
    def execution_status(self, value: str) -> None:
        if value != FINISHED:
            raise ValueError(f"execution_status: a step can set it to {FINISHED!r} only, not to {str(value)!r}")
        self.is_finished = True


class SteppedConversation:
    """The conversation as a blocking `step` is given it; good for that step only.

    With its `call_context` (``llm.completion(…, call_context=…)``) a call of a model counts for the conversation.
    """

    def __init__(self, agent: Any, step: StepInput, inherited: AsyncStep) -> None:
        self.agent = agent
        self.call_context = step.context or CallContext()
        self.id = self.call_context.session_id
        self.state = SteppedState(View() if step.view is None else step.view)
        self._step = step
        self._inherited = inherited
        self._events: list[AnyEvent] = []
        self._errors: dict[int, str] = {}
        self._future: Future[StepOutcome] | None = None
        self._is_over = False
        self._loop = asyncio.get_running_loop()

    async def outcome(self) -> StepOutcome:
        work = contextvars.copy_context().run
        try:
            await self._loop.run_in_executor(
                _threads, work, called, self.agent.step, self, self._take, self._hear_token
            )
        finally:
            self._is_over = True
            if self._future is not None:
                self._future.cancel()
        errors = {place: self._errors[id(one)] for place, one in enumerate(self._events) if id(one) in self._errors}
        return StepOutcome(_resting(self._events) if self.state.is_finished else self._events, errors=errors)

    def step(
        self, on_event: Callable[[Any], object] | None = None, on_token: Callable[[Any], object] | None = None
    ) -> None:
        """Take the inherited step, and wait for it: ``super().step(…)``.

        Raises `NotImplementedError` where there is none, `DrydockError` once this step is over, `LLMError`.
        """
        self._check()
        if getattr(self._inherited, "__isabstractmethod__", False):
            raise NotImplementedError(f"{type(self.agent).__name__} comes from no class that has a step of its own")
        self._future = asyncio.run_coroutine_threadsafe(self._inherited(self.agent, self._step), self._loop)
        outcome = self._future.result()
        self._errors.update({id(outcome.events[place]): text for place, text in outcome.errors.items()})
        for event in outcome.events:
            (on_event or self._take)(event)

    def _check(self) -> None:
        if self._is_over:
            raise DrydockError("the step is over: what it does now counts for nothing")

    def _take(self, event: AnyEvent) -> None:
        self._check()
        if not isinstance(event, Event):
            raise TypeError(f"on_event takes events, not a {type(event).__name__}")
        self._events.append(event)

    def _hear_token(self, delta: TextDelta | str) -> None:
        if (publish := self._step.on_delta) is not None and not self._is_over:
            shown = delta if isinstance(delta, TextDelta) else TextDelta(self.id, str(delta))
            self._loop.call_soon_threadsafe(publish, shown)


def _resting(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """The events of an agent that rests after them: its message says so, a blank one where it has said nothing."""
    if any(isinstance(event, ActionEvent) for event in events):
        return list(events)  # it rests when it has seen what they came to, and says so
    agent_messages = [one for one in events if isinstance(one, MessageEvent) and one.source == "agent"]
    if not agent_messages:
        blank = MessageEvent(source="agent", llm_message=Message.assistant(""), wait_for_response=True)
        return [*events, blank]
    return [one.model_copy(update={"wait_for_response": True}) if one in agent_messages else one for one in events]
