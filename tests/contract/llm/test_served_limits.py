"""What a server says of its models counts where nothing is configured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.errors import LLMBadRequestError
from agent_core.llm.llm import LLM
from agent_core.llm.transport.served_models import FRESH_SECONDS, SERVED
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, fail, say
from tests.listening import listening

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Nothing is known before a test, nor after it."""
    SERVED.__init__()  # type: ignore[misc] # the one of the process, as it was made
    yield
    SERVED.__init__()  # type: ignore[misc]


class Serving(ModelServer):
    """Answers, and says of its models what is given; None: nothing. `asked` are the paths that were asked for it."""

    def __init__(self, said: object, *, path: str = "/v1/model/info") -> None:
        super().__init__(lambda _: say("ok"))
        self.said = said
        self.asked: list[str] = []
        self._path = path

    def answer(self, request: ModelRequest) -> Turn:
        if request.method == "POST":
            return super().answer(request)
        self.asked.append(request.path)
        assert request.headers.get("authorization") == "Bearer sk-key-123"
        if self.said is None or request.path != self._path:
            return fail(404, "no such route")
        return Turn(body=self.said if isinstance(self.said, str) else json.dumps(self.said))


def model(server: ModelServer, name: str = "litellm_proxy/m", **options: Any) -> LLM:
    settings = {"base_url": server.url, "api_key": SecretStr("sk-key-123"), "num_retries": 1, "timeout": 5, **options}
    return LLM(model=name, **settings)


def info(**limits: object) -> dict[str, Any]:
    return {
        "data": [
            {"model_name": "other", "model_info": {"max_input_tokens": 1}},
            {"model_name": "m", "model_info": limits},
        ]
    }


async def test_the_window_that_a_proxy_tells_counts_and_is_asked_for_once() -> None:
    server = Serving(info(max_input_tokens=50_000, max_output_tokens=9_000))
    async with server:
        llm, before = model(server), model(server)
        assert (llm.effective_max_input_tokens, before.effective_max_output_tokens) == (None, None)
        for _ in range(2):
            response = await llm.acompletion(HELLO)
        assert response.usage.context_window == 50_000
        assert (before.effective_max_input_tokens, before.effective_max_output_tokens) == (50_000, 9_000)
        assert model(server, max_input_tokens=20_000).effective_max_input_tokens == 20_000
        assert model(server, name="litellm_proxy/another").effective_max_input_tokens is None
        assert server.asked == ["/v1/model/info"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hosted_vllm/org/m", {"data": [{"id": "org/m", "max_model_len": 40_000}]}),
        ("openrouter/org/m", {"data": [{"id": "org/m", "context_length": 40_000, "top_provider": None}]}),
    ],
)
async def test_other_servers_tell_it_in_their_own_way(name: str, said: object) -> None:
    server = Serving(said, path="/v1/models")
    async with server:
        llm = model(server, name, base_url=server.origin if name.startswith("hosted") else server.url)
        if name.startswith("hosted"):
            await llm.acompletion(HELLO)
        else:
            await SERVED.refresh(llm, llm._http)
        assert llm.effective_max_input_tokens == 40_000


@pytest.mark.parametrize(
    "said",
    [None, "", "no JSON", "[]", {"data": None}, {"data": [None, 5, {"model_name": 7}]}, info(max_input_tokens="many")],
)
async def test_a_server_that_says_nothing_that_counts_is_not_asked_again_soon(said: object) -> None:
    server = Serving(said)
    async with server:
        llm = model(server)
        for _ in range(3):
            assert (await llm.acompletion(HELLO)).message.text == "ok"
        assert llm.effective_max_input_tokens is None
        assert len(server.asked) == 1


async def test_what_was_said_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("agent_core.llm.transport.served_models.monotonic", lambda: now)
    server = Serving(info(max_input_tokens=50_000))
    async with server:
        llm = model(server)
        await llm.acompletion(HELLO)
        server.said = info(max_input_tokens=60_000)
        now += FRESH_SECONDS - 1
        await llm.acompletion(HELLO)
        assert llm.effective_max_input_tokens == 50_000
        now += 1
        await llm.acompletion(HELLO)
        assert llm.effective_max_input_tokens == 60_000


async def test_a_window_that_is_too_short_by_its_server_is_refused_unless_another_is_configured() -> None:
    server = Serving(info(max_input_tokens=4_096))
    async with server:
        with pytest.raises(LLMBadRequestError, match="4096 tokens"):
            await model(server).acompletion(HELLO)
        assert (await model(server, max_input_tokens=32_000).acompletion(HELLO)).message.text == "ok"


async def test_a_call_does_not_wait_long_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_core.llm.transport.served_models.SECONDS", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(silent) as port:
        llm = LLM(model="litellm_proxy/m", base_url=f"http://127.0.0.1:{port}/v1")
        await SERVED.refresh(llm, llm._http)
        assert llm.effective_max_input_tokens is None


async def test_one_that_was_cancelled_is_asked_again() -> None:
    server = Serving(info(max_input_tokens=50_000))
    async with server:
        llm = model(server)

        async def cancelled() -> Any:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await SERVED.refresh(llm, cancelled)
        await llm.acompletion(HELLO)
        assert llm.effective_max_input_tokens == 50_000


async def test_models_whose_servers_say_no_such_thing_are_not_asked() -> None:
    server = Serving(info(max_input_tokens=50_000))
    async with server:
        await model(server, "openai/m").acompletion(HELLO)
        assert server.asked == []
