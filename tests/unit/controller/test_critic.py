"""Critics in the loop: what they judge, and how often an agent tries again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from agent_core.agent.agent import Agent
from agent_core.agent.base import AgentBase
from agent_core.agent.critic import (
    AgentFinishedCritic,
    CriticBase,
    CriticMixin,
    EmptyPatchCritic,
    IterativeRefinementConfig,
    PassCritic,
)
from agent_core.agent.presets import get_default_agent
from agent_core.controller.state import CRITIC
from agent_core.events.control import RecallObservation
from agent_core.events.event import Event, LLMConvertibleEvent
from agent_core.events.llm_events import ActionEvent, CriticResult, MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.tools.builtin import FinishAction
from agent_core.tools.presets import get_default_tools
from tests.unit.controller.stage import REPLIES, StageModel
from tests.unit.controller.test_answers import until
from tests.unit.controller.test_confirmation_flow import FINISHED, calls, staged


class Scores(CriticBase):
    """Gives its scores one after another, by how often the agent finished; below 0: fails."""

    scores: tuple[float, ...]

    def evaluate(self, events: Sequence[Event], git_patch: str | None = None) -> CriticResult:
        assert git_patch is None
        times = sum(isinstance(event, ActionEvent) and isinstance(event.action, FinishAction) for event in events)
        score = self.scores[min(times, len(self.scores)) - 1]
        if score < 0:
            raise RuntimeError("out of opinions")
        return CriticResult(score=score, message=f"try {times}")


async def played(critic: CriticBase, *replies: Any) -> list[AnyEvent]:
    model = StageModel()
    llm = LLM(model="openai/stage", native_tool_calling=True, num_retries=1).using(model)
    async with staged(model=model, agent=Agent(llm=llm, tools=get_default_tools(), critic=critic)) as stage:
        await stage.say()
        return await until(stage, FINISHED, list(replies))


def finishes(events: list[AnyEvent]) -> list[float | None]:
    return [
        event.critic_result.score if event.critic_result is not None else None
        for event in events
        if isinstance(event, ActionEvent) and isinstance(event.action, FinishAction)
    ]


def words(events: list[AnyEvent]) -> list[str]:
    return [event.llm_message.text for event in events if isinstance(event, MessageEvent) and event.sender == CRITIC]


REFINING = IterativeRefinementConfig()


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.6,), [0.6]),
        ((0.59, 0.7), [0.59, 0.7]),
        ((0.1,), [0.1, 0.1, 0.1, 0.1]),
        ((0.1, -1.0), [0.1, None]),
    ],
    ids=["good enough", "mended", "never good", "critic fails"],
)
async def test_an_agent_tries_again_until_it_is_good_enough_or_has_tried_often_enough(
    scores: tuple[float, ...], expected: list[float | None]
) -> None:
    events = await played(Scores(scores=scores, iterative_refinement=REFINING), REPLIES["finish"])
    assert finishes(events) == expected
    assert len(words(events)) == len(expected) - 1
    assert all("try 1" in word for word in words(events)[:1])


async def test_without_refinement_a_bad_result_is_only_noted() -> None:
    events = await played(Scores(scores=(0.0,)), REPLIES["finish"])
    assert finishes(events) == [0.0]
    assert not words(events)


async def test_each_message_of_the_user_gives_as_many_tries_again() -> None:
    model = StageModel()
    llm = LLM(model="openai/stage", native_tool_calling=True, num_retries=1).using(model)
    once = IterativeRefinementConfig(max_iterations=1)
    agent = Agent(llm=llm, critic=Scores(scores=(0.0,), iterative_refinement=once))
    async with staged(model=model, agent=agent) as stage:
        for tries in (2, 4):
            await stage.say()
            done = lambda log, tries=tries: FINISHED(log) and len(finishes(log)) == tries  # noqa: E731
            await until(stage, done, [REPLIES["finish"]])


@pytest.mark.parametrize(("mode", "judged"), [("finish_and_message", False), ("all_actions", True)])
async def test_other_actions_are_judged_on_request_only(mode: Any, judged: bool) -> None:
    events = await played(PassCritic(mode=mode), calls("ls"), REPLIES["finish"])
    first = next(event for event in events if isinstance(event, ActionEvent))
    assert (first.critic_result is not None) is judged
    assert finishes(events) == [1.0]


class Curious(CriticBase):
    """Remembers what it was shown, and where."""

    seen: ClassVar[list[Event]] = []
    threads: ClassVar[list[threading.Thread]] = []

    def evaluate(self, events: Sequence[Event], git_patch: str | None = None) -> CriticResult:
        self.seen[:] = events
        self.threads[:] = [threading.current_thread()]
        return CriticResult(score=1.0)


async def test_a_critic_is_shown_what_a_model_sees_and_may_block() -> None:
    events = await played(Curious(), calls("ls"), REPLIES["finish"])
    assert any(isinstance(event, RecallObservation) for event in events)
    assert [type(event).__name__ for event in Curious.seen] == [
        "SystemPromptEvent",
        "MessageEvent",
        "ActionEvent",
        "ObservationEvent",
        "ActionEvent",
    ]
    assert all(isinstance(event, LLMConvertibleEvent) for event in Curious.seen)
    assert Curious.threads != [threading.current_thread()]


def test_the_critics_that_need_no_model() -> None:
    finish = ActionEvent(tool_name="finish", action=FinishAction(message="done"))
    other = ActionEvent(tool_name="terminal")
    assert AgentFinishedCritic().evaluate([other, finish]).success
    assert not AgentFinishedCritic().evaluate([finish, other]).success
    assert not AgentFinishedCritic().evaluate([]).success
    assert EmptyPatchCritic().evaluate([], "diff").success
    assert not EmptyPatchCritic().evaluate([], " \n").success
    assert PassCritic().evaluate([]).success
    assert CriticResult(score=0.5).success
    with pytest.raises(ValueError, match="score"):
        CriticResult(score=1.1)


def test_an_agent_with_a_critic_is_made_again() -> None:
    agent = get_default_agent(LLM()).model_copy(update={"critic": EmptyPatchCritic(iterative_refinement=REFINING)})
    assert AgentBase.revive(agent.model_dump(mode="json")) == agent


async def test_an_agent_has_what_it_does_judged_by_its_critic_where_it_has_one() -> None:
    said: list[AnyEvent] = [MessageEvent(source="agent", llm_message=Message.assistant("Done."))]
    judged = await Agent(llm=LLM(), critic=PassCritic()).criticised([], said)
    assert [event.critic_result for event in judged if isinstance(event, MessageEvent)] == [
        CriticResult(score=1.0, message="Everything passes.")
    ]
    assert await Agent(llm=LLM()).criticised([], said) == said
    assert issubclass(Agent, CriticMixin)
    assert issubclass(Agent, AgentBase)
