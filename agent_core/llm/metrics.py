"""Usage and cost of model calls: tokens and prices of a call, the counter of one model, and those of a conversation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from agent_core.events.llm_events import MetricsSnapshot, TokenUsage, UsageTotals
from agent_core.llm.features import model_entry
from agent_core.llm.response import LLMResponse
from agent_core.spelling import spelled

RECENT_CALLS = 100
DEFAULT_USAGE_ID = "default"
_T = TypeVar("_T")
_LONG_PROMPT = 200_000
_IMPOSSIBLE_COUNT = 10**12
_LOCAL = frozenset({"ollama", "ollama_chat", "lm_studio", "llamafile", "hosted_vllm", "vllm", "demo", "replay"})
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call cost, US dollars."""

    model: str
    cost: float
    response_id: str


@dataclass(frozen=True, slots=True)
class ResponseLatency:
    """How long one call took, seconds."""

    model: str
    latency: float
    response_id: str


@spelled
class Metrics:
    """A counter of costs (US dollars), tokens and latencies: sums over everything, lists of the last hundred calls."""

    def __init__(
        self,
        accumulated_cost: float = 0.0,
        accumulated_token_usage: TokenUsage | None = None,
        *,
        max_budget_per_task: float | None = None,
    ) -> None:
        self.accumulated_cost = _cost(accumulated_cost, "accumulated_cost")
        self.max_budget_per_task = max_budget_per_task
        self.accumulated_token_usage = accumulated_token_usage or TokenUsage()
        self.calls = 0
        self.costs: list[Cost] = []
        self.response_latencies: list[ResponseLatency] = []
        self.token_usages: list[TokenUsage] = []

    def add(self, response: LLMResponse) -> None:
        """Count a call, an unknown cost as nothing; raises `ValueError` for a negative one, and counts nothing then."""
        cost = _cost(response.cost or 0.0, f"the cost of response {response.id}")
        if cost:
            self.accumulated_cost += cost
            _keep(self.costs, [Cost(response.model, cost, response.id)])
        self.accumulated_token_usage += response.usage
        _keep(self.token_usages, [response.usage])
        took = ResponseLatency(response.model, max(0.0, response.latency), response.id)
        _keep(self.response_latencies, [took])
        self.calls += 1

    def merge(self, other: Metrics) -> None:
        """Add another's counts; its budget is taken where there is none here."""
        if self.max_budget_per_task is None:
            self.max_budget_per_task = other.max_budget_per_task
        self.accumulated_cost += other.accumulated_cost
        self.accumulated_token_usage += other.accumulated_token_usage
        self.calls += other.calls
        _keep(self.costs, other.costs)
        _keep(self.response_latencies, other.response_latencies)
        _keep(self.token_usages, other.token_usages)

    def diff(self, baseline: Metrics) -> Metrics:
        """What was counted since `baseline`, an earlier copy of this counter."""
        now, before = self.accumulated_token_usage, baseline.accumulated_token_usage
        usage = now.model_copy(
            update={
                name: getattr(now, name) - getattr(before, name)
                for name in TokenUsage.model_fields
                if name.endswith("_tokens")
            }
        )
        cost = max(0.0, self.accumulated_cost - baseline.accumulated_cost)
        since = Metrics(cost, usage, max_budget_per_task=self.max_budget_per_task)
        since.calls = self.calls - baseline.calls
        known = {one.response_id for one in baseline.response_latencies}
        since.costs.extend(one for one in self.costs if one.response_id not in known)
        since.response_latencies.extend(one for one in self.response_latencies if one.response_id not in known)
        since.token_usages.extend(one for one in self.token_usages if one.response_id not in known)
        return since

    def deep_copy(self) -> Metrics:
        own = copy.copy(self)  # what the lists hold never changes
        own.costs, own.token_usages = self.costs.copy(), self.token_usages.copy()
        own.response_latencies = self.response_latencies.copy()
        return own

    def snapshot(self) -> MetricsSnapshot:
        return MetricsSnapshot(
            accumulated_cost=self.accumulated_cost,
            max_budget=self.max_budget_per_task,
            usage=self.accumulated_token_usage,
        )

    @property
    def cache_hit_rate(self) -> float:
        """Share of the prompt tokens that came from the provider's cache, 0 to 1."""
        usage = self.accumulated_token_usage
        return usage.cache_read_tokens / usage.prompt_tokens if usage.prompt_tokens else 0.0


@spelled
class ConversationStats:
    """The metrics of all usage ids of one conversation, sub-agents' included.

    They go on from `restored`, the last snapshot of the log; what it gives under no id counts for `DEFAULT_USAGE_ID`.
    """

    def __init__(self, restored: MetricsSnapshot | None = None, *, max_budget: float | None = None) -> None:
        before = restored or MetricsSnapshot()
        counted = dict(before.by_usage_id)
        if not counted and (before.accumulated_cost or before.usage != TokenUsage()):
            counted[DEFAULT_USAGE_ID] = before
        self._metrics = {usage_id: Metrics(one.accumulated_cost, one.usage) for usage_id, one in counted.items()}
        self._unattached = {usage_id: one.deep_copy() for usage_id, one in self._metrics.items()}
        self._newest = before.usage
        self.max_budget = max_budget if max_budget is not None else before.max_budget
        self.calls = 0

    @property
    def usage_to_metrics(self) -> Mapping[str, Metrics]:
        return MappingProxyType(self._metrics)

    def get_metrics_for_usage(self, usage_id: str) -> Metrics:
        """The metrics of a usage id; raises `KeyError`, listing those there are, if nothing was counted for it."""
        if usage_id not in self._metrics:
            raise KeyError(f"usage_id {usage_id!r} has no metrics; there are those of {sorted(self._metrics)}")
        return self._metrics[usage_id]

    def of(self, usage_id: str) -> Metrics:
        """The metrics of a usage id; new ones where there are none yet."""
        return self._metrics.setdefault(usage_id, Metrics())

    def add(self, response: LLMResponse, usage_id: str = DEFAULT_USAGE_ID) -> None:
        self.of(usage_id).add(response)
        self._newest = response.usage
        self.calls += 1

    def take_over(self, others: ConversationStats) -> None:
        """Add what others have counted themselves, for the same conversation."""
        for usage_id, metrics in others.usage_to_metrics.items():
            self.of(usage_id).merge(metrics)
        self.calls += others.calls
        self._newest = others._newest if others.calls else self._newest

    def take_restored(self, usage_id: str) -> Metrics | None:
        """What a model registered under this id goes on counting from; given out once, None when there is nothing."""
        return self._unattached.pop(usage_id, None)

    @property
    def accumulated_cost(self) -> float:
        return sum(one.accumulated_cost for one in self._metrics.values())

    def get_combined_metrics(self) -> Metrics:
        combined = Metrics(max_budget_per_task=self.max_budget)
        for one in self._metrics.values():
            combined.merge(one)
        return combined

    def snapshot(self) -> MetricsSnapshot:
        """The metrics, together and by usage id, as they go into the log; the turn is that of the newest call."""
        usages = [one.accumulated_token_usage for one in self._metrics.values()]
        usage = sum(usages[1:], usages[0]) if usages else TokenUsage()
        newest = self._newest
        turn = {"model": newest.model, "per_turn_token": newest.per_turn_token, "response_id": newest.response_id}
        return MetricsSnapshot(
            accumulated_cost=self.accumulated_cost,
            max_budget=self.max_budget,
            usage=usage.model_copy(update=turn),
            by_usage_id={
                usage_id: UsageTotals(accumulated_cost=one.accumulated_cost, usage=one.accumulated_token_usage)
                for usage_id, one in self._metrics.items()
            },
        )


def _keep(recent: list[_T], new: Iterable[_T]) -> None:
    recent.extend(new)
    del recent[:-RECENT_CALLS]


def _cost(value: float, name: str) -> float:
    if value < 0:
        raise ValueError(f"{name} is {value}: a cost cannot be negative")
    return value


def usage_of(
    reported: Mapping[str, Any] | None,
    *,
    model: str,
    response_id: str,
    window: int | None,
    estimate: Callable[[], tuple[int, int]],
) -> TokenUsage:
    """Tokens from the provider's usage (chat or Responses), else from `estimate`: characters of prompt and answer."""
    raw = reported or {}
    prompt = _count(raw, "prompt_tokens", "input_tokens")
    completion = _count(raw, "completion_tokens", "output_tokens")
    if not prompt:
        prompt_chars, answer_chars = estimate()
        prompt = prompt_chars // CHARS_PER_TOKEN
        completion = completion or answer_chars // CHARS_PER_TOKEN
    into = _part(raw, "prompt_tokens_details", "input_tokens_details")
    out = _part(raw, "completion_tokens_details", "output_tokens_details")
    return TokenUsage(
        model=model,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cache_read_tokens=_count(into, "cached_tokens")
        or _count(raw, "cache_read_input_tokens", "prompt_cache_hit_tokens"),
        cache_write_tokens=_count(raw, "cache_creation_input_tokens") or _count(into, "cache_creation_tokens"),
        reasoning_tokens=_count(out, "reasoning_tokens"),
        context_window=window or 0,
        per_turn_token=prompt + completion,
        response_id=response_id,
    )


def cost_of(
    usage: TokenUsage, model: str, input_price: float | None = None, output_price: float | None = None
) -> float | None:
    """US dollars for these tokens; None without own prices (both) or public ones, and for models on own machines."""
    if input_price is not None and output_price is not None:
        return usage.prompt_tokens * input_price + usage.completion_tokens * output_price
    entry = None if model.partition("/")[0] in _LOCAL else model_entry(model)
    if entry is None:
        return None
    is_long = usage.prompt_tokens > _LONG_PROMPT
    into = _price(entry, "input_cost_per_token", is_long=is_long)
    out = _price(entry, "output_cost_per_token", is_long=is_long)
    if into is None or out is None:
        return None
    read = _price(entry, "cache_read_input_token_cost", is_long=is_long)
    write = _price(entry, "cache_creation_input_token_cost", is_long=is_long)
    fresh = max(0, usage.prompt_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    return (
        fresh * into
        + usage.cache_read_tokens * (into if read is None else read)
        + usage.cache_write_tokens * (into if write is None else write)
        + usage.completion_tokens * out
    )


def _price(entry: Mapping[str, Any], key: str, *, is_long: bool) -> float | None:
    value = entry.get(f"{key}_above_200k_tokens") if is_long else None
    value = entry.get(key) if value is None else value
    return float(value) if isinstance(value, int | float) else None


def _count(values: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = values.get(name)
        if isinstance(value, int | float) and 0 < value < _IMPOSSIBLE_COUNT:
            return int(value)
    return 0


def _part(values: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        if isinstance(values.get(name), Mapping):
            part: Mapping[str, Any] = values[name]
            return part
    return {}
