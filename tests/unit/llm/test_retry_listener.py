"""Who is told of a retry, and what a listener that fails may break: nothing."""

from __future__ import annotations

from agent_core.errors import LLMTimeoutError
from agent_core.llm.completion import heard_by
from agent_core.llm.response import RetryNotice


def test_a_listener_that_fails_keeps_nobody_else_from_being_told() -> None:
    told: list[RetryNotice] = []

    def listener(attempt: int, most: int, error: Exception) -> None:
        raise ValueError("a fault of the program")

    notice = RetryNotice(1, 3, 0.5, LLMTimeoutError("too slow"))
    heard_by(listener, told.append)(notice)
    assert told == [notice]
