"""Base URLs and keys as people write them, and what goes over the wire for them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.errors import LLMAuthenticationError, LLMBadRequestError, LLMError, LLMModelNotFoundError
from agent_core.llm.llm import LLM
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, fail, say

HELLO = [{"role": "user", "content": "Hello"}]


def model(base_url: str, key: str | None = "sk-key-123", **options: Any) -> LLM:
    api_key = None if key is None else SecretStr(key)
    return LLM(model="openai/m", base_url=base_url, api_key=api_key, retry_min_wait=60, timeout=5, **options)


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("{}/v1", "/v1/chat/completions"),
        ("{}/v1/", "/v1/chat/completions"),
        (" {}/v1\n", "/v1/chat/completions"),
        ("{}/proxy/team/v1/", "/proxy/team/v1/chat/completions"),
        ("{}/v1/chat/completions", "/v1/chat/completions"),
        ("{}/v1?tenant=a", "/v1/chat/completions?tenant=a"),
    ],
)
async def test_a_base_url_may_be_written_in_many_ways(base: str, path: str) -> None:
    requests: list[str] = []

    def script(request: ModelRequest) -> Turn:
        requests.append(request.path)
        return say("ok")

    async with ModelServer(script) as server:
        await model(base.format(server.origin)).acompletion(HELLO)
    assert requests == [path]


async def test_a_server_is_reached_over_ipv6() -> None:
    async with ModelServer([say("ok")], host="::1") as server:
        response = await model(server.url).acompletion(HELLO)
    assert (response.message.text, server.origin.startswith("http://[::1]:")) == ("ok", True)


async def test_a_forgotten_v1_is_found_and_remembered() -> None:
    def script(request: ModelRequest) -> Turn:
        return say("ok") if request.path.startswith("/v1/") else fail(404, body='{"detail":"Not Found"}')

    async with ModelServer(script) as server:
        for _ in range(2):
            assert (await model(server.origin).acompletion(HELLO)).message.text == "ok"
        paths = [request.path for request in server.requests]
    assert paths == ["/chat/completions", "/v1/chat/completions", "/v1/chat/completions"]


async def test_a_model_that_is_nowhere_is_reported_by_the_server_that_knows_models() -> None:
    def script(request: ModelRequest) -> Turn:
        return fail(404, "The model `m` does not exist") if request.path.startswith("/v1/") else fail(404, "No")

    async with ModelServer(script) as server:
        with pytest.raises(LLMModelNotFoundError, match="The model `m` does not exist"):
            await model(server.origin).acompletion(HELLO)


@pytest.mark.parametrize(
    "base", ["localhost:8000/v1", "ftp://host/v1", "http://", "http://[::1/v1", "http://host:99999/v1", "http://a b/"]
)
async def test_what_is_no_address_is_reported_at_once_with_its_setting(base: str) -> None:
    with pytest.raises(LLMBadRequestError, match="`LLM_BASE_URL`"):
        await model(base).acompletion(HELLO)


async def test_user_and_password_of_the_url_are_sent_as_such_and_never_shown() -> None:
    async with ModelServer([say("ok"), fail(400, "no")]) as server:
        base = server.url.replace("http://", "http://alice:pass%20word@")
        await model(base, key=None).acompletion(HELLO)
        assert server.last_request.headers["authorization"] == "Basic YWxpY2U6cGFzcyB3b3Jk"
        with pytest.raises(LLMError) as caught:
            await model(base, key=None).acompletion(HELLO)
    assert "pass" not in str(caught.value)


async def test_a_key_is_sent_without_the_white_space_around_it() -> None:
    async with ModelServer([say("ok")]) as server:
        await model(server.url, key=" sk-key-123\n").acompletion(HELLO)
        assert server.last_request.headers["authorization"] == "Bearer sk-key-123"


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "schlüssel", "a\x00b"])
async def test_a_key_that_cannot_be_one_is_refused_without_showing_it(key: str) -> None:
    async with ModelServer([say("never")]) as server:
        with pytest.raises(LLMAuthenticationError, match="`LLM_API_KEY`") as caught:
            await model(server.url, key=key).acompletion(HELLO)
        assert server.request_count == 0
    assert key not in str(caught.value)


async def test_a_header_that_cannot_be_sent_is_named() -> None:
    with pytest.raises(LLMBadRequestError, match="'X-Team'"):
        await model("http://localhost:1/v1", extra_headers={"X-Team": "a\r\nb: c"}).acompletion(HELLO)
