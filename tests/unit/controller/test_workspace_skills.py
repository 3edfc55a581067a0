"""Skills that the workspace holds are at hand by name, like those that the agent was given."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.agent.agent import Agent
from agent_core.events.control import RecallObservation
from agent_core.events.llm_events import AgentErrorEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import Skill
from agent_core.tools.invoke_skill import InvokeSkillTool
from agent_core.tools.spec import Tool
from tests.unit.controller import stage as stages
from tests.unit.controller.stage import REPLIES, Reply, Stage
from tests.unit.controller.test_answers import until
from tests.unit.controller.test_confirmation_flow import FINISHED

FOLDER = "/workspace/.agents/skills"
GIVEN = Skill(name="own", content="The agent's own.", is_agentskills_format=True)
NAME = InvokeSkillTool.tool_name


def skill(name: str, text: str, header: str = "") -> dict[str, str]:
    return {"path": f"{FOLDER}/{name}/SKILL.md", "content": f"---\nname: {name}\n{header}---\n{text}"}


@pytest.fixture(autouse=True)
def workspace(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    facts = {**stages.FACTS, "skills": [skill("pdf", "Use the press.", "description: for papers\n")]}
    monkeypatch.setattr(stages, "FACTS", facts)
    return facts


def staged(**fields: Any) -> Stage:
    stage = Stage()
    llm = LLM(model="openai/stage", num_retries=1).using(stage.model)
    stage.settings = {"agent": Agent(llm=llm, **fields)}
    return stage


def invoke(name: str) -> Reply:
    return "", [(NAME, f'{{"name": "{name}"}}')]


def results(events: list[AnyEvent]) -> list[str]:
    return [event.observation.text for event in events if isinstance(event, ObservationEvent)]


def offered(stage: Stage, index: int = -1) -> bool:
    return NAME in str(stage.model.requests[index].tools)


async def test_the_agent_asks_for_a_skill_of_the_workspace_by_name() -> None:
    stage = staged()
    await stage.begin()
    await stage.say()
    events = await until(stage, FINISHED, [invoke("pdf"), REPLIES["finish"]])
    assert offered(stage, 0)
    (told,) = [event for event in events if isinstance(event, RecallObservation)]
    assert "call invoke_skill with its name" in told.additional_agent_instructions
    assert "- pdf: for papers" in told.additional_agent_instructions
    assert results(events)[0] == f"Use the press.\n\n[This skill is in {FOLDER}/pdf]"
    await stage.end()


async def test_after_a_restart_it_is_there_before_the_first_call() -> None:
    stage = staged()
    await stage.begin()
    await stage.say()
    await until(stage, lambda log: bool(stage.model.requests))
    await stage.crash()
    await stage.begin()
    events = await until(stage, FINISHED, [invoke("pdf"), REPLIES["finish"]])
    assert offered(stage)
    assert "Use the press." in results(events)[0]
    assert not [event for event in events if isinstance(event, AgentErrorEvent)]
    await stage.end()


async def test_skills_of_the_agent_and_of_the_workspace_are_served_together_and_the_agents_own_win(
    workspace: dict[str, Any],
) -> None:
    own = Skill(name="pdf", content="By hand.", is_agentskills_format=True)
    stage = staged(agent_context=AgentContext(skills=[GIVEN, own], load_project_skills=True))
    workspace["skills"].append(skill("csv", "Mind the commas."))
    await stage.begin()
    await stage.say()
    events = await until(stage, FINISHED, [invoke("own"), invoke("csv"), invoke("pdf"), REPLIES["finish"]])
    texts = results(events)
    assert [text.partition("\n")[0] for text in texts[:3]] == ["The agent's own.", "Mind the commas.", "By hand."]
    await stage.end()


@pytest.mark.parametrize(
    "fields",
    [
        {"agent_context": AgentContext(load_project_skills=False)},
        {"agent_context": AgentContext(load_project_skills=True, disabled_skills=["pdf"])},
    ],
)
async def test_without_skills_to_ask_for_there_is_no_tool(fields: dict[str, Any]) -> None:
    stage = staged(**fields)
    await stage.begin()
    await stage.say()
    await until(stage, FINISHED, [REPLIES["finish"]])
    assert not offered(stage)
    await stage.end()


async def test_a_skill_that_only_the_user_may_bring_up_gives_no_tool(workspace: dict[str, Any]) -> None:
    workspace["skills"][:] = [skill("pdf", "x", "disable-model-invocation: true\n")]
    stage = staged()
    await stage.begin()
    await stage.say()
    await until(stage, FINISHED, [REPLIES["finish"]])
    assert not offered(stage)
    await stage.end()


async def test_a_tool_that_was_configured_stays_as_it_is() -> None:
    stage = staged(tools=[Tool(name=NAME, params={"skills": [GIVEN.model_dump()]})])
    await stage.begin()
    await stage.say()
    events = await until(stage, FINISHED, [invoke("pdf"), REPLIES["finish"]])
    assert "There is no skill named 'pdf'. Available skills: own." in results(events)[0]
    await stage.end()
