"""What kind of failure an error is."""

from __future__ import annotations

import pytest

from agent_core import AgentErrorEvent, ConversationErrorEvent, ErrorClassification, Event, errors
from agent_core.events.classification import classified
from agent_core.events.serialization import from_payload, to_payload

KINDS = {
    "auth": (False, "settings"),
    "quota": (False, "settings"),
    "rate_limit": (True, "retry"),
    "config": (False, "settings"),
    "transient": (True, "retry"),
    "agent_action": (True, "none"),
    "interrupted": (False, "none"),
    "sandbox": (False, "none"),
    "internal": (False, "none"),
    "unknown": (False, "none"),
}


def test_every_kind_says_whether_a_retry_helps_and_what_the_user_can_do() -> None:
    assert {one.value: (one.retryable, one.user_action) for one in ErrorClassification} == KINDS
    assert all(one.kind is one for one in ErrorClassification)


@pytest.mark.parametrize("given", [{}, {"classification": None}])
def test_an_error_that_says_nothing_of_its_kind_is_unknown(given: dict[str, None]) -> None:
    event = AgentErrorEvent.model_validate({"error": "e", **given})
    assert event.classification is ErrorClassification.UNKNOWN
    assert event.classification.retryable is False


def test_it_is_stored_as_one_word() -> None:
    event = AgentErrorEvent(error="e", classification=ErrorClassification.INTERNAL)
    assert b'"classification":"internal"' in to_payload(event)
    assert from_payload(to_payload(event), -1) == event
    assert Event.model_validate({"kind": "AgentErrorEvent", "error": "e", "classification": "agent_action"}) is not None


@pytest.mark.parametrize(
    ("code", "detail", "kind"),
    [
        ("LLMAuthenticationError", "429 too many requests", "auth"),
        ("LLMRateLimitError", "", "rate_limit"),
        ("LLMTimeoutError", "", "transient"),
        ("LLMBudgetExceededError", "", "quota"),
        ("LLMModelNotFoundError", "", "config"),
        ("MaxBudgetReached", "", "quota"),
        ("SandboxLostError", "", "sandbox"),
        ("SomeError", "Incorrect API key provided", "auth"),
        ("SomeError", "You exceeded your current quota", "quota"),
        ("SomeError", "Rate limit reached", "rate_limit"),
        ("SomeError", "The read timed out", "transient"),
        ("LLMBadRequestError", "the model does not exist", "config"),
        ("RuntimeError", "There was an unexpected error while running the agent: KeyError.", "internal"),
        ("SomeError", "Something else", "unknown"),
    ],
)
def test_a_failure_is_told_by_its_code_and_then_by_its_text(code: str, detail: str, kind: str) -> None:
    assert ConversationErrorEvent(code=code, detail=detail).classification == kind


def test_every_code_is_one_that_there_is() -> None:
    limits = {"MaxBudgetReached", "MaxIterationsReached"}
    named = {name for name in vars(errors) if classified(name, "") is not ErrorClassification.UNKNOWN}
    assert {"LLMAuthenticationError", "LLMTimeoutError", "SandboxError", "FunctionCallValidationError"} <= named
    assert all(classified(name, "") == "quota" for name in limits)
