"""A receiver of webhooks over real HTTP, and the real database with something in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.db.database import Database
from tests.serving import serving

LIMIT_SECONDS = 60.0


@dataclass
class Receiver:
    """Notes what it is sent and answers by `answer`, which is given the number of the request, from 1 on.

    Attributes:
        requests: headers and body of each, acknowledged or not.
        lines: the port at the other end of the connection of each.
    """

    port: int = 0
    answer: Callable[[int], Response] = lambda number: Response(status_code=204)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    acknowledged: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def message_ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.requests]

    def events(self, conversation_id: str) -> list[int]:
        """The ids of a conversation's events in the order in which they were acknowledged."""
        told = [one["data"] for one in self.acknowledged if one["data"]["conversation_id"] == conversation_id]
        return [event["id"] for data in told for event in data["events"]]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not condition():  # noqa: ASYNC110 - it is another task that changes it
                await asyncio.sleep(0.005)

    async def until_position(self, database: Database, conversation_id: str, position: int) -> None:
        """Wait until it is noted that this much need not be sent any more."""
        stored = "SELECT 1 FROM webhook_positions WHERE conversation_id = :log AND position = :position"
        async with asyncio.timeout(LIMIT_SECONDS):
            while not await database.engines.fetch(stored, log=conversation_id, position=position):  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await request.body()
        self.requests.append((dict(request.headers), body))
        self.lines.append(request.client.port if request.client is not None else 0)
        response = self.answer(len(self.requests))
        if response.status_code < 300:
            self.acknowledged.append(json.loads(body))
        await response(scope, receive, send)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with serving(receiver, log_level="critical", lifespan="off") as port:
        receiver.port = port
        yield receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made
