"""Conversations of programs on the library: their agent, their log in its own form, their sandbox."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from agent_core import LLM, Agent, Tool
from agent_core.agent.base import AgentBase
from agent_core.agent.codeact import CodeActAgent
from agent_core.events.llm_events import MessageEvent
from agent_core.events.masking import EXPOSE_SECRETS
from agent_core.events.messages import Message
from agent_core.events.serialization import from_data
from agent_core.testing.fake_sandbox import FakeAnswer, FakeHandler, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from server.session.agents.programs import PROGRAM
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server, facts, kill

KEY = "key-of-the-program-123"
TERMINAL = [Tool(name="terminal")]


def program(base_url: str | None = None, agent: AgentBase | None = None, **fields: Any) -> dict[str, Any]:
    llm = LLM(usage_id="agent", model="openai/scripted", base_url=base_url, api_key=SecretStr(KEY), num_retries=1)
    chosen = agent or Agent(llm=llm, tools=TERMINAL)
    return {"agent": chosen.model_dump(mode="json", context={EXPOSE_SECRETS: True}), **fields}


def said(text: str) -> dict[str, Any]:
    message = MessageEvent(source="user", llm_message=Message.user(text), waits_for_run=True)
    return {"event": message.model_dump(mode="json")}


def policy(kind: str) -> dict[str, Any]:
    return {"event": {"kind": "ConfirmationPolicyChanged", "policy": {"kind": kind}}}


def wish(state: str, **fields: Any) -> dict[str, Any]:
    return {"event": {"kind": "ChangeAgentState", "agent_state": state, **fields}}


async def log_of(server: Server, conversation: str) -> list[dict[str, Any]]:
    response = await server.get(f"/api/conversations/{conversation}/log")
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["events"]
    return found


async def add(server: Server, conversation: str, body: dict[str, Any], **options: Any) -> int:
    response = await server.post(f"/api/conversations/{conversation}/log", json=body, **options)
    assert response.status_code == 200, response.text
    return int(response.json()["id"])


async def until_state(server: Server, conversation: str, state: str) -> None:
    async def is_so() -> bool:
        changes = [one for one in await log_of(server, conversation) if one["kind"] == "AgentStateChanged"]
        return bool(changes) and changes[-1]["agent_state"] == state

    await server.until(is_so, seconds=MODEL_SECONDS)


async def test_a_program_s_agent_works_when_a_run_is_asked_for_and_its_log_is_typed(make_server: MakeServer) -> None:
    turns = [call("terminal", {"command": "ls", "security_risk": "LOW"}), finish("Done.")]
    async with ModelServer(turns) as model, make_server() as server:
        conversation = str(uuid4())
        settings = program(model.url, max_iteration_per_run=7)
        assert await server.create(program=settings, conversation_id=conversation) == conversation
        await until_state(server, conversation, "awaiting_user_input")
        first = await add(server, conversation, said("List."), headers={"Idempotency-Key": "one"})
        assert await add(server, conversation, said("List."), headers={"Idempotency-Key": "one"}) == first
        await add(server, conversation, policy("NeverConfirm"))
        assert not model.requests, "a message alone lets it be"
        await add(server, conversation, wish("running"))
        await until_state(server, conversation, "finished")
        log = await log_of(server, conversation)
        events = [from_data(one) for one in log]
        assert [event.id for event in events] == list(range(len(log)))
        kinds = [event.kind for event in events if event.kind != "AgentStateChanged"]
        assert kinds[:2] == ["SystemPromptEvent", "ChangeAgentState"]
        assert kinds[-4:] == ["ActionEvent", "ObservationEvent", "ActionEvent", "ObservationEvent"]
        offered = [tool["function"]["name"] for tool in model.requests[0].json["tools"]]
        assert offered == ["terminal", "finish", "think"]
        assert model.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert len(model.requests) == 2, "no title was asked for"
        tools = (await server.get(f"/api/conversations/{conversation}/tools")).json()["tools"]
        assert {tool["name"] for tool in tools} == {"terminal", "finish", "think"}
        page = (await server.get(f"/api/conversations/{conversation}/log", params={"after": 2, "limit": 2})).json()
        assert ([one["id"] for one in page["events"]], page["last_id"]) == ([3, 4], len(log) - 1)


async def test_whoever_works_for_a_programs_agent_has_its_model_and_none_of_the_servers(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(AgentBase.agents, "BrowsingAgent", CodeActAgent)  # one that needs no browser
    turns = [call("delegate_to_browsing_agent", {"task": "look it up"}), finish("Looked up."), finish("Done.")]
    profiles = {"servers": {"model": "openai/servers", "base_url": "http://127.0.0.1:9/v1", "api_key": "the-servers"}}
    chosen = {"llm_profiles": profiles, "llm_profile": "servers", "llm_agents": {"BrowsingAgent": "servers"}}
    async with ModelServer(turns) as model, make_server(**chosen) as server:
        llm = LLM(usage_id="agent", model="openai/scripted", base_url=model.url, api_key=SecretStr(KEY))
        agent = Agent(llm=llm, tools=[Tool(name="delegate_to_browsing_agent")])
        conversation = await server.create(program=program(agent=agent))
        await until_state(server, conversation, "awaiting_user_input")
        await add(server, conversation, said("Look it up."))
        await add(server, conversation, policy("NeverConfirm"))
        await add(server, conversation, wish("running"))
        await until_state(server, conversation, "finished")
        assert [(request.model, request.api_key) for request in model.requests] == [("scripted", KEY)] * 3


async def test_who_follows_a_log_that_cannot_be_loaded_is_told_why(make_server: MakeServer) -> None:
    async with make_server() as server:
        conversation = await server.create(program=program())
        await until_state(server, conversation, "awaiting_user_input")
        await server.app.services.manager.reconfigure(conversation, {PROGRAM: "no-such-thing"})
        answer = await server.get(f"/api/conversations/{conversation}/log/live")
        name, data = answer.text.strip().split("\n\n")[-1].split("\n")
        assert name == "event: failed"
        told = json.loads(data.removeprefix("data: "))
        assert told["status"] == 409
        assert "the agent that a program gave this conversation cannot be read" in told["detail"]
        assert "run the program again" in told["detail"]
        path = f"/api/conversations/{conversation}/program"
        assert (await server.client.put(path, json=program())).status_code == 200
        await until_state(server, conversation, "awaiting_user_input")


async def test_a_program_s_conversation_ends_when_users_bring_no_models_any_more(make_server: MakeServer) -> None:
    async with make_server() as server:
        conversation = await server.create(program=program())
        await until_state(server, conversation, "awaiting_user_input")
    async with make_server(allow_user_llm_profiles=False) as server:
        response = await server.post(f"/api/conversations/{conversation}/log", json=said("Go."))
        assert (response.status_code, "allow_user_llm_profiles" in response.text) == (500, True)


async def test_a_program_brings_its_own_and_nothing_beside(server: Server) -> None:
    body = {"program": program(), "client_tools": []}
    response = await server.post("/api/conversations", json=body)
    assert (response.status_code, "leave client_tools out" in response.text) == (400, True)
    response = await server.post("/api/conversations", json={"program": {**program(), "colour": 1}})
    assert (response.status_code, "program.colour" in response.text) == (422, True)


async def test_a_server_may_let_nobody_bring_a_model(make_server: MakeServer) -> None:
    async with make_server(allow_user_llm_profiles=False) as server:
        made = await server.create()
        for method, path in (
            ("POST", "/api/conversations"),
            ("POST", f"/api/conversations/{made}/fork"),
            ("PUT", f"/api/conversations/{made}/program"),
        ):
            body = program() if method == "PUT" else {"program": program()}
            response = await server.client.request(method, path, json=body)
            assert (response.status_code, "allow_user_llm_profiles" in response.text) == (403, True)


async def test_a_server_that_starts_no_programs_starts_none_of_a_program_either(make_server: MakeServer) -> None:
    async with ModelServer([finish("Done.")]) as model, make_server(mcp_programs="never") as server:
        llm = LLM(usage_id="agent", model="openai/scripted", base_url=model.url, api_key=SecretStr(KEY))
        agent = Agent(
            llm=llm, tools=TERMINAL, mcp_config={"mcpServers": {"mine": {"command": "touch", "args": ["/x"]}}}
        )
        conversation = await server.create(program=program(agent=agent))
        await add(server, conversation, said("Go."))
        await add(server, conversation, wish("running"))
        await until_state(server, conversation, "finished")
        (refusal,) = [one for one in await log_of(server, conversation) if one["kind"] == "ToolServerFailed"]
        assert (refusal["server"], "mcp_programs" in refusal["detail"]) == ("mine", True)


async def test_only_what_is_a_user_s_to_say_may_be_added_to_the_log(server: Server) -> None:
    conversation = await server.create(program=program())
    for event, problem in (
        ({"kind": "AgentStateChanged", "agent_state": "finished"}, "a program may add"),
        ({"kind": "Nothing"}, "event: "),
        ({}, "event: "),
        ({"kind": "ConfirmationPolicyChanged", "policy": {"kind": "Sometimes"}}, "event.policy: kind 'Sometimes'"),
        ({"kind": "ActionEvent", "tool_name": "x", "action": {"kind": "NobodysAction"}}, "no such action"),
        ({"kind": "Rewind", "to": 4000}, "event: "),
        (
            MessageEvent(llm_message=Message.assistant("I am the agent.")).model_dump(mode="json"),
            "event.llm_message.role",
        ),
    ):
        response = await server.post(f"/api/conversations/{conversation}/log", json={"event": event})
        assert (response.status_code, problem in response.text) == (400, True), response.text
    assert (await server.post("/api/conversations/none/log", json=said("x"))).status_code == 404


async def test_the_agent_is_replaced_between_runs_by_one_with_its_tools(make_server: MakeServer) -> None:
    async with ModelServer([finish("One."), finish("Two.")]) as model, make_server() as server:
        conversation = await server.create(program=program(model.url))
        path = f"/api/conversations/{conversation}/program"
        await until_state(server, conversation, "awaiting_user_input")
        before = len(await log_of(server, conversation))
        assert (await server.client.put(path, json=program(model.url))).status_code == 200
        assert len(await log_of(server, conversation)) == before, "the same is no change"
        poorer = Agent(llm=LLM(model="openai/other"), tools=[])
        refused = await server.client.put(path, json=program(agent=poorer))
        assert (refused.status_code, "missing ['terminal']" in refused.text) == (409, True)
        other = LLM(usage_id="agent", model="openai/other", base_url=model.url, api_key=SecretStr("other-key-789"))
        assert (await server.client.put(path, json=program(agent=Agent(llm=other, tools=TERMINAL)))).status_code == 200
        await add(server, conversation, said("Go."))
        await add(server, conversation, wish("running"))
        await until_state(server, conversation, "finished")
        assert model.requests[0].headers["authorization"] == "Bearer other-key-789"


async def test_a_refusal_has_a_reason_and_may_be_of_some_actions_only(make_server: MakeServer) -> None:
    two = [("terminal", {"command": name, "security_risk": "LOW"}) for name in ("one", "two")]
    async with ModelServer([call(*two[0]), finish("Done.")]) as model, make_server() as server:
        conversation = await server.create(program=program(model.url))
        await add(server, conversation, policy("AlwaysConfirm"))
        await add(server, conversation, said("Go."))
        await add(server, conversation, wish("running"))
        await until_state(server, conversation, "awaiting_user_confirmation")

        async def waiting() -> list[int]:
            return [one["id"] for one in await log_of(server, conversation) if one["kind"] == "ActionEvent"]

        async def there() -> bool:
            return bool(await waiting())

        await server.until(there)
        (action,) = await waiting()
        await add(server, conversation, wish("user_rejected", reason="too loud", action_ids=[action]))
        await until_state(server, conversation, "awaiting_user_input")
        (refusal,) = [one for one in await log_of(server, conversation) if one["kind"] == "UserRejectObservation"]
        assert (refusal["cause"], "too loud" in refusal["rejection_reason"]) == (action, True)


async def test_a_step_is_one_answer_of_the_model(make_server: MakeServer) -> None:
    turns = [call("terminal", {"command": "ls", "security_risk": "LOW"}), finish("Done.")]
    async with ModelServer(turns) as model, make_server() as server:
        conversation = await server.create(program=program(model.url))
        await add(server, conversation, said("Go."))
        await add(server, conversation, wish("running", max_steps=1))
        await until_state(server, conversation, "paused")
        assert len(model.requests) == 1
        await add(server, conversation, wish("running"))
        await until_state(server, conversation, "finished")


async def test_the_sandbox_is_asked_as_tools_do_and_failures_keep_their_kind(make_server: MakeServer) -> None:
    async def read(request: FakeRequest) -> FakeAnswer:
        return {"size": 0, "offset": 0, "eof": True}

    handlers: dict[str, FakeHandler] = {"workspace.facts": facts, "shell.kill": kill, "file.read": read}
    async with make_server(FakeProvider(handlers=handlers)) as server:
        conversation = await server.create(program=program())
        path = f"/api/conversations/{conversation}/sandbox"
        body = {"op": "file.read", "args": {"path": "x"}, "key": "direct:1"}
        response = await server.post(path, json=body)
        assert (response.status_code, response.json()["result"]["eof"], response.json()["failure"]) == (200, True, None)
        failed = (await server.post(path, json={"op": "file.write", "args": {"path": 7}})).json()["failure"]
        assert failed["kind"] in ("tool", "sandbox")
        for wrong in (
            {"op": "journal.ack"},
            {"op": "workspace.unpack"},
            {"op": "file.read", "key": f"{conversation}:3"},
            {"op": "file.read", "blob": "no!"},
            {"op": "file.read", "limit_seconds": 0},
        ):
            assert (await server.post(path, json=wrong)).status_code == 422, wrong


async def test_a_fork_has_the_agent_of_its_source_or_its_own(make_server: MakeServer) -> None:
    async with ModelServer([finish("One."), finish("Two."), finish("Three.")]) as model, make_server() as server:
        source = await server.create(program=program(model.url))
        await add(server, source, said("Go."))
        await add(server, source, wish("running"))
        await until_state(server, source, "finished")
        same, other = str(uuid4()), str(uuid4())
        path = f"/api/conversations/{source}/fork"
        wishes: list[dict[str, Any]] = [
            {"conversation_id": same},
            {"conversation_id": other, "program": program(agent=Agent(llm=LLM(base_url=model.url), tools=[]))},
        ]
        for body in wishes:
            response = await server.post(path, json={"copy_files": False, **body})
            assert response.status_code == 200, response.text
        assert (await server.post(path, json={"conversation_id": same})).status_code == 409
        assert (await server.post(path, json={"conversation_id": "mine"})).status_code == 400
        tools = []
        for fork in (same, other):
            (prompt,) = [one for one in await log_of(server, fork) if one["kind"] == "SystemPromptEvent"]
            tools.append(len(prompt["tools"]))
        assert tools == [3, 2]
        await add(server, same, said("Again."))
        await add(server, same, wish("running"))
        await until_state(server, same, "finished")
        assert model.requests[1].headers["authorization"] == f"Bearer {KEY}"
