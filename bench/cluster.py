"""One to four server processes over one PostgreSQL, beside one process with either database: what the cores allow."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bench.crowd import CONVERSATIONS, STEPS, CrowdResult, at_once
from bench.figures import Figure, p50, percentile
from bench.postgresql import database_seconds, postgresql
from bench.processes import Server
from bench.stage import QUICK_STEPS, Stage
from tests.postgresql import Cluster

CLUSTERED = "server.conversation_manager.clustered.ClusteredConversationManager"
MOST = 4


async def measure(stage: Stage) -> list[Figure]:
    """The same crowd, spread over the processes; each client is at the server that runs its conversation."""
    crowd, steps = stage.few(CONVERSATIONS, 2), stage.few(STEPS, QUICK_STEPS)
    figures: list[Figure] = []
    async with stage.model(f"steps:{steps}") as model, postgresql() as database:
        if not stage.quick:
            figures += await _alone(stage, model, database, crowd, steps)
        for count in (2,) if stage.quick else range(1, MOST + 1):
            name = f"{count} of a cluster over PostgreSQL"
            stage.say(name)
            async with members(stage, model, database, count) as servers:
                found = await at_once(stage, servers, crowd, steps, lambda: database_seconds(database))
            figures += _figures(name, found)
    return figures


def _figures(name: str, found: CrowdResult) -> list[Figure]:
    """A step's processor time is what the cores have to give: its inverse is the most steps that they allow."""
    cores = len(os.sched_getaffinity(0))
    everything = p50(found.everything)
    rest = everything - p50(found.servers) - p50(found.database)
    return [
        Figure(name, p50(found.rates), "steps/s"),
        Figure(f"  what {cores} cores allow at this cost of a step", cores * 1000 / everything, "steps/s"),
        Figure("  processor time of a step: servers", p50(found.servers), "ms"),
        Figure("  – the database's processes", p50(found.database), "ms"),
        Figure("  – model, clients and sandboxes", max(0.0, rest), "ms"),
        Figure("  age of an event at its client, p95", percentile(found.ages, 95), "ms"),
    ]


async def _alone(stage: Stage, model: str, database: Cluster, crowd: int, steps: int) -> list[Figure]:
    """One process as most have it, with either database."""
    figures = []
    for name, url in (("SQLite", None), ("PostgreSQL", database.url(await database.new_database(), tcp=True))):
        stage.say(f"one process, {name}")
        settings: dict[str, Any] = {} if url is None else {"database_url": url}
        async with stage.server(model=model, **settings) as server:
            found = await at_once(stage, [server], crowd, steps, lambda: database_seconds(database))
        figures += _figures(f"one process, {name}", found)
    return figures


@asynccontextmanager
async def members(
    stage: Stage, model: str | None, database: Cluster, count: int, **settings: str
) -> AsyncIterator[list[Server]]:
    """So many servers over one new database, with the same key and, where they are folders, the same sandboxes."""
    url = database.url(await database.new_database(), tcp=True)
    settings = {"database_url": url, "conversation_manager_class": CLUSTERED, **settings}
    servers: list[Server] = []
    async with AsyncExitStack() as stack:
        for _ in range(count):
            folder = stage.data_dir()
            if servers:
                first = servers[0].data_dir
                folder.mkdir(mode=0o700)
                shutil.copy2(first / "secret.key", folder)
                (first / "sandboxes").mkdir(mode=0o711, exist_ok=True)
                (folder / "sandboxes").symlink_to(first / "sandboxes")
            servers.append(await stack.enter_async_context(stage.server(model=model, data_dir=folder, **settings)))
        yield servers
