"""The written form of audit records, and what a look through a chain of them finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.auth.audit import (
    BROKEN,
    Actor,
    AuditEntry,
    AuditRecord,
    ChainCheck,
    Head,
    Means,
    canonical,
    hash_of,
    make_record,
)
from server.auth.secrets import SecretBox
from server.auth.signing import SigningKey, fingerprint_of, is_signed, pem_of, public_of

KEY = SigningKey(SecretBox(bytes(range(32))))
BEGIN = datetime(2026, 11, 29, 12, tzinfo=UTC)
ANN = Actor("ann", "Ann", Means.TOKEN, "192.0.2.7")

texts = st.text()
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def chain(length: int = 6) -> list[AuditRecord]:
    made: list[AuditRecord] = []
    for number in range(1, length + 1):
        entry = AuditEntry("secret.created", ANN, ("secret", f"KEY_{number}"), {"fields": ["value"]})
        previous = made[-1].hash if made else ""
        made.append(make_record(entry, number=number, previous=previous, at=BEGIN + timedelta(seconds=number)))
    return made


def signed(last: AuditRecord, key: SigningKey = KEY) -> Head:
    head = Head(last.number, last.hash, public_key=key.public.hex())
    return head._replace(signature=key.sign(head.signed_text()).hex())


def checked(records: list[AuditRecord], head: Head, *noted: tuple[int, str]) -> ChainCheck:
    check = ChainCheck(head, noted)
    for one in records:
        check.take(one)
    check.end(KEY.public)
    return check


def rewritten(record: AuditRecord, **fields: Any) -> AuditRecord:
    """The record with other fields and a hash to them, as somebody writes it who knows how."""
    text = canonical({**json.loads(record.text), **fields})
    return record._replace(text=text, hash=hash_of(text))


@given(texts, texts, st.dictionaries(texts, values, max_size=4))
def test_whatever_is_recorded_is_a_line_that_reads_and_writes_as_itself(name: str, target: str, details: Any) -> None:
    entry = AuditEntry("some.thing", Actor(name, name), ("thing", target), details)
    record = make_record(entry, number=1, previous="", at=BEGIN)
    assert "\n" not in record.text
    assert "\0" not in record.text
    assert canonical(json.loads(record.text)) == record.text
    assert record.text.encode() == record.text.encode("utf-8", "surrogatepass")
    assert checked([record], signed(record)).problems == []


def test_a_record_is_written_as_the_documentation_says() -> None:
    (record,) = chain(1)
    assert record.text == (
        '{"action":"secret.created","actor":{"id":"ann","name":"Ann"},"address":"192.0.2.7",'
        '"at":"2026-11-29T12:00:01.000000Z","details":{"fields":["value"]},"means":"token","number":1,"previous":"",'
        '"target":{"id":"KEY_1","kind":"secret"}}'
    )


def test_what_is_too_much_is_left_out() -> None:
    entry = AuditEntry("some.thing", ANN, ("thing", "x" * 5000), {"names": ["y" * 900] * 20})
    fields = json.loads(make_record(entry, number=1, previous="", at=BEGIN).text)
    assert fields["target"]["id"] == "x" * 1000 + "…"
    assert fields["details"] == {"left_out": "more than a record may have"}


def test_a_whole_chain_has_no_problem() -> None:
    records = chain()
    check = checked(records, signed(records[-1]), (3, records[2].hash))
    assert (check.problems, check.breaks, check.notes, check.records) == ([], [], [], 6)
    assert check.last == (6, records[-1].hash)


Change = Callable[[list[AuditRecord]], list[AuditRecord]]


def at(number: int, change: Callable[[AuditRecord], AuditRecord]) -> Change:
    return lambda records: [change(one) if one.number == number else one for one in records]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (at(3, lambda it: it._replace(number=9)), "records 3 to 8 are missing"),
        (at(3, lambda it: it._replace(at=BEGIN)), "record 3 was changed: the time by which it is found"),
        (at(3, lambda it: it._replace(at=None)), "record 3 was changed: the time by which it is found"),
        (at(3, lambda it: it._replace(user_id="bob")), "record 3 was changed: the user by which it is found"),
        (at(3, lambda it: it._replace(action="x.y")), "record 3 was changed: the action by which it is found"),
        (at(3, lambda it: it._replace(text=it.text.replace("KEY_3", "KEY_4"))), "record 3 was changed: its hash"),
        (at(3, lambda it: it._replace(hash="0" * 64)), "record 3 was changed: its hash"),
        (at(3, lambda it: it._replace(text="{}", hash=hash_of("{}"))), "record 3 was changed: it is not written"),
        (at(3, lambda it: it._replace(text="[", hash=hash_of("["))), "record 3 was changed: it is not written"),
        (
            at(3, lambda it: it._replace(text=f" {it.text}", hash=hash_of(f" {it.text}"))),
            "record 3 was changed: it is not written",
        ),
        (
            at(3, lambda it: rewritten(it, target={"id": "OTHER", "kind": "secret"})),
            "record 4 does not follow the one before it",
        ),
        (at(3, lambda it: rewritten(it, previous="0" * 64)), "record 3 does not follow the one before it"),
        (lambda records: records[1:], "record 1 is missing"),
        (lambda records: records[:2] + records[3:], "record 3 is missing"),
        (lambda records: records[:4], "records 5 to 6 are missing from the end"),
        (lambda records: [*records[:2], records[3], records[2], *records[4:]], "record 3 is missing"),
        (lambda records: [*records[:3], records[2], *records[3:]], "record 3 comes behind record 3"),
        (lambda records: [], "records 1 to 6 are missing from the end"),
        (at(6, lambda it: rewritten(it, means="cli")), "record 6 is not the one that was signed as the end"),
    ],
)
def test_the_first_place_that_was_tampered_with_is_named_and_why(change: Change, problem: str) -> None:
    records = chain()
    check = checked(change(records), signed(records[-1]))
    assert check.problems[0].startswith(problem)


def test_a_chain_that_was_written_anew_as_a_whole_lacks_the_signature() -> None:
    records = chain()
    others = SigningKey(SecretBox(b"x" * 32))
    head = signed(records[-1], others)
    assert checked(records, head).problems == ["the end of the log is signed with another key than this server's"]
    forged = head._replace(public_key=KEY.public.hex())
    assert checked(records, forged).problems == ["the log's end is not what was signed"]
    garbage = forged._replace(signature="no hexadecimal digits")
    assert checked(records, garbage).problems == ["the signature of the log's end cannot be read"]
    moved = signed(records[-1])._replace(stump_number=2, stump_hash=records[1].hash)
    assert checked(records[2:], moved).problems == ["the log's end is not what was signed"]


def test_an_older_end_that_was_signed_once_does_not_hide_what_was_cut_off_from_whoever_noted_a_later_one() -> None:
    records = chain()
    old = signed(records[3])
    assert checked(records[:4], old).problems == []
    later = (6, records[5].hash)
    assert checked(records[:4], old, later).problems == ["records 5 to 6 are missing from the end"]
    other = checked(records, signed(records[-1]), (4, "0" * 64))
    assert other.problems == ["record 4 is another one than it was when it was the end of the log"]


def test_a_break_that_a_server_wrote_down_is_told_and_what_is_behind_it_is_looked_at() -> None:
    records = chain(3)
    entry = AuditEntry(BROKEN, Actor(), details={"reason": "it ended early"})
    records.append(make_record(entry, number=9, previous=records[-1].hash, at=BEGIN + timedelta(hours=1)))
    records.append(make_record(AuditEntry("a.b", ANN), number=10, previous="0" * 64, at=BEGIN + timedelta(hours=1)))
    check = checked(records, signed(records[-1]))
    assert check.breaks == ["record 9 was written where the log was found broken: it ended early"]
    assert check.problems == ["record 10 does not follow the one before it: one of the two was changed"]


def test_a_clock_that_went_back_is_a_note_and_no_fault() -> None:
    first = make_record(AuditEntry("a.b", ANN), number=1, previous="", at=BEGIN)
    second = make_record(AuditEntry("a.b", ANN), number=2, previous=first.hash, at=BEGIN - timedelta(days=1))
    check = checked([first, second], signed(second))
    assert check.problems == []
    assert check.notes == [
        "at record 2 the clock went back, from 2026-11-29T12:00:00.000000Z to 2026-11-28T12:00:00.000000Z"
    ]


def test_the_public_key_is_read_by_others_as_it_is_written() -> None:
    public = KEY.public
    assert public_of(pem_of(public)) == public
    assert is_signed(b"text", KEY.sign(b"text"), public)
    assert not is_signed(b"texts", KEY.sign(b"text"), public)
    assert not is_signed(b"text", b"short", public)
    assert len(fingerprint_of(public)) == 64
    for wrong in ("", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", pem_of(public)[1:]):
        with pytest.raises(ValueError, match=r"."):
            public_of(wrong)
