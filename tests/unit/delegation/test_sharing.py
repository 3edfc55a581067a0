"""What sub-agents have from the one that asks them: policy, secrets, cache key; and what they do not."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.agent.agent import Agent
from agent_core.errors import EventStoreError
from agent_core.events.control import ConfirmationPolicyChanged
from agent_core.events.llm_events import ActionDecision, ActionEvent, MessageEvent, SystemPromptEvent
from agent_core.events.store import InMemoryEventStore, NewEvent
from agent_core.llm.llm import LLM
from agent_core.security.confirmation import AlwaysConfirm, ConfirmRisky, NeverConfirm
from agent_core.skills.agent_catalog import AgentDefinition, register_agent, register_agent_definition, unregister_agent
from agent_core.testing.model_turns import Call, calls
from agent_core.tools.builtin import ThinkAction, ThinkObservation, ThinkTool
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import ToolExecutor
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import Tool
from tests.unit.controller.test_own_tools import own
from tests.unit.delegation.family import GO, done, family, first_message, results, run, task

RISKY = {GO: [calls(task("clean")), done()], "clean": [run("rm -r build"), done("Somebody else has to.")]}


async def agrees(actions: Sequence[ActionEvent]) -> bool:
    return all("rm" in str(action.action) for action in actions)


def agrees_in_a_thread(actions: Sequence[ActionEvent]) -> bool:
    assert threading.current_thread().name.startswith("confirm")
    return True


def breaks(actions: Sequence[ActionEvent]) -> bool:
    raise RuntimeError("no idea")


async def refuses(actions: Sequence[ActionEvent]) -> bool:
    return False


def definition(**fields: Any) -> AgentDefinition:
    return AgentDefinition(name="test-kind", tools=["terminal"], **fields)


def md(text: str, path: str = "/workspace/.agents/agents/kind.md") -> dict[str, Any]:
    return {"agents": [{"path": path, "content": text}]}


@pytest.mark.parametrize(
    ("settings", "runs"),
    [
        ({}, True),
        ({"policy": NeverConfirm(), "confirm_subagents": refuses}, True),  # nothing asks, so nobody is asked
        ({"policy": AlwaysConfirm()}, False),
        ({"policy": ConfirmRisky()}, False),
        ({"policy": AlwaysConfirm(), "confirm_subagents": agrees}, True),
        ({"policy": AlwaysConfirm(), "confirm_subagents": agrees_in_a_thread}, True),
        ({"policy": AlwaysConfirm(), "confirm_subagents": refuses}, False),
        ({"policy": AlwaysConfirm(), "confirm_subagents": breaks}, False),
    ],
)
async def test_where_a_user_would_be_asked_a_sub_agent_may_only_what_the_program_agrees_to(
    settings: dict[str, Any], runs: bool
) -> None:
    async with family(RISKY, settings=settings) as one:
        await one.say()
        if "policy" in settings and not isinstance(settings["policy"], NeverConfirm):
            await one.confirm_own()
        events = await one.at_rest()
        child = await one.log("c~task_00000001")
    assert [command for _, command in one.commands] == (["rm -r build"] if runs else [])
    assert "Somebody else has to." in results(events)[0]
    decisions = [event.decision for event in child if isinstance(event, ActionDecision)]
    asked = "policy" in settings and not isinstance(settings["policy"], NeverConfirm)
    assert decisions == ((["confirmed"] if runs else ["rejected"]) if asked else [])


async def test_a_sub_agent_that_insists_on_what_is_refused_is_stopped() -> None:
    lines = {GO: [calls(task("clean")), done()], "clean": [run("rm -r build")]}
    async with family(lines, settings={"policy": AlwaysConfirm()}) as one:
        await one.say()
        await one.confirm_own()
        events = await one.at_rest()
    assert "Status: error" in results(events)[0]
    assert "only a user may approve" in results(events)[0]
    assert not one.commands


@pytest.mark.parametrize(
    ("mode", "policy", "decisions"),
    [
        ("always_confirm", NeverConfirm(), ["confirmed"]),  # nobody asks the user here, so it is agreed to
        ("never_confirm", AlwaysConfirm(), []),
        (None, AlwaysConfirm(), ["rejected"]),
    ],
)
async def test_a_kind_may_set_a_policy_of_its_own(mode: Any, policy: Any, decisions: list[str]) -> None:
    register_agent_definition(definition(permission_mode=mode))
    lines = {
        GO: [calls(task("clean", subagent_type="test-kind")), done()],
        "clean": [run("rm -r build"), done()],
    }
    try:
        async with family(lines, settings={"policy": policy}) as one:
            await one.say()
            if not isinstance(policy, NeverConfirm):
                await one.confirm_own()
            await one.at_rest()
            child = await one.log("c~task_00000001")
    finally:
        unregister_agent("test-kind")
    assert [event.decision for event in child if isinstance(event, ActionDecision)] == decisions


async def test_a_project_cannot_make_the_policy_laxer() -> None:
    lines = {GO: [calls(task("clean", subagent_type="kind")), done()], "clean": [run("rm -r build"), done()]}
    facts = md("---\ntools: terminal\npermission_mode: never_confirm\n---\nClean.")
    async with family(lines, settings={"policy": AlwaysConfirm()}, facts=facts) as one:
        await one.say()
        await one.confirm_own()
        await one.at_rest()
    assert not one.commands


async def test_a_plugin_cannot_make_the_policy_laxer() -> None:
    kind = definition(permission_mode="never_confirm", level="plugin")
    lines = {GO: [calls(task("clean", subagent_type="test-kind")), done()], "clean": [run("rm -r build"), done()]}
    async with family(lines, settings={"policy": AlwaysConfirm(), "agent_definitions": (kind,)}) as one:
        await one.say()
        await one.confirm_own()
        await one.at_rest()
    assert not one.commands


async def test_the_policy_in_force_is_what_the_log_says() -> None:
    async with family(RISKY, settings={"policy": AlwaysConfirm()}) as one:
        await one.session.send(ConfirmationPolicyChanged(policy=NeverConfirm().model_dump(mode="json")))
        await one.say()
        await one.at_rest()
    assert [command for _, command in one.commands] == ["rm -r build"]


async def test_secrets_reach_the_commands_of_sub_agents_and_stay_hidden_in_their_logs() -> None:
    lines = {
        GO: [calls(task("deploy")), done()],
        "deploy": [run("deploy --key $DEPLOY_KEY"), done("It said hunter-two-hundred.")],
    }
    async with family(lines, settings={"named_secrets": {"DEPLOY_KEY": SecretStr("hunter-two-hundred")}}) as one:
        await one.say()
        await one.at_rest()
        (call,) = [call for call in one.sandbox.runner.ran if call.op == "shell.run"]
        logs = str([await one.log(name) for name in ("c", *one.children())])
    assert call.args["env"] == {"DEPLOY_KEY": "hunter-two-hundred"}
    assert "DEPLOY_KEY" in str(one.requests_of("deploy")[0].messages[0])
    assert "hunter-two-hundred" not in logs
    assert "a-model-key" not in logs


async def test_a_sub_agent_knows_its_instructions_and_nothing_of_the_conversation() -> None:
    register_agent_definition(definition(instructions="You answer in rhymes."))
    lines = {GO: [calls(task("sing", subagent_type="test-kind")), done()], "sing": [done()]}
    try:
        async with family(lines) as one:
            await one.say()
            await one.at_rest()
            child = await one.log("c~task_00000001")
    finally:
        unregister_agent("test-kind")
    (prompt,) = [event for event in child if isinstance(event, SystemPromptEvent)]
    assert prompt.dynamic_context is not None
    assert "You answer in rhymes." in prompt.dynamic_context.text
    assert {tool["function"]["name"] for tool in prompt.tools} == {"terminal", "finish", "think"}
    assert GO not in str([event for event in child if isinstance(event, MessageEvent)])


async def test_sub_agents_use_their_parents_cache_key_and_a_model_that_counts_alone() -> None:
    async with family({GO: [calls(task("look")), done()], "look": [done()]}) as one:
        await one.say()
        await one.at_rest()
        agent = one.session.settings.agent
        assert agent is not None
        child = await one.log("c~task_00000001")
        by_id = [event.metrics.by_usage_id for event in child if isinstance(event, ActionEvent) and event.metrics]
    assert list(by_id[-1]) == ["task:task_00000001"]
    assert agent.llm.metrics.calls == 2


class FullStore(InMemoryEventStore):
    """Nothing can be written into the logs of sub-agents."""

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        if conversation_id != "c":
            raise EventStoreError("the disk is full")
        return await super().append(conversation_id, events, epoch=epoch)


@pytest.mark.parametrize("store", [InMemoryEventStore(), FullStore()], ids=["at its end", "never opened"])
async def test_what_the_tools_of_a_sub_agent_hold_is_let_go_of(store: InMemoryEventStore) -> None:
    closed: list[str] = []

    class HoldingExecutor(ToolExecutor[ThinkAction, ThinkObservation]):
        def __call__(self, action: ThinkAction, conversation: Any = None) -> ThinkObservation:
            return ThinkObservation.from_text("held")

        def close(self) -> None:
            closed.append("holding")

    def make(llm: LLM) -> Agent:
        return Agent(llm=llm, tools=[Tool(name="holding")])

    def holding(conv_state: Any = None) -> Sequence[ToolDefinition]:
        (tool,) = ThinkTool.create()
        return [tool.model_copy(update={"name": "holding", "executor": HoldingExecutor()})]

    register_tool("holding", holding)
    register_agent("test-holding", make)
    lines = {
        GO: [calls(task("hold", subagent_type="test-holding")), done()],
        "hold": [calls(Call("holding", {"thought": "x"})), done()],
    }
    try:
        async with family(lines, store=store) as one:
            await one.say()
            await one.at_rest()
            assert closed == ["holding"]
    finally:
        unregister_agent("test-holding")


async def test_a_registered_function_makes_the_agent() -> None:
    def make(llm: LLM) -> Agent:
        return Agent(llm=llm, tools=[Tool(name="terminal")], system_prompt="You are a maker.")

    register_agent("test-made", make, "Makes things.")
    lines = {GO: [calls(task("make", subagent_type="test-made")), done()], "make": [run("make"), done("made")]}
    try:
        async with family(lines) as one:
            await one.say()
            events = await one.at_rest()
        assert "Subagent: test-made" in results(events)[0]
        assert "You are a maker." in str(one.requests_of("make")[0].messages[0])
        with pytest.raises(ValueError, match="registered already"):
            register_agent("test-made", make)
    finally:
        unregister_agent("test-made")


@pytest.mark.parametrize("tools", [("terminal", "task_tool_set"), ("terminal",)])
async def test_an_agent_that_can_have_sub_agents_is_told_of_those_of_the_project(tools: Sequence[str]) -> None:
    facts = md("---\ndescription: Looks.\n---\nLook.")
    async with family({GO: [done()]}, tools=tools, facts=facts) as one:
        await one.say()
        await one.at_rest()
        (request,) = one.requests_of(GO)
    assert ("- kind: Looks." in str(request.messages)) is ("task_tool_set" in tools)


async def test_kinds_of_the_project_are_found_where_they_are_and_when_they_come() -> None:
    lines = {
        GO: [
            calls(task("look", subagent_type="kind")),
            calls(Call("terminal", {"command": "write it"})),
            calls(task("look", subagent_type="kind")),
            done(),
        ],
        "look": [done("seen")],
    }
    async with family(lines) as one:
        one.on_command = lambda _: one.facts.update(md("---\ndescription: Looks.\ntools: terminal\n---\nLook."))
        await one.say()
        events = await one.at_rest()
    first, second = results(events)
    assert "no kind of sub-agent called 'kind'" in first
    assert "Status: completed\n\nseen" in second


async def test_sub_agents_do_not_have_the_tools_of_the_program_around_the_conversation() -> None:
    lines = {GO: [calls(task("clean")), done()], "clean": [done("Clean.")]}
    async with family(lines, settings={"own_tools": (own("open_request"),)}) as one:
        await one.say()
        await one.until(lambda events: bool(results(events)))
        offered = {
            first_message(request): [tool["function"]["name"] for tool in request.json["tools"]]
            for request in one.server.requests
        }
        assert "open_request" in offered[GO]
        (others,) = [names for message, names in offered.items() if message != GO]
        assert "open_request" not in others
