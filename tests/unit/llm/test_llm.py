from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator
from contextvars import copy_context

import pytest
from pydantic import SecretStr, ValidationError

from agent_core.errors import LLMBadRequestError, LLMUnavailableError
from agent_core.events.llm_events import TokenUsage
from agent_core.events.messages import Message
from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.deltas import INTERVAL, DeltaSink
from agent_core.llm.features import matches, model_entry
from agent_core.llm.llm import LLM
from agent_core.llm.metrics import cost_of
from agent_core.llm.transport.exchange import (
    CallContext,
    Chunk,
    CompletionRequest,
    Endpoint,
    calls_made_for,
    present_context,
)
from agent_core.llm.transport.routes import ModelRoute, route_of

PROVIDERS = frozenset({"anthropic", "openai", "azure", "gemini"})


class Echo:
    """A transport that repeats the last message."""

    async def prepare(self, endpoint: Endpoint) -> None:
        pass

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        yield Chunk(text=request.messages[-1]["content"], has_choice=True)
        yield Chunk(finish_reason="stop", has_choice=True)


def test_importing_the_model_layer_does_not_import_the_client_library() -> None:
    code = (
        "import sys, agent_core.llm.llm as llm; model = llm.LLM(model='anthropic/claude-sonnet-4-5'); model.features; "
        "print('litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_unknown_fields_are_ignored_and_wrong_ones_refused() -> None:
    assert LLM.model_validate({"model": "openai/x", "from_the_future": 1}).model == "openai/x"
    for wrong in ({"model": ""}, {"num_retries": -1}, {"timeout": 0}, {"reasoning_effort": "huge"}):
        with pytest.raises(ValidationError):
            LLM.model_validate(wrong)


async def test_without_retries_there_is_one_attempt() -> None:
    failing = Words(LLMUnavailableError("gone"))
    with pytest.raises(LLMUnavailableError) as caught:
        await LLM(model="openai/x", num_retries=0, retry_min_wait=60).using(failing).acompletion([Message.user("Go")])
    assert caught.value.retry_attempt == 1


def test_a_key_is_not_shown() -> None:
    llm = LLM(model="openai/x", api_key=SecretStr("sk-12345678"))
    assert "sk-12345678" not in repr(llm)
    assert "sk-12345678" not in llm.model_dump_json()


class Words(Echo):
    """Says two words, a moment apart; or one, and then fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        assert "on_token" not in request.parameters
        for word in ("one ", "two"):
            yield Chunk(text=word, has_choice=True)
            await asyncio.sleep(INTERVAL * 2)
            if self.error is not None:
                raise self.error
        yield Chunk(finish_reason="stop", has_choice=True)


@pytest.mark.parametrize("is_asynchronous", [True, False])
async def test_a_program_hears_text_as_it_comes_in_order_and_before_the_answer(is_asynchronous: bool) -> None:
    heard: list[str] = []
    raw: list[object] = []

    async def later(delta: TextDelta) -> None:
        await asyncio.sleep(0.02 if not heard else 0)
        heard.append(delta.text)

    llm = LLM(model="openai/x").using(Words())
    on_token = later if is_asynchronous else lambda delta: heard.append(delta.text)
    answer = await llm.acompletion([Message.user("Go")], None, on_token=on_token, on_delta=raw.append)
    assert answer.message.text == "one two"
    assert "".join(heard) == "one two"
    assert len(raw) >= len(heard)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "on-token"]


@pytest.mark.parametrize("is_asynchronous", [True, False])
async def test_a_listener_that_fails_hears_the_rest_and_the_answer_comes(
    is_asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def fails(delta: TextDelta) -> None:
        heard.append(delta.text)
        raise KeyError("sk-secret")

    async def fails_later(delta: TextDelta) -> None:
        fails(delta)

    llm = LLM(model="openai/x", num_retries=1).using(Words())
    answer = await llm.acompletion([Message.user("Go")], on_token=fails_later if is_asynchronous else fails)
    assert (answer.message.text, heard) == ("one two", ["one ", "two"])
    assert caplog.text.count("a listener to a model's text failed: KeyError") == 2
    assert "sk-secret" not in caplog.text


async def test_what_hears_text_is_let_go_of_when_the_call_fails() -> None:
    begun = asyncio.Event()

    async def never(delta: TextDelta) -> None:
        begun.set()
        await asyncio.Event().wait()

    llm = LLM(model="openai/x", num_retries=1).using(Words(LLMBadRequestError("no")))
    with pytest.raises(LLMBadRequestError):
        await llm.acompletion([Message.user("Go")], on_token=never)
    assert begun.is_set()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "on-token"]


async def test_a_call_is_made_for_the_conversation_that_is_given() -> None:
    spent: list[str] = []
    given = CallContext(prompt_cache_key="c", on_response=lambda response, usage_id: spent.append(usage_id))
    llm = LLM(model="openai/x", usage_id="mine").using(Echo())
    await llm.acompletion([llm.render(Message.user("hello"))], call_context=given)
    await llm.acompletion([llm.render(Message.user("hello"))], context=given)
    assert spent == ["mine", "mine"]
    assert llm.get_token_count([Message.user("x" * 40)], None) == 10


def test_what_is_kept_of_a_call_does_not_keep_the_conversation_it_was_made_for() -> None:
    context = CallContext(session_id="deleted")
    with calls_made_for(context):
        kept = copy_context()  # as the loop does for each connection that is opened within a call
        assert kept.run(present_context) is context
    assert present_context() == CallContext()
    seen = weakref.ref(context)
    del context
    gc.collect()
    assert seen() is None
    assert kept.run(present_context) == CallContext()


async def test_another_transport_can_be_used() -> None:
    llm = LLM(model="openai/x").using(Echo())
    answer = await llm.acompletion([llm.render(Message.user("hello"))])
    assert answer.message.text == "hello"
    assert answer.model == "openai/x"


def test_own_settings_beat_what_is_known_of_a_model() -> None:
    llm = LLM(model="anthropic/claude-sonnet-4-5")
    assert llm.features.max_input_tokens == 200_000
    assert llm.features.vision
    assert llm.features.prompt_cache_marks
    own = llm.model_copy(update={"max_input_tokens": 9000, "disable_vision": True, "native_tool_calling": False})
    assert own.features.max_input_tokens == 9000
    assert not own.features.vision
    assert not own.features.function_calling


def test_an_alias_is_looked_up_under_its_canonical_name() -> None:
    llm = LLM(model="openai/team-model", base_url="http://proxy/v1", model_canonical_name="anthropic/claude-sonnet-4-5")
    assert llm.features.prompt_cache_marks
    assert llm.features.max_input_tokens == 200_000


def test_the_last_matching_pattern_decides() -> None:
    assert matches("anthropic/Claude-x", ("claude",))
    assert not matches("gemini-claude", ("claude", "!gemini"))
    assert matches("gpt-5-chat", ("gpt-5", "!chat", "gpt-5-chat"))
    assert not matches("my-gpt-5", ("gpt-5",), anchored=True)


def test_the_table_of_models_is_read_by_entry() -> None:
    entry = model_entry("openai/gpt-4o")
    assert entry is not None
    assert entry["max_input_tokens"] == 128_000
    assert model_entry("nobody/knows-this") is None


def test_a_price_takes_the_cache_into_account() -> None:
    usage = TokenUsage(prompt_tokens=1000, completion_tokens=100, cache_read_tokens=900)
    assert cost_of(usage, "anthropic/claude-sonnet-4-5") == pytest.approx(100 * 3e-06 + 900 * 3e-07 + 100 * 1.5e-05)
    assert cost_of(usage, "nobody/knows-this") is None
    assert cost_of(usage, "ollama/gpt-4o") is None
    assert cost_of(usage, "x", input_price=1.0) is None
    assert cost_of(usage, "x", input_price=1.0, output_price=2.0) == 1200.0


@pytest.mark.parametrize(
    ("model", "base_url", "expected"),
    [
        ("openai/x", "http://h/v1/", ModelRoute("compatible", "x", "http://h/v1")),
        ("openai/openai/gpt-oss", "http://h/v1", ModelRoute("compatible", "openai/gpt-oss", "http://h/v1")),
        ("hosted_vllm/org/x", "http://h/v1", ModelRoute("compatible", "org/x", "http://h/v1")),
        ("litellm_proxy/x", "http://h", ModelRoute("compatible", "x", "http://h")),
        ("x", "http://h/v1", ModelRoute("compatible", "x", "http://h/v1")),
        ("meta-llama/x", "http://h/v1", ModelRoute("compatible", "meta-llama/x", "http://h/v1")),
        ("ollama/x:8b", None, ModelRoute("compatible", "x:8b", "http://localhost:11434/v1")),
        ("ollama_chat/x", "http://h/v1", ModelRoute("compatible", "x", "http://h/v1")),
        ("lm_studio/x", None, ModelRoute("compatible", "x", "http://localhost:1234/v1")),
        ("openhands/x", None, ModelRoute("compatible", "x", "https://llm-proxy.app.all-hands.dev")),
        ("openhands/x", "http://h/v1", ModelRoute("compatible", "x", "http://h/v1")),
        ("openai/gpt-4o", None, ModelRoute("openai", "gpt-4o", None)),
        ("anthropic/claude", None, ModelRoute("provider", "anthropic/claude", None)),
        ("anthropic/claude", "http://h", ModelRoute("provider", "anthropic/claude", "http://h")),
        ("gpt-4o", None, ModelRoute("provider", "gpt-4o", None)),
    ],
)
def test_a_model_is_reached_the_shortest_way(model: str, base_url: str | None, expected: ModelRoute) -> None:
    assert route_of(Endpoint(model, base_url), PROVIDERS) == expected


async def test_text_is_passed_on_at_once_and_then_in_larger_pieces() -> None:
    heard: list[TextDelta | TextDiscarded] = []
    sink = DeltaSink("r", heard.append)
    for word in ("a", "b", "c"):
        sink.add(word)
    assert heard == [TextDelta("r", "a")]
    await asyncio.sleep(INTERVAL * 2)
    assert heard == [TextDelta("r", "a"), TextDelta("r", "bc")]
    sink.add("d", "reasoning")
    sink.add("e")
    sink.close()
    assert heard[-1] == TextDelta("r", "e")
    assert TextDelta("r", "d", "reasoning") in heard
    sink.discard()
    assert heard[4:] == [TextDiscarded("r")]


async def test_what_nobody_heard_need_not_be_taken_back() -> None:
    heard: list[TextDelta | TextDiscarded] = []
    DeltaSink("r", heard.append).discard()
    assert heard == []
