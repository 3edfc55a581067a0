"""Limits and defaults of skills, conversations, secrets and hooks, where no other test waits that long."""

from __future__ import annotations

from importlib import import_module

import pytest

from agent_core.events.llm_events import TokenUsage


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        ("skills.context", "MAX_NOTES_CHARS", 6_000),
        ("skills.skill", "MAX_DESCRIPTION_CHARS", 1_024),
        ("skills.files", "MAX_NAME_CHARS", 64),
        ("skills.loader", "REFRESH_SECONDS", 60),
        ("skills.loader", "DEFAULT_REF", "main"),
        ("tools.invoke_skill", "COMMAND_SECONDS", 10),
        ("tools.invoke_skill", "COMMAND_OUTPUT_CHARS", 50_000),
        ("library.side_questions", "MAX_TITLE_SOURCE", 1_000),
        ("library.side_questions", "ASK_USAGE_ID", "ask-agent-llm"),
        ("library.conversation_state", "MAX_TAG_CHARS", 256),
        ("security.secrets", "LOOKUP_SECONDS", 30),
        ("security.secrets", "RETRY_SECONDS", 60),
        ("security.hook_runner", "BLOCKED_EXIT_CODE", 2),
        ("runtime.hook_calls", "MAX_FIELD_CHARS", 50_000),
    ],
)
def test_a_number_is_the_one_that_is_asked_for(module: str, name: str, value: float | str) -> None:
    assert getattr(import_module(f"agent_core.{module}"), name) == value


def test_counts_of_tokens_add_up_the_window_is_the_largest_and_the_newest_turn_counts() -> None:
    first = TokenUsage(
        model="a",
        prompt_tokens=1,
        completion_tokens=20,
        cache_read_tokens=300,
        cache_write_tokens=4_000,
        reasoning_tokens=50_000,
        context_window=9,
        per_turn_token=21,
        response_id="r1",
    )
    second = first.model_copy(update={"context_window": 7, "per_turn_token": 5, "response_id": "r2"})
    both = first + second
    assert both == TokenUsage(
        model="a",
        prompt_tokens=2,
        completion_tokens=40,
        cache_read_tokens=600,
        cache_write_tokens=8_000,
        reasoning_tokens=100_000,
        context_window=9,
        per_turn_token=5,
        response_id="r2",
    )
    assert first + TokenUsage() == first
