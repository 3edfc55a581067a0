"""The models that an agent names itself: those of the server and its user, and never those in the home of the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.agent.agent import Agent
from agent_core.llm.llm import LLM
from agent_core.llm.registry import ProfileStore
from agent_core.skills.agent_catalog import AgentDefinition, register_agent_definition, unregister_agent
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from agent_core.tools.spec import Tool
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server
from tests.contract.rest.test_llm_profiles import at, say_to, store, until_finished
from tests.contract.rest.test_programs import add, program, said, until_state, wish

PICTURE = "data:image/png;base64,iVBORw0KGgo="
HOSTS = ("aaa", "cheap", "seeing", "strong")
"""Profiles in the home of the host: the first of any list, and others that are named as those of servers below."""


@pytest.fixture
async def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where every model is asked; those of the host's home are all called ``hosts``."""
    monkeypatch.setenv("DRYDOCK_HOME", str(tmp_path / "home"))
    async with ModelServer(turn) as running:
        key = SecretStr("key-of-hosts")
        llm = LLM(model="openai/hosts", base_url=running.url, api_key=key, disable_vision=False)
        for name in HOSTS:
            ProfileStore().save(name, llm, include_secrets=True)
        yield running


@pytest.fixture(params=["cheap", "chaep"])
def helper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The name of the profile in the definition of the sub-agents called ``helper``, which says it is the host's."""
    folder = str(tmp_path / "home" / "profiles")
    fields: dict[str, Any] = {"model": request.param, "profile_store_dir": folder, "tools": ["terminal"]}
    register_agent_definition(AgentDefinition(name="helper", description="Helps.", **fields))
    yield request.param
    unregister_agent("helper")


def texts(request: ModelRequest, role: str) -> list[str]:
    contents = [message["content"] for message in request.messages if message["role"] == role]
    return [one if isinstance(one, str) else "\n".join(part.get("text", "") for part in one) for one in contents]


def results(request: ModelRequest) -> list[str]:
    return texts(request, "tool")


def turn(request: ModelRequest) -> Turn:
    """What every model does: as its user's first message says, then finish; one that is only asked sees a cat."""
    if not request.json.get("tools"):
        return say("A cat.")
    told = next(iter(texts(request, "user")), "")
    calls = json.loads(told[told.index("[{") : told.rindex("}]") + 2]) if "[{" in told else []
    done = len(results(request))
    return call(calls[done]["tool"], calls[done]["with"]) if done < len(calls) else finish("Done.")


def switches(*names: str) -> str:
    return json.dumps([{"tool": "switch_llm", "with": {"profile_name": name}} for name in names])


def asked(model: ModelServer) -> list[tuple[str, str | None]]:
    return [(request.model, request.api_key) for request in model.requests]


WEAK, STRONG = ("weak", "key-of-weak"), ("strong", "key-of-strong")
TOOLS = {"tools": ["terminal", "switch_llm", "task_tool_set"]}


async def begin(server: Server, order: str, **more: Any) -> str:
    conversation = await server.create(initial_user_msg=order, agent_options=TOOLS, **more)
    await until_finished(server, conversation)
    return conversation


async def test_an_agent_switches_to_a_profile_of_the_server_also_after_a_restart(
    make_server: MakeServer, model: ModelServer
) -> None:
    profiles = {name: at(model, name) for name in ("weak", "strong")}
    settings = {"generate_titles": False, "llm_profiles": profiles, "llm_profile": "weak"}
    async with make_server(**settings) as server:
        conversation = await begin(server, switches("strong"))
        assert asked(model) == [WEAK, STRONG]
        assert "key-of-strong" not in str(await server.events(conversation))
    async with make_server(**settings) as server:
        await say_to(server, conversation, "Go on.")

        async def again() -> bool:
            return len(model.requests) == 3

        await server.until(again, seconds=MODEL_SECONDS)
        assert asked(model)[-1] == STRONG


async def test_a_profile_of_the_user_s_own_hides_that_of_the_server_and_a_router_is_one_too(
    make_server: MakeServer, model: ModelServer
) -> None:
    async with make_server(generate_titles=False) as server:
        await store(server, "strong", **at(model, "own", extra_headers={"X-Secret-Token": "header-of-own"}))
        await store(server, "weak", **at(model, "weak"))
    profiles = {name: at(model, name) for name in ("strong", "cheap")}
    async with make_server(generate_titles=False, llm_profiles=profiles) as server:
        routed = {"router": "multimodal_router", "models": {"primary": "weak", "secondary": "strong"}}
        assert (await server.client.put("/api/llm-profiles/both", json=routed)).status_code == 200
        conversation = await begin(server, switches("strong", "cheap", "both"), llm_profile="weak")
        assert asked(model) == [WEAK, ("own", "key-of-own"), ("cheap", "key-of-cheap"), ("own", "key-of-own")]
        await say_to(server, conversation, "Is it header-of-own?")
        shown = str(await server.events(conversation))
        assert ("Is it" in shown, "header-of-own" in shown) == (True, False)


async def test_a_name_that_means_nothing_is_answered_with_the_nearest_and_the_model_stays(
    make_server: MakeServer, model: ModelServer
) -> None:
    profiles = {name: at(model, name) for name in ("weak", "strong")}
    async with make_server(generate_titles=False, llm_profiles=profiles, llm_profile="weak") as server:
        await begin(server, switches("strnog", "aaa", "", "ü" * 10_000))
    near, hosts, empty, huge = results(model.last_request)
    assert "there is no profile 'strnog'; did you mean 'strong'?" in near
    assert "there is no profile 'aaa'; there are strong, weak" in hosts
    assert "there is no profile ''; there are strong, weak" in empty
    assert ("there are strong, weak" in huge, len(huge) < 1_000) == (True, True)
    assert set(asked(model)) == {WEAK}


async def test_a_profile_that_cannot_be_used_says_why(make_server: MakeServer, model: ModelServer) -> None:
    async with make_server(generate_titles=False) as server:
        await store(server, "mine", **at(model, "mine"))
    profiles = {"weak": at(model, "weak")}
    settings = {"llm_profiles": profiles, "llm_profile": "weak", "allow_user_llm_profiles": False}
    async with make_server(generate_titles=False, **settings) as server:
        await begin(server, switches("mine"))
    (answer,) = results(model.last_request)
    assert "this server's operator allows no profiles of users; choose one of the server's" in answer
    assert set(asked(model)) == {WEAK}


async def test_a_sub_agent_has_the_profile_that_its_definition_names(
    make_server: MakeServer, model: ModelServer, helper: str
) -> None:
    profiles = {name: at(model, name) for name in ("weak", "cheap")}
    async with make_server(generate_titles=False, llm_profiles=profiles, llm_profile="weak") as server:
        task = {"tool": "task", "with": {"prompt": "Help.", "subagent_type": "helper"}}
        await begin(server, json.dumps([task]))
    (answer,) = results(model.last_request)
    if helper == "cheap":
        assert asked(model) == [WEAK, ("cheap", "key-of-cheap"), WEAK]
        assert "Status: completed" in answer
    else:
        assert set(asked(model)) == {WEAK}
        assert "the sub-agent 'helper' has no model" in answer
        assert "did you mean 'cheap'?" in answer


LOOK = json.dumps([{"tool": "inspect_image_with_vision", "with": {"image_index": 0, "question": "What is it?"}}])


async def test_a_model_that_does_not_see_asks_the_profile_that_does(
    make_server: MakeServer, model: ModelServer
) -> None:
    blind = {"disable_vision": True}
    profiles = {"also-blind": at(model, "also-blind", **blind), "seeing": at(model, "seeing", disable_vision=False)}
    settings = {"generate_titles": False, "llm_profiles": {"weak": at(model, "weak", **blind), **profiles}}
    async with make_server(**settings, llm_profile="weak") as server:
        conversation = await begin(server, LOOK, image_urls=[PICTURE])
        assert asked(model) == [WEAK, ("seeing", "key-of-seeing"), WEAK]
        assert PICTURE in str(model.requests[1].messages)
        assert PICTURE not in str(model.requests[0].messages)
        assert "A cat." in results(model.last_request)[0]
        assert "key-of-seeing" not in str(await server.events(conversation))


async def test_where_only_the_host_s_home_has_one_that_sees_images_are_refused(
    make_server: MakeServer, model: ModelServer
) -> None:
    profiles = {"weak": at(model, "weak", disable_vision=True)}
    async with make_server(generate_titles=False, llm_profiles=profiles, llm_profile="weak") as server:
        body = {"initial_user_msg": "See?", "image_urls": [PICTURE]}
        refused = await server.post("/api/conversations", json=body)
        assert (refused.status_code, "Support for images is disabled" in refused.text) == (400, True)


async def test_a_program_s_agent_on_a_server_has_its_own_models_only(
    make_server: MakeServer, model: ModelServer
) -> None:
    profiles = {name: at(model, name) for name in ("weak", "strong")}
    own = LLM(model="openai/own", base_url=model.url, api_key=SecretStr("key-of-own"), disable_vision=True)
    agent = Agent(llm=own, tools=[Tool(name="switch_llm")])
    async with make_server(generate_titles=False, llm_profiles=profiles, llm_profile="weak") as server:
        conversation = await server.create(program=program(agent=agent))
        await until_state(server, conversation, "awaiting_user_input")
        await add(server, conversation, said(switches("strong")))
        await add(server, conversation, wish("running"))
        await until_state(server, conversation, "finished")
    offered = [tool["function"]["name"] for tool in model.requests[0].json["tools"]]
    assert "inspect_image_with_vision" not in offered
    (answer,) = results(model.last_request)
    assert "there is no stored model 'strong': on a server a program's agent has its own models only" in answer
    assert asked(model) == [("own", "key-of-own")] * 2
