"""`Traces`: what a server does, told to a collector of OpenTelemetry, as its variables ``OTEL_…`` say."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from agent_core.spans import Span
from agent_core.troubles import CONVERSATION, USER, Trouble
from agent_core.version import VERSION
from server.errors import ConfigurationError
from server.metrics import ServerMetrics

CLOSE_SECONDS: Final = 3.0
"""How long the server's end waits for the last spans to be taken."""
_ROOTS: Final = frozenset({"http_request", "socket_message", "step", "resumed_run"})
"""Spans that may begin a trace; others are told of within one alone."""
_NEVER_FULL: Final = 65_536
_MISSING: Final = "otel: the libraries of OpenTelemetry are not installed; install `drydock[otel]`, or leave otel out"


class Traces:
    """A `SpanWatcher` that makes spans of OpenTelemetry of ours; entered, it sends them, at the end within a limit.

    Never holds anything up: spans wait in a bounded queue for a thread, and those that find no place are lost, which is
    counted as trouble. What people or models have written is never told. `told_hosts` are those of model and MCP
    servers that hear of the trace; `*`: all. Its libraries are imported here alone, when it is entered;
    `ConfigurationError` where they are missing.
    """

    def __init__(self, metrics: ServerMetrics, told_hosts: Collection[str] = ()) -> None:
        self._metrics = metrics
        self._told_hosts = frozenset(host.lower() for host in told_hosts)
        self._provider: Any = None
        self._tracer: Any = None
        self._api: Any = None
        self._propagator: Any = None
        self._waiting, self._most = 0, 0
        self._lock = threading.RLock()  # what is collected while it is held may end spans

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._begin)  # half a second of imports
        except ImportError as error:
            raise ConfigurationError(_MISSING) from error
        except ValueError as error:
            raise ConfigurationError(f"otel: one of OpenTelemetry's variables OTEL_… is no good: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def end() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop is closed: nobody waited so long
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=end, name="end of the traces", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await ended.wait()
        except TimeoutError:
            self._lost("the collector did not take the last spans in time")

    def begun(self, span: Span) -> None:
        parent = span.parent
        if parent is not None and parent.handle is not None:
            context = self._api.set_span_in_context(parent.handle)
        elif span.name not in _ROOTS or not span.facts.get("is_traced", True):
            return
        else:
            context = self._propagator.extract(span.facts.get("traced_by", {}))
        name, kind, attributes = _beginning(span)
        span.handle = made = self._tracer.start_span(name, context, self._api.SpanKind[kind], attributes)
        span.trace = self._api.format_trace_id(made.get_span_context().trace_id)
        span.tell = partial(self._headers, made)

    def ended(self, span: Span) -> None:
        if (made := span.handle) is None:
            return
        span.handle = self._api.NonRecordingSpan(made.get_span_context())  # others may come below it, for long
        span.tell = None
        if not made.is_recording() or not self._takes_one_more():
            return
        made.set_attributes(_ending(span))
        if span.name == "http_request":
            made.update_name(f"{span.facts['method']} {span.facts['route']}")
        if span.error and span.error != "CancelledError":
            made.set_status(self._api.StatusCode.ERROR)
        made.end()

    def _headers(self, made: Any, host: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        if {"*", host.lower()} & self._told_hosts:
            self._propagator.inject(headers, self._api.set_span_in_context(made))
        return headers

    def _takes_one_more(self) -> bool:
        with self._lock:
            if self._waiting < self._most:
                self._waiting += 1
                return True
        self._lost("the collector does not take spans as fast as they come, or not at all; some were left out")
        return False

    def _taken(self, spans: int, *, well: bool) -> None:
        with self._lock:
            self._waiting -= spans
        if not well:
            self._lost(f"the collector did not take {spans} spans; is it there, at OTEL_EXPORTER_OTLP_ENDPOINT?")

    def _begin(self) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._api, self._propagator = trace, TraceContextTextMapPropagator()
        own = Resource({"service.name": "drydock", "service.version": VERSION})
        self._provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        self._most = _positive("OTEL_BSP_MAX_QUEUE_SIZE", 2048)
        exporter = _Exporter(OTLPSpanExporter(), SpanExportResult.SUCCESS, self._taken)
        # Its own queue, which would lose spans without a word, is never full: what waits is counted here.
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=self._most + _NEVER_FULL))
        self._tracer = self._provider.get_tracer("drydock", VERSION)
        for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
            # By now they have said what is wrong with a variable; from here on `_taken` tells of each failure.
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def _lost(self, problem: str) -> None:
        self._metrics.trouble(Trouble.TRACES_LOST, f"traces are not complete: {problem}")


class _Exporter:
    """OpenTelemetry's own, of which it is told how it went (`taken`, in its thread)."""

    def __init__(self, exporter: Any, success: object, taken: Callable[..., None]) -> None:
        self._exporter = exporter
        self._success = success
        self._taken = taken

    def export(self, spans: Sequence[Any]) -> Any:
        result = None
        try:
            result = self._exporter.export(spans)
        finally:
            self._taken(len(spans), well=result is self._success)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))


def _positive(variable: str, default: int) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() and int(value) else default


def _beginning(span: Span) -> tuple[str, str, dict[str, Any]]:
    """Name, kind and first attributes of a span, by the conventions of OpenTelemetry where it has some."""
    facts = span.facts
    match span.name:
        case "http_request":
            return str(facts["method"]), "SERVER", {"http.request.method": facts["method"]}
        case "socket_message":
            return "socket message", "SERVER", {}
        case "model_call":
            provider, _, _ = facts["model"].rpartition("/")
            attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": facts["model"]}
            attributes |= {"gen_ai.provider.name": provider} if provider else {}
            attributes |= {"server.address": facts["host"]} if facts.get("host") else {}
            return f"chat {facts['model']}", "CLIENT", attributes
        case "tool_call":
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": facts["tool"]}
            return f"execute_tool {facts['tool']}", "INTERNAL", attributes
        case "sandbox_request":
            return f"sandbox {facts['operation']}", "CLIENT", {}
        case _:
            return span.name.replace("_", " "), "INTERNAL", {}


_NAMES: Final = {
    "route": "http.route",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cost": "drydock.cost_dollars",
    "attempts": "drydock.attempts",
    "first_token_seconds": "drydock.first_token_seconds",
    "provider": "drydock.sandbox.provider",
    "survived": "drydock.sandbox.survived",
    "wanted": "drydock.wanted",
}
"""Attributes that are known at the end of a span, by the names of its facts."""


def _ending(span: Span) -> dict[str, Any]:
    facts = span.facts
    attributes: dict[str, Any] = {name: facts[fact] for fact, name in _NAMES.items() if fact in facts}
    whose = {"gen_ai.conversation.id": facts.get("conversation") or CONVERSATION.get(), "user.id": USER.get()}
    attributes |= {name: value for name, value in whose.items() if value}
    if str(facts.get("status", "")).isdecimal():
        attributes["http.response.status_code"] = int(facts["status"])
    if "finish_reason" in facts:
        attributes["gen_ai.response.finish_reasons"] = [facts["finish_reason"]]
    if span.error:
        attributes["error.type"] = span.error
    return attributes
