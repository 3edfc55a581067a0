from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import LLMUnavailableError
from agent_core.events.llm_events import MetricsSnapshot, TokenUsage
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, LLMResponse
from agent_core.llm.metrics import RECENT_CALLS, ConversationStats, Metrics
from agent_core.llm.registry import LLMRegistry
from agent_core.llm.transport.exchange import Chunk, CompletionRequest, Endpoint

_ids = itertools.count()


def response(cost: float | None = 0.5, latency: float = 1.0, **tokens: int) -> LLMResponse:
    response_id = f"resp_{next(_ids)}"
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "cache_read_tokens": 4, **tokens}
    usage = TokenUsage(model="m", response_id=response_id, **counts)
    return LLMResponse(Message.assistant("x"), response_id, usage, cost, latency, "stop", "m")


class Priced:
    """A transport whose provider says what each call cost."""

    async def prepare(self, endpoint: Endpoint) -> None:
        pass

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        yield Chunk(text="x", has_choice=True, finish_reason="stop", cost=0.25)


async def test_a_model_counts_what_its_calls_cost() -> None:
    llm = LLM(model="openai/x").using(Priced())
    assert llm.metrics.accumulated_cost == 0.0
    await llm.acompletion([llm.render(Message.user("hello"))])
    await llm.acompletion([llm.render(Message.user("hello"))])
    assert llm.metrics.accumulated_cost == 0.5
    assert [one.cost for one in llm.metrics.costs] == [0.25, 0.25]


async def test_copies_count_together_until_one_is_reset() -> None:
    llm = LLM(model="openai/x").using(Priced())
    copy = llm.model_copy(update={"temperature": 0.5})
    assert llm.model_copy(deep=True).metrics is llm.metrics
    await copy.acompletion([copy.render(Message.user("hello"))])
    assert llm.metrics.accumulated_cost == 0.25
    copy.reset_metrics()
    await copy.acompletion([copy.render(Message.user("hello"))])
    assert llm.metrics.accumulated_cost == 0.25
    assert copy.metrics.accumulated_cost == 0.25
    assert copy.metrics is not llm.metrics


async def test_what_was_spent_makes_no_other_configuration() -> None:
    llm = LLM(model="openai/x")
    llm.metrics.add(response())
    assert llm == LLM(model="openai/x")
    assert llm != LLM(model="openai/y")
    assert llm != "openai/x"
    assert "metrics" not in llm.model_dump()


def test_a_call_without_a_price_has_tokens_and_latency_but_no_cost() -> None:
    metrics = Metrics()
    metrics.add(response(cost=None))
    metrics.add(response(cost=0.0))
    assert not metrics.costs
    assert len(metrics.response_latencies) == len(metrics.token_usages) == 2


def test_metrics_are_bounded_and_never_negative() -> None:
    metrics = Metrics()
    for _ in range(RECENT_CALLS + 10):
        metrics.add(response(latency=-1))
    assert len(metrics.response_latencies) == len(metrics.costs) == len(metrics.token_usages) == RECENT_CALLS
    assert {one.latency for one in metrics.response_latencies} == {0.0}
    with pytest.raises(ValueError, match="cannot be negative"):
        metrics.add(response(cost=-1))
    assert metrics.calls == RECENT_CALLS + 10
    with pytest.raises(ValueError, match="cannot be negative"):
        Metrics(-1.0)


def test_a_snapshot_has_the_sums_that_go_into_the_log() -> None:
    metrics = Metrics(max_budget_per_task=3.0)
    metrics.add(response())
    metrics.add(response())
    told = metrics.snapshot()
    assert (told.accumulated_cost, told.max_budget) == (1.0, 3.0)
    assert (told.usage.prompt_tokens, told.usage.completion_tokens, told.usage.cache_read_tokens) == (20, 10, 8)


def test_the_share_from_the_cache_is_of_all_that_was_sent_and_none_where_nothing_was() -> None:
    metrics = Metrics()
    assert metrics.cache_hit_rate == 0.0
    metrics.add(response())
    assert metrics.cache_hit_rate == 0.4


def test_merging_keeps_each_call_once_with_its_latency() -> None:
    one, other = Metrics(), Metrics()
    one.add(response(latency=1.0))
    other.add(response(latency=2.0))
    one.merge(other)
    assert [call.latency for call in one.response_latencies] == [1.0, 2.0]
    assert [call.prompt_tokens for call in one.token_usages] == [10, 10]


def test_merging_adds_everything_and_takes_a_budget_only_where_there_is_none() -> None:
    one, other = Metrics(1.0), Metrics(2.0, max_budget_per_task=7.0)
    other.add(response(0.5))
    one.merge(other)
    assert one.accumulated_cost == 3.5
    assert one.max_budget_per_task == 7.0
    assert one.calls == 1
    one.merge(Metrics(max_budget_per_task=9.0))
    assert one.max_budget_per_task == 7.0


@given(st.integers(0, 130), st.integers(0, 130))
def test_the_difference_is_what_came_after_the_baseline(before: int, after: int) -> None:
    metrics = Metrics()
    for _ in range(before):
        metrics.add(response())
    baseline = metrics.deep_copy()
    added = [response(0.25) for _ in range(after)]
    for one in added:
        metrics.add(one)
    since = metrics.diff(baseline)
    assert since.accumulated_cost == pytest.approx(0.25 * after)
    assert since.accumulated_token_usage.prompt_tokens == 10 * after
    assert since.calls == after
    assert [one.response_id for one in since.costs] == [one.id for one in added[-RECENT_CALLS:]]
    assert list(since.token_usages) == [one.usage for one in added[-RECENT_CALLS:]]


def test_usage_keeps_the_larger_window_and_the_newer_turn() -> None:
    first = TokenUsage(prompt_tokens=1, context_window=200, per_turn_token=9)
    total = first + TokenUsage(prompt_tokens=2, context_window=100, per_turn_token=4)
    assert (total.prompt_tokens, total.context_window, total.per_turn_token) == (3, 200, 4)


def test_costs_and_tokens_add_up_per_usage_id_and_in_all() -> None:
    stats = ConversationStats(max_budget=9.0)
    stats.add(response(), "agent")
    stats.add(response(0.25), "agent")
    newest = response(cost=None)
    stats.add(newest, "condenser")
    snapshot = stats.snapshot()
    assert stats.of("agent").accumulated_cost == 0.75
    assert stats.of("condenser").calls == 1
    assert snapshot.accumulated_cost == 0.75
    assert snapshot.max_budget == 9.0
    assert snapshot.usage.prompt_tokens == 30
    assert snapshot.usage.response_id == newest.id
    figures = {
        usage_id: (one.accumulated_cost, one.usage.prompt_tokens) for usage_id, one in snapshot.by_usage_id.items()
    }
    assert figures == {"agent": (0.75, 20), "condenser": (0.0, 10)}
    assert stats.of("agent").cache_hit_rate == 0.4
    assert stats.get_combined_metrics().accumulated_token_usage.prompt_tokens == 30


def test_the_turn_shown_is_that_of_the_newest_call_whichever_model_was_asked_first() -> None:
    stats = ConversationStats()
    stats.add(response(prompt_tokens=1, per_turn_token=1), "agent")
    stats.add(response(prompt_tokens=2, per_turn_token=2), "condenser")
    stats.add(response(prompt_tokens=3, per_turn_token=3), "agent")
    assert stats.snapshot().usage.per_turn_token == 3
    assert ConversationStats(stats.snapshot()).snapshot() == stats.snapshot()


def test_figures_that_a_log_gives_only_together_are_those_of_the_default_model() -> None:
    earlier = MetricsSnapshot(accumulated_cost=2.0, max_budget=5.0, usage=TokenUsage(prompt_tokens=100))
    stats = ConversationStats(earlier)
    stats.add(response())
    snapshot = stats.snapshot()
    assert snapshot.accumulated_cost == 2.5
    assert snapshot.max_budget == 5.0
    assert snapshot.usage.prompt_tokens == 110
    assert list(snapshot.by_usage_id) == ["default"]


def test_restored_figures_attach_to_the_model_of_their_id_once_and_count_once() -> None:
    before = ConversationStats()
    before.add(response(2.0), "agent")
    before.add(response(1.0), "sub-agent:1")
    stats = ConversationStats(MetricsSnapshot.model_validate_json(before.snapshot().model_dump_json()))
    registry = LLMRegistry(stats=stats)
    agent = LLM(usage_id="agent")
    registry.add(agent)
    registry.add(LLM(usage_id="condenser"))
    assert agent.metrics.accumulated_cost == 2.0
    assert registry.get("condenser").metrics.accumulated_cost == 0.0
    stats.add(response(0.5), "agent")
    assert stats.accumulated_cost == 3.5
    assert stats.snapshot().usage.prompt_tokens == 30
    assert stats.take_restored("agent") is None


async def test_a_model_that_has_counted_already_keeps_its_own_count() -> None:
    before = ConversationStats()
    before.add(response(2.0), "agent")
    agent = LLM(usage_id="agent").using(Priced())
    await agent.acompletion([agent.render(Message.user("hello"))])
    LLMRegistry(stats=ConversationStats(before.snapshot())).add(agent)
    assert agent.metrics.accumulated_cost == 0.25


def test_models_are_registered_once_each() -> None:
    registry = LLMRegistry()
    agent = LLM(usage_id="agent")
    registry.add(agent)
    registry.add(LLM(usage_id="condenser"))
    assert registry.get("agent") is agent
    assert [llm.usage_id for llm in registry] == ["agent", "condenser"]
    assert len(registry) == 2
    assert "agent" in registry
    with pytest.raises(ValueError, match="already registered"):
        registry.add(LLM(usage_id="agent"))
    with pytest.raises(KeyError, match="registered: agent, condenser"):
        registry.get("title")


def test_a_registry_gives_its_retry_listener_to_the_models_that_it_registers() -> None:
    heard: list[tuple[int, int, str]] = []
    registry = LLMRegistry(lambda attempt, attempts, error: heard.append((attempt, attempts, str(error))))
    config = LLM(usage_id="agent")
    made = registry.get_llm("agent", config)
    assert registry.get_llm("agent", config) is made
    assert made.retry_listener is not None
    made.retry_listener(1, 5, LLMUnavailableError("x"))
    assert heard == [(1, 5, "x")]
    own = LLM(usage_id="own", retry_listener=print)
    assert registry.get_llm("own", own).retry_listener is print


def test_registered_models_of_different_ids_do_not_count_together() -> None:
    registry = LLMRegistry()
    agent = LLM(usage_id="agent")
    condenser = agent.model_copy(update={"usage_id": "condenser"})
    registry.add(agent)
    registry.add(condenser)
    assert condenser.metrics is not agent.metrics


def test_a_subscriber_hears_of_the_models_before_and_after_it() -> None:
    registry = LLMRegistry()
    registry.add(LLM(usage_id="agent"))
    heard: list[str] = []
    registry.subscribe(lambda llm: heard.append(llm.usage_id))
    registry.add(LLM(usage_id="condenser"))
    assert heard == ["agent", "condenser"]
