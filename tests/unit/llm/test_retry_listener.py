"""Who is told of a retry, and what a listener that fails may break: nothing."""

from __future__ import annotations

from pydantic import SecretStr

from agent_core.events.messages import Message
from agent_core.llm.llm import LLM
from agent_core.llm.response import RetryNotice
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import fail, say


async def test_a_listener_that_fails_keeps_nobody_else_from_being_told() -> None:
    told: list[RetryNotice] = []

    def listener(attempt: int, most: int, error: Exception) -> None:
        raise ValueError("a fault of the program")

    async with ModelServer([fail(503), say("Here.")]) as server:
        waits = {"retry_multiplier": 0.0, "retry_min_wait": 0.0}
        model = {"model": "openai/scripted", "base_url": server.url, "api_key": SecretStr("k")}
        llm = LLM(**model, **waits, retry_listener=listener)
        response = await llm.acompletion([Message.user("Hello?")], on_retry=told.append)
    assert response.message.text == "Here."
    assert [(notice.attempt, notice.max_attempts) for notice in told] == [(1, 5)]
