"""A crowd that comes at once is let through in its order, and others have their turn in between."""

from __future__ import annotations

import asyncio

from server.http.turnstile import Turnstile


async def test_one_begins_in_each_turn_of_the_loop_in_their_order() -> None:
    turnstile, begun, turns = Turnstile(), list[tuple[int, int]](), 0

    async def come(number: int) -> None:
        await turnstile.pass_through()
        begun.append((number, turns))

    crowd = [asyncio.create_task(come(number)) for number in range(50)]
    while not all(task.done() for task in crowd):
        turns += 1
        await asyncio.sleep(0)
    assert [number for number, _ in begun] == list(range(50))
    assert begun[-1][1] - begun[0][1] >= 48  # and not all in one turn, in which nobody else does anything
    assert not turnstile.waiting


async def test_who_goes_away_while_it_waits_holds_nobody_up() -> None:
    turnstile = Turnstile()
    crowd = [asyncio.create_task(turnstile.pass_through()) for _ in range(5)]
    await asyncio.sleep(0)
    crowd[2].cancel()
    async with asyncio.timeout(60):
        await asyncio.wait(crowd)
        await turnstile.pass_through()
    assert [task.cancelled() for task in crowd] == [False, False, True, False, False]


async def test_who_comes_alone_does_not_wait() -> None:
    turnstile, begun = Turnstile(), list[int]()
    turnstile.enter(lambda: begun.append(1))
    assert begun == [1]
