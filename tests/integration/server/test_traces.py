"""With ``--otel``: what a collector is told, and that none can hold the server up."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from agent_core.troubles import Trouble
from tests.integration.server.conftest import MakeProcess, ServerProcess, create, following, stored_events
from tests.integration.server.forks import ROOT, run_program
from tests.integration.server.test_monitoring import is_done, measured
from tests.serving import serving

SECRET_WORDS = "words that nobody else is told"


class Collector:
    """Takes spans as a collector does (OTLP over HTTP); while it `hangs`, it answers nobody."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resource: dict[str, str] = {}
        self.bodies = b""
        self.hangs = False
        self.url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        if self.hangs:
            await asyncio.sleep(3600)
        assert request.url.path == "/v1/traces"
        plain = gzip.decompress(body) if request.headers.get("content-encoding") == "gzip" else body
        self.bodies += plain
        for group in ExportTraceServiceRequest.FromString(plain).resource_spans:
            self.resource = {one.key: one.value.string_value for one in group.resource.attributes}
            self.spans += [span for scope_spans in group.scope_spans for span in scope_spans.spans]
        await Response(b"", media_type="application/x-protobuf")(scope, receive, send)

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def name_of(self, span_id: bytes) -> str:
        return next((span.name for span in self.spans if span.span_id == span_id), "")


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    async with serving(collector, lifespan="off", abruptly=True) as port:
        collector.url = f"http://127.0.0.1:{port}"
        yield collector


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


async def start(make_process: MakeProcess, model: ModelServer, collector: Collector, **more: str) -> ServerProcess:
    environment = {
        "LLM_MODEL": "openai/scripted",
        "LLM_BASE_URL": model.url,
        "LLM_API_KEY": "key",
        "DRYDOCK_GENERATE_TITLES": "false",
        "DRYDOCK_LOG_FORMAT": "json",
        "DRYDOCK_LOG_ALL_EVENTS": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=tests",
        **more,
    }
    return await make_process("--sandbox", "unconfined", "--otel", environment=environment)


async def test_a_trace_leads_from_the_message_through_the_model_to_the_command(make_process: MakeProcess) -> None:
    turns = [call("terminal", {"command": f"echo {SECRET_WORDS}"}), finish(SECRET_WORDS)]
    theirs = "0af7651916cd43dd8448eb211c80319c"
    async with collecting() as collector, ModelServer(turns) as model:
        server = await start(make_process, model, collector, DRYDOCK_OTEL_TOLD_HOSTS="127.0.0.1")
        async with server.client() as client:
            headers = {"traceparent": f"00-{theirs}-b7ad6b7169203331-01"}
            made = await client.post("/api/conversations", json={}, headers=headers)
            await client.get("/health")
        conversation = made.json()["conversation_id"]
        async with following(server, conversation) as follower:
            await follower.send({"action": "message", "args": {"content": SECRET_WORDS}})
            await follower.until(lambda: is_done(follower.frames))
        await stored_events(server, conversation)
        assert await server.stop() == 0

    assert {"service.name": "drydock", "deployment.environment.name": "tests"}.items() <= collector.resource.items()
    (asked,) = collector.named("POST /api/conversations")
    assert (asked.trace_id.hex(), asked.parent_span_id.hex()) == (theirs, "b7ad6b7169203331")
    assert attributes(asked)["http.response.status_code"] == 200
    (started,) = collector.named("sandbox start")
    assert started.trace_id == asked.trace_id, "the request began the conversation"
    assert not [span for span in collector.spans if "health" in span.name or "metrics" in span.name]

    (message,) = collector.named("socket message")
    assert not message.parent_span_id
    trace = [span for span in collector.spans if span.trace_id == message.trace_id and span is not message]
    below = {(collector.name_of(span.parent_span_id), span.name) for span in trace}
    assert below >= {
        ("socket message", "queue wait"),
        ("socket message", "step"),
        ("step", "chat openai/scripted"),
        ("step", "execute_tool terminal"),
        ("execute_tool terminal", "sandbox shell.run"),
    }
    assert {attributes(span)["gen_ai.conversation.id"] for span in trace} == {conversation}
    first, _ = collector.named("chat openai/scripted")
    told = attributes(first)
    assert told["gen_ai.request.model"] == "openai/scripted"
    assert told["server.address"] == "127.0.0.1"
    assert told["gen_ai.usage.input_tokens"] > 0
    assert {"drydock.cost_dollars", "gen_ai.usage.output_tokens", "gen_ai.response.finish_reasons"} <= told.keys()
    assert model.requests[0].headers["traceparent"].startswith(f"00-{first.trace_id.hex()}-{first.span_id.hex()}-")
    assert SECRET_WORDS.encode() not in collector.bodies, "what is said and done is not told"

    lines = [json.loads(line) for line in server.printed().splitlines() if line.startswith("{")]
    traced = {line.get("trace_id") for line in lines if SECRET_WORDS in line["message"]}
    assert message.trace_id.hex() in traced


async def test_a_collector_that_hangs_holds_nothing_up_and_is_told_of(make_process: MakeProcess) -> None:
    async with collecting() as collector, ModelServer([finish("Done."), finish("Done again.")]) as model:
        collector.hangs = True
        quick = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
        server = await start(make_process, model, collector, **quick)
        conversation = await create(server)
        async with following(server, conversation) as follower:
            await follower.send({"action": "message", "args": {"content": "Do it."}})
            await follower.until(lambda: is_done(follower.frames))
        assert "traceparent" not in model.requests[0].headers, "nobody has said that it is to be told"
        await server.until_printed("the collector did not take")
        troubles = (await measured(server))[1]["drydock_troubles_total"].samples
        assert next(one.value for one in troubles if one.labels["code"] == Trouble.TRACES_LOST) >= 1
        began = time.monotonic()
        assert await server.stop() == 0
        assert time.monotonic() - began < 25  # left to itself the library waits for half a minute


@pytest.mark.parametrize("module", ["server.app", "server.cli.serve"])
def test_without_it_nothing_of_it_is_loaded(module: str) -> None:
    code = f"import sys, {module}; print([one for one in sys.modules if one.startswith('opentelemetry.sdk')])"
    assert run_program(["-c", code], {}, ROOT).stdout.strip() == "[]"
