"""What a model is told besides the messages: options by its abilities, and what a caller gives."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.events.masking import EXPOSE_SECRETS
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, CallContext
from agent_core.llm.transport.exchange import Chunk, CompletionRequest, Endpoint
from agent_core.tools.builtin import ThinkTool

HELLO = [Message.user("Hello")]
SAMPLING = {"temperature": 0.5, "top_p": 0.8, "top_k": 4}


class Heard:
    """A transport that keeps the request."""

    def __init__(self) -> None:
        self.request: CompletionRequest

    async def prepare(self, endpoint: Endpoint) -> None:
        pass

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        self.request = request
        yield Chunk(text="yes", has_choice=True, finish_reason="stop", cost=0.5)


async def sent(options: dict[str, Any], **given: Any) -> CompletionRequest:
    heard = Heard()
    await LLM.model_validate(options).using(heard).acompletion(HELLO, **given)
    return heard.request


async def parameters(**options: Any) -> dict[str, Any]:
    return dict((await sent(options)).parameters)


def test_the_fields_have_the_published_defaults() -> None:
    llm = LLM()
    assert llm.reasoning_effort == "high"
    assert llm.extended_thinking_budget == 200_000
    assert llm.prompt_cache_retention == "24h"
    assert llm.max_message_chars == 30_000
    assert (llm.inline_image_urls, llm.auth_type, llm.provider_connection_id) == (None, "api_key", None)


@pytest.mark.parametrize(
    ("options", "effort"),
    [
        ({"model": "openai/o3"}, "high"),
        ({"model": "openai/o3", "reasoning_effort": "low"}, "low"),
        ({"model": "openai/o3", "reasoning_effort": None}, None),
        ({"model": "openai/gpt-4o", "reasoning_effort": "low"}, None),
        ({"model": "nobody/knows"}, None),
        ({"model": "nobody/knows", "reasoning_effort": "medium"}, "medium"),
        ({"model": "nobody/knows", "capability_overrides": {"supports_reasoning_effort": True}}, "high"),
        ({"model": "openai/o3", "capability_overrides": {"supports_reasoning_effort": False}}, None),
        ({"model": "anthropic/claude-opus-4-7"}, "high"),
        ({"model": "anthropic/claude-sonnet-4-5"}, None),
        ({"model": "anthropic/claude-opus-4-1-20250805"}, None),
        ({"model": "gemini/gemini-2.5-pro", "reasoning_effort": "high"}, "high"),
    ],
)
async def test_the_effort_is_told_to_models_that_can_be_told(options: dict[str, Any], effort: str | None) -> None:
    assert (await parameters(**options)).get("reasoning_effort") == effort


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        ({"model": "anthropic/claude-sonnet-4-5"}, 63_999),
        ({"model": "anthropic/claude-haiku-4-5", "extended_thinking_budget": 5000}, 5000),
        ({"model": "anthropic/claude-sonnet-4-6", "max_output_tokens": 9000}, 8999),
        ({"model": "anthropic/claude-sonnet-4-5", "extended_thinking_budget": None}, None),
        ({"model": "anthropic/claude-sonnet-4-5", "reasoning_effort": "none"}, None),
        ({"model": "anthropic/claude-sonnet-4-5", "max_output_tokens": 1024}, None),
        ({"model": "anthropic/claude-sonnet-4-5", "capability_overrides": {"thinking_mode": "none"}}, None),
        ({"model": "nobody/knows", "capability_overrides": {"thinking_mode": "manual"}}, 200_000),
        ({"model": "gemini/gemini-2.5-pro", "reasoning_effort": "low"}, 128),
    ],
)
async def test_thinking_by_a_number_of_tokens_has_its_budget_its_header_and_no_sampling(
    options: dict[str, Any], budget: int | None
) -> None:
    request = await sent({**SAMPLING, **options})
    told = request.parameters.get("thinking", {})
    assert told.get("budget_tokens") == budget
    is_manual = budget is not None and budget > 128
    assert ("anthropic-beta" in dict(request.endpoint.headers)) is is_manual
    if budget is not None:
        assert told["type"] == "enabled"
        assert not request.parameters.keys() & {"temperature", "top_p", "top_k", "reasoning_effort"}
        assert request.parameters.get("max_tokens", budget + 1) > budget


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({"model": "openai/gpt-4o"}, True),
        ({"model": "openai/gpt-5"}, False),
        ({"model": "anthropic/claude-opus-4-7"}, False),
        ({"model": "nobody/knows"}, True),
        ({"model": "nobody/knows", "reasoning_effort": "low"}, False),
        ({"model": "gemini/gemini-3-pro", "reasoning_effort": "medium"}, True),
        (
            {
                "model": "nobody/knows",
                "reasoning_effort": "low",
                "capability_overrides": {"supports_sampling_params": True},
            },
            True,
        ),
    ],
)
async def test_sampling_is_told_to_models_that_take_it(options: dict[str, Any], is_told: bool) -> None:
    found = await parameters(**SAMPLING, **options)
    assert {name: found[name] for name in SAMPLING if name in found} == (SAMPLING if is_told else {})


async def test_hugging_face_is_not_asked_for_all_of_the_probability() -> None:
    assert (await parameters(model="huggingface/x", top_p=1.0))["top_p"] == 0.9


@pytest.mark.parametrize(
    ("model", "is_told"),
    [
        ("openai/gpt-5", True),
        ("openai/gpt-4.1", True),
        ("openai/gpt-5-mini", False),
        ("openai/gpt-5.1-codex-mini", True),
        ("azure/gpt-5", False),
        ("openai/gpt-4o", False),
    ],
)
async def test_how_long_a_prefix_is_kept_is_told_to_models_that_can_be_told(model: str, is_told: bool) -> None:
    assert ("prompt_cache_retention" in await parameters(model=model)) is is_told
    assert "prompt_cache_retention" not in await parameters(model=model, prompt_cache_retention=None)
    assert "prompt_cache_retention" not in await parameters(model=model, caching_prompt=False)


async def test_on_bedrock_the_answer_is_as_long_as_the_prompt_leaves_it_room() -> None:
    options: dict[str, Any] = {"model": "bedrock/x", "max_input_tokens": 20_000, "max_output_tokens": 8_000}
    short, long, longest = [Message.user("x")], [Message.user("x" * 4 * 15_000)], [Message.user("x" * 4 * 19_500)]
    heard = Heard()
    found = []
    for messages in (short, long, longest):
        await LLM.model_validate(options).using(heard).acompletion(messages)
        found.append(heard.request.parameters["max_tokens"])
    assert found == [8_000, 20_000 - 15_000 - 256, 1_024]
    del options["max_input_tokens"]
    await LLM.model_validate(options).using(heard).acompletion(longest)
    assert heard.request.parameters["max_tokens"] == 8_000, "nobody knows what its window leaves"


async def test_a_subscription_is_not_told_how_long_an_answer_may_be() -> None:
    options = {"model": "openai/gpt-5", "max_output_tokens": 900}
    assert (await parameters(**options))["max_tokens"] == 900
    assert "max_tokens" not in await parameters(**options, auth_type="subscription")


async def test_what_a_caller_gives_for_one_call_beats_what_is_configured() -> None:
    options = {"model": "openai/gpt-4o", "temperature": 0.5, "max_output_tokens": 100}
    found = (await sent(options, temperature=0.1, max_tokens=None, stop=["END"])).parameters
    assert found == {"temperature": 0.1, "stop": ["END"]}
    other_name = (await sent(options, max_completion_tokens=7)).parameters
    assert other_name == {"temperature": 0.5, "max_completion_tokens": 7}
    forced = await sent({"model": "anthropic/claude-sonnet-4-5"}, tool_choice="required")
    assert "thinking" not in forced.parameters
    assert not forced.endpoint.headers


async def test_settings_given_for_one_call_are_its_own_and_no_part_of_what_is_asked() -> None:
    options = {"model": "openai/gpt-4o", "timeout": 9, "extra_headers": {"a": "1"}, "litellm_extra_body": {"q": 1}}
    given = {"timeout": 5, "num_retries": 1, "extra_headers": {"a": "2"}, "extra_body": {"q": 2}, "drop_params": False}
    request = await sent(options, **given)
    assert (request.timeout, request.endpoint.headers, request.extra_body) == (5, (("a", "2"),), {"q": 2})
    assert (request.endpoint.drop_params, request.parameters) == (False, {})
    usual = await sent(options, timeout=None)
    assert (usual.timeout, usual.parameters, usual.extra_body) == (9, {}, {"q": 1})


async def test_messages_and_tools_may_be_given_as_they_are() -> None:
    heard = Heard()
    llm = LLM(model="openai/gpt-4o").using(heard)
    (tool,) = ThinkTool.create(None)
    response = await llm.acompletion(HELLO, [tool], add_security_risk_prediction=True, context=CallContext("c"))
    assert heard.request.messages == [{"role": "user", "content": "Hello"}]
    assert heard.request.tools == [tool.to_openai_tool(add_security_risk_prediction=True)]
    assert response.metrics.accumulated_cost == 0.5
    assert response.raw_response["choices"][0]["message"]["content"] == "yes"
    assert llm.get_token_count(HELLO, [tool]) > llm.get_token_count(HELLO) > 0


async def test_programs_that_are_not_asynchronous_can_ask_too_with_or_without_a_loop() -> None:
    heard, heard_too = Heard(), Heard()
    llm = LLM(model="openai/gpt-5", api_mode="chat").using(heard)
    assert llm.completion(HELLO).message.text == "yes"
    assert heard.request.api == "chat"
    assert llm.using(heard_too).responses(HELLO).message.text == "yes"
    assert heard_too.request.api == "responses"
    assert llm.metrics.calls == 2


def test_a_thinking_mode_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"thinking_mode is 'deep'; it can be one of"):
        LLM(capability_overrides={"thinking_mode": "deep"})
    with pytest.raises(ValidationError, match=r"supports_vision is 'yes'; it can be one of \[True, False\]"):
        LLM(capability_overrides={"supports_vision": "yes"})


def test_headers_that_may_be_secret_are_masked_as_keys_are() -> None:
    given = {"X-Team": "blue", "Authorization": "Bearer sk-very-secret", "x-goog-api-key": "sk-also"}
    llm = LLM(model="openai/gpt-4o", extra_headers=given)
    written = llm.model_dump_json()
    assert "very-secret" not in written
    assert "sk-also" not in written
    assert "sk-very-secret" not in repr(llm)
    assert LLM.model_validate_json(written).extra_headers == {"X-Team": "blue"}
    exposed = llm.model_dump_json(context={EXPOSE_SECRETS: True})
    assert LLM.model_validate_json(exposed).extra_headers == given
    assert llm.model_copy().extra_headers == given
