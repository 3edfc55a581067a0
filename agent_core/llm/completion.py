"""One model call with its retries: attempts, time limits, deltas, the finished response."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from agent_core.errors import (
    LLMContentPolicyError,
    LLMError,
    LLMInternalError,
    LLMNoResponseError,
    LLMPromptCacheError,
    LLMTimeoutError,
)
from agent_core.events.messages import Message
from agent_core.llm.answer import Assembly
from agent_core.llm.capabilities import lookup_name
from agent_core.llm.config import LLMConfig
from agent_core.llm.deltas import DeltaListener, DeltaSink
from agent_core.llm.metrics import cost_of, usage_of
from agent_core.llm.render import WireMessage, mark_cache, texts_of, without_marks
from agent_core.llm.response import LLMResponse, RetryNotice
from agent_core.llm.transport.exchange import CompletionRequest, Transport
from agent_core.llm.transport.failures import build
from agent_core.spans import Span

logger = logging.getLogger(__name__)

MAX_RETRY_AFTER = 300.0
SILENT_TIMEOUTS = 3
"""How many times the timeout a server may go on with signs of life alone."""
COUNTS_SECONDS = 5.0
"""How long the token counts may take to come after the end of an answer."""
_NOT_WORTH_IT = 0.01
"""By what share of the timeout the time for a piece may be too short, so that it need not be planned for each."""

RetryListener = Callable[[RetryNotice], None]


def wait_after(attempt: int, error: LLMError, config: LLMConfig) -> float | None:
    """Seconds to wait after that attempt (from 1), exponential without jitter; None: give up.

    A server that asks for a wait gets it, up to `MAX_RETRY_AFTER`.
    """
    if not error.retryable or attempt >= config.num_retries:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= MAX_RETRY_AFTER else None
    exponential = config.retry_multiplier * 2.0 ** min(attempt - 1, 32)
    return max(config.retry_min_wait, min(exponential, config.retry_max_wait))


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call of a configured model, ready to be made; `messages` are those of the request before any became text.

    `on_retry`, after the configured listener, hears of each failed attempt that will be repeated, before the wait.
    `on_broken` hears what an attempt has cost whose answer had begun, and failed or was cancelled: providers want to be
    paid for it. Its response has no message.
    """

    transport: Transport
    request: CompletionRequest
    config: LLMConfig
    messages: Sequence[WireMessage]
    window: int | None
    marks_cache: bool
    on_delta: DeltaListener | None = None
    on_retry: RetryListener | None = None
    on_broken: Callable[[LLMResponse], object] | None = None

    async def run(self) -> LLMResponse:
        """Make the call; raises `LLMError` when it failed for good, and nothing of the answer is valid then."""
        endpoint = self.request.endpoint
        with Span("model_call", model=endpoint.model, host=_host_of(endpoint.base_url or "")) as span:
            return await self._run(span)

    async def _run(self, span: Span) -> LLMResponse:
        await self.transport.prepare(self.request.endpoint)
        request = self.request
        if told := span.headers_for(span.facts["host"]):
            endpoint = request.endpoint
            request = replace(request, endpoint=replace(endpoint, headers=(*endpoint.headers, *told.items())))
        marks_cache = self.marks_cache
        attempt = 0
        while True:
            attempt += 1
            span.facts["attempts"] = attempt
            try:
                marked = replace(request, messages=mark_cache(request.messages)) if marks_cache else request
                return await self._attempt(marked, span)
            except LLMPromptCacheError:
                if not marks_cache:
                    raise
                marks_cache = False
                request = replace(request, messages=[without_marks(message) for message in request.messages])
                attempt -= 1
            except LLMError as error:
                attempts, listener = self.config.num_retries, self.config.retry_listener
                error.retry_attempt, error.max_retries = attempt, attempts
                wait = wait_after(attempt, error, self.config)
                if wait is None:
                    raise
                if listener is not None:
                    try:
                        listener(attempt, attempts, error)
                    except Exception as fault:  # noqa: BLE001 - whatever it raises says nothing about the call
                        logger.warning("a retry listener failed: %s", type(fault).__name__)
                if self.on_retry is not None:
                    self.on_retry(RetryNotice(attempt, attempts, wait, error))
                if isinstance(error, LLMNoResponseError) and request.parameters.get("temperature") == 0:
                    request = replace(request, parameters={**request.parameters, "temperature": 1.0})
                await asyncio.sleep(wait)

    async def _attempt(self, request: CompletionRequest, span: Span) -> LLMResponse:
        response_id = f"resp_{uuid.uuid4().hex}"
        sink = DeltaSink(response_id, self.on_delta)
        assembly = Assembly()
        start = time.monotonic()
        try:
            await self._receive(request, assembly, sink)
        except BaseException:
            sink.discard()
            if self.on_broken is not None and (assembly.size or assembly.usage):
                broken = self._response(request, assembly, response_id, start, Message(role="assistant"))
                _tell(span, broken)
                self.on_broken(broken)
            raise
        sink.close()
        response = self._response(request, assembly, response_id, start, assembly.message)
        _tell(span, response)
        span.facts |= {"finish_reason": response.finish_reason, "first_token_seconds": response.first_token_seconds}
        return response

    def _response(
        self, request: CompletionRequest, assembly: Assembly, response_id: str, start: float, message: Message
    ) -> LLMResponse:
        config, cost = self.config, assembly.cost
        usage = usage_of(
            assembly.usage,
            model=config.model,
            response_id=response_id,
            window=self.window,
            estimate=lambda: (sum(map(len, texts_of(self.messages))), assembly.size),
        )
        if cost is None:
            cost = cost_of(usage, lookup_name(config), config.input_cost_per_token, config.output_cost_per_token)
        return LLMResponse(
            message=message,
            id=response_id,
            usage=usage,
            cost=cost,
            latency=max(0.0, time.monotonic() - start),
            finish_reason=assembly.finish_reason or "stop",
            model=request.endpoint.model,
            first_token_seconds=max(0.0, (assembly.began_at or start) - start),
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
                    if excess := assembly.excess:
                        raise build(endpoint, LLMInternalError, f"Model {endpoint.label} sent {excess}")
                    if chunk.says_something:
                        assembly.began_at = assembly.began_at or time.monotonic()
                        patience = SILENT_TIMEOUTS * timeout
                        patience_ends = now + (patience if assembly.finish_reason is None else COUNTS_SECONDS)
                    ends = min(now + timeout, patience_ends)
                    if not 0.0 <= ends - due <= _NOT_WORTH_IT * timeout:  # a plan is dear, and pieces are many
                        limit.reschedule(due := ends)
                    sink.add(chunk.reasoning, "reasoning")
                    sink.add(chunk.text)
        except TimeoutError:
            if assembly.finish_reason is None:
                is_out_of_patience = loop.time() >= patience_ends - _NOT_WORTH_IT * timeout
                silent = SILENT_TIMEOUTS * timeout if is_out_of_patience else timeout
                what = f"Model {endpoint.label} sent nothing for {silent:g} seconds"
                raise build(endpoint, LLMTimeoutError, what) from None
        if not assembly.has_choice:
            raise build(endpoint, LLMNoResponseError, f"Model {endpoint.label} answered without any choice")
        if assembly.finish_reason == "content_filter":
            what = f"The provider of model {endpoint.label} stopped the answer by its rules on content"
            raise build(endpoint, LLMContentPolicyError, what)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _tell(span: Span, response: LLMResponse) -> None:
    """Add what an attempt has used and cost to what is known of its call."""
    facts, usage = span.facts, response.usage
    for name, spent in (
        ("input_tokens", usage.prompt_tokens),
        ("output_tokens", usage.completion_tokens),
        ("cached_tokens", usage.cache_read_tokens),
        ("cost", response.cost or 0.0),
    ):
        facts[name] = facts.get(name, 0) + spent
