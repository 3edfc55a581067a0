"""What a conversation costs the server's process in memory while it is loaded, and after it was unloaded."""

from __future__ import annotations

import asyncio
import os
from uuid import uuid4

from agent_core.llm.llm import LLM
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.session.agent_session import AgentSession
from bench.client import following
from bench.equipped import equipped
from bench.figures import Figure
from bench.machine import resident_kb
from bench.processes import Server
from bench.stage import Stage
from bench.steps import IMAGE, InstantModel, until_finished
from server.db.database import open_database

CONVERSATIONS = 20
EQUIPPED = 15
WARM_ROUNDS = 3
STEPS = 5
SETTLE_SECONDS = 1.0


async def measure(stage: Stage) -> list[Figure]:
    """Growth of the resident memory; what the process takes once, for all conversations, is left out.

    The first rounds fill caches and the allocator's pools. Then twice as many conversations are loaded as ever before:
    what they take beyond the first half is what each one costs.
    """
    crowd = stage.few(CONVERSATIONS, 1)
    async with stage.playing(STEPS) as server:
        await _work(server, await server.create())
        first = await _resident(stage, server)
        for number in range(stage.few(WARM_ROUNDS, 1)):
            before = await _resident(stage, server)
            await _unload(server, await _load(server, crowd))
            stage.say(
                f"round {number + 1}: {await _resident(stage, server) - before} KiB more after {crowd} conversations"
            )
        before = await _resident(stage, server)
        await _unload(server, await _load(server, crowd))
        left = await _resident(stage, server) - before
        loaded = await _load(server, crowd)
        half = await _resident(stage, server)
        loaded += await _load(server, crowd)
        with_all = await _resident(stage, server)
        stage.say(f"{crowd} more conversations loaded: {with_all - half} KiB more")
        await _unload(server, loaded)
    return [
        Figure("loaded idle conversation", max(0, with_all - half) / crowd, "KiB", 200),
        *await _equipped(stage),
        Figure("unloaded: what each one more leaves", max(0, left) / crowd, "KiB", 20),
        Figure("RSS after the first LLM call", first / 1024, "MB", 190),
    ]


async def _equipped(stage: Stage) -> list[Figure]:
    """The same of sessions in this process, with condensers, analyzers and skills on."""
    crowd = stage.few(EQUIPPED, 1)
    data_dir = stage.data_dir()
    loaded: list[AgentSession] = []
    async with open_database(data_dir) as database, stage.provider(data_dir) as provider:

        async def load() -> int:
            for _ in range(crowd):
                name = f"equipped-{len(loaded)}-{uuid4().hex[:8]}"
                spec = SandboxSpec(name, database.instance_id, image=IMAGE, data_dir=str(data_dir), network="none")
                llm = LLM(model="openai/instant").using(InstantModel(STEPS))
                session = await AgentSession.open(
                    name,
                    store=database.events,
                    settings=equipped(llm),
                    sandbox=SandboxConnection(provider.create(spec)),
                )
                loaded.append(session)
                await until_finished(session)
            await asyncio.sleep(stage.pause(SETTLE_SECONDS))
            return resident_kb(os.getpid())

        async def unload() -> None:
            while loaded:
                await loaded.pop().close(stopped=False, sandbox="destroy")

        try:
            for number in range(stage.few(2, 0)):
                stage.say(f"sessions with everything on, round {number + 1}")
                await load()
                await unload()
            half = await load()
            with_all = await load()
        finally:
            await unload()
            await stage.remove_sandboxes(data_dir, database.instance_id)
    name = "– with condensers, analyzers and skills on (session alone)"
    return [Figure(name, max(0, with_all - half) / crowd, "KiB", 200)]


async def _resident(stage: Stage, server: Server) -> int:
    await asyncio.sleep(stage.pause(SETTLE_SECONDS))
    return resident_kb(server.pid)


async def _load(server: Server, count: int) -> list[str]:
    """So many conversations that have done something and rest now."""
    made = [await server.create() for _ in range(count)]
    for conversation_id in made:
        await _work(server, conversation_id)
    return made


async def _work(server: Server, conversation_id: str) -> None:
    async with following(server.url, conversation_id) as client:
        await client.say("go")
        await client.until_state("finished")


async def _unload(server: Server, made: list[str]) -> None:
    for conversation_id in made:
        await server.post(f"/api/conversations/{conversation_id}/stop")
