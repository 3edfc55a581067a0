"""How many values a document holds is known before it is parsed, and nobody waits for its parsing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core import json_values
from server.wire.errors import WireError
from server.wire.json_data import MAX_VALUES, check_value_count, has_many_values, read_document

MEGABYTES = 15_000_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | st.text('ab",[]{}\\:é', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a",{\\', max_size=3), inner, max_size=4),
    max_leaves=30,
)


def values_of(data: object) -> int:
    if isinstance(data, dict):
        return 1 + sum(map(values_of, data.values()))
    return 1 + sum(map(values_of, data)) if isinstance(data, list) else 1


@given(JSON, st.integers(1, 7), st.booleans())
def test_what_is_counted_is_what_is_there(data: object, piece: int, is_ascii: bool) -> None:
    body = json.dumps(data, separators=(",", ":"), ensure_ascii=is_ascii).encode()
    count = values_of(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "_PIECE", piece)
        for _ in json_values.counted(body, most=count):
            pass
        with pytest.raises(json_values.TooManyValuesError, match=f"more than {count - 1} values"):
            list(json_values.counted(body, most=count - 1))


HOSTILE = {
    "numbers": b"[" + b"1," * (MEGABYTES // 2) + b"1]",
    "lists": b"[" + b"[]," * (MEGABYTES // 3) + b"1]",
    "spaced lists": b"[" + b"[ ]," * (MEGABYTES // 4) + b"1]",
    "objects": b"[" + b'{"a":1},' * (MEGABYTES // 8) + b"1]",
    "one object": b"{" + b'"a":1,' * (MEGABYTES // 6) + b'"b":1}',
    "not a number at the end": b"[" + b"1," * (MEGABYTES // 2) + b"NaN]",
    "depth": b"[" * MEGABYTES,
    "no end": b'["' + b"a," * (MEGABYTES // 2),
    "escapes": b'"' + rb"\u0041" * (MEGABYTES // 6) + b'"',
    "backslashes": b'["' + b"\\\\" * (MEGABYTES // 2) + b'"]',
    "quotes in a text": b'["' + rb"\"" * (MEGABYTES // 2) + b'"]',
    "long numbers": b"[" + b",".join([b"1" * 4200] * (MEGABYTES // 4201)) + b"]",
    "half characters": b'["' + rb"\ud800" * (MEGABYTES // 6) + b'"]',
    "signs in a text": b'["' + b"[,{" * (MEGABYTES // 3) + b'"]',
}


async def longest_wait(work: Awaitable[object]) -> tuple[float, object]:
    """For how long others wait at most while something is done, and what comes of it."""
    longest = 0.0
    doing = asyncio.ensure_future(work)
    last = time.perf_counter()
    while not doing.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest, doing.exception() or doing.result()


async def at_once(body: bytes) -> object:
    """As it would be without any care."""
    return json.loads(body, object_pairs_hook=lambda pairs: dict(pairs))


@pytest.mark.parametrize("name", HOSTILE)
async def test_nobody_waits_for_a_large_document(name: str) -> None:
    body = HOSTILE[name]
    waited, outcome = await longest_wait(read_document(body))
    if name in {"escapes", "backslashes", "quotes in a text", "signs in a text"}:
        assert not isinstance(outcome, Exception)
    else:
        assert isinstance(outcome, ValueError | WireError)
    # Of a machine that is busy it says nothing how long that was; of what took seconds it does.
    assert waited < 1.5


async def test_an_integer_of_any_length_is_refused_by_its_name() -> None:
    for digits in (20, 400, 4_200, 100_000):
        with pytest.raises(WireError, match="beyond 2\\^53"):
            await read_document(b"[" + b"1" * digits + b"]")


async def test_a_long_recording_is_read_while_others_go_on() -> None:
    event = {"action": "message", "args": {"content": "x" * 20, "numbers": list(range(20))}}
    body = json.dumps({"trajectory": [event] * 35_000}).encode()
    assert MAX_VALUES < values_of(json.loads(body)) < 1_000_000
    waited, outcome = await longest_wait(read_document(body, max_values=1_000_000))
    assert isinstance(outcome, dict)
    assert outcome["trajectory"][7] == event
    assert waited < 2.5


async def test_the_whole_of_a_large_document_is_checked() -> None:
    filler = ",".join(['{"a":1}'] * (MAX_VALUES // 2 + 10))
    for tail in ('{"a":1,"a":2}', '{"a":9007199254740993}', '"\\u0000"', "NaN"):
        with pytest.raises(WireError):
            await read_document(f"[{filler},{tail}]".encode(), max_values=1_000_000)
        with pytest.raises(WireError):
            await read_document(f'["{"x" * 40_000}",{tail}]'.encode())


async def test_a_text_full_of_signs_is_no_list() -> None:
    text = "[,{" * 200_000
    assert await read_document(json.dumps({"a": text}).encode()) == {"a": text}
    await check_value_count(json.dumps(text).encode())


def test_whether_there_are_many_values_is_seen_at_a_glance() -> None:
    assert not has_many_values({"action": "message", "args": {"content": "x" * 10**6, "images": []}})
    assert has_many_values([0] * 10**6)
    assert has_many_values([[[0] * 10] * 10] * 100)
