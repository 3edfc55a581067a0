"""Fallbacks and routers over HTTP, and the profiles behind them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from agent_core.agent.agent import Agent
from agent_core.agent.base import AgentBase
from agent_core.errors import LLMBadRequestError, LLMUnavailableError
from agent_core.events.messages import ImageContent, Message, MessageToolCall, TextContent
from agent_core.llm.features import ModelFeatures
from agent_core.llm.llm import LLM
from agent_core.llm.profiles import FallbackStrategy
from agent_core.llm.registry import LLMRegistry, ProfileStore
from agent_core.llm.render import render_message
from agent_core.llm.router import MultimodalRouter, RandomRouter, ReadBack, RouterLLM
from agent_core.llm.transport.exchange import CallContext
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import fail, say

PRICES = {"input_cost_per_token": 0.01, "output_cost_per_token": 0.01}
USAGE = {"prompt_tokens": 90, "completion_tokens": 10}


def model(server: ModelServer, **options: Any) -> LLM:
    own = {"model": "openai/scripted", "base_url": server.url, "api_key": SecretStr("k"), "num_retries": 1}
    return LLM.model_validate({**own, "timeout": 5, **options})


def stored(directory: Path, *models: LLM) -> FallbackStrategy:
    store = ProfileStore(directory)
    for llm in models:
        store.save(llm.usage_id, llm, include_secrets=True)
    return FallbackStrategy(fallback_llms=tuple(llm.usage_id for llm in models), profile_store_dir=directory)


async def test_the_first_fallback_that_answers_does_and_its_cost_is_the_failed_models(tmp_path: Path) -> None:
    counted: list[tuple[str, float | None]] = []
    async with ModelServer([fail(503), fail(429), say("Here I am", usage=USAGE)]) as server:
        second = model(server, usage_id="second", model="openai/second")
        third = model(server, usage_id="third", model="openai/third", **PRICES)
        first = model(server, usage_id="first", fallback_strategy=stored(tmp_path, second, third))
        context = CallContext(on_response=lambda response, usage_id: counted.append((usage_id, response.cost)))
        response = await first.acompletion([first.render(Message.user("Hi"))], context=context)
    assert [request.model for request in server.requests] == ["scripted", "second", "third"]
    assert [request.api_key for request in server.requests] == ["k"] * 3
    assert response.message.text == "Here I am"
    assert first.metrics.accumulated_cost == pytest.approx(1.0)
    ((usage_id, cost),) = counted
    assert usage_id == "first"
    assert cost == pytest.approx(1.0)


async def test_each_call_tries_the_model_itself_first(tmp_path: Path) -> None:
    async with ModelServer([fail(503), say("other"), say("itself")]) as server:
        llm = model(server, fallback_strategy=stored(tmp_path, model(server, usage_id="other", model="openai/other")))
        hello = [llm.render(Message.user("Hi"))]
        assert (await llm.acompletion(hello)).message.text == "other"
        assert (await llm.acompletion(hello)).message.text == "itself"


async def test_when_all_fail_the_first_failure_is_reported(tmp_path: Path) -> None:
    async with ModelServer([fail(503, "the first is down"), fail(401), fail(500)]) as server:
        others = [model(server, usage_id=name) for name in ("a", "b")]
        llm = model(server, fallback_strategy=stored(tmp_path, *others))
        with pytest.raises(LLMUnavailableError, match="the first is down"):
            await llm.acompletion([llm.render(Message.user("Hi"))])
    assert server.request_count == 3


async def test_what_another_model_would_refuse_too_is_not_asked_again(tmp_path: Path) -> None:
    async with ModelServer([fail(400, "nonsense")]) as server:
        llm = model(server, fallback_strategy=stored(tmp_path, model(server, usage_id="other")))
        with pytest.raises(LLMBadRequestError, match="nonsense"):
            await llm.acompletion([llm.render(Message.user("Hi"))])
    assert server.request_count == 1


async def test_a_profile_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    async with ModelServer([fail(503), say("found")]) as server:
        stored(tmp_path, model(server, usage_id="there"))
        strategy = FallbackStrategy(fallback_llms=("gone", "there"), profile_store_dir=tmp_path)
        llm = model(server, fallback_strategy=strategy)
        assert (await llm.acompletion([llm.render(Message.user("Hi"))])).message.text == "found"


async def test_a_fallback_gets_the_messages_as_it_wants_them(tmp_path: Path) -> None:
    image = ImageContent(image_urls=["data:image/png;base64,AA=="])
    message = Message(role="user", content=[TextContent(text="See"), image])
    async with ModelServer([fail(503), say("blind")]) as server:
        blind = model(server, usage_id="blind", disable_vision=True)
        llm = model(server, fallback_strategy=stored(tmp_path, blind))
        await llm.acompletion([llm.render(message)])
    first, second = server.requests
    assert isinstance(first.messages[0]["content"], list)
    assert second.messages[0]["content"] == "See"


def test_the_strategy_is_not_stored_with_the_model(tmp_path: Path) -> None:
    llm = LLM(fallback_strategy=FallbackStrategy(fallback_llms=("a",)))
    assert "fallback_strategy" not in llm.model_dump()
    with pytest.raises(ValidationError):
        FallbackStrategy(fallback_llms=())


async def test_images_and_long_prompts_go_to_the_primary_model_the_rest_to_the_secondary() -> None:
    picture = Message(role="user", content=[ImageContent(image_urls=["data:image/png;base64,AA=="])])
    async with ModelServer(lambda request: say("x", usage=USAGE)) as server:
        models = {
            "primary": model(server, model="openai/primary", **PRICES),
            "secondary": model(server, model="openai/secondary", max_input_tokens=16_384),
        }
        router = MultimodalRouter(llms_for_routing=models)
        assert [router.select_llm([one]) for one in (Message.user("Hi"), picture)] == ["secondary", "primary"]
        assert router.select_llm([picture, Message.user("Hi")]) == "primary", "an image anywhere"
        for message in (Message.user("Hi"), Message.user("x" * 70_000), picture):
            await router.acompletion([router.render(message)])
    assert [request.model for request in server.requests] == ["secondary", "primary", "primary"]
    assert server.last_request.messages[0]["content"][0]["type"] == "image_url"
    assert router.active_llm is models["primary"]
    assert router.metrics.accumulated_cost == pytest.approx(2.0)
    assert router.metrics.calls == 3
    assert models["secondary"].metrics.calls == 1


class Last(RouterLLM):
    """Chooses by what the last message says."""

    def select_llm(self, messages: Sequence[Message]) -> str:
        return messages[-1].text


async def test_a_router_of_ones_own_is_asked_for_each_call() -> None:
    async with ModelServer([say("a"), say("b")]) as server:
        router = Last(llms_for_routing={name: model(server, model=f"openai/{name}") for name in ("a", "b")})
        assert router.active_llm.model == "openai/a"
        for name in ("b", "a"):
            await router.acompletion([router.render(Message.user(name))])
            assert server.last_request.model == name
        with pytest.raises(KeyError, match=r"Last chose 'c', which is none of \['a', 'b'\]"):
            await router.acompletion([router.render(Message.user("c"))])


def test_a_router_is_shown_a_prompt_as_messages() -> None:
    call = MessageToolCall(id="c1", name="look", arguments="{}")
    said = [
        Message(role="system", content=[TextContent(text="Be good.", cache_prompt=True)]),
        Message.user("Look at this.", image_urls=["data:image/png;base64,AA=="]),
        Message(role="assistant", tool_calls=[call], reasoning_content="Hm.", thinking_blocks=[{"type": "thinking"}]),
        Message(role="tool", content=[TextContent(text="A boat.")], tool_call_id="c1", name="look"),
    ]
    features = ModelFeatures(prompt_cache_marks=True, echo_reasoning=True, thinking_blocks=True)
    shown = ReadBack([render_message(one, features, vision=True, cache_marks=True) for one in said])
    assert list(shown) == said
    assert list(shown[1:3]) == said[1:3]


async def test_what_a_router_does_not_have_is_the_active_models() -> None:
    class Named(LLM):
        nickname: str = "one"

    router = RandomRouter(llms_for_routing={"only": Named()})
    assert router.nickname == "one"
    with pytest.raises(AttributeError):
        router.no_such_thing  # noqa: B018


def test_routers_without_their_models_are_refused() -> None:
    with pytest.raises(ValidationError):
        RandomRouter(llms_for_routing={})
    with pytest.raises(ValidationError, match="missing: \\['primary'\\]"):
        MultimodalRouter(llms_for_routing={"secondary": LLM()})
    with pytest.raises(TypeError):
        RouterLLM(llms_for_routing={"a": LLM()})  # type: ignore[abstract] # that is the point


def test_a_profile_holds_the_configuration_and_its_key_only_if_asked(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path / "profiles")
    llm = LLM(model="openai/x", api_key=SecretStr("sk-12345678"), temperature=0.5, litellm_extra_body={"a": 1})
    assert store.list() == []
    store.save("cheap", llm)
    store.save("cheap", llm)
    assert store.load("cheap") == llm.model_copy(update={"api_key": None})
    store.save("full", llm, include_secrets=True)
    assert store.load("full") == llm
    assert store.list() == ["cheap", "full"]
    assert ((tmp_path / "profiles" / "full.json").stat().st_mode & 0o777) == 0o600
    store.delete("cheap")
    store.delete("cheap")
    with pytest.raises(FileNotFoundError, match=r"there is no profile 'cheap'.*full"):
        store.load("cheap")
    for name in ("../x", "", ".hidden", "a/b"):
        with pytest.raises(ValueError, match="no name of a profile"):
            store.save(name, llm)


def test_a_configuration_is_read_from_the_environment_and_from_a_file(tmp_path: Path) -> None:
    environment = {
        "LLM_MODEL": "openai/x",
        "LLM_API_KEY": "sk-1",
        "LLM_NUM_RETRIES": "3",
        "LLM_CACHING_PROMPT": "false",
        "LLM_LITELLM_EXTRA_BODY": '{"a": 1}',
        "LLM_BASE_URL": " ",
        "OTHER_MODEL": "y",
    }
    llm = LLM.load_from_env(environ=environment)
    assert (llm.model, llm.num_retries, llm.caching_prompt, llm.base_url) == ("openai/x", 3, False, None)
    assert llm.litellm_extra_body == {"a": 1}
    assert llm.api_key is not None
    assert llm.api_key.get_secret_value() == "sk-1"
    assert LLM.load_from_env("OTHER_", environment).model == "y"
    with pytest.raises(ValueError, match="LLM_EXTRA_HEADERS is not valid JSON"):
        LLM.load_from_env(environ={"LLM_EXTRA_HEADERS": "{a"})
    with pytest.raises(ValidationError, match="num_retries"):
        LLM.load_from_env(environ={"LLM_NUM_RETRIES": "many"})
    path = tmp_path / "llm.json"
    path.write_text('{"model": "openai/z", "unknown": 1, "api_key": "**********"}')
    assert LLM.load_from_json(path) == LLM(model="openai/z")


def test_a_stored_agent_gets_its_router_back_with_its_models() -> None:
    models = {"primary": LLM(model="openai/a"), "secondary": LLM(model="openai/b", usage_id="cheap")}
    agent = Agent(llm=MultimodalRouter(llms_for_routing=models))
    again = AgentBase.revive(json.loads(agent.model_dump_json()))
    assert again == agent
    assert isinstance(again.llm, MultimodalRouter)
    assert {one.model for one in again.get_all_llms()} == {"openai/a", "openai/b"}
    nested = RandomRouter(llms_for_routing={"one": agent.llm})
    assert LLM.revive(json.loads(nested.model_dump_json())) == nested
    with pytest.raises(ValidationError, match="kind: 'Magic' is none of"):
        Agent.model_validate({"llm": {"kind": "Magic"}})


async def test_a_registry_makes_models_and_routers_and_asks_them_beside_a_conversation() -> None:
    heard: list[str] = []
    async with ModelServer([say("A title")]) as server:
        registry = LLMRegistry()
        registry.add(model(server, usage_id="agent"))
        registry.subscribe(lambda llm: heard.append(llm.usage_id))
        title = model(server, temperature=0.5)
        assert await registry.request_extraneous_completion("title", title, [Message.user("Name it")]) == "A title"
        assert heard == ["agent", "title"]
        made = registry.get_llm("title")
        assert registry.get_llm("title", title) is made
        assert (made.metrics.calls, title.metrics.calls) == (1, 0)
        with pytest.raises(ValueError, match="'title' is registered with another configuration"):
            registry.get_llm("title", model(server))
        with pytest.raises(ValueError, match="no model with usage_id 'other' is registered; give its configuration"):
            registry.get_llm("other")
        assert registry.get_router() is registry.get("agent")
        router = registry.get_router("multimodal_router", primary="agent", secondary="title")
        assert isinstance(router, MultimodalRouter)
        assert router.llms_for_routing == {"primary": registry.get("agent"), "secondary": made}
        with pytest.raises(ValueError, match=r"'best_router' is no router; did you mean"):
            registry.get_router("best_router")
