"""Several calls of one answer at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.agent.agent import Agent
from agent_core.events.control import AgentState, ChangeAgentState, ConfirmationPolicyChanged
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.schema import Action, Observation
from agent_core.llm.llm import LLM
from agent_core.security.confirmation import AlwaysConfirm
from agent_core.session.settings import AgentOptions
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import DeclaredResources, Tool
from agent_core.tools.task_tracker import TaskTrackerObservation
from tests.unit.controller.stage import REPLIES, Reply, Stage
from tests.unit.controller.test_answers import is_in, until
from tests.unit.controller.test_confirmation_flow import FINISHED
from tests.waiting import ticks

LIMIT_SECONDS = 20


class DoAction(Action):
    """What to do, and what that touches."""

    name: str
    touches: str = ""


class DoTool(ToolDefinition[DoAction, Observation]):
    """Does something until it is told that it is done."""

    def declared_resources(self, action: Action) -> DeclaredResources:
        touched = getattr(action, "touches", "")
        return DeclaredResources(keys=(touched,) if touched else (), declared=True)

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        return [cls(description="Does.", action_type=DoAction, observation_type=Observation, executor=WORK.do)]


class Work:
    """What is being done."""

    def __init__(self) -> None:
        self.doing: dict[str, asyncio.Event] = {}

    async def do(self, action: DoAction, conversation: Any = None) -> Observation:
        ended = self.doing[action.name] = asyncio.Event()
        try:
            await ended.wait()
            if action.name.startswith("bad"):
                raise ValueError(f"{action.name} is bad")
            return Observation.from_text(f"did {action.name}")
        finally:
            self.doing.pop(action.name, None)


WORK = Work()


@asynccontextmanager
async def working(limit: int) -> AsyncIterator[Stage]:
    register_tool("do", DoTool)
    stage = Stage()
    llm = LLM(model="openai/stage", native_tool_calling=True, num_retries=1).using(stage.model)
    stage.settings = {"agent": Agent(llm=llm, tools=[Tool(name="do")], tool_concurrency_limit=limit)}
    await stage.begin()
    try:
        await stage.say()
        yield stage
    finally:
        await stage.end()


def do(*names: str, touches: str = "") -> Reply:
    return "", [("do", f'{{"name": "{name}", "touches": "{touches}"}}') for name in names]


async def doing(*names: str) -> None:
    for _ in range(LIMIT_SECONDS * 1000):
        if sorted(WORK.doing) == sorted(names):
            break
        await asyncio.sleep(0.001)
    await ticks(20)
    assert sorted(WORK.doing) == sorted(names)


async def asked(stage: Stage, reply: Reply) -> None:
    await until(stage, lambda _: stage.model.asking == 1)
    stage.model.gate.open(reply)


async def test_as_many_calls_run_together_as_the_agent_allows_and_the_results_keep_the_order_of_the_calls() -> None:
    async with working(2) as stage:
        await asked(stage, do("a", "b", "c"))
        await doing("a", "b")
        WORK.doing["b"].set()
        await doing("a", "c")
        assert not any(isinstance(event, ObservationEvent) for event in await stage.log())
        WORK.doing["c"].set()
        await doing("a")
        assert not any(isinstance(event, ObservationEvent) for event in await stage.log())
        WORK.doing["a"].set()
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    calls = [event.id for event in events if isinstance(event, ActionEvent)]
    results = [event for event in events if isinstance(event, ObservationEvent)]
    assert [event.cause for event in results] == calls
    assert [event.observation.text for event in results][:3] == ["did a", "did b", "did c"]


async def test_of_a_hundred_calls_only_so_many_run_together_and_each_gets_its_own_answer_in_order() -> None:
    names = [f"n{number:03}" for number in range(100)]
    most = 0
    async with working(8) as stage:
        await asked(stage, do(*names))
        async with asyncio.timeout(LIMIT_SECONDS):
            left = set(names)
            while left:
                while not WORK.doing:  # noqa: ASYNC110 - any of them
                    await asyncio.sleep(0)
                most = max(most, len(WORK.doing))
                name = max(WORK.doing)  # never the one that is waited for first
                left.discard(name)
                WORK.doing[name].set()
                await ticks(5)
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    calls = [event for event in events if isinstance(event, ActionEvent) and event.tool_name == "do"]
    results = [event for event in events if isinstance(event, ObservationEvent) and event.tool_name == "do"]
    assert most == 8
    assert [event.cause for event in results] == [call.id for call in calls]
    assert [event.observation.text for event in results] == [f"did {name}" for name in names]


async def test_a_tool_that_remembers_sees_the_results_of_the_calls_before_it_in_the_same_answer() -> None:
    plan, view = '{"command": "plan", "task_list": [{"title": "%s"}]}', '{"command": "view"}'
    reply: Reply = ("", [("task_tracker", arguments) for arguments in (plan % "first", view, plan % "second", view)])
    stage = Stage(settings={"agent_options": AgentOptions(tool_concurrency_limit=6)})
    await stage.begin()
    try:
        await stage.say()
        events = await until(stage, FINISHED, [reply, REPLIES["finish"]])
    finally:
        await stage.end()
    results = [event.observation for event in events if isinstance(event, ObservationEvent)]
    views = [one.text for one in results if isinstance(one, TaskTrackerObservation) and one.command == "view"]
    assert [text.split()[-1] for text in views] == ["first", "second"]


async def test_calls_that_were_approved_together_run_together() -> None:
    async with working(3) as stage:
        await stage.session.send(ConfirmationPolicyChanged(policy=AlwaysConfirm().model_dump(mode="json")))
        await asked(stage, do("a", "b", "c"))
        await until(stage, is_in(AgentState.AWAITING_USER_CONFIRMATION))
        await doing()
        await stage.session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED))
        await doing("a", "b", "c")
        for name in "cba":
            WORK.doing[name].set()
        events = await until(stage, lambda log: sum(isinstance(event, ObservationEvent) for event in log) == 3)
    results = [event.observation.text for event in events if isinstance(event, ObservationEvent)]
    assert results == ["did a", "did b", "did c"]


async def test_by_default_one_call_runs_after_the_other() -> None:
    async with working(1) as stage:
        await asked(stage, do("a", "b"))
        for name in "ab":
            await doing(name)
            WORK.doing[name].set()
        await until(stage, FINISHED, [REPLIES["finish"]])


async def test_calls_that_touch_the_same_run_one_after_the_other() -> None:
    async with working(3) as stage:
        await asked(stage, do("a", "b", touches="file:/x"))
        for name in "ab":
            await doing(name)
            WORK.doing[name].set()
        await until(stage, FINISHED, [REPLIES["finish"]])


async def test_a_call_that_fails_leaves_the_others_alone() -> None:
    async with working(2) as stage:
        await asked(stage, do("bad", "b"))
        await doing("bad", "b")
        for ended in list(WORK.doing.values()):
            ended.set()
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    (error,) = [event for event in events if isinstance(event, AgentErrorEvent)]
    assert error.error == "Error executing tool 'do': bad is bad"
    assert next(event.observation.text for event in events if isinstance(event, ObservationEvent)) == "did b"


async def test_a_pause_ends_all_of_them_and_each_gets_its_answer() -> None:
    async with working(2) as stage:
        await asked(stage, do("a", "b", "c"))
        await doing("a", "b")
        await stage.session.send(ChangeAgentState(agent_state=AgentState.PAUSED))
        await doing()
        events = await until(
            stage, lambda log: is_in(AgentState.PAUSED)(log) and sum(isinstance(e, AgentErrorEvent) for e in log) == 3
        )
    calls = [event.id for event in events if isinstance(event, ActionEvent)]
    assert sorted(event.cause or 0 for event in events if isinstance(event, AgentErrorEvent)) == calls


def test_a_limit_of_none_at_all_is_refused() -> None:
    with pytest.raises(ValidationError, match="tool_concurrency_limit"):
        Agent(llm=LLM(model="openai/x"), tool_concurrency_limit=0)
