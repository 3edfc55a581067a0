"""A hundred thousand stored conversations: lists, searches and openings over HTTP, with either database."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
from sqlalchemy import Table, insert, text
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.append import PAYLOAD
from bench.client import following
from bench.figures import Figure, p50
from bench.memory_sandboxes import NAME
from bench.postgresql import postgresql
from bench.processes import Server
from bench.reopen import make_logs
from bench.stage import Stage
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings
from server.db.tables import conversations, events, owners

CONVERSATIONS = 100_000
EVENTS_EACH = 5
PAGE = 20
PATH = "/api/conversations"
LOG = 200
OPENED = 11


async def measure(stage: Stage) -> list[Figure]:
    """Pages, a text in titles, and conversations that nobody has opened since the start; as a client waits for them."""
    figures = await _of(stage, "SQLite", None)
    async with postgresql() as database:
        url = database.url(await database.new_database(), tcp=True)
        return figures + await _of(stage, "PostgreSQL", url)


async def _of(stage: Stage, name: str, url: str | None) -> list[Figure]:
    count, rounds = stage.few(CONVERSATIONS, 2000), stage.few(50, 5)
    opened = [f"opened{number}" for number in range(stage.few(OPENED, 2))]
    data_dir = stage.data_dir()
    stage.say(f"{name}: making {count:,} conversations of {EVENTS_EACH} events")
    async with open_database(data_dir, DatabaseSettings(url=url)) as database:
        await _fill(database, count)
        await make_logs(database, opened, stage.few(LOG, 50))
        if url is not None:
            await database.writer.change(_analyze)
    settings = {} if url is None else {"database_url": url}
    async with (
        stage.server(data_dir=data_dir, sandbox_provider_class=NAME, **settings) as server,
        server.client() as client,
    ):
        page_id = None
        for _ in range(50):
            page_id = (await _page(client, page_id=page_id))["next_page_id"]
        first = await _timed(client, rounds)
        deep = await _timed(client, rounds, page_id=page_id)
        filtered = await _timed(client, rounds, selected_repository="owner/name-7")
        rare = await _timed(client, rounds, query=f"conversation {count // 2}")
        nothing = await _timed(client, rounds, query="what nobody has written")
        in_log = await _timed(client, rounds, path=f"{PATH}/{opened[0]}/events", body={"query": "module_42"})
        opening = [await _open(server, one) for one in opened][1:]
        health = await _timed(client, rounds, path="/health")
    return [
        Figure(f"{name}: page of {PAGE} among {count:,} conversations", p50(first), "ms", 20),
        Figure("  a page deep inside", p50(deep), "ms", 20),
        Figure("  a page of one repository", p50(filtered), "ms", 20),
        Figure(f"{name}: a text in their titles, repositories and ids", p50(rare), "ms", 200),
        Figure("  one that none has", p50(nothing), "ms", 200),
        Figure(f"  a text in a log of {stage.few(LOG, 50)} events", p50(in_log), "ms", 200),
        Figure(f"{name}: one of them opened, its first event at the client", p50(opening), "ms", 100),
        Figure("  for comparison: /health over the same connection", p50(health), "ms"),
    ]


async def _open(server: Server, conversation_id: str) -> float:
    """Milliseconds from the first byte of the connection to the first event."""
    began = time.perf_counter()
    async with following(server.url, conversation_id) as client:
        await client.until(lambda _: True)
    return (time.perf_counter() - began) * 1000


async def _page(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    wanted = {name: value for name, value in query.items() if value is not None}
    answer = await client.get(PATH, params={"limit": PAGE, **wanted})
    answer.raise_for_status()
    page: dict[str, Any] = answer.json()
    assert len(page["results"]) == PAGE
    return page


async def _timed(
    client: httpx.AsyncClient, times: int, *, path: str = PATH, body: dict[str, Any] | None = None, **query: Any
) -> list[float]:
    """Milliseconds of each so many requests."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        (await client.request("GET", path, params={"limit": PAGE, **query}, json=body)).raise_for_status()
        found.append((time.perf_counter() - began) * 1000)
    return found


async def _fill(database: Database, count: int) -> None:
    """So many conversations, each a second younger than the one before, with owners and some events."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    row = {
        "user_id": "",
        "agent_state": "finished",
        "trigger": "gui",
        "accumulated_cost": 0.0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "pr_number": [],
        "options": {},
    }
    rows = [
        {
            **row,
            "id": f"{n:032x}",
            "title": f"Conversation {n}: mend the login of the mobile page",
            "created_at": start + timedelta(seconds=n),
            "last_updated_at": start + timedelta(seconds=n),
            "selected_repository": f"owner/name-{n % (count // 100)}",
        }
        for n in range(count)
    ]
    event = {"kind": "MessageEvent", "source": "user", "timestamp": start, "size": len(PAYLOAD), "payload": PAYLOAD}
    for first in range(0, count, 10_000):
        some = rows[first : first + 10_000]
        await database.writer.change(partial(_insert, table=conversations, rows=some))
        await database.writer.change(
            partial(_insert, table=owners, rows=[{"conversation_id": one["id"], "epoch": 1} for one in some])
        )
        logs = [{**event, "conversation_id": one["id"], "id": n} for one in some for n in range(EVENTS_EACH)]
        await database.writer.change(partial(_insert, table=events, rows=logs))


async def _insert(connection: AsyncConnection, *, table: Table, rows: list[dict[str, Any]]) -> None:
    await connection.execute(insert(table), rows)


async def _analyze(connection: AsyncConnection) -> None:
    await connection.execute(text("ANALYZE"))  # as it does by itself after a while
