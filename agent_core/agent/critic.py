"""Critics: judge an agent's work, and decide whether it tries again."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from agent_core.events.event import Event, LLMConvertibleEvent
from agent_core.events.llm_events import ActionEvent, CriticResult, MessageEvent
from agent_core.events.messages import Frozen
from agent_core.events.schema import Family
from agent_core.events.serialization import AnyEvent
from agent_core.tools.builtin import FinishAction
from agent_core.tools.execution import called

CRITIC_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="critic")


class IterativeRefinementConfig(Frozen):
    """An agent whose result has less than `success_threshold` is told to go on, at most `max_iterations` times."""

    success_threshold: float = Field(default=0.6, ge=0, le=1)
    max_iterations: int = Field(default=3, ge=1)


class CriticBase(Family):
    """Judges an agent's work. Frozen and serialisable; subclasses are found again by their `kind`.

    A subclass defines `evaluate`, which may block, or `aevaluate`. `mode` says what is judged: the finish and messages
    to the user, or every action as well; with `iterative_refinement` a bad finish is followed by another try.
    """

    mode: Literal["finish_and_message", "all_actions"] = "finish_and_message"
    iterative_refinement: IterativeRefinementConfig | None = None

    @abstractmethod
    def evaluate(self, events: Sequence[Event], git_patch: str | None = None) -> CriticResult:
        """The judgement of the last of `events`, which are those that the model knows."""

    async def aevaluate(self, events: Sequence[Event], git_patch: str | None = None) -> CriticResult:
        work = copy_context().run
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_threads, work, called, self.evaluate, events, git_patch)

    def judges(self, event: AnyEvent) -> bool:
        if isinstance(event, MessageEvent):
            return event.source == "agent" and not event.is_blank
        if not isinstance(event, ActionEvent) or event.action is None:
            return False
        return self.mode == "all_actions" or isinstance(event.action, FinishAction)


async def criticised(critic: CriticBase, known: Sequence[Event], events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """The new `events` with the critic's result in those that it judges, after what models see of the `known`.

    A critic that fails or is late is logged; it judges nothing.
    """
    judged: list[AnyEvent] = []
    shown: list[Event] | None = None
    for event in events:
        if not critic.judges(event) or not isinstance(event, ActionEvent | MessageEvent):
            judged.append(event)
            continue
        shown = [one for one in known if isinstance(one, LLMConvertibleEvent)] if shown is None else shown
        try:
            async with asyncio.timeout(CRITIC_SECONDS):
                result = await critic.aevaluate([*shown, *judged, event])
        except Exception:
            logger.exception("%s failed; the work goes on unjudged", critic.kind)
            judged.append(event)
        else:
            judged.append(event.model_copy(update={"critic_result": result}))
    return judged


AnyCritic = Annotated[SerializeAsAny[CriticBase], BeforeValidator(lambda value: CriticBase.revive(value))]
"""A field holding any critic, restored to its own class when read back."""


class CriticMixin:
    """Adds a `critic` to an agent."""

    if TYPE_CHECKING:
        critic: CriticBase | None  # a field of the agent's own

    async def criticised(self, known: Sequence[Event], events: Sequence[AnyEvent]) -> list[AnyEvent]:
        return list(events) if self.critic is None else await criticised(self.critic, known, events)


class PassCritic(CriticBase):
    """Finds everything good."""

    def evaluate(self, events: Sequence[Event], git_patch: str | None = None) -> CriticResult:
        return CriticResult(score=1.0, message="Everything passes.")


class AgentFinishedCritic(CriticBase):
    """Wants the agent to have called finish."""

    def evaluate(self, events: Sequence[Event], git_patch: str | None = None) -> CriticResult:
        last = next((event for event in reversed(events) if isinstance(event, ActionEvent)), None)
        if last is not None and last is events[-1] and isinstance(last.action, FinishAction):
            return CriticResult(score=1.0, message="The agent has finished.")
        return CriticResult(score=0.0, message="The agent has not called finish.")


class EmptyPatchCritic(CriticBase):
    """Wants a patch with something in it."""

    def evaluate(self, events: Sequence[Event], git_patch: str | None = None) -> CriticResult:
        if (git_patch or "").strip():
            return CriticResult(score=1.0, message="There is a patch.")
        return CriticResult(score=0.0, message="The patch is empty.")
