from __future__ import annotations

import asyncio

import pytest

from agent_core.errors import DrydockError
from server.conversation_manager.standalone import to_its_end
from server.session.activity import Activity, is_idle, is_pause_over


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


async def test_work_of_the_background_that_fails_begins_again_until_it_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures: list[Exception] = [RuntimeError("a bug"), DrydockError("nothing can be read")]

    async def work() -> None:
        if failures:
            raise failures.pop(0)

    async with asyncio.timeout(30):
        await to_its_end(work, "culler", pause_seconds=0.001)
    assert not failures
    assert [record.exc_info is not None for record in caplog.records if "culler failed" in record.message] == [
        True,
        False,
    ]


async def test_work_of_the_background_ends_when_it_is_cancelled() -> None:
    async def work() -> None:
        raise RuntimeError("again and again")

    task = asyncio.create_task(to_its_end(work, "culler", pause_seconds=0.001))
    await asyncio.sleep(0.01)
    task.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([task])
    assert task.cancelled()
