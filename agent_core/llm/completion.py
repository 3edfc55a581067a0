"""One model call with its retries: attempts, time limits, deltas, the finished response."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_core.errors import (
    LLMContentPolicyError,
    LLMError,
    LLMNoResponseError,
    LLMPromptCacheError,
    LLMTimeoutError,
)
from agent_core.events.llm_events import TokenUsage
from agent_core.llm.answer import Assembly
from agent_core.llm.deltas import DeltaListener, DeltaSink
from agent_core.llm.render import mark_cache, without_marks
from agent_core.llm.response import LLMResponse, RetryNotice
from agent_core.llm.transport.exchange import CompletionRequest, Transport
from agent_core.llm.transport.failures import build

MAX_RETRY_AFTER = 300.0
logger = logging.getLogger(__name__)

SILENT_TIMEOUTS = 3
"""How many times the timeout a server may go on with signs of life alone."""

COUNTS_SECONDS = 5.0
"""How long the token counts may take to come after the end of an answer."""

_NOT_WORTH_IT = 0.01
"""By what share of the timeout the time for a piece may be too short, so that it need not be planned for each."""

RetryListener = Callable[[RetryNotice], None]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential waits without jitter, over `attempts` (at least one, the first included).

    `multiplier` is the first wait in seconds, doubled for each further one, between `min_wait` and `max_wait`.
    """

    attempts: int = 5
    multiplier: float = 8.0
    min_wait: float = 8.0
    max_wait: float = 64.0

    def wait_after(self, attempt: int, error: LLMError) -> float | None:
        """Seconds to wait after that attempt (from 1): as the server asked, up to `MAX_RETRY_AFTER`; None: give up."""
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= MAX_RETRY_AFTER else None
        exponent = min(attempt - 1, 32)
        return max(self.min_wait, min(self.multiplier * 2.0**exponent, self.max_wait))


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call, ready to be made; `on_retry` hears of each failed attempt that will be repeated, before the wait."""

    transport: Transport
    request: CompletionRequest
    policy: RetryPolicy
    marks_cache: bool
    count: Callable[[Assembly, str], TokenUsage]
    price: Callable[[TokenUsage], float | None]
    on_delta: DeltaListener | None = None
    on_retry: RetryListener | None = None

    async def run(self) -> LLMResponse:
        """Make the call; raises `LLMError` when it failed for good, and nothing of the answer is valid then."""
        await self.transport.prepare(self.request.endpoint)
        request = self.request
        marks_cache = self.marks_cache
        attempt = 0
        while True:
            attempt += 1
            try:
                asked = replace(request, messages=mark_cache(request.messages)) if marks_cache else request
                return await self._attempt(asked)
            except LLMPromptCacheError:
                if not marks_cache:
                    raise
                marks_cache = False
                request = replace(request, messages=[without_marks(message) for message in request.messages])
                attempt -= 1
            except LLMError as error:
                error.retry_attempt, error.max_retries = attempt, self.policy.attempts
                wait = self.policy.wait_after(attempt, error)
                if wait is None:
                    raise
                if self.on_retry is not None:
                    self.on_retry(RetryNotice(attempt, self.policy.attempts, wait, error))
                if isinstance(error, LLMNoResponseError) and request.parameters.get("temperature") == 0:
                    request = replace(request, parameters={**request.parameters, "temperature": 1.0})
                await asyncio.sleep(wait)

    async def _attempt(self, request: CompletionRequest) -> LLMResponse:
        response_id = f"resp_{uuid.uuid4().hex}"
        sink = DeltaSink(response_id, self.on_delta)
        assembly = Assembly()
        start = time.monotonic()
        is_complete = False
        try:
            await self._receive(request, assembly, sink)
            is_complete = True
        finally:
            sink.close() if is_complete else sink.discard()
        usage = self.count(assembly, response_id)
        return LLMResponse(
            message=assembly.message,
            id=response_id,
            usage=usage,
            cost=assembly.cost if assembly.cost is not None else self.price(usage),
            latency=max(0.0, time.monotonic() - start),
            finish_reason=assembly.finish_reason or "stop",
            model=request.endpoint.model,
        )

    async def _receive(self, request: CompletionRequest, assembly: Assembly, sink: DeltaSink) -> None:
        """Take the answer in; each piece has `timeout` seconds to come.

        Signs of life without content count too, but not for ever; after the finish reason only token counts are waited
        for.
        """
        loop = asyncio.get_running_loop()
        endpoint, timeout = request.endpoint, request.timeout
        due = loop.time() + timeout
        patience_ends = loop.time() + SILENT_TIMEOUTS * timeout
        try:
            async with asyncio.timeout(timeout) as limit, aclosing(self.transport.stream(request)) as chunks:
                async for chunk in chunks:
                    now = loop.time()
                    assembly.add(chunk)
                    if chunk.says_something:
                        patience = SILENT_TIMEOUTS * timeout
                        patience_ends = now + (patience if assembly.finish_reason is None else COUNTS_SECONDS)
                    ends = min(now + timeout, patience_ends)
                    if not 0.0 <= ends - due <= _NOT_WORTH_IT * timeout:  # a plan is dear, and pieces are many
                        limit.reschedule(due := ends)
                    sink.add(chunk.reasoning, "reasoning")
                    sink.add(chunk.text)
        except TimeoutError:
            if assembly.finish_reason is None:
                silent = SILENT_TIMEOUTS * timeout if loop.time() >= patience_ends else timeout
                what = f"Model {endpoint.label} sent nothing for {silent:g} seconds"
                raise build(endpoint, LLMTimeoutError, what) from None
        if not assembly.has_choice:
            raise build(endpoint, LLMNoResponseError, f"Model {endpoint.label} answered without any choice")
        if assembly.finish_reason == "content_filter":
            what = f"The provider of model {endpoint.label} stopped the answer by its rules on content"
            raise build(endpoint, LLMContentPolicyError, what)


def heard_by(listener: Callable[[int, int, Exception], object] | None, on_retry: RetryListener | None) -> RetryListener:
    """One listener for that of a configuration, whose failures are logged, and then that of a call."""

    def tell(notice: RetryNotice) -> None:
        if listener is not None:
            try:
                listener(notice.attempt, notice.max_attempts, notice.error)
            except Exception as error:  # noqa: BLE001 - whatever it raises says nothing about the call
                logger.warning("a retry listener failed: %s", type(error).__name__)
        if on_retry is not None:
            on_retry(notice)

    return tell
