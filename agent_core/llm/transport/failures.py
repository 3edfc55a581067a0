"""Turns what went wrong at a provider into our errors: by status, by class, by what the text says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from time import time

from pydantic import SecretStr

from agent_core.errors import (
    LLMAuthenticationError,
    LLMBadRequestError,
    LLMBudgetExceededError,
    LLMContentPolicyError,
    LLMContextWindowError,
    LLMError,
    LLMInternalError,
    LLMMalformedHistoryError,
    LLMModelNotFoundError,
    LLMPromptCacheError,
    LLMRateLimitError,
    LLMTimeoutError,
    LLMUnavailableError,
)
from agent_core.llm.transport.exchange import Endpoint

MAX_PROVIDER_TEXT = 600

_CONTEXT_WINDOW = (
    "contextwindowexceedederror",
    "context_length_exceeded",
    "prompt is too long",
    "input length and max_tokens exceed context limit",
    "please reduce the length of",
    "exceeds the available context size",
    "context length exceeded",
    "maximum context length",
    "input exceeds the context window",
    "context window exceeds limit",
)
_MALFORMED_HISTORY = (
    "tool_use ids were found without tool_result blocks",
    "each tool_use must have a single result",
    "multiple tool_result blocks with",
    "unexpected tool_use_id found in tool_result",
    "must have a corresponding tool_use block in the previous message",
    "must be followed by tool messages responding to each tool_call_id",
    "messages with role tool must be a response to a prece",
    "failed to parse tool call arguments as json",
)
_PROMPT_CACHE = ("minimum token count to start caching",)
_AUTHENTICATION = (
    "invalid api key",
    "invalid_api_key",
    "incorrect api key",
    "unauthorized",
    "missing api key",
    "invalid authentication",
    "access denied",
    "status 401",
    "status 403",
)
_CONTENT_POLICY = (
    "content_policy",
    "content_filter",
    "content filtering policy",
    "output blocked by content filtering",
)
_BUDGET = ("exceededbudget", "budget has been exceeded", "insufficient_quota", "insufficient credits", "out of credits")

_STATUS_ERRORS: Mapping[int, type[LLMError]] = {
    401: LLMAuthenticationError,
    402: LLMBudgetExceededError,
    403: LLMAuthenticationError,
    404: LLMModelNotFoundError,
    408: LLMTimeoutError,
    409: LLMUnavailableError,
    413: LLMContextWindowError,
    425: LLMUnavailableError,
    429: LLMRateLimitError,
    500: LLMInternalError,
    502: LLMUnavailableError,
    503: LLMUnavailableError,
    504: LLMUnavailableError,
    529: LLMUnavailableError,
}

_ADVICE: Mapping[type[LLMError], str] = {
    LLMAuthenticationError: "Check the API key (`api_key`, `LLM_API_KEY`), and that it may use this model.",
    LLMBudgetExceededError: "Add credit at the provider, or configure another model.",
    LLMModelNotFoundError: "Check the model's name (`LLM_MODEL`) and the base URL (`LLM_BASE_URL`).",
    LLMTimeoutError: "Try again, or raise the model's timeout.",
    LLMUnavailableError: "Try again in a while; else check the base URL (`LLM_BASE_URL`) and the server behind it.",
    LLMRateLimitError: "Wait a while, or raise the limit at the provider.",
    LLMInternalError: "Try again; if it stays so, look at the model server's log.",
    LLMContentPolicyError: "Rephrase the request.",
    LLMContextWindowError: "Shorten the conversation, or use a model with a larger context window.",
    LLMMalformedHistoryError: "The conversation's history has to be repaired before it can go on.",
    LLMBadRequestError: "Check the model's settings.",
}


def from_status(
    endpoint: Endpoint, status: int, text: str, headers: Mapping[str, str] | None = None, *, secret: str = ""
) -> LLMError:
    """The error for an HTTP answer that is not 200, or an error object in one; `secret` is one more key to hide."""
    kind = _kind_by_text(status, text.lower()) or _STATUS_ERRORS.get(status)
    if kind is None:
        kind = LLMInternalError if status >= 500 else LLMBadRequestError
    reason = readable(hide_keys(text, endpoint, secret))
    what = f"The provider answered {status} for model {endpoint.label}" + (f": {reason}" if reason else ".")
    wait = retry_after(headers or {})
    if wait is not None and kind.retryable:
        what = f"{what.removesuffix('.')}. It asks to wait {wait:.0f} seconds."
    if 300 <= status < 400:
        kind = LLMModelNotFoundError
        where = {name.lower(): value for name, value in (headers or {}).items()}.get("location")
        what = f"{what.removesuffix('.')} and points to {where or 'another place'}; redirections are not followed."
    return build(endpoint, kind, what, retry_after=wait, secret=secret)


_CLASS_ERRORS: Mapping[str, type[LLMError]] = {
    "ContextWindowExceededError": LLMContextWindowError,
    "AuthenticationError": LLMAuthenticationError,
    "PermissionDeniedError": LLMAuthenticationError,
    "RateLimitError": LLMRateLimitError,
    "Timeout": LLMTimeoutError,
    "APITimeoutError": LLMTimeoutError,
    "APIConnectionError": LLMUnavailableError,
    "ServiceUnavailableError": LLMUnavailableError,
    "BadGatewayError": LLMUnavailableError,
    "InternalServerError": LLMInternalError,
    "ContentPolicyViolationError": LLMContentPolicyError,
    "PaymentRequiredError": LLMBudgetExceededError,
    "BudgetExceededError": LLMBudgetExceededError,
    "NotFoundError": LLMModelNotFoundError,
}


def from_exception(endpoint: Endpoint, error: Exception, *, secrets: Iterable[str] = ()) -> LLMError:
    """The error for an exception of litellm, told by its class, its status and its text, without these `secrets`."""
    text = str(error)
    name = type(error).__name__
    if "llm provider not provided" in text.lower():
        what = f"No provider is known for model {endpoint.label!r}: write provider/model, or set a base URL"
        return build(endpoint, LLMModelNotFoundError, what)
    status = getattr(error, "status_code", None)
    status = status if isinstance(status, int) else 0
    kind = _CLASS_ERRORS.get(name)
    by_text = _kind_by_text(status or 400, text.lower())
    if by_text is not None and kind is not LLMContextWindowError:
        kind = by_text
    if kind is None:
        kind = _STATUS_ERRORS.get(status) or (LLMBadRequestError if 400 <= status < 500 else LLMInternalError)
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
    reason = readable(hide_keys(text.removeprefix(f"litellm.{name}: "), endpoint, *secrets))
    what = f"The call of model {endpoint.label} failed ({name}): {reason}"
    return build(endpoint, kind, what, retry_after=retry_after(dict(headers)))


def build(
    endpoint: Endpoint, kind: type[LLMError], what: str, *, retry_after: float | None = None, secret: str = ""
) -> LLMError:
    """An error of that kind: what happened, then what to do about it, without any key."""
    sentence = what if what.endswith((".", "!", "?")) else f"{what}."
    advice = next((text for base, text in _ADVICE.items() if issubclass(kind, base)), "")
    message = mask(f"{sentence} {advice}".strip(), endpoint, secret)
    return kind(message, retry_after=retry_after)


def _kind_by_text(status: int, text: str) -> type[LLMError] | None:
    if status in (401, 403, 404):
        return None
    tables = (
        (_CONTEXT_WINDOW, LLMContextWindowError),
        (_MALFORMED_HISTORY, LLMMalformedHistoryError),
        (_PROMPT_CACHE, LLMPromptCacheError),
        (_BUDGET, LLMBudgetExceededError),
    )
    plain = re.sub("[`'\"]", "", text)  # the same sentences come with names quoted in one way or another
    for fragments, kind in tables:
        if any(fragment in plain for fragment in fragments):
            return kind
    if status in (400, 500) and any(fragment in text for fragment in _AUTHENTICATION):
        return LLMAuthenticationError
    if status in (400, 422, 500) and any(fragment in text for fragment in _CONTENT_POLICY):
        return LLMContentPolicyError
    return None


def mask(text: str, endpoint: Endpoint, secret: str = "") -> str:
    """The text without the endpoint's secrets and without the password or key in any URL."""
    text = re.sub(r"(https?://)[^/@\s]+@", r"\1", hide_keys(text, endpoint, secret))
    return re.sub(r"([?&][\w-]*(?:key|token|secret)=)[^&\s'\"]+", r"\1<secret-hidden>", text, flags=re.IGNORECASE)


def hide_keys(text: str, endpoint: Endpoint, *secrets: str) -> str:
    """The text without the endpoint's key, its secret headers and these further secrets, also as parts of JSON."""
    hidden = [*secrets, *keys_of(endpoint)]
    hidden += [json.dumps(value)[1:-1] for value in hidden]
    for value in sorted((value for value in hidden if len(value) >= 4), key=len, reverse=True):
        text = text.replace(value, "<secret-hidden>")
    return text


def keys_of(endpoint: Endpoint) -> list[str]:
    """The endpoint's key and the values of its secret headers, these also without their scheme."""
    keys = [endpoint.api_key.get_secret_value()] if endpoint.api_key is not None else []
    keys += [value.get_secret_value() for _, value in endpoint.options if isinstance(value, SecretStr)]
    words = ("authorization", "key", "token", "secret", "cookie")
    keys += [value for name, value in endpoint.headers if any(word in name.lower() for word in words)]
    return keys + [value.split(" ", 1)[1] for value in keys if value.lower().startswith(("bearer ", "basic "))]


def readable(text: str) -> str:
    """The gist of what a server said: tags of a web page removed, white space folded, cut to a readable length."""
    if "<html" in text[:2000].lower() or "<!doctype" in text[:200].lower():
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = f"a web page, {title.group(1).strip()!r}" if title else "a web page"
    folded = " ".join(text.split())
    return folded if len(folded) <= MAX_PROVIDER_TEXT else f"{folded[:MAX_PROVIDER_TEXT]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: ``retry-after-ms``, or ``retry-after`` in seconds or as an HTTP date.

    A date counts from what the server says that it is now, so that it does not matter whose clock is wrong.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    milliseconds = _number(lower.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = lower.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - _now_at(lower.get("date", "")))
    except (ValueError, TypeError):
        return None


def _now_at(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return time()


def _number(value: str | None) -> float | None:
    if value is None or not re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
        return None
    return float(value)
