"""What the models of a conversation cost: counted apart, kept in the log, taken up again."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest

from agent_core.agent.codeact import CodeActAgent
from agent_core.agent.critic import CriticBase
from agent_core.controller.usage import UsageTracker, metrics_of
from agent_core.errors import LLMContextWindowError
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    Condensation,
    CondensationRequest,
    ConversationError,
    MetricsUpdated,
)
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, CriticResult, MetricsSnapshot
from agent_core.events.messages import Message
from agent_core.events.risk import SecurityRisk
from agent_core.events.schema import Tagged
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import InMemoryEventStore
from agent_core.events.stream import EventStream
from agent_core.llm.llm import LLM, AnyLLM
from agent_core.llm.metrics import ConversationStats
from agent_core.llm.transport.exchange import Chunk, CompletionRequest, Endpoint
from agent_core.memory.condensers import USAGE_ID, LLMSummarizingCondenser, condenser_llm
from agent_core.security.analyzer import SecurityAnalyzer
from tests.unit.controller.stage import REPLIES, Stage, StageModel
from tests.unit.controller.test_answers import is_in, until

ANSWER = 0.15
"""What the stage's model costs for each answer."""


class Beside:
    """A model that is asked beside the agent; each answer costs a dollar."""

    def __init__(self, text: str = "the gist of it") -> None:
        self.text = text
        self.requests: list[CompletionRequest] = []

    async def prepare(self, endpoint: Endpoint) -> None:
        """Nothing to prepare."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        yield Chunk(text=self.text, has_choice=True, finish_reason="stop", cost=1.0, usage={"prompt_tokens": 7})


def beside(usage_id: str, text: str = "the gist of it") -> LLM:
    return LLM(model="openai/beside", usage_id=usage_id, num_retries=1).using(Beside(text))


class NoRoom(StageModel):
    """A model for which every prompt is too long."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        if request.messages:
            raise LLMContextWindowError("too long")
        yield Chunk(text="There is nothing to be said.", has_choice=True)


def condensing(text: str = "the gist of it", model: StageModel | None = None) -> Stage:
    condenser = LLMSummarizingCondenser(llm=beside(USAGE_ID, text), keep_first=2)
    return Stage(model=model or StageModel(), settings={"condenser": condenser})


def last_figures(log: list[AnyEvent]) -> dict[str, float]:
    found = [metrics for event in log if (metrics := metrics_of(event)) is not None]
    by_id = found[-1].by_usage_id
    assert sum(one.accumulated_cost for one in by_id.values()) == pytest.approx(found[-1].accumulated_cost)
    return {usage_id: round(one.accumulated_cost, 6) for usage_id, one in by_id.items()}


FINISHED = is_in(AgentState.FINISHED)


async def test_a_summary_is_counted_for_its_own_model_as_soon_as_it_is_in_the_log() -> None:
    stage = condensing()
    await stage.begin()
    try:
        await stage.say()
        await until(stage, FINISHED, [REPLIES["finish"]])
        await stage.session.send(CondensationRequest())
        await stage.say()
        log = await until(stage, lambda log: any(isinstance(event, Condensation) for event in log))
        (condensation,) = [event for event in log if isinstance(event, Condensation)]
        assert condensation.metrics is not None
        assert condensation.metrics.accumulated_cost == pytest.approx(1.0 + ANSWER)
        log = await until(stage, FINISHED, [REPLIES["finish"]])
    finally:
        await stage.end()
    assert last_figures(log) == {"default": 0.3, "condenser": 1.0}


async def test_a_conversation_that_is_opened_again_goes_on_counting_for_each_model() -> None:
    stage = condensing()
    await stage.begin()
    await stage.say()
    await until(stage, FINISHED, [REPLIES["one"], REPLIES["finish"]])
    await stage.session.send(CondensationRequest())
    await stage.say()
    await until(stage, lambda log: FINISHED(log) and len(stage.model.prompts) == 3, [REPLIES["finish"]])
    await stage.crash()
    await stage.begin()
    try:
        agent_llm = stage.session.step.usage.registry.get("default")
        assert agent_llm.metrics.accumulated_cost == pytest.approx(3 * ANSWER)
        await stage.say()
        log = await until(stage, lambda log: FINISHED(log) and len(stage.model.prompts) == 4, [REPLIES["finish"]])
    finally:
        await stage.end()
    assert last_figures(log) == {"default": 0.6, "condenser": 1.0}
    assert agent_llm.metrics.accumulated_cost == pytest.approx(4 * ANSWER)


async def test_what_a_failed_step_has_cost_is_in_the_log_before_its_error() -> None:
    stage = condensing(text=" ", model=NoRoom())
    await stage.begin()
    try:
        await stage.say()
        log = await until(stage, is_in(AgentState.ERROR))
    finally:
        await stage.end()
    updated = next(place for place, event in enumerate(log) if isinstance(event, MetricsUpdated))
    assert isinstance(log[updated + 1], ConversationError)
    assert isinstance(log[updated + 2], AgentStateChanged)
    assert last_figures(log)["condenser"] == 6.0  # six tries to sum up everything


async def test_what_a_wish_in_vain_has_cost_is_in_the_log() -> None:
    stage = condensing(text=" ")
    await stage.begin()
    try:
        await stage.session.send(CondensationRequest())
        await stage.say()
        log = await until(stage, is_in(AgentState.FINISHED), [REPLIES["finish"]])
    finally:
        await stage.end()
    assert any(isinstance(event, ConversationError) for event in log)
    assert last_figures(log)["condenser"] == 6.0


async def test_a_side_call_is_counted_and_kept_when_the_session_ends_before_anything_else_tells_of_it() -> None:
    stage = Stage()
    await stage.begin()
    await stage.say()
    await until(stage, FINISHED, [REPLIES["finish"]])
    title = beside("title")
    await title.acompletion([title.render(Message.user("name it"))], context=stage.session.call_context)
    await stage.crash()
    await stage.begin()
    try:
        log = await stage.log()
        assert last_figures(log) == {"default": ANSWER, "title": 1.0}
        await stage.crash()
        await stage.begin()
        assert sum(isinstance(event, MetricsUpdated) for event in await stage.log()) == 1
        await stage.say()
        log = await until(stage, lambda log: FINISHED(log) and len(stage.model.prompts) == 2, [REPLIES["finish"]])
        assert last_figures(log) == {"default": 0.3, "title": 1.0}
    finally:
        await stage.end()


async def test_the_budget_counts_what_every_model_has_cost() -> None:
    stage = condensing()
    stage.settings["max_budget"] = 0.5
    await stage.begin()
    try:
        await stage.session.send(CondensationRequest())
        await stage.say()
        log = await until(stage, is_in(AgentState.ERROR), [REPLIES["finish"]])
    finally:
        await stage.end()
    assert not any(isinstance(event, ActionEvent) for event in log), "the summary has used it up"
    assert stage.model.prompts == []


def test_the_condensers_model_does_not_count_together_with_the_agents() -> None:
    llm = LLM(model="openai/x")
    assert condenser_llm(llm).metrics is not llm.metrics


def test_every_event_that_can_say_what_was_spent_does() -> None:
    told: dict[str, Any] = {"metrics": MetricsSnapshot(accumulated_cost=1.0)}
    assert metrics_of(MetricsUpdated(**told)) == metrics_of(Condensation(forgotten_event_ids=[], **told))
    assert metrics_of(CondensationRequest()) is None


async def test_what_was_asked_before_the_log_was_read_counts_too() -> None:
    tracker = UsageTracker(await EventStream.open("c", InMemoryEventStore()), [], max_budget=5.0)
    await beside("title").acompletion([Message.user("Name it")], context=tracker.context)
    spent = ConversationStats(max_budget=5.0)
    spent.of("agent").accumulated_cost = 2.0
    tracker.restore(spent.snapshot())
    assert tracker.stats.accumulated_cost == pytest.approx(3.0)
    assert tracker.stats.of("title").calls == 1
    assert tracker.note().max_budget == 5.0


@pytest.fixture
def judges(monkeypatch: pytest.MonkeyPatch) -> Callable[[LLM], tuple[SecurityAnalyzer, CriticBase]]:
    """Makes an analyzer and a critic of a program's own, which block and ask this model; nobody else knows of them."""
    monkeypatch.setattr(SecurityAnalyzer, "classes", dict(SecurityAnalyzer.classes))
    monkeypatch.setattr(Tagged, "classes", dict(Tagged.classes))
    monkeypatch.setattr(Tagged, "namesakes", dict(Tagged.namesakes))

    class OwnAnalyzer(SecurityAnalyzer):
        llm: AnyLLM

        def security_risk(self, action: ActionEvent) -> SecurityRisk:
            assert threading.current_thread() is not threading.main_thread()
            return SecurityRisk[self.llm.completion([Message.user("Risky?")]).message.text]

    class OwnCritic(CriticBase):
        llm: AnyLLM

        def evaluate(self, events: Sequence[Event], git_patch: str | None = None) -> CriticResult:
            return CriticResult(score=1.0, message=self.llm.completion([Message.user("Good?")]).message.text)

    return lambda llm: (OwnAnalyzer(llm=llm), OwnCritic(llm=llm))


async def test_what_an_analyzer_and_a_critic_ask_counts_for_the_conversation(
    judges: Callable[[LLM], tuple[SecurityAnalyzer, CriticBase]],
) -> None:
    asked = Beside("LOW")
    analyzer, critic = judges(LLM(model="openai/judge", usage_id="judge", num_retries=1).using(asked))
    stage = Stage()
    llm = LLM(model="openai/x", input_cost_per_token=0.01, output_cost_per_token=0.01).using(stage.model)
    stage.settings = {"analyzer": analyzer, "agent": CodeActAgent(llm=llm, critic=critic)}
    await stage.begin()
    try:
        await stage.say()
        await until(stage, FINISHED, [REPLIES["finish"]])
        assert last_figures(await stage.log()) == {"default": ANSWER, "judge": 2.0}
        assert {request.context.session_id for request in asked.requests} == {"c"}
    finally:
        await stage.end()
