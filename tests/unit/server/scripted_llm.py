"""A model without a network, for side calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from pydantic import SecretStr

from agent_core.errors import LLMError
from agent_core.llm.llm import LLM
from agent_core.llm.transport.exchange import Chunk, CompletionRequest, Endpoint


class Model:
    """A transport that answers every request with one text, or fails."""

    def __init__(self, text: str = "", error: LLMError | None = None) -> None:
        self.text = text
        self.error = error
        self.requests: list[CompletionRequest] = []

    async def prepare(self, endpoint: Endpoint) -> None:
        return

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        yield Chunk(text=self.text, has_choice=True)
        yield Chunk(finish_reason="stop", has_choice=True)


def using(model: Model) -> LLM:
    return LLM(model="openai/x", api_key=SecretStr("key")).using(model)
