"""One conversation out into a file and in again: all of its logs, or nothing."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from functools import partial

import orjson
import pytest

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import to_payload
from agent_core.testing.store_contract import new_event, payloads
from server.conversation_manager.conversation_archives import END, HEADER, export_archive, import_archive
from server.conversation_manager.forks import fork_conversation
from server.db.archives import ArchiveError, ArchiveWriter
from server.db.repositories.conversations import ConversationRecord
from server.session.unfinished import seed_of
from tests.unit.server.conftest import House

EVENTS = 450


def said(text: str) -> bytes:
    return to_payload(MessageEvent(source="user", llm_message=Message.user(text)))


async def filled(house: House) -> ConversationRecord:
    """A conversation of several pages, with large payloads, and logs two levels below it."""
    await house.new("C1", title="The boat")
    for log, count in (("C1", EVENTS), ("C1~helper", 3), ("C1~helper~deeper", 1)):
        epoch = await house.database.events.claim(log)
        texts = [f"{log} {n}" if n % 100 else "large " * 300_000 for n in range(count)]
        await house.database.events.append(log, [new_event(said(text)) for text in texts], epoch=epoch)
    record = await house.database.conversations.get("C1")
    assert record is not None
    return record


async def exported(house: House, record: ConversationRecord) -> bytes:
    parts = [part async for part in export_archive(house.database, house.manager, record, with_files=False)]
    assert max(map(len, parts)) < 9 * 1024**2
    return b"".join(parts)


async def test_all_logs_are_there_again_byte_for_byte(house: House) -> None:
    file = await exported(house, await filled(house))
    await import_archive(house.database, ConversationRecord(id="new"), io.BytesIO(file))
    events = house.database.events
    record = await house.database.conversations.get("new")
    assert record is not None
    assert record.title == "The boat"
    for suffix in ("~helper", "~helper~deeper"):
        assert await payloads(events, f"new{suffix}") == await payloads(events, f"C1{suffix}")
    copy = await payloads(events, "new")
    assert copy[:EVENTS] == await payloads(events, "C1")
    assert len(copy) > EVENTS  # as in a fork: what was open is closed, and it is said where this comes from
    assert b'"C1"' in b"".join(copy[EVENTS:])
    again = await exported(house, record)
    await import_archive(house.database, ConversationRecord(id="third", title="mine"), io.BytesIO(again))
    assert (await payloads(events, "third"))[: len(copy)] == copy


async def test_a_conversation_without_events_goes_out_and_in(house: House) -> None:
    await house.new("empty")
    file = await exported(house, ConversationRecord(id="empty"))
    await import_archive(house.database, ConversationRecord(id="new"), io.BytesIO(file))
    assert await house.database.events.last_id("new") == -1
    assert "new" in await house.database.conversations.ids()


async def refused(house: House, file: bytes) -> str:
    before = await house.database.conversations.ids()
    with pytest.raises(ArchiveError) as caught:
        await import_archive(house.database, ConversationRecord(id="bad"), io.BytesIO(file))
    assert await house.database.conversations.ids() == before
    assert await house.database.events.last_id("bad") == -1
    assert not list((house.database.data_dir / "forks").iterdir())
    return str(caught.value)


async def test_a_torn_or_changed_file_is_refused_and_nothing_is_left(house: House) -> None:
    file = await exported(house, await filled(house))
    for share in (0, 0.1, 0.5, 0.9):
        assert "exported conversation" in await refused(house, file[: int(len(file) * share)])
    for share in [0.2, 0.6]:
        changed = bytearray(file)
        changed[int(len(file) * share)] ^= 1
        assert "exported conversation is damaged" in await refused(house, bytes(changed))


def archive(change: Callable[[ArchiveWriter], None], **header: object) -> bytes:
    """An archive with sound checksums and what `change` adds to it."""
    file = io.BytesIO()
    writer = ArchiveWriter(file)
    first = {"format": 1, "version": "1", "conversation_id": "c", "exported_at": "2026-01-01T00:00:00Z", **header}
    writer.add(HEADER, orjson.dumps(first))
    change(writer)
    writer.close(END, orjson.dumps({"files": writer.files}))
    return file.getvalue()


def workspace(*members: tuple[str, bytes, str]) -> Callable[[ArchiveWriter], None]:
    """A workspace with these members: name, kind and link."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            tar.addfile(member)
    return lambda writer: writer.add("workspace/000000", file.getvalue())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda writer: writer.add("../outside", b""), "does not belong there"),
        (lambda writer: writer.add("log/000001.jsonl", b"{}"), "does not belong there"),
        (lambda writer: writer.add("log/000000.jsonl", b"no json"), "line 1 of log/000000.jsonl is no event"),
        (
            lambda writer: writer.add("log/000000.jsonl", said("x") + b"\n[]\n"),
            "line 2 of log/000000.jsonl is no event",
        ),
        (lambda writer: writer.add("log/Not A Name/000000.jsonl", said("x")), "does not belong there"),
        (lambda writer: writer.add("workspace/000001", b""), "does not belong there"),
        (lambda writer: writer.add("workspace/000000", b"no tar file"), "its workspace cannot be read"),
        (workspace(("../outside", tarfile.REGTYPE, "")), "does not belong into a workspace: '../outside'"),
        (workspace(("/etc/passwd", tarfile.REGTYPE, "")), "does not belong into a workspace"),
        (workspace(("device", tarfile.CHRTYPE, "")), "does not belong into a workspace"),
        (workspace(("a", tarfile.SYMTYPE, "/etc"), ("a/passwd", tarfile.REGTYPE, "")), "'a/passwd'"),
        (workspace(("a", tarfile.SYMTYPE, "/etc"), ("b", tarfile.LNKTYPE, "a/passwd")), "'b'"),
        (workspace(("b", tarfile.LNKTYPE, "../outside")), "'b'"),
    ],
)
async def test_what_does_not_belong_there_is_named_and_nothing_is_left(
    house: House, change: Callable[[ArchiveWriter], None], problem: str
) -> None:
    assert problem in await refused(house, archive(change))


async def test_a_newer_file_is_refused_and_one_of_nobody_too(house: House) -> None:
    assert "newer version of Drydock (next)" in await refused(
        house, archive(lambda writer: None, format=2, version="next")
    )
    assert "cannot be read" in await refused(house, archive(lambda writer: None, conversation_id=7))


async def test_files_wait_for_the_first_start(house: House) -> None:
    members = (
        ("folder", tarfile.DIRTYPE, ""),
        ("link", tarfile.SYMTYPE, "/usr/bin/python3"),
        ("file", tarfile.REGTYPE, ""),
    )
    await import_archive(house.database, ConversationRecord(id="new"), io.BytesIO(archive(workspace(*members))))
    with tarfile.open(seed_of(house.database.data_dir, "new")) as tar:
        assert [(one.name, one.type, one.linkname) for one in tar] == list(members)
    # Nor are they forgotten when it is taken along, or forked, before it was ever started.
    seed = seed_of(house.database.data_dir, "new").read_bytes()
    record = await house.database.conversations.get("new")
    assert record is not None
    again = [part async for part in export_archive(house.database, house.manager, record, with_files=True)]
    await import_archive(house.database, ConversationRecord(id="third"), io.BytesIO(b"".join(again)))
    assert seed_of(house.database.data_dir, "third").read_bytes() == seed
    made = partial(fork_conversation, house.database, house.manager, record, "fork")
    await made(upto=None, reset_metrics=False, copy_files=True)
    assert seed_of(house.database.data_dir, "fork").read_bytes() == seed
