"""Usage of a conversation's models: tokens and cost, counted call by call and kept in its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import get_ident

from agent_core.controller.guards import check_budget, check_limits
from agent_core.controller.state import ControllerState
from agent_core.events.control import Condensation, MetricsUpdated
from agent_core.events.llm_events import ActionEvent, MessageEvent, MetricsSnapshot
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.llm.llm import LLM, CallContext
from agent_core.llm.metrics import ConversationStats, Metrics
from agent_core.llm.registry import LLMRegistry
from agent_core.llm.response import LLMResponse


def metrics_of(event: AnyEvent) -> MetricsSnapshot | None:
    """The total cost of the conversation as of this event, if it says so."""
    return event.metrics if isinstance(event, ActionEvent | MessageEvent | Condensation | MetricsUpdated) else None


class UsageTracker:
    """Usage tracker: counts the calls that are made with its `context`, whatever model they ask.

    The usage goes into the log with the events that the calls lead to; `settle` stores those of calls that led to none.
    `payer` is told of each call, too: a sub-agent's calls are paid by whoever asked it. `context` is what the calls
    tell of the conversation, by default its id. `registry` has the models by usage id.
    """

    def __init__(
        self,
        stream: EventStream,
        models: Iterable[LLM],
        *,
        max_budget: float | None,
        context: CallContext | None = None,
        payer: Callable[[LLMResponse], None] | None = None,
    ) -> None:
        self._stream = stream
        self._models = tuple(models)
        self._max_budget = max_budget
        self._payer = payer
        own = context or CallContext(prompt_cache_key=stream.conversation_id, session_id=stream.conversation_id)
        self.context = replace(own, on_response=self._hear)
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self.stats = ConversationStats(max_budget=max_budget)
        self._noted = 0
        self.registry = self._registered()

    def _hear(self, response: LLMResponse, usage_id: str) -> None:
        """Count a call in the loop of the conversation, whatever thread it was made in, and after its end nowhere."""
        if get_ident() == self._thread:
            self._count(response, usage_id)
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._count, response, usage_id)

    def _count(self, response: LLMResponse, usage_id: str) -> None:
        self.stats.add(response, usage_id)
        if self._payer is not None:
            self._payer(response)

    def restore(self, metrics: MetricsSnapshot) -> None:
        """Go on from what the log says was spent; models that have counted nothing yet go on from it too."""
        already, self.stats = self.stats, ConversationStats(metrics, max_budget=self._max_budget)
        self.registry = self._registered()
        self.stats.take_over(already)

    def _registered(self) -> LLMRegistry:
        registry = LLMRegistry(stats=self.stats)
        for llm in self._models:
            if llm.usage_id not in registry:
                registry.add(llm)
        return registry

    def note(self) -> MetricsSnapshot:
        self._noted = self.stats.calls
        return self.stats.snapshot()

    async def settle(self) -> None:
        """Store what was counted and noted nowhere; raises `EventStoreError` or `StreamClosedError`."""
        if self._noted < self.stats.calls:
            updates: list[AnyEvent] = [MetricsUpdated(metrics=self.note())]
            await self._stream.add_events(updates)


@dataclass(frozen=True, slots=True)
class SubAgentBudget:
    """What one sub-agent may spend: it is the money of the conversation that asks, all the way up.

    `usage` and `state` are those of the asking conversation; `above` is its own budget.
    """

    usage: UsageTracker
    state: Callable[[], ControllerState]
    label: str
    above: SubAgentBudget | None = None

    def count(self, response: LLMResponse) -> None:
        self.usage.stats.add(response, self.label)
        if self.above is not None:
            self.above.count(response)

    def add(self, metrics: Metrics) -> None:
        """Count what the sub-agent's own log has, and nobody here has counted yet."""
        self.usage.stats.of(self.label).merge(metrics)
        if self.above is not None:
            self.above.add(metrics)

    def check(self, spending: ControllerState) -> None:
        """Raise `LimitReachedError` where the sub-agent, whose state is `spending`, may not ask its model again."""
        check_limits(spending)
        self.check_money()

    def check_money(self) -> None:
        """Raise `LimitReachedError` where the asking conversation, or one above it, has no money left."""
        if self.above is not None:
            self.above.check_money()
        check_budget(self.state().limits, self.usage.stats.accumulated_cost)
