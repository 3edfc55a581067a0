"""What a conversation's model calls cost, per usage id and in all (agent-core 8.8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from agent_core.events.llm_events import MetricsSnapshot, TokenUsage
from agent_core.llm.response import LLMResponse

RECENT_CALLS = 100


class Metrics:
    """The sums of one usage id, and the latencies (seconds) of its last hundred calls."""

    def __init__(self, accumulated_cost: float = 0.0, usage: TokenUsage | None = None) -> None:
        if accumulated_cost < 0:
            raise ValueError(f"accumulated_cost is {accumulated_cost}: a cost cannot be negative")
        self.accumulated_cost = accumulated_cost
        self.usage = usage or TokenUsage()
        self.calls = 0
        self.latencies: deque[float] = deque(maxlen=RECENT_CALLS)

    def add(self, response: LLMResponse) -> None:
        """Count a call; an unknown cost counts as nothing.

        Raises:
            ValueError: the cost is negative.
        """
        cost = response.cost or 0.0
        if cost < 0:
            raise ValueError(f"the cost of response {response.id} is {cost}: a cost cannot be negative")
        self.accumulated_cost += cost
        self.usage += response.usage
        self.calls += 1
        self.latencies.append(max(0.0, response.latency))

    def merge(self, other: Metrics) -> None:
        """Add another's sums."""
        self.accumulated_cost += other.accumulated_cost
        self.usage += other.usage
        self.calls += other.calls
        self.latencies.extend(other.latencies)

    @property
    def cache_hit_rate(self) -> float:
        """Share of the prompt tokens that came from the provider's cache, 0 to 1."""
        return self.usage.cache_read_tokens / self.usage.prompt_tokens if self.usage.prompt_tokens else 0.0


class ConversationStats:
    """The metrics of all usage ids of one conversation.

    `earlier` is the last snapshot of the log when a conversation is taken up again: the combined figures go on from it.
    """

    def __init__(self, earlier: MetricsSnapshot | None = None, *, max_budget: float | None = None) -> None:
        self._earlier = earlier or MetricsSnapshot()
        self._metrics: dict[str, Metrics] = {}
        self.max_budget = max_budget if max_budget is not None else self._earlier.max_budget

    @property
    def usage_to_metrics(self) -> Mapping[str, Metrics]:
        """Metrics by usage id, of this process only."""
        return MappingProxyType(self._metrics)

    def of(self, usage_id: str) -> Metrics:
        """The metrics of a usage id; new ones where there are none yet."""
        return self._metrics.setdefault(usage_id, Metrics())

    def add(self, response: LLMResponse, usage_id: str = "default") -> MetricsSnapshot:
        """Count a call, and return the combined figures after it."""
        self.of(usage_id).add(response)
        return self.snapshot()

    @property
    def accumulated_cost(self) -> float:
        """US dollars over all usage ids, earlier runs included."""
        return self._earlier.accumulated_cost + sum(one.accumulated_cost for one in self._metrics.values())

    def snapshot(self) -> MetricsSnapshot:
        """The combined figures."""
        usage = self._earlier.usage
        for one in self._metrics.values():
            usage += one.usage
        return MetricsSnapshot(accumulated_cost=self.accumulated_cost, max_budget=self.max_budget, usage=usage)
