"""The list of conversations over HTTP, with 100,000 of them in the database."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.figures import Figure, p50
from bench.stage import Stage
from server.db.database import open_database
from server.db.tables import conversations

CONVERSATIONS = 100_000
PAGE = 20
PATH = "/api/conversations"


async def measure(stage: Stage) -> list[Figure]:
    """A page at the beginning, one deep inside, one with a filter; each as a client waits for it."""
    data_dir = stage.data_dir()
    count = stage.few(CONVERSATIONS, 2000)
    stage.say(f"making {count:,} conversations")
    async with open_database(data_dir) as database:
        await database.writer.change(partial(_fill, count=count))
    rounds = stage.few(100, 10)
    async with stage.server(data_dir=data_dir) as server, server.client() as client:
        page_id = None
        for _ in range(50):
            page_id = (await _page(client, page_id=page_id))["next_page_id"]
        first = await _timed(client, rounds)
        deep = await _timed(client, rounds, page_id=page_id)
        filtered = await _timed(client, rounds, selected_repository="owner/name-7")
        health = await _timed(client, rounds, path="/health")
    return [
        Figure(f"page of {PAGE} among {count:,} conversations", p50(first), "ms", 20),
        Figure("  a page deep inside", p50(deep), "ms", 20),
        Figure("  a page of one repository", p50(filtered), "ms", 20),
        Figure("  for comparison: /health over the same connection", p50(health), "ms"),
    ]


async def _page(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    wanted = {name: value for name, value in query.items() if value is not None}
    answer = await client.get(PATH, params={"limit": PAGE, **wanted})
    answer.raise_for_status()
    page: dict[str, Any] = answer.json()
    assert len(page["results"]) == PAGE
    return page


async def _timed(client: httpx.AsyncClient, times: int, *, path: str = PATH, **query: Any) -> list[float]:
    """Milliseconds of each so many requests."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        (await client.get(path, params={"limit": PAGE, **query})).raise_for_status()
        found.append((time.perf_counter() - began) * 1000)
    return found


async def _fill(connection: AsyncConnection, *, count: int) -> None:
    """So many conversations, each a second younger than the one before."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    rows = [
        {
            "id": f"{n:032x}",
            "user_id": "",
            "title": f"Conversation {n}",
            "created_at": start + timedelta(seconds=n),
            "selected_repository": f"owner/name-{n % (count // 100)}",
            "trigger": "gui",
            "accumulated_cost": 0.0,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "pr_number": [],
            "options": {},
        }
        for n in range(count)
    ]
    await connection.execute(insert(conversations), rows)
