"""What goes wrong at a model server, and what the caller hears of it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from email.utils import formatdate
from time import monotonic, thread_time, time
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.errors import (
    LLMAuthenticationError,
    LLMBadRequestError,
    LLMBudgetExceededError,
    LLMContentPolicyError,
    LLMContextWindowError,
    LLMError,
    LLMInternalError,
    LLMMalformedHistoryError,
    LLMModelNotFoundError,
    LLMNoResponseError,
    LLMRateLimitError,
    LLMTimeoutError,
    LLMUnavailableError,
)
from agent_core.events.messages import Message, TextContent
from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.llm import LLM, RetryNotice
from agent_core.llm.response import LLMResponse
from agent_core.llm.transport import client
from agent_core.llm.transport.exchange import CallContext
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, fail, raw, say

KEY = "sk-very-secret-123"
HELLO = [{"role": "user", "content": "Hello"}]


def model(server: ModelServer, **options: Any) -> LLM:
    settings = {"retry_min_wait": 0, "retry_max_wait": 0, "timeout": 5, "num_retries": 3, **options}
    return LLM(model="openai/scripted", base_url=server.url, api_key=SecretStr(KEY), **settings)


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        (fail(429), LLMRateLimitError),
        (fail(500), LLMInternalError),
        (fail(502), LLMUnavailableError),
        (fail(503), LLMUnavailableError),
        (fail(529), LLMUnavailableError),
        (fail(408), LLMTimeoutError),
        (say("half a sen").then("cut"), LLMInternalError),
        (say("half a sen").then("invalid_json"), LLMInternalError),
        (Turn(fault="no_choices"), LLMNoResponseError),
        (Turn(body=""), LLMInternalError),
        (raw(), LLMNoResponseError),
        (raw({"error": {"message": "Overloaded", "type": "overloaded_error"}}), LLMUnavailableError),
        (raw({"error": {"message": "slow down", "code": 429}}), LLMRateLimitError),
        (raw('{"error": {"message": "CUDA out of memory"}}\n'), LLMInternalError),
        (Turn(body='{"error": {"message": "try later", "code": "503"}}'), LLMUnavailableError),
    ],
)
async def test_what_may_pass_is_tried_again(turn: Turn, kind: type[LLMError]) -> None:
    notices: list[RetryNotice] = []
    async with ModelServer([turn, say("well again")]) as server:
        response = await model(server).acompletion(HELLO, on_retry=notices.append)
    assert response.message.text == "well again"
    (notice,) = notices
    assert type(notice.error) is kind
    assert (notice.attempt, notice.max_attempts, notice.wait_seconds) == (1, 3, 0)


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        (fail(401, "Incorrect API key provided"), LLMAuthenticationError),
        (fail(403), LLMAuthenticationError),
        (fail(400, "something is odd"), LLMBadRequestError),
        (fail(422), LLMBadRequestError),
        (fail(402), LLMBudgetExceededError),
        (fail(429, "You exceeded your current quota (insufficient_quota)"), LLMBudgetExceededError),
        (fail(400, "ExceededBudget: budget of team blue"), LLMBudgetExceededError),
        (fail(400, "This model's maximum context length is 8192 tokens"), LLMContextWindowError),
        (fail(400, "input length and `max_tokens` exceed context limit: 1 + 2 > 3"), LLMContextWindowError),
        (fail(500, "prompt is too long: 300000 tokens"), LLMContextWindowError),
        (fail(400, "`tool_use` ids were found without `tool_result` blocks"), LLMMalformedHistoryError),
        (fail(400, "blocked by our content_policy"), LLMContentPolicyError),
        (fail(404, "model 'scripted' not found"), LLMModelNotFoundError),
        (fail(301, headers={"Location": "https://elsewhere.invalid/"}), LLMModelNotFoundError),
        (Turn(body="<!DOCTYPE html><title>Welcome</title>", content_type="text/html"), LLMBadRequestError),
        (Turn(body="Not the page you look for", content_type="text/html"), LLMBadRequestError),
    ],
)
async def test_what_will_not_pass_is_reported_at_once(turn: Turn, kind: type[LLMError]) -> None:
    async with ModelServer([turn, say("never asked for")]) as server:
        with pytest.raises(LLMError) as caught:
            await model(server).acompletion(HELLO)
        assert server.request_count == 1
    assert type(caught.value) is kind
    assert "openai/scripted" in str(caught.value)


async def test_an_unknown_model_is_named_with_its_server() -> None:
    async with ModelServer([fail(404, "no such model")]) as server:
        with pytest.raises(LLMModelNotFoundError) as caught:
            await model(server).acompletion(HELLO)
        assert str(caught.value) == (
            f"The provider answered 404 for model openai/scripted at {server.url}: no such model (scripted_error). "
            "Check the model's name (`LLM_MODEL`) and the base URL (`LLM_BASE_URL`)."
        )


async def test_after_the_last_attempt_the_last_error_is_raised() -> None:
    notices: list[RetryNotice] = []
    async with ModelServer([fail(503), fail(503), fail(500, "the third")]) as server:
        with pytest.raises(LLMInternalError, match="the third"):
            await model(server).acompletion(HELLO, on_retry=notices.append)
    assert [notice.attempt for notice in notices] == [1, 2]


async def test_waits_grow_and_are_limited() -> None:
    waits: list[float] = []
    async with ModelServer(lambda _: fail(503)) as server:
        llm = model(server, num_retries=4, retry_multiplier=0.01, retry_min_wait=0.015, retry_max_wait=0.03)
        with pytest.raises(LLMUnavailableError):
            await llm.acompletion(HELLO, on_retry=lambda notice: waits.append(notice.wait_seconds))
    assert waits == [0.015, 0.02, 0.03]


@pytest.mark.parametrize(("headers", "expected"), [({"Retry-After": "0.2"}, 0.2), ({"retry-after-ms": "150"}, 0.15)])
async def test_the_wait_that_the_server_asks_for_is_kept_exactly(headers: dict[str, str], expected: float) -> None:
    waits: list[float] = []
    async with ModelServer([fail(429, headers=headers), say("ok")]) as server:
        start = monotonic()
        await model(server).acompletion(HELLO, on_retry=lambda notice: waits.append(notice.wait_seconds))
    assert waits == [expected]
    assert monotonic() - start >= expected


async def test_a_wait_may_be_given_as_a_date() -> None:
    date = formatdate(time() + 100, usegmt=True)
    notices: asyncio.Queue[RetryNotice] = asyncio.Queue()
    async with ModelServer([fail(429, headers={"Retry-After": date})]) as server:
        task = asyncio.create_task(model(server).acompletion(HELLO, on_retry=notices.put_nowait))
        async with asyncio.timeout(60):
            notice = await notices.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert 90 < notice.wait_seconds <= 100


async def test_a_wait_of_an_hour_is_not_waited_for() -> None:
    async with ModelServer([fail(429, headers={"Retry-After": "3600"})]) as server:
        with pytest.raises(LLMRateLimitError) as caught:
            await model(server).acompletion(HELLO)
    assert caught.value.retry_after == 3600


async def test_text_of_an_answer_that_broke_off_is_taken_back_before_the_next_attempt() -> None:
    heard: list[object] = []
    async with ModelServer([say("This is not the e").then("cut"), say("The answer")]) as server:
        response = await model(server).acompletion(HELLO, on_delta=heard.append, on_retry=heard.append)
    kinds = [type(one) for one in heard]
    assert kinds.index(TextDiscarded) < kinds.index(RetryNotice)
    discarded = next(one for one in heard if isinstance(one, TextDiscarded))
    first = heard[0]
    assert isinstance(first, TextDelta)
    assert discarded.response_id == first.response_id != response.id
    after = heard[kinds.index(RetryNotice) + 1 :]
    assert "".join(one.text for one in after if isinstance(one, TextDelta)) == "The answer"
    assert {one.response_id for one in after if isinstance(one, TextDelta)} == {response.id}


async def test_a_server_that_says_nothing_runs_into_the_time_limit() -> None:
    async with ModelServer([Turn(fault="hang", chunks=()), say("ok")]) as server:
        notices: list[RetryNotice] = []
        await client.load_litellm()
        await model(server, timeout=0.1).acompletion(HELLO, on_retry=notices.append)
    assert type(notices[0].error) is LLMTimeoutError
    assert "sent nothing for 0.1 seconds" in str(notices[0].error)


async def test_a_server_that_stops_in_the_middle_runs_into_the_time_limit() -> None:
    async with ModelServer([say("One, two,").then("hang")]) as server:
        with pytest.raises(LLMTimeoutError):
            await model(server, timeout=0.2, num_retries=1).acompletion(HELLO)


async def test_a_slow_answer_is_no_hanging_one() -> None:
    async with ModelServer([say("one two three four five six seven eight", token_delay=0.06)]) as server:
        response = await model(server, timeout=0.3, num_retries=1).acompletion(HELLO)
    assert response.message.text.endswith("eight")


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    llm = LLM(model="openai/x", base_url=f"http://127.0.0.1:{port}/v1", num_retries=1, timeout=5)
    with pytest.raises(LLMUnavailableError, match=f"openai/x at http://127.0.0.1:{port}/v1 cannot be reached"):
        await llm.acompletion(HELLO)


async def test_a_host_that_does_not_exist_is_unavailable() -> None:
    llm = LLM(model="openai/x", base_url="http://no-such-host.invalid/v1", num_retries=1, timeout=10)
    with pytest.raises(LLMUnavailableError, match="cannot be reached"):
        await llm.acompletion(HELLO)


async def test_a_broken_base_url_is_reported() -> None:
    llm = LLM(model="openai/x", base_url="localhost:99999/v1", num_retries=1, timeout=5)
    with pytest.raises(LLMError, match="localhost:99999"):
        await llm.acompletion(HELLO)


async def test_the_key_stays_secret_even_if_the_server_repeats_it() -> None:
    async with ModelServer([fail(401, f"Wrong key {KEY} in 'Bearer {KEY}'")]) as server:
        with pytest.raises(LLMAuthenticationError) as caught:
            await model(server).acompletion(HELLO)
    assert KEY not in str(caught.value)
    assert "<secret-hidden>" in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_page_of_an_error_is_told_in_a_few_words() -> None:
    page = "<html><head><title>502 Bad Gateway</title></head><body>" + "<p>nginx</p>" * 500
    async with ModelServer([Turn(status=502, body=page, content_type="text/html")]) as server:
        with pytest.raises(LLMUnavailableError, match="502 Bad Gateway") as caught:
            await model(server, num_retries=1).acompletion(HELLO)
    assert len(str(caught.value)) < 400


async def test_cancelling_closes_the_stream_at_once() -> None:
    async with ModelServer([say("word " * 12_000, token_delay=0.01)]) as server:
        heard = asyncio.Event()
        task = asyncio.create_task(model(server).acompletion(HELLO, on_delta=lambda _: heard.set()))
        async with asyncio.timeout(60):
            await heard.wait()
        task.cancel()
        async with asyncio.timeout(60):  # the rest of the answer would take twice as long
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.stream_dropped.wait()
        assert server.open_streams == 0


async def test_cancelling_ends_a_wait_at_once() -> None:
    async with ModelServer([fail(503)]) as server:
        waiting = asyncio.Event()
        llm = model(server, retry_min_wait=60, retry_max_wait=60)
        task = asyncio.create_task(llm.acompletion(HELLO, on_retry=lambda _: waiting.set()))
        async with asyncio.timeout(60):
            await waiting.wait()
        task.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_an_empty_answer_at_temperature_zero_is_asked_for_again_at_one() -> None:
    async with ModelServer([Turn(fault="no_choices"), say("ok")]) as server:
        await model(server, temperature=0).acompletion(HELLO)
        assert [request.json["temperature"] for request in server.requests] == [0, 1]


async def test_refused_cache_marks_are_left_out_without_a_wait() -> None:
    refusal = fail(400, "Cached content is too small, minimum token count to start caching is 1024")
    async with ModelServer([refusal, say("ok")]) as server:
        llm = model(server, model_canonical_name="claude-sonnet-4-5", retry_min_wait=60)
        await llm.acompletion(HELLO)
        marked, plain = (request.messages[0]["content"] for request in server.requests)
    assert marked == [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]
    assert plain == "Hello"


async def test_the_marks_of_a_system_prompt_are_left_out_with_the_others() -> None:
    def script(request: ModelRequest) -> Turn:
        return fail(400, "minimum token count to start caching") if b"cache_control" in request.content else say("ok")

    async with ModelServer(script) as server:
        llm = model(server, model_canonical_name="claude-sonnet-4-5")
        blocks = [TextContent(text="always", cache_prompt=True), TextContent(text="today")]
        await llm.acompletion([Message(role="system", content=blocks), Message.user("Hello")])
        first, second = server.requests
    assert "cache_control" in first.messages[0]["content"][0]
    assert second.messages[0]["content"] == [{"type": "text", "text": "always"}, {"type": "text", "text": "today"}]


async def test_the_event_loop_stays_free_during_a_long_answer() -> None:
    await client.load_litellm()
    worst = 0.0

    async def beat() -> None:
        nonlocal worst
        while True:
            worked = thread_time()  # of this thread alone: others may have the processors
            await asyncio.sleep(0.001)
            worst = max(worst, thread_time() - worked)

    history = [{"role": "user", "content": "x" * 1000} for _ in range(400)]
    async with ModelServer([say("word " * 3000), say("again")]) as server:
        await model(server).acompletion(HELLO)
        heart = asyncio.create_task(beat())
        await asyncio.sleep(0)
        await model(server).acompletion(history)
        heart.cancel()
    assert worst < 0.1


USAGE = {"prompt_tokens": 1000, "completion_tokens": 20}
BEGUN = {"choices": [{"index": 0, "delta": {"content": "One, two, three,"}}]}


@pytest.mark.parametrize(
    ("turn", "tokens"),
    [
        (raw(BEGUN).then("cut"), (1, 4)),
        (raw({**BEGUN, "usage": USAGE}).then("cut"), (1000, 20)),
        (raw({**BEGUN, "usage": USAGE}, {**BEGUN, "usage": USAGE}).then("cut"), (1000, 20)),
        (raw({"choices": [], "usage": USAGE}, "data: [DONE]\n\n"), (1000, 20)),
        (say("One", finish_reason="content_filter", usage=USAGE), (1000, 20)),
        (fail(500), (0, 0)),
        (raw().then("cut"), (0, 0)),
    ],
    ids=["estimated", "told", "told twice", "no answer", "filtered", "refused", "nothing"],
)
async def test_what_a_broken_answer_has_cost_is_counted_once(turn: Turn, tokens: tuple[int, int]) -> None:
    heard: list[LLMResponse] = []
    whole = {"prompt_tokens": 7, "completion_tokens": 5}
    async with ModelServer([turn, say("ok", usage=whole)]) as server:
        llm = model(server, num_retries=2, input_cost_per_token=1.0, output_cost_per_token=2.0)
        for _ in range(2 if turn.finish_reason == "content_filter" else 1):
            with suppress(LLMContentPolicyError):
                await llm.acompletion(HELLO, context=CallContext(on_response=lambda one, _: heard.append(one)))
    counted = llm.metrics.accumulated_token_usage
    assert (counted.prompt_tokens, counted.completion_tokens) == (tokens[0] + 7, tokens[1] + 5)
    assert llm.metrics.accumulated_cost == counted.prompt_tokens + 2 * counted.completion_tokens
    assert [one.message.text for one in heard] == [""] * any(tokens) + ["ok"]


async def test_what_a_cancelled_answer_has_cost_is_counted() -> None:
    async with ModelServer([raw({**BEGUN, "usage": USAGE}).then("hang")]) as server:
        heard = asyncio.Event()
        llm = model(server)
        task = asyncio.create_task(llm.acompletion(HELLO, on_delta=lambda _: heard.set()))
        async with asyncio.timeout(60):
            await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert llm.metrics.accumulated_token_usage.prompt_tokens == 1000
