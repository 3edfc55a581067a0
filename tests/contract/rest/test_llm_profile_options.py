"""What each option of a profile does, seen in the requests of a conversation with it; a new option needs a row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_core.llm.config import LLMConfig
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, fail, finish, say
from server.settings.llm_profiles import OPERATORS, REFUSED, LLMProfile
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server

Requests = list[ModelRequest]
Check = Callable[[Requests], bool]
QUICK: Mapping[str, Any] = {"retry_min_wait": 0, "retry_max_wait": 0, "retry_multiplier": 0, "num_retries": 1}
CLAUDE = "openai/claude-sonnet-4-5"
PICTURE = "http://127.0.0.1:9/picture.png"


@dataclass(frozen=True)
class Effect:
    """`value` for the option: what the requests show then holds by `check`, and does not without it.

    `model` is the profile's, `beside` are options that are there with and without it.
    """

    value: Any
    check: Check
    model: str = "openai/m"
    beside: Mapping[str, Any] = field(default_factory=dict)
    turns: Callable[[ModelRequest], Turn] = lambda request: finish("Done.")
    message: str = "hi"
    images: tuple[str, ...] = ()


def body(name: str, value: Any) -> Check:
    return lambda requests: requests[-1].json.get(name) == value


def header(name: str, value: str) -> Check:
    return lambda requests: requests[-1].headers.get(name) == value


def failing(request: ModelRequest) -> Turn:
    return fail(503)


def two_steps() -> Callable[[ModelRequest], Turn]:
    def turn(request: ModelRequest) -> Turn:
        if any(message["role"] == "tool" for message in request.messages):
            return finish("Done.")
        return call("terminal", {"command": "echo " + "x" * 2_000})

    return turn


def longest_result(requests: Requests) -> int:
    results = [message for request in requests for message in request.messages if message["role"] == "tool"]
    return max(len(str(message["content"])) for message in results)


def only_texts(requests: Requests) -> bool:
    return all(isinstance(message["content"], str) for message in requests[-1].messages)


def marked(requests: Requests) -> bool:
    return "cache_control" in requests[-1].content.decode()


def credential(requests: Requests) -> str:
    return requests[-1].headers.get("authorization", "")


NO_TOOLS = Effect(False, lambda requests: "tools" not in requests[-1].json)
AWS = {"aws_access_key_id": "AKIATEST", "aws_secret_access_key": "secret-of-test", "aws_region_name": "eu-west-9"}
BEDROCK = "bedrock/anthropic.claude-3-haiku-20240307-v1:0"

EFFECTS: Mapping[str, Effect] = {
    "model": Effect("openai/other", body("model", "other")),
    "api_key": Effect("key-of-mine", header("authorization", "Bearer key-of-mine"), beside={"api_key": "first"}),
    "auth_type": Effect(
        "subscription",
        lambda requests: "max_output_tokens" not in requests[-1].json,
        beside={"api_mode": "responses", "max_output_tokens": 500},
    ),
    "api_version": Effect(
        "2030-01-01", lambda requests: "api-version=2030-01-01" in requests[-1].path, model="azure/m"
    ),
    "openrouter_site_url": Effect("https://a.example", header("http-referer", "https://a.example"), "openrouter/m"),
    "openrouter_app_name": Effect("Ours", header("x-title", "Ours"), "openrouter/m"),
    "num_retries": Effect(3, lambda requests: len(requests) == 3, turns=failing),
    "temperature": Effect(0.25, body("temperature", 0.25)),
    "top_p": Effect(0.5, body("top_p", 0.5)),
    "top_k": Effect(7, body("top_k", 7)),
    "seed": Effect(11, body("seed", 11)),
    "reasoning_effort": Effect("low", body("reasoning_effort", "low")),
    "extended_thinking_budget": Effect(
        2_000, body("thinking", {"type": "enabled", "budget_tokens": 2_000}), model=CLAUDE
    ),
    "max_output_tokens": Effect(321, body("max_tokens", 321)),
    "api_mode": Effect("responses", lambda requests: requests[-1].path.endswith("/responses")),
    "reasoning_summary": Effect(
        "detailed",
        lambda requests: requests[-1].json.get("reasoning", {}).get("summary") == "detailed",
        beside={"api_mode": "responses", "reasoning_effort": "low"},
    ),
    "enable_encrypted_reasoning": Effect(
        False, lambda requests: not requests[-1].json.get("include"), beside={"api_mode": "responses"}
    ),
    "native_tool_calling": NO_TOOLS,
    "disable_stop_word": Effect(
        True, lambda requests: "stop" not in requests[-1].json, beside={"native_tool_calling": False}
    ),
    "caching_prompt": Effect(False, lambda requests: not marked(requests), model=CLAUDE),
    "prompt_cache_retention": Effect("in_memory", body("prompt_cache_retention", "in_memory"), model="openai/gpt-5"),
    "inline_image_urls": Effect(
        False,
        lambda requests: "not be fetched" not in str(requests[-1].messages),
        model="openai/kimi-k2.5",
        images=(PICTURE,),
    ),
    "max_message_chars": Effect(200, lambda requests: longest_result(requests) < 1_000, turns=two_steps()),
    "force_string_serializer": Effect(True, only_texts, images=("data:image/png;base64,iVBORw0KGgo=",)),
    "capability_overrides": Effect({"supports_function_calling": False}, NO_TOOLS.check),
    "drop_params": Effect(
        False, lambda requests: not requests, model="anthropic/claude-3-haiku-20240307", beside={"seed": 5}
    ),
    "model_canonical_name": Effect("claude-sonnet-4-5", lambda requests: "thinking" in requests[-1].json),
    "extra_headers": Effect({"X-Team": "tools"}, header("x-team", "tools")),
    "litellm_extra_body": Effect({"priority": 3}, body("priority", 3)),
    "request_metadata": Effect(
        ["trace_version"],
        lambda requests: requests[-1].json["metadata"].keys() == {"trace_version"},
        beside={"litellm_extra_body": {"metadata": {}}},
    ),
    "aws_access_key_id": Effect(
        "AKIAOTHER", lambda requests: "Credential=AKIAOTHER/" in credential(requests), BEDROCK, AWS
    ),
    "aws_secret_access_key": Effect(
        "another", lambda requests: "Credential=AKIATEST/" in credential(requests), BEDROCK, AWS
    ),
    "aws_session_token": Effect("the-token", header("x-amz-security-token", "the-token"), BEDROCK, AWS),
    "aws_region_name": Effect("eu-north-8", lambda requests: "/eu-north-8/" in credential(requests), BEDROCK, AWS),
}
"""Of the options that a request alone shows; the others have tests of their own below."""

OWN_TESTS = {
    "base_url",
    "ollama_base_url",
    "timeout",
    "max_input_tokens",
    "input_cost_per_token",
    "output_cost_per_token",
    "disable_vision",
    "custom_tokenizer",
    "log_completions",
    "log_completions_folder",
    "record_to",
    "aws_bedrock_runtime_endpoint",
}
_WAITS = ("llm/test_trouble.py", "test_waits_grow_and_are_limited")
_ROUTED = ("rest/test_llm_profiles.py", "test_a_router_chooses_among_profiles_for_each_step")
ELSEWHERE = {
    "modify_params": (
        "llm/test_providers.py",
        "test_whether_a_request_may_be_mended_is_a_wish_of_each_model_at_the_same_time",
    ),
    "retry_multiplier": _WAITS,
    "retry_min_wait": _WAITS,
    "retry_max_wait": _WAITS,
    "fallbacks": ("rest/test_llm_profiles.py", "test_a_fallback_is_asked_where_a_profile_fails"),
    "router": _ROUTED,
    "models": _ROUTED,
}
PASSED_ON = {"aws_profile_name", "aws_role_name", "aws_session_name"}
"""What names credentials that only the real service could give."""


def test_every_option_of_models_has_an_effect_or_a_refusal() -> None:
    covered = EFFECTS.keys() | OWN_TESTS | ELSEWHERE.keys() | PASSED_ON | REFUSED.keys()
    assert LLMConfig.model_fields.keys() | LLMProfile.model_fields.keys() == covered
    for path, name in ELSEWHERE.values():
        assert f"def {name}(" in (Path(__file__).parents[1] / path).read_text("utf-8")


async def store(server: Server, name: str, **options: Any) -> None:
    response = await server.client.put(f"/api/llm-profiles/{name}", json=options)
    assert response.status_code == 200, response.text


async def until_over(server: Server, conversation: str) -> list[dict[str, Any]]:
    """The events, when the agent is done or has failed."""
    found: list[dict[str, Any]] = []

    async def over() -> bool:
        found[:] = await server.events(conversation)
        states = [one["extras"]["agent_state"] for one in found if one.get("observation") == "agent_state_changed"]
        return "finished" in states or "error" in states

    await server.until(over, seconds=MODEL_SECONDS)
    return found


async def requests_with(server: Server, effect: Effect, **options: Any) -> Requests:
    async with ModelServer(effect.turns) as model:
        address = {"aws_bedrock_runtime_endpoint": model.origin} if effect.model == BEDROCK else {"base_url": model.url}
        key = {} if effect.model == BEDROCK else {"api_key": "key"}
        await store(server, "p", **{"model": effect.model, **QUICK, **address, **key, **effect.beside, **options})
        conversation = await server.create(
            llm_profile="p", initial_user_msg=effect.message, image_urls=list(effect.images) or None
        )
        await until_over(server, conversation)
        return list(model.requests)


@pytest.mark.parametrize("option", EFFECTS)
async def test_an_option_shows_in_the_requests(make_server: MakeServer, option: str) -> None:
    effect = EFFECTS[option]
    async with make_server(generate_titles=False) as server:
        assert effect.check(await requests_with(server, effect, **{option: effect.value}))
        if option != "aws_secret_access_key":  # it is in the signature alone
            assert not effect.check(await requests_with(server, effect))


async def test_the_address_is_where_the_model_is_asked(make_server: MakeServer) -> None:
    for option, name in (("base_url", "openai/m"), ("ollama_base_url", "ollama/m")):
        async with ModelServer(lambda request: finish("Done.")) as model, make_server(generate_titles=False) as server:
            await store(server, "p", model=name, api_key="key", **{option: model.url})
            await until_over(server, await server.create(llm_profile="p", initial_user_msg="hi"))
            assert model.last_request.model == "m"


async def why_it_failed(server: Server, conversation: str) -> str:
    events = await until_over(server, conversation)
    return next(str(one["extras"]) for one in events if one.get("extras", {}).get("agent_state") == "error")


async def test_a_model_that_takes_longer_than_its_limit_has_failed(make_server: MakeServer) -> None:
    silent = ModelServer(lambda request: finish("Done.").then("hang"))
    async with silent as model, make_server(generate_titles=False) as server:
        await store(server, "p", model="openai/m", base_url=model.url, api_key="k", **{**QUICK, "timeout": 0.3})
        conversation = await server.create(llm_profile="p", initial_user_msg="hi")
        assert "raise the model's timeout" in await why_it_failed(server, conversation)


async def test_a_window_that_is_too_short_is_told(make_server: MakeServer) -> None:
    async with ModelServer(lambda request: finish("Done.")) as model, make_server(generate_titles=False) as server:
        options = {"model": "openai/m", "base_url": model.url, "api_key": "k", "max_input_tokens": 2_000}
        await store(server, "p", **options)
        conversation = await server.create(llm_profile="p", initial_user_msg="hi")
        assert "a context window of 2000 tokens" in await why_it_failed(server, conversation)
        assert not model.requests


async def test_prices_count_in_the_cost_of_the_conversation(make_server: MakeServer) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    counting = ModelServer(lambda request: finish("Done.", usage=usage))
    async with counting as model, make_server(generate_titles=False) as server:
        prices = {"input_cost_per_token": 0.01, "output_cost_per_token": 0.5}
        await store(server, "p", model="openai/m", base_url=model.url, api_key="k", **prices)
        conversation = await server.create(llm_profile="p", initial_user_msg="hi")
        events = await until_over(server, conversation)
        costs = [one["llm_metrics"]["accumulated_cost"] for one in events if one.get("llm_metrics")]
        assert max(costs) == pytest.approx(100 * 0.01 + 10 * 0.5)


async def test_images_are_refused_where_vision_is_off(make_server: MakeServer) -> None:
    async with ModelServer(lambda request: finish("Done.")) as model, make_server(generate_titles=False) as server:
        options = {"model": "openai/gpt-4o", "base_url": model.url, "api_key": "k"}
        await store(server, "p", **options, disable_vision=True)
        picture = "data:image/png;base64,iVBORw0KGgo="
        told = {"llm_profile": "p", "initial_user_msg": "look", "image_urls": [picture]}
        response = await server.post("/api/conversations", json=told)
        assert (response.status_code, "Support for images is disabled" in response.text) == (400, True)
        await store(server, "p", **options)
        await until_over(server, await server.create(**told))
        assert picture in str(model.last_request.messages)


# --- what only the operator may give ---


async def test_the_operator_has_calls_logged_and_recorded(make_server: MakeServer, tmp_path: Path) -> None:
    assert OPERATORS.keys() >= {"record_to", "log_completions", "log_completions_folder", "custom_tokenizer"}
    recording, folder = tmp_path / "calls.jsonl", tmp_path / "logs"
    files = {"record_to": str(recording), "log_completions": True, "log_completions_folder": str(folder)}
    async with ModelServer(lambda request: finish("Done.")) as model:
        profile = {"model": "openai/m", "base_url": model.url, "api_key": "key-of-p", **files}
        async with make_server(generate_titles=False, llm_profiles={"p": profile}, llm_profile="p") as server:
            await until_over(server, await server.create(initial_user_msg="hi"))
    logged = [file.read_text() for file in folder.glob("*.json")]
    assert len(logged) == len(recording.read_text().splitlines()) == len(model.requests)
    assert "key-of-p" not in "".join(logged) + recording.read_text()


async def test_a_recording_is_played_back_for_the_operator(make_server: MakeServer, tmp_path: Path) -> None:
    recording = tmp_path / "calls.jsonl"
    async with ModelServer(lambda request: say("As recorded.")) as model:
        profile = {"model": "openai/m", "base_url": model.url, "api_key": "k", "record_to": str(recording)}
        async with make_server(llm_profiles={"p": profile}) as server:
            assert (await server.post("/api/llm-profiles/p/test")).json()["answer"] == "As recorded."
    async with make_server(llm_profiles={"p": {"model": f"replay/{recording}"}}) as server:
        assert (await server.post("/api/llm-profiles/p/test")).json()["answer"] == "As recorded."


async def test_a_tokenizer_of_the_operators_counts_what_a_router_goes_by(
    make_server: MakeServer, tmp_path: Path
) -> None:
    vocabulary = {character: number for number, character in enumerate(["[UNK]", *"abcdefghijklmnopqrstuvwxyz"])}
    file = tmp_path / "tokenizer.json"
    letters = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    model_of_words = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    file.write_text(json.dumps({"version": "1.0", "pre_tokenizer": letters, "model": model_of_words}))
    message = "word " * 8_000  # 10,000 tokens by the estimate, 40,000 by the tokenizer
    async with ModelServer(lambda request: finish("Done.")) as model:
        way = {"base_url": model.url, "api_key": "k"}
        small = {"model": "openai/small", "max_input_tokens": 30_000, **way}
        router = {"router": "multimodal_router", "models": {"primary": "large", "secondary": "small"}}
        for counted, asked in ((small, "small"), ({**small, "custom_tokenizer": str(file)}, "large")):
            profiles = {"small": counted, "large": {"model": "openai/large", **way}, "both": router}
            async with make_server(generate_titles=False, llm_profiles=profiles, llm_profile="both") as server:
                await until_over(server, await server.create(initial_user_msg=message))
                assert model.last_request.model == asked


@pytest.mark.parametrize("options", [{"model": "replay/none.jsonl"}, {"model": "m", "custom_tokenizer": "none.json"}])
async def test_a_file_that_is_not_there_is_refused_at_the_start(
    make_server: MakeServer, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"there is no file none\.json"):
        async with make_server(llm_profiles={"p": options}):
            pass
