"""Lines of standard input, as the MCP door reads them."""

from __future__ import annotations

import asyncio

import pytest

from server.doors.mcp.sdk import TOO_LONG, InputLines


async def lines_of(data: bytes, *, limit: int = 16, piece: int = 3) -> list[str]:
    """The lines of these bytes, which come in pieces while they are read."""
    reader = asyncio.StreamReader(limit=limit)

    async def feed() -> None:
        for start in range(0, len(data), piece):
            reader.feed_data(data[start : start + piece])
            await asyncio.sleep(0)
        reader.feed_eof()

    feeding = asyncio.create_task(feed())
    try:
        async with asyncio.timeout(60):
            return [line async for line in InputLines(reader)]
    finally:
        await feeding


@pytest.mark.parametrize("piece", [1, 7, 1000])
async def test_lines_come_one_by_one_and_a_last_one_without_an_end_counts(piece: int) -> None:
    assert await lines_of(b"one\n\ntwo\nthree", piece=piece) == ["one\n", "\n", "two\n", "three"]
    assert await lines_of(b"", piece=piece) == []


@pytest.mark.parametrize("piece", [1, 7, 1000])
async def test_a_line_that_is_too_long_is_passed_over_and_the_next_one_is_whole(piece: int) -> None:
    long = b"x" * 100
    assert await lines_of(b"a\n" + long + b"\nb\n" + long, piece=piece) == ["a\n", TOO_LONG, "b\n", TOO_LONG]


async def test_what_is_no_utf_8_is_replaced() -> None:
    assert await lines_of(b"\xff\xfe{\n") == ["\ufffd\ufffd{\n"]
