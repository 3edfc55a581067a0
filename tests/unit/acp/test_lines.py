"""Messages line by line: what is none is answered, and reading goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from server.doors.acp import json_rpc
from server.doors.acp.json_rpc import StdioTransport


class Sink:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        assert data.count(b"\n") == 1
        self.messages.append(json.loads(data))

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def close(self) -> None:
        """Nothing is open."""


def lines_of(data: bytes, limit: int = 1000) -> tuple[StdioTransport, Sink]:
    reader = asyncio.StreamReader(limit=limit)
    reader.feed_data(data)
    reader.feed_eof()
    sink = Sink()
    return StdioTransport(reader, sink), sink


async def test_messages_come_as_they_are_and_blank_lines_do_not() -> None:
    lines, sink = lines_of(
        b'{"method":"a"}\n\n  \r\n{"id":null,"method":"b"}\r\n{"id":"x","result":1}\n{"method":"last"}'
    )
    found = [await lines.receive() for _ in range(4)]
    assert [message and message.get("method") for message in found] == ["a", "b", None, "last"]
    await lines.send({"id": None, "result": None})
    assert await lines.receive() is None
    assert len(sink.messages) == 1


async def test_a_line_that_is_too_long_is_refused_whole() -> None:
    lines, sink = lines_of(b'{"method":"' + b"x" * 5000 + b'"}\n{"method":"next"}\n')
    assert await lines.receive() == {"method": "next"}
    (refused,) = sink.messages
    assert refused["error"]["code"] == -32600
    assert "longer than" in refused["error"]["message"]


async def test_what_is_still_asked_for_at_the_end_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = lines_of(b'{"id":1,"method":"a"}\n')
    assert await lines.receive() is not None
    ending = asyncio.create_task(lines.receive())
    await asyncio.sleep(0)
    assert not ending.done()
    await lines.send({"id": 1, "result": {}})
    assert await ending is None
    monkeypatch.setattr(json_rpc, "LAST_ANSWERS_SECONDS", 0.01)
    lines, _ = lines_of(b'{"id":1,"method":"a"}\n')
    assert await lines.receive() is not None
    assert await lines.receive() is None


async def test_too_many_open_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rpc, "MAX_OPEN_REQUESTS", 2)
    monkeypatch.setattr(json_rpc, "LAST_ANSWERS_SECONDS", 0.01)
    lines, sink = lines_of(b"".join(b'{"id":%d,"method":"a"}\n' % number for number in range(4)))
    assert [await lines.receive() for _ in range(3)][-1] is None
    assert [message["id"] for message in sink.messages] == [2, 3]


async def test_who_cannot_be_answered_is_not_listened_to_any_more() -> None:
    class Broken(Sink):
        async def drain(self) -> None:
            raise BrokenPipeError

    reader = asyncio.StreamReader()
    lines = StdioTransport(reader, Broken())
    listening = asyncio.create_task(lines.receive())
    await asyncio.sleep(0)
    with pytest.raises(BrokenPipeError):
        await lines.send({"method": "session/update"})
    assert await listening is None
