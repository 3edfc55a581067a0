"""The tool that reads skills."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.agent.codeact import CodeActAgent
from agent_core.events.control import Condensation
from agent_core.events.llm_events import ObservationEvent
from agent_core.llm.llm import LLM
from agent_core.memory.memory import Knowledge
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import KeywordTrigger, Skill, SkillResources
from agent_core.tools.invoke_skill import InvokeSkillAction, InvokeSkillObservation, InvokeSkillTool, with_outputs
from tests.answering_sandbox import AnsweringSandbox, Asked, FakeCall

PDF = Skill(name="pdf", content="Read it.", is_agentskills_format=True, trigger=KeywordTrigger(keywords=["pdf"]))


class Sandbox(AnsweringSandbox):
    """A shell that prints its command, or ends as its name says."""

    def answer(self, asked: Asked) -> dict[str, Any]:
        assert asked.limit_seconds is not None
        if asked.op == "shell.kill":
            return {"killed": True}
        command = asked.args["command"]
        ends = {"false": ("completed", 3), "sleep": ("hard_timeout", -1)}
        status, code = ends.get(command, ("completed", 0))
        return {"status": status, "exit_code": code, "output": f"<{command}>\n"}


async def invoke(name: str, *skills: Skill, sandbox: Sandbox | None = None) -> InvokeSkillObservation:
    (tool,) = InvokeSkillTool.create(skills=skills)
    observation = await tool.acall(InvokeSkillAction(name=name), FakeCall(sandbox or Sandbox()))
    assert isinstance(observation, InvokeSkillObservation)
    return observation


async def test_a_skill_is_read_with_the_place_of_its_files() -> None:
    resources = SkillResources(scripts=["scripts/a.py"], references=["references/b.md"])
    skill = PDF.model_copy(update={"source": "/s/pdf/SKILL.md", "resources": resources})
    told = await invoke(" pdf ", skill)
    assert told.text == "Read it.\n\n[This skill is in /s/pdf; its files: scripts/a.py, references/b.md]"
    assert (told.skill_name, told.is_error) == ("pdf", False)
    assert (await invoke("pdf", PDF)).text == "Read it."


async def test_an_unknown_skill_is_an_error_that_names_those_there_are() -> None:
    told = await invoke("doc", PDF, PDF.model_copy(update={"name": "csv"}))
    assert told.is_error
    assert told.skill_name == ""
    assert "csv, pdf" in told.text


async def test_commands_are_run_in_shells_of_their_own_within_their_limits() -> None:
    text = "Now !`date` and !`echo $TOKEN`.\n```sh\n!`rm`\n```\n!`false` !`sleep`"
    sandbox = Sandbox()
    told = await invoke("pdf", PDF.model_copy(update={"content": text}), sandbox=sandbox)
    first, *fence, last = told.text.split("\n")
    assert first == "Now <date> and <echo $TOKEN>."
    assert fence == ["```sh", "!`rm`", "```"]
    assert "<false> [the command `false` failed with exit code 3]" in last
    assert "<sleep> [the command `sleep` was ended after 10 s]" in last
    runs = [asked.args for asked in sandbox.asked if asked.op == "shell.run"]
    assert [run.get("env") for run in runs] == [None, {"TOKEN": "s3cret"}, None, None]
    assert all((run["timeout"], run["max_output"], run["session"]) == (10.0, 50_000, "skill-3") for run in runs)
    assert [asked.op for asked in sandbox.asked] == ["shell.run", "shell.kill"] * 4


@given(st.lists(st.sampled_from(["!`a`", "text `a`", "```", "````", "~~~", "  ```py", "!`", "!`b` !`c`"]), max_size=12))
def test_what_is_in_a_fence_stays_as_it_is_and_all_else_is_replaced(lines: list[str]) -> None:
    async def run(command: str) -> str:
        return f"!`{command.upper()}`"

    text = "\n".join(lines)
    out = asyncio.run(with_outputs(text, run)).split("\n")
    assert len(out) == len(text.split("\n"))
    fence = ""
    for before, after in zip(text.split("\n"), out, strict=True):
        bare = before.strip()
        if fence:
            assert after == before
            fence = "" if bare and set(bare) == {fence[0]} and len(bare) >= len(fence) else fence
        elif bare.startswith(("```", "~~~")):
            assert after == before
            fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
        else:
            assert after == before.replace("!`a`", "!`A`").replace("!`b`", "!`B`").replace("!`c`", "!`C`")


@pytest.mark.parametrize(
    ("skills", "has_tool"),
    [
        ([PDF], True),
        ([PDF.model_copy(update={"disable_model_invocation": True})], False),
        ([PDF.model_copy(update={"is_agentskills_format": False})], False),
        ([], False),
    ],
)
def test_an_agent_has_the_tool_when_it_has_a_skill_to_ask_for(skills: list[Skill], *, has_tool: bool) -> None:
    agent = CodeActAgent(llm=LLM(model="openai/x"), agent_context=AgentContext(skills=skills))
    assert ("invoke_skill" in agent.resolve_tools()) is has_tool
    assert "invoke_skill" not in CodeActAgent(llm=LLM(model="openai/x")).resolve_tools()


def test_a_skill_that_was_read_is_not_brought_up_again_until_that_is_forgotten() -> None:
    knowledge = Knowledge(AgentContext(skills=[PDF]))
    observation = InvokeSkillObservation.from_text("Read it.", skill_name="pdf")
    knowledge.observe(
        ObservationEvent(id=7, cause=6, observation=observation, tool_name="invoke_skill", tool_call_id="x")
    )
    assert knowledge.triggered("a pdf") == []
    knowledge.observe(Condensation(id=8, forgotten_event_ids=[7]))
    assert [known.name for known in knowledge.triggered("a pdf")] == ["pdf"]
