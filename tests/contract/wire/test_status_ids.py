"""The ids of statuses and errors, and which failure has which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_core.controller.guards import failure_of
from agent_core.errors import (
    AgentStuckInLoopError,
    DrydockError,
    LimitReachedError,
    LLMAuthenticationError,
    LLMBadRequestError,
    LLMBudgetExceededError,
    LLMContentPolicyError,
    LLMInternalError,
    LLMRateLimitError,
    LLMTimeoutError,
    LLMUnavailableError,
)

ROOT = Path(__file__).parents[3]
KNOWN = {
    "STATUS$STOPPED",
    "STATUS$BUILDING_RUNTIME",
    "STATUS$STARTING_RUNTIME",
    "STATUS$RUNTIME_STARTED",
    "STATUS$SETTING_UP_WORKSPACE",
    "STATUS$SETTING_UP_GIT_HOOKS",
    "STATUS$READY",
    "STATUS$ERROR",
    "STATUS$ERROR_RUNTIME_DISCONNECTED",
    "STATUS$ERROR_LLM_AUTHENTICATION",
    "STATUS$ERROR_LLM_SERVICE_UNAVAILABLE",
    "STATUS$ERROR_LLM_INTERNAL_SERVER_ERROR",
    "STATUS$ERROR_LLM_OUT_OF_CREDITS",
    "STATUS$ERROR_LLM_CONTENT_POLICY_VIOLATION",
    "CHAT_INTERFACE$AGENT_RATE_LIMITED_STOPPED_MESSAGE",
    "STATUS$GIT_PROVIDER_AUTHENTICATION_ERROR",
    "STATUS$LLM_RETRY",
    "STATUS$ERROR_MEMORY",
    "AGENT_ERROR$ACTION_TIMEOUT",
    "AGENT_ERROR$BAD_ACTION",
    "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_ERROR",
    "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_STOPPED",
    "AGENT_ERROR$TOO_MANY_CONVERSATIONS",
    "CONFIGURATION$SETTINGS_NOT_FOUND",
    "CONVERSATION$NOT_FOUND",
    "CONVERSATION$UPDATE_ERROR",
    "AUTHORIZATION$PERMISSION_DENIED",
}
OURS = {
    "CONVERSATION$ALREADY_EXISTS",
    "STATUS$ERROR_DISK_LIMIT",
    "STATUS$ERROR_DISK_RESERVE",
    "STATUS$HELD_BACK",
    "STATUS$NETWORK_WARNING",
    "STATUS$WAITING_FOR_ENGINE",
    "STATUS$WAITING_FOR_TURN",
    "STATUS$ERROR_STORAGE",
}
"""For cases that the original does not have; clients show the text beside them."""
ID = re.compile(r"[\"'`]((?:STATUS|AGENT_ERROR|CHAT_INTERFACE|CONFIGURATION|CONVERSATION|AUTHORIZATION)\$[A-Z_$]+)")


def test_only_ids_that_clients_know_are_ever_said() -> None:
    files = [path for folder in ("agent_core", "server") for path in (ROOT / folder).rglob("*.py")]
    said = {found for path in files for found in ID.findall(path.read_text("utf-8"))}
    assert said - KNOWN - OURS == set()
    assert len(said) > 15


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LLMAuthenticationError("x"), "STATUS$ERROR_LLM_AUTHENTICATION"),
        (LLMUnavailableError("x"), "STATUS$ERROR_LLM_SERVICE_UNAVAILABLE"),
        (LLMTimeoutError("x"), "STATUS$ERROR_LLM_SERVICE_UNAVAILABLE"),
        (LLMInternalError("x"), "STATUS$ERROR_LLM_INTERNAL_SERVER_ERROR"),
        (LLMBudgetExceededError("x"), "STATUS$ERROR_LLM_OUT_OF_CREDITS"),
        (LLMContentPolicyError("x"), "STATUS$ERROR_LLM_CONTENT_POLICY_VIOLATION"),
        (LLMRateLimitError("x"), "CHAT_INTERFACE$AGENT_RATE_LIMITED_STOPPED_MESSAGE"),
        (LLMBadRequestError("It is odd."), "LLMBadRequestError: It is odd."),
        (DrydockError("It is so."), "DrydockError: It is so."),
        (AgentStuckInLoopError("x", start=1), "AgentStuckInLoopError: Agent got stuck in a loop"),
        (
            LimitReachedError("Agent reached maximum iteration. Current iteration: 2, max iteration: 2", code="x"),
            "RuntimeError: Agent reached maximum iteration. Current iteration: 2, max iteration: 2",
        ),
        (
            KeyError("x"),
            "RuntimeError: There was an unexpected error while running the agent: KeyError."
            " You can refresh the page or ask the agent to try again.",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failure_has_its_reason(error: Exception, reason: str) -> None:
    assert failure_of(error)[0] == reason
