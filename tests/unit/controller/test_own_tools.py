"""Tools of the program around a session, which its agent has as if a server offered them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from agent_core.agent.codeact import CodeActAgent
from agent_core.errors import DrydockError
from agent_core.events.control import AgentState, ChangeAgentState
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.llm.llm import LLM
from agent_core.mcp.tool import MCPToolAction, MCPToolObservation, OwnTool, own_tool
from agent_core.tools.spec import Tool, ToolAnnotations
from tests.unit.controller.stage import Stage
from tests.unit.controller.test_mcp import asked, calls, found, is_kind, served
from tests.unit.mcp.conftest import fake
from tests.waiting import LIMIT_SECONDS


class Words(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str
    times: int = 1


def own(name: str = "echo", said: list[str] | None = None) -> OwnTool:
    async def run(words: Words, key: str) -> str:
        if said is not None:
            said.append(words.text)
        if words.text == "no":
            raise DrydockError("it cannot be said")
        return " ".join([words.text] * words.times)

    return own_tool(
        name,
        "Says it.",
        Words,
        run,
        parameters=Words.model_json_schema(),
        annotations=ToolAnnotations(title="Say"),
        server="own",
    )


async def result_of(stage: Stage) -> MCPToolObservation:
    event = await found(stage, is_kind(ObservationEvent))
    assert isinstance(event, ObservationEvent)
    assert isinstance(event.observation, MCPToolObservation)
    return event.observation


def texts(observation: MCPToolObservation) -> list[str]:
    return [str(getattr(part, "text", "")) for part in observation.content]


async def test_it_is_offered_at_the_first_step_without_the_client_library(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load() -> None:
        raise AssertionError("no server is to be connected")

    monkeypatch.setattr("agent_core.mcp.servers.load", load)
    said: list[str] = []
    async with served({}, own_tools=(own(said=said),)) as stage:
        await stage.say()
        given = {"text": "hi $HOME", "times": "2", "security_risk": "LOW", "summary": "Says hi."}
        assert "echo" in await asked(stage, calls("echo", **given))
        assert texts(await result_of(stage)) == ["[Tool 'echo' executed.]", "hi $HOME hi $HOME"]
        assert said == ["hi $HOME"]
        (action,) = [event for event in await stage.log() if isinstance(event, ActionEvent)]
        assert action.action == MCPToolAction(data={"text": "hi $HOME", "times": "2"})


async def test_what_it_cannot_do_is_a_failed_call_and_wrong_arguments_are_told_at_once() -> None:
    said: list[str] = []
    async with served({}, own_tools=(own(said=said),)) as stage:
        await stage.say()
        await asked(stage, calls("echo", text="no"))
        observation = await result_of(stage)
        assert observation.is_error
        assert texts(observation) == ["[Tool 'echo' failed.]", "it cannot be said"]
        await asked(stage, calls("echo", times="many", colour="red"))
        error = await found(stage, is_kind(AgentErrorEvent))
        assert isinstance(error, AgentErrorEvent)
        for says in ("text: Field required", "times: Input should be a valid integer", "colour: Extra inputs"):
            assert says in error.error
        assert said == ["no"]


async def test_a_tool_of_a_configured_server_counts_instead() -> None:
    said: list[str] = []
    async with served({"one": fake("echo")}, own_tools=(own(said=said), own("other"))) as stage:
        await stage.say()
        offered = await asked(stage, calls("echo", text="hello"))
        assert offered.count("echo") == 1
        assert "other" in offered
        assert texts(await result_of(stage)) == ["[Tool 'echo' executed.]", "hello"]
        assert said == []


@pytest.mark.parametrize("name", ["finish", "lookup"])
async def test_the_agents_own_tools_and_those_of_clients_come_first(name: str) -> None:
    client: dict[str, Any] = {"name": "lookup", "description": "Looks.", "schema": {"type": "object"}}
    spec = Tool(name="client_tool", params=client)
    async with served({}, own_tools=(own(name),), client_tools=(spec,)) as stage:
        await stage.say()
        assert (await asked(stage, ("Done.", []))).count(name) == 1
        assert not isinstance(stage.session.agent.tools_map[name], OwnTool)


@pytest.mark.parametrize("agent_class", ["ReadOnlyAgent", "LocAgent"])
async def test_an_agent_that_uses_no_servers_has_none(agent_class: str) -> None:
    async with served({}, own_tools=(own(),), agent_class=agent_class) as stage:
        await stage.say()
        assert "echo" not in await asked(stage, ("Done.", []))


async def test_an_agent_that_wants_other_names_has_none() -> None:
    agent = CodeActAgent(llm=LLM(model="openai/stage"), filter_tools_regex="(?!echo)")
    async with served({}, own_tools=(own(), own("other")), agent=agent) as stage:
        await stage.session._tool_servers.tools.wait()
        assert "other" in stage.session._tool_servers.tools
        assert "echo" not in stage.session._tool_servers.tools


async def test_a_pause_ends_a_call_that_is_under_way_at_once() -> None:
    has_begun, is_over = asyncio.Event(), asyncio.Event()

    async def run(words: Words, key: str) -> str:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_over.set()
        return ""

    slow = own_tool(
        "slow", "Waits.", Words, run, parameters=Words.model_json_schema(), annotations=ToolAnnotations(), server="own"
    )
    async with served({}, own_tools=(slow,)) as stage:
        await stage.say()
        await asked(stage, calls("slow", text="x"))
        async with asyncio.timeout(LIMIT_SECONDS):
            await has_begun.wait()
            await stage.session.send(ChangeAgentState(agent_state=AgentState.PAUSED))
            await is_over.wait()
        error = await found(stage, is_kind(AgentErrorEvent))
        assert isinstance(error, AgentErrorEvent)
        assert error.classification == "interrupted"
