from __future__ import annotations

import asyncio

import pytest

from server.conversation_manager.standalone import cull_forever
from server.session.web_session import Activity, is_idle, is_pause_over


@pytest.mark.parametrize(
    ("activity", "limit", "expected"),
    [
        (Activity(0.0, is_busy=False, connections=0), 10.0, True),
        (Activity(0.1, is_busy=False, connections=0), 10.0, False),
        (Activity(0.0, is_busy=True, connections=0), 10.0, False),
        (Activity(0.0, is_busy=False, connections=1), 10.0, False),
        (Activity(0.0, is_busy=False, connections=0), 0.0, False),
    ],
)
def test_only_a_silent_conversation_without_work_and_clients_is_idle(
    activity: Activity, limit: float, expected: bool
) -> None:
    assert is_idle(activity, now=10.0, limit_seconds=limit) is expected


def test_a_pause_ends_after_its_limit_and_never_without_one() -> None:
    assert is_pause_over(0.0, now=5.0, limit_seconds=5.0)
    assert not is_pause_over(0.0, now=4.9, limit_seconds=5.0)
    assert not is_pause_over(0.0, now=1e9, limit_seconds=0.0)


async def test_one_failed_round_does_not_end_the_loop() -> None:
    rounds = 0
    thrice = asyncio.Event()

    async def cull() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            thrice.set()
        raise RuntimeError("this round fails")

    task = asyncio.create_task(cull_forever(cull, interval_seconds=0.001))
    async with asyncio.timeout(30):
        await thrice.wait()
    task.cancel()
    await asyncio.wait([task])
    assert rounds >= 3
