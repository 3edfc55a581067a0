"""MCP servers in a whole session: their tools join the agent's, whatever they do."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_core.agent.codeact import CodeActAgent
from agent_core.events.control import AgentState, ChangeAgentState, ToolServerFailed
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.schema import UnknownAction
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.mcp.config import McpServer
from agent_core.mcp.tool import MCPToolAction, MCPToolObservation
from agent_core.security.analyzers import get_default_analyzer
from agent_core.security.confirmation import ConfirmRisky
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import KeywordTrigger, Skill
from agent_core.tools.builtin import FinishTool
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import ToolMakerState, WorkspacePlace
from server.wire.envelope import to_wire
from tests.unit.controller.stage import Reply, Stage
from tests.unit.mcp.conftest import fake, is_running
from tests.unit.mcp.test_addresses import Kind, serving
from tests.waiting import LIMIT_SECONDS, until

ASKS: dict[str, Any] = {"policy": ConfirmRisky(), "analyzer": get_default_analyzer()}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine programs take long to start; what is tested here is what they do then."""
    monkeypatch.setattr("agent_core.mcp.servers.FIRST_STEP_SECONDS", 60.0)


@asynccontextmanager
async def served(servers: dict[str, Any], **settings: Any) -> AsyncIterator[Stage]:
    config = {name: McpServer.model_validate(server) for name, server in servers.items()}
    stage = Stage(settings={"mcp_config": config, **settings})
    await stage.begin()
    try:
        yield stage
    finally:
        async with asyncio.timeout(LIMIT_SECONDS):
            await stage.end()


async def asked(stage: Stage, reply: Reply) -> list[str]:
    """Let the model answer its next question; returns the names of the tools that it was offered."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not stage.model.gate.open(reply):  # noqa: ASYNC110 - what is waited for is only seen by trying
            await asyncio.sleep(0.005)
    return [tool["function"]["name"] for tool in stage.model.requests[-1].tools]


async def found(stage: Stage, kind: Callable[[AnyEvent], bool]) -> AnyEvent:
    """The first event of the log that is so, once there is one."""
    async with asyncio.timeout(LIMIT_SECONDS):
        async with stage.session.stream.subscribe(after=-1) as events:
            async for event in events:
                if kind(event):  # type: ignore[arg-type] # no notices were asked for
                    return event  # type: ignore[return-value]
    raise AssertionError("the log ended")


def is_kind(kind: type[Any], number: int = 1) -> Callable[[AnyEvent], bool]:
    left = number

    def check(event: AnyEvent) -> bool:
        nonlocal left
        left -= isinstance(event, kind)
        return left == 0

    return check


def calls(name: str, **arguments: Any) -> Reply:
    return "", [(name, json.dumps(arguments))]


async def test_the_model_is_offered_the_tools_and_a_call_is_in_the_log_and_on_the_wire() -> None:
    async with served({"one": fake("echo", delay=0.3)}) as stage:
        await stage.say()
        offered = await asked(stage, calls("echo", text="hello", security_risk="LOW", summary="Says hello."))
        assert "echo" in offered, "the first step waits for servers that are on their way"
        result = await found(stage, is_kind(ObservationEvent))
        assert isinstance(result, ObservationEvent)
        assert isinstance(result.observation, MCPToolObservation)
        log = await stage.log()
        action = next(event for event in log if isinstance(event, ActionEvent))
        assert action.action == MCPToolAction(data={"text": "hello"})
        shown = to_wire(action, live=False)
        assert shown is not None
        assert shown["action"] == "call_tool_mcp"
        assert shown["args"] == {"name": "echo", "arguments": {"text": "hello"}, "thought": "", "security_risk": -1}
        seen = to_wire(result, live=False)
        assert seen is not None
        assert (seen["observation"], seen["extras"]) == ("mcp", {"name": "echo", "arguments": {"text": "hello"}})
        assert json.loads(seen["content"]) == {"content": [{"type": "text", "text": "hello"}], "isError": False}


async def test_a_call_with_wrong_arguments_is_answered_without_asking_the_server() -> None:
    async with served({"one": fake("count")}) as stage:
        await stage.say()
        await asked(stage, calls("count", n="many"))
        error = await found(stage, is_kind(AgentErrorEvent))
        assert isinstance(error, AgentErrorEvent)
        assert error.error == (
            "Error validating the call of tool 'count': n: must be of type \"integer\". Parameters provided: ['n']"
        )


async def test_a_server_that_fails_is_told_in_the_log_and_the_agent_works_without_it() -> None:
    servers = {"broken": fake(exit=3), "good": fake("echo")}
    async with served(servers) as stage:
        await stage.say()
        assert "echo" in await asked(stage, ("Hello.", ()))
        failed = await found(stage, is_kind(ToolServerFailed))
        assert isinstance(failed, ToolServerFailed)
        assert failed.server == "broken"
        assert failed.detail == "MCP server 'broken': it cannot be used: it ended. It said: the wheel is gone"
        shown = to_wire(failed, live=True)
        assert shown is not None
        assert (shown["observation"], shown["content"]) == ("error", failed.detail)


async def test_a_conversation_is_ready_before_a_slow_server_whose_tools_join_later(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    server = fake("echo")
    waits = f'while [ ! -e {gate} ]; do sleep 0.02; done; exec "$0" "$@"'
    slow = {"command": "sh", "args": ["-c", waits, server["command"], *server["args"]]}
    async with served({"slow": slow}) as stage:
        assert stage.session.is_ready
        stage.session._tool_servers.tools.wait = _no_wait  # the limit is long over
        await stage.say()
        assert "echo" not in await asked(stage, calls("think", thought="hm"))
        gate.touch()
        await until(lambda: "echo" in stage.session._tool_servers.tools)
        await asked(stage, calls("think", thought="asked before the server was there"))
        assert "echo" in await asked(stage, ("Hello.", ()))


async def _no_wait() -> None:
    return


async def test_tools_that_a_server_adds_are_offered_in_the_next_step() -> None:
    async with served({"one": fake("grow")}) as stage:
        await stage.say()
        await asked(stage, calls("grow"))
        await until(lambda: "huge" in stage.session._tool_servers.tools)
        offered = await asked(stage, calls("huge", n=3))
        if "huge" not in offered:  # that question was asked before the server told
            offered = await asked(stage, calls("huge", n=3))
        assert "huge" in offered


async def test_the_filter_of_an_agent_counts_for_the_tools_of_servers() -> None:
    agent = CodeActAgent(
        llm=LLM(model="openai/stage"),
        mcp_config={"one": McpServer.model_validate(fake("echo", "count"))},
        filter_tools_regex="^(terminal|count)$",
    )
    async with served({}, agent=agent) as stage:
        await stage.session._tool_servers.tools.wait()
        assert sorted(stage.session._tool_servers.tools) == ["count", "finish", "terminal", "think"]


async def test_a_tool_whose_name_takes_the_filter_too_long_is_left_out_and_told() -> None:
    agent = CodeActAgent(
        llm=LLM(model="openai/stage"),
        mcp_config={"one": McpServer.model_validate(fake("echo", "b" * 60))},
        filter_tools_regex="(b|bb)+c|echo|terminal",
    )
    async with served({}, agent=agent) as stage:
        failed = await found(stage, is_kind(ToolServerFailed))
        assert isinstance(failed, ToolServerFailed)
        assert f"its tool '{'b' * 60}' is left out: filter_tools_regex: " in failed.detail
        assert sorted(stage.session._tool_servers.tools) == ["echo", "finish", "terminal", "think"]


async def test_an_agent_without_mcp_starts_no_server(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = {"one": McpServer.model_validate(fake("echo", pids=str(pids)))}
    agent = CodeActAgent(llm=LLM(model="openai/stage"), mcp_config=config, enable_mcp=False)
    async with served({}, agent=agent) as stage:
        await stage.session._tool_servers.tools.wait()
        assert "echo" not in stage.session._tool_servers.tools
    assert not pids.exists()


async def test_a_pause_ends_a_call_that_is_under_way_at_once() -> None:
    async with served({"one": fake("slow")}) as stage:
        await stage.say()
        await asked(stage, calls("slow"))
        await found(stage, is_kind(ActionEvent))
        await stage.session.send(ChangeAgentState(agent_state=AgentState.PAUSED))
        error = await found(stage, is_kind(AgentErrorEvent))
        assert isinstance(error, AgentErrorEvent)
        assert (error.classification, error.error) == ("interrupted", "Stopped by the user while it ran.")


async def test_a_call_waits_for_the_users_word_like_any_other() -> None:
    async with served({"one": fake("echo")}, **ASKS) as stage:
        await stage.say()
        await asked(stage, calls("echo", text="hello", security_risk="HIGH"))
        action = await found(stage, is_kind(ActionEvent))
        assert isinstance(action, ActionEvent)
        assert action.awaits_confirmation
        await stage.session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED))
        result = await found(stage, is_kind(ObservationEvent))
        assert isinstance(result, ObservationEvent)
        assert result.observation.text.endswith("hello")


async def test_a_call_that_was_approved_after_a_restart_waits_for_its_server() -> None:
    async with served({"one": fake("echo", delay=0.3)}, **ASKS) as stage:
        await stage.say()
        await asked(stage, calls("echo", text="hello", security_risk="HIGH"))
        await found(stage, is_kind(ActionEvent))
        await stage.crash()
        await stage.begin()
        await stage.session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED))
        result = await found(stage, is_kind(ObservationEvent))
        assert isinstance(result, ObservationEvent)
        assert result.observation.text.endswith("hello")


async def test_a_call_that_was_under_way_at_a_crash_is_not_made_again() -> None:
    async with served({"one": fake("slow")}) as stage:
        await stage.say()
        await asked(stage, calls("slow"))
        await found(stage, is_kind(ActionEvent))
        await stage.crash()
        await stage.begin()
        error = await found(stage, is_kind(AgentErrorEvent))
        assert isinstance(error, AgentErrorEvent)
        assert "it is unknown whether it took effect" in error.error
        action = next(event for event in await stage.log() if isinstance(event, ActionEvent))
        assert not isinstance(action.action, UnknownAction), "it is read as what it was"


async def test_a_call_whose_server_is_gone_after_a_restart_gets_a_clear_answer() -> None:
    async with served({"one": fake("echo")}, **ASKS) as stage:
        await stage.say()
        await asked(stage, calls("echo", text="hello", security_risk="HIGH"))
        await found(stage, is_kind(ActionEvent))
        await stage.crash()
        stage.settings["mcp_config"] = {}
        await stage.begin()
        await stage.session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED))
        error = await found(stage, is_kind(AgentErrorEvent))
        assert isinstance(error, AgentErrorEvent)
        assert error.error == "Tool 'echo' is not available in this conversation any more."


async def test_what_a_server_shows_of_its_secrets_is_hidden_in_the_log() -> None:
    server = fake("environment", server_env={"API_TOKEN": "super-secret-1", "OTHER": "${NAMED}"})
    async with served({"one": server}, named_secrets={"NAMED": "super-secret-2"}) as stage:
        await stage.say()
        await asked(stage, calls("environment"))
        result = await found(stage, is_kind(ObservationEvent))
        assert isinstance(result, ObservationEvent)
        assert result.observation.text.count("<secret_hidden>") == 2
        assert "super-secret" not in result.observation.text


async def test_the_end_of_a_session_ends_its_servers(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with served({"one": fake("slow", pids=str(pids)), "two": fake(silent=True, pids=str(pids))}) as stage:
        await stage.say()
        stage.session._tool_servers.tools.wait = _no_wait
        await until(lambda: "slow" in stage.session._tool_servers.tools)
        await stage.session.close(stopped=True)
        await until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))
        assert not [task for task in asyncio.all_tasks() if "mcp" in task.get_name()]


async def test_an_always_on_skill_of_the_user_brings_its_servers_and_one_on_demand_does_not() -> None:
    context = AgentContext(
        skills=[
            Skill(name="always", content="Echo.", mcp_tools={"mcpServers": {"one": fake("echo")}}),
            Skill(
                name="sometimes",
                content="Count.",
                mcp_tools={"mcpServers": {"two": fake("count")}},
                trigger=KeywordTrigger(keywords=["count"]),
            ),
            Skill(name="wrong", content="Nothing.", mcp_tools={"sse_servers": ["http://x"]}),
        ]
    )
    async with served({}, agent_context=context) as stage:
        await stage.say()
        offered = await asked(stage, ("Hello.", ()))
        assert "echo" in offered
        assert "count" not in offered
        failed = await found(stage, is_kind(ToolServerFailed))
        assert isinstance(failed, ToolServerFailed)
        assert failed.detail.startswith("MCP server 'of skill wrong': mcp_tools of the skill cannot be used")


def test_a_client_replaces_its_own_tools_and_can_take_no_name_of_others() -> None:
    agent = CodeActAgent(llm=LLM(model="openai/stage"), filter_tools_regex="^(a|b|c|terminal)$")
    agent.initialize(ToolMakerState("c", WorkspacePlace("/workspace")))

    def made(*names: str) -> list[ToolDefinition]:
        return [FinishTool.create()[0].model_copy(update={"name": name}) for name in names]

    before = agent.tools_map
    agent.add_runtime_tools(made("a", "b", "hidden"), client="mine")
    assert agent.tools_map.keys() - before.keys() == agent.tools_brought_by("mine") == {"a", "b"}
    snapshot = agent.tools_map
    agent.add_runtime_tools(made("b", "c"), client="mine")
    assert agent.tools_brought_by("mine") == {"b", "c"}
    assert "a" in snapshot, "who has a copy keeps it"
    with pytest.raises(ValueError, match="'terminal'"):
        agent.add_runtime_tools(made("a", "terminal"), client="mine")
    with pytest.raises(ValueError, match="'b'"):
        agent.add_runtime_tools(made("b"), client="other")
    assert agent.tools_brought_by("mine") == {"b", "c"}, "all or none"


@pytest.mark.parametrize(
    ("kind", "auth", "header", "shown"),
    [
        ("http", {"type": "bearer", "token": "tok-en-1234567"}, "authorization", "Bearer tok-en-1234567"),
        ("sse", {"type": "api_key", "key": "api-key-1234567", "header": "X-Key"}, "x-key", "api-key-1234567"),
        (
            "sse",
            {"type": "basic", "username": "ann", "password": "pass-word-1234567"},
            "authorization",
            "Basic " + base64.b64encode(b"ann:pass-word-1234567").decode(),
        ),
        ("http", {"type": "header", "name": "X-Own", "value": "own-1234567"}, "x-own", "own-1234567"),
    ],
)
async def test_what_a_server_behind_an_address_is_shown_is_in_no_log_even_if_it_repeats_it(
    kind: Kind, auth: dict[str, str], header: str, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    own = {"X-Also-Token": "also-secret-1234567"}
    async with (
        serving(kind) as (url, guard),
        served({"far": {"url": url, "transport": kind, "auth": auth, "headers": own}}) as stage,
    ):
        await stage.say()
        await asked(stage, ("", [("reflect", "{}")]))
        seen = await found(stage, is_kind(ObservationEvent))
        assert isinstance(seen, ObservationEvent)
        assert header in seen.observation.text
        assert all((request[header], request["x-also-token"]) == (shown, own["X-Also-Token"]) for request in guard.seen)
        await asked(stage, ("", [("finish", '{"message": "done"}')]))
        await found(stage, is_kind(ObservationEvent, 2))
        written = "".join(event.model_dump_json() for event in await stage.log())
        asked_for = json.dumps(stage.model.prompts, default=str)
    secrets = [value for name, value in auth.items() if name in ("token", "key", "password", "value")]
    of_server = ("mcp.server", "sse_starlette")
    logged = "".join(one.getMessage() for one in caplog.records if not one.name.startswith(of_server))
    for secret in (*secrets, shown.split()[-1], own["X-Also-Token"]):
        assert secret not in written
        assert secret not in asked_for
        assert secret not in logged
