"""What the client for programs makes of a log that cannot be followed, and of what no server waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_core.errors import ToolError
from agent_core.library.remote.sandbox import RemoteSandbox
from drydock_client import ConflictError, DrydockClient, FailedError, NotDrydockError, UnreachableError
from tests.serving import serving

BEGUN = ": following\n\n"
EVENT = 'id: 0\nevent: event\ndata: {"kind": "PauseEvent", "timestamp": "2026-11-29T03:00:00Z"}\n\n'


def failed(status: int) -> str:
    return f'event: failed\ndata: {{"status": {status}, "detail": "it cannot be loaded: no such tool"}}\n\n'


class Logs:
    """Answers who follows a log with one text after the other, the last one again and again."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked: list[str] = []
        self.seen: list[str | None] = []

    async def answer(self, request: Request) -> Response:
        self.asked.append(request.query_params["after"])
        self.seen.append(request.query_params.get("seen_at"))
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        return Response(text, media_type="text/event-stream")

    @asynccontextmanager
    async def client(self) -> AsyncIterator[DrydockClient]:
        app = Starlette(routes=[Route("/api/conversations/c/log/live", self.answer)])
        async with serving(app, lifespan="off") as port, DrydockClient(f"http://127.0.0.1:{port}") as client:
            yield client


async def test_a_log_that_no_time_mends_is_told_of_at_once_with_the_servers_reason() -> None:
    logs = Logs(BEGUN + failed(409))
    async with logs.client() as client:
        with pytest.raises(ConflictError, match="it cannot be loaded: no such tool"):
            await anext(client.programs.follow("c"))
    assert len(logs.asked) == 1


async def test_a_log_that_may_be_mended_is_asked_for_again_and_in_the_end_its_reason_told() -> None:
    logs = Logs(BEGUN + EVENT, BEGUN + failed(500))
    async with logs.client() as client:
        following = client.programs.follow("c", reconnect_seconds=0.3)
        assert (await anext(following)).id == 0
        with pytest.raises(FailedError, match="it cannot be loaded: no such tool"):
            await anext(following)
    assert logs.asked[0] == "-1"
    assert set(logs.asked[1:]) == {"0"}
    assert (logs.seen[0], set(logs.seen[1:])) == (None, {"2026-11-29T03:00:00Z"})


async def test_a_log_that_has_lost_what_was_seen_is_told() -> None:
    logs = Logs(BEGUN + EVENT, BEGUN + 'event: resync\ndata: {"last_id": 7}\n\n')
    async with logs.client() as client:
        following = client.programs.follow("c")
        assert (await anext(following)).id == 0
        with pytest.raises(NotDrydockError, match="has lost its end"):
            await anext(following)


async def test_a_server_that_takes_connections_and_ends_each_at_once_is_not_waited_for_for_ever() -> None:
    logs = Logs(BEGUN)
    async with logs.client() as client:
        with pytest.raises(UnreachableError, match="ends each live connection at once"):
            await anext(client.programs.follow("c", reconnect_seconds=0.2))


async def test_what_would_take_longer_than_a_server_waits_is_refused_before_it_is_asked() -> None:
    async with DrydockClient("http://127.0.0.1:9") as client:
        sandbox = RemoteSandbox("c", client.programs, lambda work: work)
        with pytest.raises(ToolError, match="waits 60 minutes for one command at most"):
            await sandbox.request("shell.run", {"command": "sleep 4000"}, limit_seconds=4000)
