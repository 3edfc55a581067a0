"""The budget of a sub-agent: it spends the money of the conversation that asks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent_core.controller.guards import check_budget, check_limits
from agent_core.controller.state import ConversationState
from agent_core.controller.usage import UsageTracker
from agent_core.llm.metrics import Metrics
from agent_core.llm.response import LLMResponse


@dataclass(frozen=True, slots=True)
class SubAgentBudget:
    """What one sub-agent may spend: its calls are counted under its `label`, all the way up.

    `usage` and `state` (at the moment) are those of the asking conversation; `above` is what that one spends from.
    """

    usage: UsageTracker
    state: Callable[[], ConversationState]
    label: str
    above: SubAgentBudget | None = None

    def count(self, response: LLMResponse) -> None:
        """Count a call of the sub-agent."""
        self.usage.stats.add(response, self.label)
        if self.above is not None:
            self.above.count(response)

    def add(self, metrics: Metrics) -> None:
        """Count what the sub-agent's own log has, and nobody here has counted yet."""
        self.usage.stats.of(self.label).merge(metrics)
        if self.above is not None:
            self.above.add(metrics)

    def check(self, spending: ConversationState) -> None:
        """Whether the sub-agent, whose state is `spending`, may ask its model once more: by its limits, and by these.

        Raises:
            LimitReachedError: it may not, or the asking conversation, or one above it, has no money left.
        """
        check_limits(spending)
        self.check_money()

    def check_money(self) -> None:
        """Whether the asking conversation, and those above it, have money left.

        Raises:
            LimitReachedError: one has not.
        """
        if self.above is not None:
            self.above.check_money()
        check_budget(self.state().limits, self.usage.stats.accumulated_cost)
