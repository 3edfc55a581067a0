from __future__ import annotations

from email.utils import formatdate
from time import time

import pytest
from pydantic import SecretStr

from agent_core.errors import (
    LLMAuthenticationError,
    LLMBadRequestError,
    LLMContentPolicyError,
    LLMContextWindowError,
    LLMError,
    LLMInternalError,
    LLMMalformedHistoryError,
    LLMPromptCacheError,
    LLMRateLimitError,
    LLMTimeoutError,
    LLMUnavailableError,
)
from agent_core.llm.completion import MAX_RETRY_AFTER, wait_after
from agent_core.llm.config import LLMConfig
from agent_core.llm.transport.exchange import Endpoint
from agent_core.llm.transport.failures import from_exception, from_status, mask, readable, retry_after

ENDPOINT = Endpoint(
    "openai/x",
    "http://user:pa55word@localhost/v1",
    SecretStr("sk-12345678"),
    headers=(("Authorization", "Bearer tok-abcdef"), ("X-Team", "blue-team")),
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ContextWindowExceededError: too much", LLMContextWindowError),
        ("prompt is too long: 250000 tokens > 200000 maximum", LLMContextWindowError),
        ("input length and `max_tokens` exceed context limit", LLMContextWindowError),
        ("Please reduce the length of the messages", LLMContextWindowError),
        ("request exceeds the available context size", LLMContextWindowError),
        ("Context length exceeded", LLMContextWindowError),
        ("Your input exceeds the context window of this model", LLMContextWindowError),
        ("the context window exceeds limit (2013)", LLMContextWindowError),
        ("each tool_use must have a single result", LLMMalformedHistoryError),
        ("unexpected `tool_use_id` found in `tool_result` blocks: toolu_1", LLMMalformedHistoryError),
        ("must be followed by tool messages responding to each 'tool_call_id'", LLMMalformedHistoryError),
        ("Must be followed by tool messages responding to each tool_call_id", LLMMalformedHistoryError),
        ("messages with role 'tool' must be a response to a preceding message", LLMMalformedHistoryError),
        ("`tool_use` ids were found without `tool_result` blocks immediately after", LLMMalformedHistoryError),
        ("Failed to parse tool call arguments as JSON", LLMMalformedHistoryError),
        ("minimum token count to start caching is 1024", LLMPromptCacheError),
        ("Invalid API key", LLMAuthenticationError),
        ("Output blocked by content filtering policy", LLMContentPolicyError),
        ("Unauthorized by content_policy", LLMAuthenticationError),
        ("temperature must be between 0 and 2", LLMBadRequestError),
    ],
)
def test_the_text_of_a_bad_request_says_what_it_is(text: str, kind: type[LLMError]) -> None:
    assert type(from_status(ENDPOINT, 400, text)) is kind


def test_an_unknown_server_error_may_pass_and_an_unknown_refusal_will_not() -> None:
    assert type(from_status(ENDPOINT, 599, "?")) is LLMInternalError
    assert type(from_status(ENDPOINT, 418, "?")) is LLMBadRequestError


def test_no_secret_is_shown() -> None:
    text = mask("sk-12345678 tok-abcdef Bearer tok-abcdef http://user:pa55word@localhost/v1 blue-team", ENDPOINT)
    assert text == ("<secret-hidden> <secret-hidden> <secret-hidden> http://localhost/v1 blue-team")
    error = str(from_status(ENDPOINT, 401, "key sk-12345678 is wrong"))
    assert "sk-12345678" not in error
    assert "pa55word" not in error


class Timeout(Exception):  # noqa: N818 (named as the client library names it)
    status_code = 408


class APIConnectionError(Exception):
    status_code = 500


class RateLimitError(Exception):
    status_code = 429
    litellm_response_headers = {"retry-after": "7"}  # noqa: RUF012


class ContextWindowExceededError(Exception):
    status_code = 400


class Strange(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize(
    ("error", "kind", "wait"),
    [
        (Timeout("slow"), LLMTimeoutError, None),
        (APIConnectionError("gone"), LLMUnavailableError, None),
        (APIConnectionError("prompt is too long"), LLMContextWindowError, None),
        (RateLimitError("slow down"), LLMRateLimitError, 7.0),
        (ContextWindowExceededError("invalid api key"), LLMContextWindowError, None),
        (Strange("what"), LLMInternalError, None),
    ],
)
def test_exceptions_of_the_client_library_are_mapped_by_class_status_and_text(
    error: Exception, kind: type[LLMError], wait: float | None
) -> None:
    mapped = from_exception(ENDPOINT, error)
    assert type(mapped) is kind
    assert mapped.retry_after == wait


def test_what_a_server_says_is_told_in_a_readable_length() -> None:
    assert readable("a\n\n   b") == "a b"
    assert len(readable("x" * 5000)) == 601
    assert readable("<html><body>many words") == "a web page"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"RETRY-AFTER": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "Mon, 01 Jan 0001 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "Fri, 31 Dec 9999 23:59:59 +9999"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_a_server_asks_for_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_wait_given_as_a_date_is_read_and_a_past_one_is_no_wait() -> None:
    soon = retry_after({"Retry-After": formatdate(time() + 50, usegmt=True)})
    assert soon is not None
    assert 48 < soon <= 50
    assert retry_after({"Retry-After": formatdate(time() - 50, usegmt=True)}) == 0


def test_a_date_is_read_by_the_clock_of_the_server_that_gave_it() -> None:
    there = time() - 86_400 * 365
    headers = {"Retry-After": formatdate(there + 20, usegmt=True), "Date": formatdate(there, usegmt=True)}
    assert retry_after(headers) == 20
    assert retry_after({**headers, "Date": "yesterday"}) == 0


def test_waits_double_between_their_limits() -> None:
    waits = [wait_after(attempt, LLMUnavailableError("x"), LLMConfig()) for attempt in range(1, 6)]
    assert waits == [8, 16, 32, 64, None]


def test_what_cannot_pass_is_not_tried_again() -> None:
    assert wait_after(1, LLMAuthenticationError("x"), LLMConfig()) is None


def test_a_wait_of_the_server_replaces_ours_unless_it_is_too_long() -> None:
    assert wait_after(1, LLMRateLimitError("x", retry_after=0.5), LLMConfig()) == 0.5
    assert wait_after(1, LLMRateLimitError("x", retry_after=MAX_RETRY_AFTER + 1), LLMConfig()) is None
