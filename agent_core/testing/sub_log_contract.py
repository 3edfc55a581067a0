"""What every `EventStore` must do with the logs of sub-conversations; a part of `store_contract`."""

# ruff: noqa: S101 - a test suite asserts

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent_core.errors import StaleOwnerError
from agent_core.events.lineage import child_id
from agent_core.events.store import EventStore, NewEvent

_PARENT = "4f1c0e5a9d6b4b1d8a7e3c2f10987655"
_EVENT = NewEvent("MessageEvent", "user", None, datetime(2025, 11, 21, tzinfo=UTC), b"{}")


class SubLogContract:
    """Each log is kept apart, and goes with the one that it belongs to."""

    async def test_a_deleted_log_takes_those_below_along_and_fences_off_their_owners(self, store: EventStore) -> None:
        child = child_id(_PARENT, "task_00000001")
        logs = [_PARENT, child, child_id(child, "delegate-7-1"), child_id(_PARENT, "delegate-7-1")]
        others = [f"{_PARENT}0", child_id(f"{_PARENT}0", "task_00000001"), f"{_PARENT[:-1]}%", _PARENT[:-1]]
        epochs = {log: await store.claim(log) for log in (*logs, *others)}
        for log, epoch in epochs.items():
            await store.append(log, [_EVENT, _EVENT], epoch=epoch)
        await store.delete(_PARENT)
        assert [await store.last_id(log) for log in logs] == [-1] * len(logs)
        assert [await store.last_id(log) for log in others] == [1] * len(others)
        for log in logs:
            with pytest.raises(StaleOwnerError):
                await store.append(log, [_EVENT], epoch=epochs[log])

    async def test_a_log_below_a_deleted_one_can_be_begun_again(self, store: EventStore) -> None:
        child = child_id(_PARENT, "task_00000001")
        for _ in range(2):
            epoch = await store.claim(child)
            assert await store.append(child, [_EVENT], epoch=epoch) == 0
            await store.delete(_PARENT)
