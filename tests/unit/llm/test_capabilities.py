"""What a configured model can do and how much it takes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from agent_core.errors import LLMBadRequestError
from agent_core.events.messages import Message, MessageToolCall
from agent_core.llm.capabilities import MIN_WINDOW, SHORT_WINDOWS
from agent_core.llm.llm import LLM
from agent_core.llm.transport.exchange import Chunk, CompletionRequest, Endpoint
from agent_core.llm.transport.failures import hide_keys
from agent_core.llm.transport.routes import endpoint_of


class Yes:
    """A transport that always answers the same."""

    async def prepare(self, endpoint: Endpoint) -> None:
        pass

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        yield Chunk(text="yes", has_choice=True, finish_reason="stop")


def test_what_is_configured_beats_what_is_known_beats_what_the_name_suggests() -> None:
    assert LLM(model="openai/gpt-4o").features.vision
    assert not LLM(model="openai/gpt-4o", capability_overrides={"supports_vision": False}).features.vision
    assert LLM(model="deepseek/deepseek-chat").features.string_content
    assert not LLM(model="deepseek/deepseek-chat", force_string_serializer=False).features.string_content
    claude = LLM(model="anthropic/claude-sonnet-4-5", capability_overrides={"supports_prompt_cache": False})
    assert not claude.is_caching_prompt_active()
    assert LLM(model="nobody/model", capability_overrides={"send_reasoning_content": True}).features.echo_reasoning
    with pytest.raises(ValidationError, match="'supports_flight' is no capability; there are"):
        LLM(capability_overrides={"supports_flight": True})


@pytest.mark.parametrize(
    ("model", "takes_it"),
    [
        ("openai/o3-mini", False),
        ("openrouter/openai/gpt-5", False),
        ("openai/gpt-5-chat-latest", None),
        ("nobody/solo1-large", None),
        ("nobody/my-gpt-5-like", None),
    ],
)
def test_only_names_that_begin_like_a_model_without_sampling_are_taken_for_it(
    model: str, takes_it: bool | None
) -> None:
    assert LLM(model=model).features.sampling is takes_it


def test_whether_a_model_reasons_is_what_is_known_of_it_and_else_unknown() -> None:
    assert LLM(model="openai/o3").features.reasoning is True
    assert LLM(model="openai/gpt-4o").features.reasoning is False
    assert LLM(model="anthropic/claude-opus-4-1").features.reasoning is False, "its thinking is off"
    assert LLM(model="nobody/model").features.reasoning is None


@pytest.mark.parametrize(
    ("model", "is_marked"),
    [
        ("anthropic/claude-sonnet-4-5", True),
        ("bedrock/anthropic.claude-x", True),
        ("gemini/gemini-2.5-pro", False),
        ("openrouter/google/gemini-claude-mix", False),
        ("openai/gpt-5", False),
    ],
)
def test_only_models_with_cache_marks_get_them_and_never_gemini(model: str, is_marked: bool) -> None:
    assert LLM(model=model).is_caching_prompt_active() is is_marked
    assert not LLM(model=model, caching_prompt=False).is_caching_prompt_active()


async def test_a_context_window_that_is_too_short_for_an_agent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHORT_WINDOWS, raising=False)
    short = LLM(model="openai/x", max_input_tokens=MIN_WINDOW - 1).using(Yes())
    hello = [short.render(Message.user("Hi"))]
    with pytest.raises(
        LLMBadRequestError, match=r"window of 16383 tokens.*at least 16384.*ALLOW_SHORT_CONTEXT_WINDOWS"
    ):
        await short.acompletion(hello)
    enough = LLM(model="openai/x", max_input_tokens=MIN_WINDOW).using(Yes())
    assert (await enough.acompletion(hello)).message.text == "yes"
    monkeypatch.setenv(SHORT_WINDOWS, "1")
    assert (await short.acompletion(hello)).message.text == "yes"


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"model": "anthropic/claude-sonnet-4-20250514"}, 64_000),
        ({"model": "openai/o3"}, 100_000),
        ({"model": "openai/o3", "base_url": "http://h/v1"}, 16_384),
        ({"model": "openai/o3", "base_url": "http://h/v1", "max_output_tokens": 50_000}, 50_000),
        ({"model": "openai/o3", "max_input_tokens": 100_000}, 50_000),
        ({"model": "nobody/knows"}, None),
    ],
)
def test_the_longest_answer_is_the_configured_one_or_a_reasonable_one(
    options: dict[str, object], limit: int | None
) -> None:
    assert LLM.model_validate(options).effective_max_output_tokens == limit


def test_the_tokens_of_a_prompt_are_estimated_with_its_tools() -> None:
    llm = LLM(model="openai/x")
    messages = [llm.render(Message.user("x" * 400))]
    assert llm.get_token_count(messages) == 100
    assert llm.get_token_count(messages, [{"type": "function", "function": {"name": "terminal"}}]) > 100


def test_a_tokenizer_of_ones_own_counts_exactly(tmp_path: Path) -> None:
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "one", "two"])}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"version": "1.0", "pre_tokenizer": {"type": "Whitespace"}, "model": model}))
    llm = LLM(model="openai/x", custom_tokenizer=str(file))
    call = MessageToolCall(id="1", name="two", arguments="two two")
    said = [Message.user("one two one"), Message(role="assistant", tool_calls=[call])]
    assert llm.get_token_count(said) == 6
    assert llm.get_token_count(said[:1], [{"one": "two"}]) > 3


def test_without_a_tokenizer_that_can_be_used_tokens_are_estimated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken.json").write_text("{")
    for name in ("nonesuch.json", "broken.json", "broken.json"):
        llm = LLM(model="openai/x", custom_tokenizer=str(tmp_path / name))
        assert llm.get_token_count([Message.user("x" * 400)]) == 100
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "broken.json' cannot be used" in caplog.text


def test_settings_of_older_programs_are_taken() -> None:
    llm = LLM(model="openai/x")
    assert (llm.stream, llm.modify_params, llm.custom_tokenizer) == (False, True, None)
    kept = LLM.model_validate_json(LLM(model="openai/x", stream=True, modify_params=False).model_dump_json())
    assert (kept.stream, kept.modify_params) == (True, False)


def test_each_provider_gets_its_own_settings_and_no_other() -> None:
    aws = {"aws_region_name": "eu-1", "aws_secret_access_key": SecretStr("aws-secret-1")}
    endpoint = endpoint_of(LLM.model_validate({"model": "bedrock/x", **aws}))
    assert dict(endpoint.options) == aws
    assert "aws-secret-1" not in hide_keys("key aws-secret-1 refused", endpoint)
    assert endpoint_of(LLM.model_validate({"model": "openai/x", **aws})).options == ()
    router = endpoint_of(LLM(model="openrouter/x", openrouter_site_url="https://site", extra_headers={"a": "b"}))
    assert dict(router.headers) == {"HTTP-Referer": "https://site", "X-Title": "Drydock", "a": "b"}
    assert endpoint_of(LLM(model="azure/x")).api_version == "2024-12-01-preview"
    assert endpoint_of(LLM(model="ollama/x", ollama_base_url="http://box:1")).base_url == "http://box:1"
    assert endpoint_of(LLM(model="openai/x", ollama_base_url="http://box:1")).base_url is None


def test_keys_are_written_only_when_asked_for() -> None:
    llm = LLM(api_key=SecretStr("sk-12345678"), aws_session_token=SecretStr("tok-1234567"))
    for secret in ("sk-12345678", "tok-1234567"):
        assert secret not in llm.model_dump_json()
        assert secret not in str(llm.model_dump())
        assert secret in llm.model_dump_json(context={"expose_secrets": True})
    assert LLM.model_validate_json(llm.model_dump_json()).api_key is None
    assert LLM.model_validate(llm.model_dump()) == llm


def test_a_copy_with_other_settings_has_its_own_abilities() -> None:
    llm = LLM(model="openai/gpt-4o")
    assert llm.features.vision
    assert not llm.model_copy(update={"disable_vision": True}).features.vision
    assert llm.features is llm.features, "looked up once"
