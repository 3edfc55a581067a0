"""The store of plain files keeps what every store keeps, across crashes and programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_core.errors import EventStoreError, StaleOwnerError
from agent_core.events.folder_store import FolderEventStore
from agent_core.events.store import EventStore, child_id
from agent_core.testing.store_contract import EventStoreContract, new_events, payloads


class TestFolderEventStore(EventStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> EventStore:
        return FolderEventStore(tmp_path)


async def test_a_log_is_there_for_the_next_program(tmp_path: Path) -> None:
    await FolderEventStore(tmp_path).append("c", new_events("a", "b\nb"))
    assert await payloads(FolderEventStore(tmp_path), "c") == [b"a", b"b\nb"]


@pytest.mark.parametrize("cut", [1, 3, 6, 9])
async def test_an_append_that_a_crash_cut_short_is_left_out_whole(tmp_path: Path, cut: int) -> None:
    store = FolderEventStore(tmp_path)
    await store.append("c", new_events("kept"))
    await store.append("c", new_events("lost", "lost too"))
    path = tmp_path / "c" / "events.log"
    path.write_bytes(path.read_bytes()[:-cut])
    again = FolderEventStore(tmp_path)
    assert await payloads(again, "c") == [b"kept"]
    assert await again.append("c", new_events("new")) == 1
    assert await payloads(FolderEventStore(tmp_path), "c") == [b"kept", b"new"]


async def test_a_block_that_a_crash_left_unwritten_is_left_out(tmp_path: Path) -> None:
    await FolderEventStore(tmp_path).append("c", new_events("kept"))
    path = tmp_path / "c" / "events.log"
    whole = path.read_bytes()
    for unwritten in (bytes(4096), b"123 5\nab\0\0\0\n", b"123", b"123 5\nab"):
        path.write_bytes(whole + unwritten)
        store = FolderEventStore(tmp_path)
        assert await payloads(store, "c") == [b"kept"], unwritten
        assert await store.append("c", new_events("new")) == 1


async def test_a_log_that_is_damaged_is_left_as_it_is_and_the_error_says_how_to_go_on(tmp_path: Path) -> None:
    store = FolderEventStore(tmp_path)
    for text in ('{"a": 1}', '{"b": 2}', '{"c": 3}'):
        await store.append("c", new_events(text))
    path = tmp_path / "c" / "events.log"
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")][1::2]
    for place in range(len(whole)):
        if whole[place : place + 1] == b"\n":
            continue
        path.write_bytes(damaged := whole[:place] + bytes([whole[place] ^ 0x08]) + whole[place + 1 :])
        before = sum(end <= place for end in ends)
        again = FolderEventStore(tmp_path)
        with pytest.raises(EventStoreError, match=rf"behind its first {before} events.*truncate -s \d+ /"):
            await again.append("c", new_events("more"))
        with pytest.raises(EventStoreError, match="damaged"):
            await payloads(again, "c")
        assert path.read_bytes() == damaged
    path.write_bytes(whole)
    assert len(await payloads(store, "c")) == 3


async def test_an_owners_number_that_cannot_be_read_shuts_out_whoever_had_one(tmp_path: Path) -> None:
    store = FolderEventStore(tmp_path)
    old = await store.claim("c")
    for damage in ("", "\0\0", "x"):
        (tmp_path / "c" / "epoch").write_text(damage)
        with pytest.raises(StaleOwnerError):
            await store.append("c", new_events("stale"), epoch=old)
        old = await store.claim("c")
    assert await store.append("c", new_events("a"), epoch=old) == 0


async def test_a_folder_that_is_gone_is_not_begun_anew_by_its_owner(tmp_path: Path) -> None:
    store = FolderEventStore(tmp_path)
    epoch = await store.claim("c")
    await store.append("c", new_events("a"), epoch=epoch)
    store.remove("c")
    with pytest.raises(StaleOwnerError, match="has lost its folder"):
        await store.append("c", new_events("b"), epoch=epoch)


async def test_two_programs_share_a_log_and_its_owner_is_the_last(tmp_path: Path) -> None:
    one, other = FolderEventStore(tmp_path), FolderEventStore(tmp_path)
    first = await one.claim("c")
    await one.append("c", new_events("a"), epoch=first)
    second = await other.claim("c")
    with pytest.raises(StaleOwnerError):
        await one.append("c", new_events("stale"), epoch=first)
    assert await other.append("c", new_events("b"), epoch=second) == 1
    assert await payloads(one, "c") == [b"a", b"b"]


async def test_a_folder_that_cannot_be_used_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EventStoreError, match="cannot be used"):
        await FolderEventStore(tmp_path / "file").append("c", new_events("a"))


async def test_sub_conversations_are_in_a_folder_of_their_parents(tmp_path: Path) -> None:
    store = FolderEventStore(tmp_path)
    child = child_id(child_id("parent", "task_00000001"), "delegate-7-1")
    assert store.folder_of(child) == tmp_path / "parent/subagents/task_00000001/subagents/delegate-7-1"
    assert store.folder_of("~odd") != store.folder_of("odd")
    with pytest.raises(ValueError, match="no name of a sub-conversation"):
        child_id("parent", "../other")
