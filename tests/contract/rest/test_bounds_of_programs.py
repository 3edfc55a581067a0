"""What a program may have a server do, and what of it nobody sees: refusals, bounds, masks."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent_core import LLM, Agent, AgentContext, LLMSummarizingCondenser, Tool
from agent_core.agent.base import AgentBase
from agent_core.agent.codeact import CodeActAgent
from agent_core.skills.skill import KeywordTrigger, Skill
from agent_core.testing.fake_sandbox import FakeAnswer, FakeHandler, FakeProvider, FakeRequest, command_result
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server, facts, kill
from tests.contract.rest.test_programs import KEY, TERMINAL, add, log_of, program, said, until_state, wish
from tests.serving import serving


async def test_a_program_s_keys_are_sealed_and_shown_nowhere(make_server: MakeServer, tmp_path: Any) -> None:
    async with make_server() as server:
        secrets = {"TOKEN": {"value": "secret-value-456", "description": "of the shop"}}
        git = {"repository": {"name": "a/b", "url": "http://127.0.0.1:9/a/b", "token": "token-of-git-789"}}
        whole = program("http://127.0.0.1:9/v1", secrets=secrets, git=git)
        others = {"b": {"model": "openai/b", "api_key": "key-of-another-321"}}
        whole["agent"]["llm"]["fallback_strategy"] = {"fallback_llms": ["b"], "profiles": others}
        hidden = ["secret-value-456", KEY, "token-of-git-789", "key-of-another-321"]
        conversation = await server.create(program=whole)
        await add(server, conversation, said(f"It is {', '.join(hidden)}."))
        shown = json.dumps([await log_of(server, conversation), await server.events(conversation)])
        assert not [one for one in hidden if one in shown]
        info = await server.info(conversation)
        assert KEY not in json.dumps(info)
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [one for one in hidden if one.encode() in data], path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"agent": {"kind": "Nobody"}}, "kind: 'Nobody' is none of"),
        ({"agent": "x"}, "agent"),
        ({"llm": {"record_to": "/tmp/x"}}, "agent.llm.record_to"),
        ({"llm": {"custom_tokenizer": "/etc/passwd"}}, "agent.llm.custom_tokenizer"),
        ({"llm": {"model": "replay//etc/passwd"}}, "agent.llm.model: a recording is a file"),
        ({"llm": {"log_completions": True}}, "agent.llm.log_completions: it writes files on the server's host"),
        (
            {"llm": {"kind": "RandomRouter", "llms_for_routing": {}, "custom_tokenizer": "/etc/passwd"}},
            "llms_for_routing",
        ),
        (
            {"llm": {"kind": "RandomRouter", "llms_for_routing": {"a": {}}, "custom_tokenizer": "/etc/passwd"}},
            "agent.llm.custom_tokenizer: it names a file",
        ),
        ({"llm": {"aws_profile_name": "prod"}}, "agent.llm.aws_profile_name: it names credentials of the server's"),
        ({"llm": {"aws_role_name": "admin"}}, "agent.llm.aws_role_name: give aws_access_key_id"),
        (
            {"llm": {"model": "vertex_ai/gemini", "base_url": "https://example.com"}},
            "agent.llm.base_url: vertex_ai/gemini is asked with credentials of the server's host",
        ),
        ({"system_prompt_filename": "/etc/passwd"}, "agent.system_prompt_filename"),
        ({"system_prompt_filename": "../../../etc/passwd"}, "agent.system_prompt_filename"),
        ({"security_policy_filename": "/etc/passwd"}, "agent.security_policy_filename"),
        ({"system_prompt_filename": "etc/passwd"}, "agent.system_prompt_filename: no prompt can be made: TemplateNotF"),
        ({"system_prompt_filename": "./etc/passwd"}, "agent.system_prompt_filename: no prompt can be made: TemplateN"),
        ({"security_policy_filename": "etc/passwd"}, "no prompt can be made: TemplateNotFound: etc/passwd"),
        ({"system_prompt_kwargs": {"model_family": "../security_policy"}}, "no prompt can be made"),
        ({"agent_context": {"secrets": {"A": "x"}}}, "agent.agent_context.secrets: send them as secrets"),
        ({"agent_context": {"load_user_skills": True}}, "load_user_skills"),
        ({"agent_context": {"registered_marketplaces": ["/srv"]}}, "registered_marketplaces: nothing is fetched"),
        ({"tools": [{"name": "no_such_tool"}]}, "no_such_tool"),
        (
            {"mcp_config": {f"s{number}": {"url": "http://127.0.0.1:9"} for number in range(401)}},
            "agent.mcp_config: there are 401 servers; configure 400 at most",
        ),
        ({"tools": [{"name": "terminal", "params": {"colour": "red"}}]}, "terminal"),
    ],
)
async def test_what_a_server_cannot_or_must_not_run_is_refused_with_its_field(
    server: Server, change: dict[str, Any], problem: str
) -> None:
    body = program()
    if "llm" in change:
        body["agent"]["llm"] |= change["llm"]
    elif "agent" in change:
        body = {**body, **change}
    else:
        body["agent"] |= change
    response = await server.post("/api/conversations", json={"program": body})
    assert response.status_code == 422, response.text
    assert problem in response.text
    assert KEY not in response.text
    assert (await server.get("/api/conversations")).json()["results"] == []


@pytest.mark.parametrize("is_one_of_several", [False, True])
async def test_no_part_of_a_program_takes_a_key_of_the_server_s_or_names_its_files(
    server: Server, is_one_of_several: bool
) -> None:
    analyzer: dict[str, Any] = {"kind": "GraySwanAnalyzer", "api_url": "https://collector.example/x"}
    if is_one_of_several:
        analyzer = {"kind": "EnsembleSecurityAnalyzer", "analyzers": [{"kind": "PatternSecurityAnalyzer"}, analyzer]}
    response = await server.post("/api/conversations", json={"program": program(security_analyzer=analyzer)})
    assert response.status_code == 422, response.text
    assert "security_analyzer.api_key: give one with api_url" in response.text
    condenser = {"kind": "LLMSummarizingCondenser", "llm": {"record_to": "/tmp/x"}}
    kinds = [{"name": "kind", "condenser": condenser}]
    response = await server.post("/api/conversations", json={"program": program(agent_definitions=kinds)})
    assert response.status_code == 422, response.text
    assert "agent_definitions.0.condenser.llm.record_to: it names a file" in response.text
    own = {"kind": "GraySwanAnalyzer", "api_url": "https://collector.example/x", "api_key": "mine"}
    assert await server.create(program=program(security_analyzer=own))


async def test_a_program_s_analyzer_asks_where_webhooks_may_go_and_nowhere_else(make_server: MakeServer) -> None:
    monitor = {"kind": "GraySwanAnalyzer", "api_url": "http://10.0.0.1/x", "api_key": "key-of-the-monitor"}
    several = {"kind": "EnsembleSecurityAnalyzer", "analyzers": [{"kind": "PatternSecurityAnalyzer"}, monitor]}
    here = {**monitor, "api_url": "http://127.0.0.1:9/x"}
    async with make_server() as server:
        made = await server.create(program=program(security_analyzer=here))
        for analyzer in (monitor, several):
            body = program(security_analyzer=analyzer)
            for method, path in (
                ("POST", "/api/conversations"),
                ("POST", f"/api/conversations/{made}/fork"),
                ("PUT", f"/api/conversations/{made}/program"),
            ):
                sent = body if method == "PUT" else {"program": body}
                response = await server.client.request(method, path, json=sent)
                assert response.status_code == 422, response.text
                assert "program.security_analyzer.api_url: 10.0.0.1 is 10.0.0.1, which is no public" in response.text
                assert "webhook_hosts" in response.text
                assert "key-of-the-monitor" not in response.text
    async with make_server(webhook_hosts=("10.0.0.1",)) as server:
        assert await server.create(program=program(security_analyzer=several))
    async with make_server(host="10.0.0.2", token="t" * 24) as server:
        headers = {"authorization": "Bearer " + "t" * 24}
        body = {"program": program(security_analyzer=here)}
        response = await server.post("/api/conversations", json=body, headers=headers)
        assert (response.status_code, "127.0.0.1, which is no public" in response.text) == (422, True)


async def test_a_program_asks_few_services_about_each_action(server: Server) -> None:
    monitor = {"kind": "GraySwanAnalyzer", "api_key": "key-of-the-monitor"}
    for count, status in ((10, 200), (11, 422)):
        several = {"kind": "EnsembleSecurityAnalyzer", "analyzers": [monitor] * count}
        response = await server.post("/api/conversations", json={"program": program(security_analyzer=several)})
        assert response.status_code == status, response.text
    assert "security_analyzer: 11 of its parts ask a service about each action" in response.text


async def test_a_program_s_monitor_is_asked_unless_it_is_out_of_bounds_by_then(
    make_server: MakeServer,
) -> None:
    asked: list[str] = []

    async def judge(request: Request) -> Response:
        asked.append(request.headers["grayswan-api-key"])
        return JSONResponse({"violation": 1})

    turns = [call("terminal", {"command": "ls", "security_risk": "LOW"}), finish("Done.")]
    app = Starlette(routes=[Route("/", judge, methods=["POST"])])
    async with ModelServer([*turns, *turns]) as model, serving(app, lifespan="off") as port:
        analyzer = {"kind": "GraySwanAnalyzer", "api_url": f"http://127.0.0.1:{port}/", "api_key": "key-of-the-monitor"}
        async with make_server() as server:
            conversation = await server.create(program=program(model.url, security_analyzer=analyzer))
            await add(server, conversation, said("List."))
            await add(server, conversation, wish("running"))
            await until_state(server, conversation, "finished")
            risks = [one["security_risk"] for one in await log_of(server, conversation) if one["kind"] == "ActionEvent"]
            assert risks[0] == "HIGH"
            assert set(asked) == {"key-of-the-monitor"}
        asked.clear()
        async with make_server(host="10.0.0.2", token="t" * 24) as server:
            server.client.headers["authorization"] = "Bearer " + "t" * 24
            await add(server, conversation, said("Again."))
            await add(server, conversation, wish("running"))

            async def has_acted() -> bool:
                return len([one for one in await log_of(server, conversation) if one["kind"] == "ActionEvent"]) == 4

            await server.until(has_acted, seconds=MODEL_SECONDS)
            risks = [one["security_risk"] for one in await log_of(server, conversation) if one["kind"] == "ActionEvent"]
            assert risks[2] == "UNKNOWN"
            assert asked == []


def keyed(name: str) -> str:
    return f"secret-of-{name}"


async def test_every_secret_of_a_program_is_hidden_wherever_it_comes_up(make_server: MakeServer) -> None:
    address = f"https://user:{keyed('password')}@tools.example/mcp?api_key={keyed('query')}&plain=shown-as-it-is"
    llm = LLM(
        usage_id="agent",
        model="openai/scripted",
        base_url=f"http://user:{keyed('base')}@127.0.0.1:9/v1",
        api_key=SecretStr(keyed("model")),
        extra_headers={"X-Auth": f"Bearer {keyed('header')}"},
        litellm_extra_body={"gateway": [{"token": keyed("body")}]},
    )
    other = llm.model_copy(update={"api_key": SecretStr(keyed("condenser")), "usage_id": "condenser"})
    skill = Skill(
        name="s",
        content="c",
        trigger=KeywordTrigger(keywords=["never"]),
        mcp_tools={
            "mcpServers": {"b": {"url": "https://b.example", "auth": {"type": "bearer", "token": keyed("skill")}}}
        },
    )
    agent = Agent(
        llm=llm,
        tools=[Tool(name="terminal")],
        condenser=LLMSummarizingCondenser(llm=other),
        mcp_config={"mcpServers": {"a": {"url": address, "enabled": False}}},
        agent_context=AgentContext(skills=[skill]),
    )
    kind = {
        "name": "kind",
        "mcp_config": {"c": {"url": "https://c.example", "headers": {"Authorization": f"Bearer {keyed('kind')}"}}},
        "condenser": {
            "kind": "LLMSummarizingCondenser",
            "llm": {"usage_id": "k", "model": "openai/m", "api_key": keyed("kinds-condenser")},
        },
    }
    monitor = {"kind": "GraySwanAnalyzer", "api_key": keyed("monitor")}
    analyzer = {"kind": "EnsembleSecurityAnalyzer", "analyzers": [{"kind": "PatternSecurityAnalyzer"}, monitor]}
    body = program(
        agent=agent,
        security_analyzer=analyzer,
        agent_definitions=[kind],
        secrets={"NAME": {"value": keyed("command")}},
        git={"repository": {"name": "a/b", "url": f"http://user:{keyed('repository')}@127.0.0.1:9/a/b"}},
    )
    names = re.findall(r"secret-of-([a-z-]+)", json.dumps(body))
    assert len(set(names)) == 13, names
    text = " ".join(map(keyed, dict.fromkeys(names)))
    body["agent"]["system_prompt"] = text
    async with make_server() as server:
        conversation = await server.create(program=body)
        await add(server, conversation, said(f"{text} shown-as-it-is never"))
        forked = {"copy_files": False, "program": body}
        fork = (await server.post(f"/api/conversations/{conversation}/fork", json=forked)).json()["conversation_id"]
        shown = [await server.info(conversation), await server.events(conversation), await log_of(server, fork)]
        shown += [await log_of(server, conversation), server.app.log_masker.text(text)]
        found = json.dumps(shown)
        assert "secret-of-" not in found, re.findall(r"secret-of-[a-z-]+", found)
        assert "shown-as-it-is never" in found


async def test_what_is_wrong_with_a_program_is_told_without_its_values(server: Server) -> None:
    wrong: list[dict[str, Any]] = [
        {"security_analyzer": {"kind": "GraySwanAnalyzer", "api_key": "sesame-key", "low_threshold": 0.9}},
        {"security_analyzer": {"kind": "GraySwanAnalyzer", "api_key": ["sesame-key"]}},
        {"agent_definitions": [{"name": "kind", "mcp_config": {"a": {"url": "sesame-key"}}}]},
        {"agent_definitions": [{"name": "kind", "hooks": {"PreToolUse": "sesame-key"}}]},
        {"agent_definitions": [{"name": "kind", "condenser": {"kind": "NoOpCondenser", "key": "sesame-key"}}]},
        {
            "agent_definitions": [
                {"name": "kind", "condenser": {"kind": "LLMSummarizingCondenser", "llm": "sesame-key"}}
            ]
        },
    ]
    for fields in wrong:
        response = await server.post("/api/conversations", json={"program": program(**fields)})
        assert response.status_code == 422, response.text
        assert "sesame-key" not in response.text
        assert next(iter(fields)) in response.text


async def test_nothing_of_this_host_s_user_or_of_the_server_s_models_reaches_a_program_s_agent(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    folder = tmp_path / "home" / ".openhands"
    (folder / "agents").mkdir(parents=True)
    (folder / "SOUL.md").write_text("You are the operator's own.")
    (folder / "agents" / "captain.md").write_text("---\nname: captain\ndescription: Of the operator.\n---\nSteer.")
    hook = {"matcher": "*", "hooks": [{"type": "command", "command": "echo operators-hook"}]}
    (folder / "hooks.json").write_text(json.dumps({"PreToolUse": [hook]}))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setitem(AgentBase.agents, "BrowsingAgent", CodeActAgent)  # one that needs no browser
    commands: list[str] = []

    async def shell(request: FakeRequest) -> FakeAnswer:
        commands.append(str(request.args.get("command", "")))
        return command_result("ran")

    async def write(request: FakeRequest) -> FakeAnswer:
        return {}

    def turn(request: ModelRequest) -> Turn:
        if any(message["role"] == "tool" for message in request.messages):
            return finish("Done.")
        if "look it up" in str(request.messages):
            return call("terminal", {"command": "ls", "security_risk": "LOW"})
        return call("delegate_to_browsing_agent", {"task": "look it up"})

    handlers: dict[str, FakeHandler] = {
        "workspace.facts": facts,
        "shell.kill": kill,
        "shell.run": shell,
        "file.write": write,
    }
    profile = {"model": "openai/operators", "base_url": "http://127.0.0.1:9", "api_key": "key-of-the-operator"}
    chosen = {"llm_profiles": {"browsing": profile}, "llm_agents": {"BrowsingAgent": "browsing"}}
    async with ModelServer(turn) as model, make_server(FakeProvider(handlers=handlers), **chosen) as server:
        llm = LLM(usage_id="agent", model="openai/scripted", base_url=model.url, api_key=SecretStr(KEY))
        tools = [*TERMINAL, Tool(name="delegate_to_browsing_agent"), Tool(name="delegate")]
        conversation = await server.create(program=program(agent=Agent(llm=llm, tools=tools)))
        await add(server, conversation, said("Go."))
        await add(server, conversation, wish("running"))
        await until_state(server, conversation, "finished")
        assert {request.headers["authorization"] for request in model.requests} == {f"Bearer {KEY}"}
        asked = json.dumps([request.json for request in model.requests])
        assert "operator's own" not in asked
        assert "captain" not in asked
        assert "ls" in " ".join(commands)
        assert "operators-hook" not in " ".join(commands)
        own = Agent(llm=llm, tools=tools, system_prompt_kwargs={"identity": "You are the program's own."})
        conversation = await server.create(program=program(agent=own))
        await add(server, conversation, said("Go."))
        await add(server, conversation, wish("running"))
        await until_state(server, conversation, "finished")
        prompts = [str(request.messages[0]) for request in list(model.requests)[4:]]
        assert len(prompts) == 4
        assert all("the program's own" in prompt for prompt in prompts)
