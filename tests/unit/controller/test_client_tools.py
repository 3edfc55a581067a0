"""Calls that clients carry out: each is answered once, whatever clients and servers do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_core.errors import ClientToolError
from agent_core.events.control import AgentState, ChangeAgentState, ClientToolResult
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import ClientCall
from agent_core.security.confirmation import AlwaysConfirm
from agent_core.session.settings import AgentOptions
from agent_core.tools.spec import Tool
from tests.unit.controller.stage import REPLIES, Reply, Stage
from tests.unit.controller.test_answers import is_in, until

SCHEMA = {"type": "object", "properties": {"table": {"type": "string"}}, "required": ["table"]}
ASK: Reply = ("", [("ask_db", '{"table": "users", "security_risk": "LOW"}')])
TWO: Reply = ("", [("ask_db", '{"table": "a"}'), ("ask_db", '{"table": "b"}')])
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def ask_db(timeout: float = 30.0) -> Tool:
    params = {"name": "ask_db", "description": "Asks the client's database.", "schema": SCHEMA, "timeout": timeout}
    return Tool(name="client_tool", params=params)


@asynccontextmanager
async def staged(**settings: Any) -> AsyncIterator[Stage]:
    stage = Stage(settings={"client_tools": (ask_db(),), **settings})
    await stage.begin()
    try:
        yield stage
    finally:
        await stage.end()


def result(call_id: int, text: str = "7 rows", **more: Any) -> ClientToolResult:
    return ClientToolResult(cause=call_id, content=[TextContent(text=text)], **more)


def calls_in(log: list[AnyEvent]) -> list[ActionEvent]:
    return [event for event in log if isinstance(event, ActionEvent) and event.tool_name == "ask_db"]


def answers_in(log: list[AnyEvent]) -> list[ObservationEvent | AgentErrorEvent]:
    return [event for event in log if isinstance(event, ObservationEvent | AgentErrorEvent)]


def offered(stage: Stage) -> list[ClientCall]:
    return [notice for notice in stage.session.stream._current if isinstance(notice, ClientCall)]


async def until_asked(stage: Stage, *replies: Reply) -> ActionEvent:
    """The call, once a client could see that it is to be carried out."""
    await until(stage, lambda log: bool(calls_in(log)), list(replies or [ASK]))
    log = await until(stage, lambda log: bool(offered(stage)))
    return next(call for call in calls_in(log) if call.id == offered(stage)[0].cause)


async def test_what_a_client_answers_is_the_result_and_to_say_it_again_is_harmless() -> None:
    async with staged() as stage:
        await stage.say()
        call = await until_asked(stage)
        content = [TextContent(text="7 rows"), ImageContent(image_urls=[PIXEL])]
        said = ClientToolResult(cause=call.id, content=list(content))
        first = await stage.session.send(said)
        again = await stage.session.send(said)
        assert again.id == first.id
        with pytest.raises(ClientToolError, match="answered before, otherwise") as caught:
            await stage.session.send(result(call.id, "8 rows"))
        assert caught.value.code == "answered"
        log = await until(stage, is_in(AgentState.FINISHED), [REPLIES["finish"]])
        (seen,) = [event for event in answers_in(log) if event.cause == call.id]
        assert isinstance(seen, ObservationEvent)
        assert seen.observation.text == "[Tool 'ask_db' executed.]\n7 rows"
        assert ImageContent(image_urls=[PIXEL]) in seen.observation.content
        assert (await stage.session.send(said)).id == first.id
        with pytest.raises(ClientToolError, match="otherwise"):
            await stage.session.send(result(call.id, "too late, too"))
        assert not list(stage.session.stream._current)


async def test_a_failure_of_the_client_is_one_of_the_call() -> None:
    async with staged() as stage:
        await stage.say()
        call = await until_asked(stage)
        await stage.session.send(result(call.id, "no such table", is_error=True))
        log = await until(stage, lambda log: bool(answers_in(log)))
        (seen,) = answers_in(log)
        assert isinstance(seen, ObservationEvent)
        assert seen.observation.is_error
        assert "[Tool 'ask_db' failed.]" in seen.observation.text


@pytest.mark.parametrize(("connected", "said"), [(0, "no client is connected"), (2, "no client has answered")])
async def test_without_an_answer_in_time_the_agent_goes_on_and_a_late_one_is_refused(connected: int, said: str) -> None:
    stage = Stage(settings={"client_tools": (ask_db(0.05),)})
    await stage.begin()
    try:
        assert stage.session.running is not None
        stage.session.running.runtime.client_calls.connected = lambda: connected
        await stage.say()
        log = await until(stage, lambda log: bool(answers_in(log)), [ASK])
        (error,) = answers_in(log)
        assert isinstance(error, AgentErrorEvent)
        assert said in error.error
        assert "0.05 s" in error.error
        with pytest.raises(ClientToolError, match="too late") as caught:
            await stage.session.send(result(calls_in(log)[0].id))
        assert caught.value.code == "late"
        assert not any(isinstance(event, ClientToolResult) for event in await stage.log())
    finally:
        await stage.end()


async def test_answers_to_nothing_are_refused() -> None:
    async with staged() as stage:
        await stage.say()
        with pytest.raises(ClientToolError, match="there is no call 4000"):
            await stage.session.send(result(4000))
        with pytest.raises(ClientToolError, match="there is no call 0"):
            await stage.session.send(result(0))
        await until(stage, lambda log: any(isinstance(event, ActionEvent) for event in log), [REPLIES["one"]])
        terminal = next(event for event in await stage.log() if isinstance(event, ActionEvent))
        with pytest.raises(ClientToolError) as caught:
            await stage.session.send(result(terminal.id))
        assert caught.value.code in ("unknown", "late")


async def test_arguments_that_do_not_fit_never_reach_a_client() -> None:
    async with staged() as stage:
        await stage.say()
        log = await until(stage, lambda log: bool(answers_in(log)), [("", [("ask_db", '{"table": 7}')])])
        (error,) = answers_in(log)
        assert isinstance(error, AgentErrorEvent)
        assert "table: must be of type" in error.error


async def test_a_call_that_waits_for_approval_is_not_offered_and_both_its_ids_are_known() -> None:
    async with staged(policy=AlwaysConfirm()) as stage:
        await stage.say()
        log = await until(stage, is_in(AgentState.AWAITING_USER_CONFIRMATION), [ASK])
        (call,) = calls_in(log)
        assert not offered(stage)
        with pytest.raises(ClientToolError, match="waits for the user's approval"):
            await stage.session.send(result(call.id))
        await stage.session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED))
        await until_asked(stage)
        decision = next(event for event in await stage.log() if event.kind == "ActionDecision")
        stored = await stage.session.send(result(decision.id))
        assert stored.cause == call.id
        await until(stage, lambda log: bool(answers_in(log)))
        assert (await stage.session.send(result(decision.id))).id == stored.id


async def test_a_stop_ends_the_call_and_a_message_begins_anew() -> None:
    async with staged() as stage:
        await stage.say()
        call = await until_asked(stage)
        await stage.session.send(ChangeAgentState(agent_state=AgentState.STOPPED))
        log = await until(stage, lambda log: bool(answers_in(log)))
        assert answers_in(log)[0].cause == call.id
        assert not offered(stage)
        with pytest.raises(ClientToolError, match="too late"):
            await stage.session.send(result(call.id))


@pytest.mark.parametrize("answered", [False, True])
async def test_a_call_survives_a_crash_and_so_does_its_answer(answered: bool) -> None:
    async with staged() as stage:
        await stage.say()
        call = await until_asked(stage)
        if answered:  # and the server is killed before the agent hears of it
            stage.session.stream.secrets.add(["7 rows"])
            await stage.session.stream.add_event(result(call.id), "user")
        await stage.crash()
        await stage.begin()
        if not answered:
            assert (await until_asked(stage)).id == call.id
            await stage.session.send(result(call.id, "<secret_hidden>"))
        log = await until(stage, is_in(AgentState.FINISHED), [REPLIES["finish"]])
        seen = [event for event in answers_in(log) if event.cause == call.id]
        assert len(seen) == 1
        assert isinstance(seen[0], ObservationEvent)
        assert "<secret_hidden>" in seen[0].observation.text


async def test_calls_of_one_answer_are_offered_together_where_the_agent_allows_that() -> None:
    async with staged(agent_options=AgentOptions(tool_concurrency_limit=2)) as stage:
        await stage.say()
        await until(stage, lambda log: len(calls_in(log)) == 2, [TWO])
        log = await until(stage, lambda log: len(offered(stage)) == 2)
        first, second = calls_in(log)
        await stage.session.send(result(second.id, "b"))
        await stage.session.send(result(first.id, "a"))
        log = await until(stage, is_in(AgentState.FINISHED), [REPLIES["finish"]])
        causes = [event.cause for event in answers_in(log)][:2]
        assert causes == [first.id, second.id], "in the order of the calls"


async def test_tools_of_clients_whose_name_is_taken_change_nothing() -> None:
    async with staged() as stage:
        session = stage.session
        taken = Tool(name="client_tool", params={"name": "finish", "description": "Ends.", "schema": SCHEMA})
        with pytest.raises(ValueError, match="two tools are named 'finish'"):
            session.set_client_tools([taken])
        assert "ask_db" in session.agent.tools_map
        session.set_client_tools([])
        assert "ask_db" not in session.agent.tools_map
        assert "ask_db" not in session._tools
