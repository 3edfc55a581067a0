"""Classification of failures: what kind an error is, and what may be done about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal


class ErrorClassification(StrEnum):
    """The kind of a failure, stored as a word; an agent can mend its own `AGENT_ACTION`."""

    AUTH = "auth"
    QUOTA = "quota"
    RATE_LIMIT = "rate_limit"
    CONFIG = "config"
    TRANSIENT = "transient"
    AGENT_ACTION = "agent_action"
    INTERRUPTED = "interrupted"
    SANDBOX = "sandbox"
    INTERNAL = "internal"
    UNKNOWN = "unknown"

    @property
    def kind(self) -> ErrorClassification:
        return self

    @property
    def retryable(self) -> bool:
        """Whether another try may succeed with nothing changed but what the agent itself does."""
        return self in _RETRYABLE

    @property
    def user_action(self) -> Literal["none", "retry", "settings"]:
        if self in (ErrorClassification.RATE_LIMIT, ErrorClassification.TRANSIENT):
            return "retry"
        return "settings" if self in _OF_SETTINGS else "none"


_RETRYABLE: Final = frozenset(
    {ErrorClassification.RATE_LIMIT, ErrorClassification.TRANSIENT, ErrorClassification.AGENT_ACTION}
)
_OF_SETTINGS: Final = frozenset({ErrorClassification.AUTH, ErrorClassification.QUOTA, ErrorClassification.CONFIG})

_BY_CODE: Final = {
    "FunctionCallConversionError": ErrorClassification.INTERNAL,
    "FunctionCallValidationError": ErrorClassification.AGENT_ACTION,
    "LLMAuthenticationError": ErrorClassification.AUTH,
    "LLMBudgetExceededError": ErrorClassification.QUOTA,
    "LLMContextWindowError": ErrorClassification.CONFIG,
    "LLMInternalError": ErrorClassification.TRANSIENT,
    "LLMMalformedHistoryError": ErrorClassification.INTERNAL,
    "LLMModelNotFoundError": ErrorClassification.CONFIG,
    "LLMNoResponseError": ErrorClassification.TRANSIENT,
    "LLMRateLimitError": ErrorClassification.RATE_LIMIT,
    "LLMTimeoutError": ErrorClassification.TRANSIENT,
    "LLMUnavailableError": ErrorClassification.TRANSIENT,
    "MaxBudgetReached": ErrorClassification.QUOTA,
    "MaxIterationsReached": ErrorClassification.QUOTA,
    "SandboxError": ErrorClassification.SANDBOX,
    "SandboxLostError": ErrorClassification.SANDBOX,
}

_BY_TEXT: Final = (
    (ErrorClassification.AUTH, ("api key", "api_key", "unauthorized", "authentication", "access denied", "401", "403")),
    (ErrorClassification.QUOTA, ("quota", "out of credit", "insufficient", "billing", "maximum budget")),
    (ErrorClassification.RATE_LIMIT, ("rate limit", "too many requests", "429")),
    (ErrorClassification.TRANSIENT, ("timed out", "timeout", "unavailable", "overloaded", "connection", "502", "503")),
    (ErrorClassification.CONFIG, ("model not found", "does not exist", "not supported", "choose another model")),
    (ErrorClassification.INTERNAL, ("unexpected error",)),
)
"""For errors without a code of ours; the first that fits counts."""


def classified(code: str, detail: str) -> ErrorClassification:
    """The kind of a conversation's failure: by its code, or else by its text."""
    if (known := _BY_CODE.get(code)) is not None:
        return known
    text = detail.lower()
    found = (kind for kind, words in _BY_TEXT if any(word in text for word in words))
    return next(found, ErrorClassification.UNKNOWN)
