"""A sandbox that is being lent, to which a port leads: other calls share it, and a run gets it back."""

from __future__ import annotations

import asyncio
from functools import partial

from agent_core.library.open_session import SandboxUse
from agent_core.library.workspace import ExistingSandbox
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.testing.fake_sandbox import FakeBehaviour, FakeSandbox


class Place:
    """The use of a sandbox whose start takes a moment."""

    def __init__(self) -> None:
        spec = SandboxSpec("c", "tests", "none", "/nowhere")
        self.sandbox = FakeSandbox(spec, {}, FakeBehaviour(start_seconds=0.05))
        self.use = SandboxUse(partial(ExistingSandbox(self.sandbox).opened_for, "c", ""))

    async def end(self) -> None:
        await self.use.close()

    async def lending(self) -> asyncio.Task[object]:
        task: asyncio.Task[object] = asyncio.create_task(self.use.lend())
        await asyncio.sleep(0.01)
        return task


async def test_a_call_made_while_it_is_being_lent_shares_it() -> None:
    place = Place()
    lending = await place.lending()
    async with asyncio.timeout(60), place.use.for_one_call() as connection:
        assert connection is await lending
    await place.end()


async def test_a_run_that_begins_while_it_is_being_lent_gets_it() -> None:
    place = Place()
    lending = await place.lending()
    async with asyncio.timeout(60), place.use.turn():
        assert lending.done()
    await place.end()


async def test_after_a_run_it_can_be_lent_again() -> None:
    place = Place()
    first = await (await place.lending())
    async with asyncio.timeout(60):
        async with place.use.turn():
            pass
        assert await place.use.lend() is not first
    await place.end()
