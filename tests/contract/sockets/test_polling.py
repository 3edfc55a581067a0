"""Clients that poll: as much as there is to say in either direction arrives, and what is no packet is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from httpx import AsyncClient, Response

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from server.sockets.connections import SocketLimits
from server.sockets.polling import MAX_PACKETS, MAX_POSTED
from tests.contract.sockets.loopback import Client, Loopback, serving

SEPARATOR = "\x1e"
FAST = SocketLimits(max_message_bytes=100_000, ping_interval_seconds=1, ping_timeout_seconds=1)


def message(text: str) -> str:
    return f'42["oh_user_action",{{"action":"message","args":{{"content":"{text}"}}}}]'


class Poller:
    """A client that speaks the transport by hand."""

    def __init__(self, http: AsyncClient, sid: str) -> None:
        self._http = http
        self._address = f"/socket.io/?EIO=4&transport=polling&sid={sid}"

    async def post(self, body: str | bytes | AsyncIterator[bytes]) -> Response:
        return await self._http.post(self._address, content=body)

    async def poll(self) -> list[str]:
        return (await self._http.get(self._address)).text.split(SEPARATOR)


@asynccontextmanager
async def polling(loopback: Loopback) -> AsyncIterator[Poller]:
    async with AsyncClient(base_url=f"http://127.0.0.1:{loopback.port}", timeout=60) as http:
        query = "EIO=4&transport=polling&conversation_id=c1&latest_event_id=-1"
        poller = Poller(http, json.loads((await http.get(f"/socket.io/?{query}")).text[1:])["sid"])
        await poller.post("40")
        assert (await poller.poll())[0].startswith("40")
        yield poller
        await poller.post("1")


async def fill(loopback: Loopback, count: int) -> None:
    stream = loopback.conversations.known["c1"].stream
    assert stream is not None
    for number in range(count):
        await stream.add_event(MessageEvent(source="user", llm_message=Message.user(f"m{number}")))


async def test_a_long_history_reaches_the_python_client_that_polls() -> None:
    async with serving(FAST) as loopback:
        await fill(loopback, 5 * MAX_PACKETS)
        async with Client(transports=("polling",)) as client:
            await client.connect(loopback.url())
            await client.until_id(5 * MAX_PACKETS - 1)
            assert client.ids == list(range(5 * MAX_PACKETS))
            assert client.goodbyes == []


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_however_many_messages_come_in_one_request_all_are_taken_in_their_order(*, is_chunked: bool) -> None:
    texts = [f"m{number}" for number in range(5 * MAX_PACKETS)]
    body = SEPARATOR.join(message(text) for text in texts).encode()

    async def pieces() -> AsyncIterator[bytes]:
        yield body[:100]
        yield body[100:]

    async with serving(FAST) as loopback, polling(loopback) as poller:
        assert (await poller.post(pieces() if is_chunked else body)).status_code == 200
        sent = loopback.conversations.sent
        assert [str(event.llm_message.text) for event in sent if isinstance(event, MessageEvent)] == texts


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b'42["oh_user_action",{"action":"\xff"}]', 400, "no UTF-8"),
        ("hello", 400, "packet 1 "),
        ("", 400, "packet 1 "),
        ("2probe", 400, "packet 1 "),
        (message("a") + SEPARATOR + "9", 400, "packet 2 "),
        ("4" + "x" * 500_000, 413, "400000 bytes"),
    ],
)
async def test_what_cannot_be_read_is_refused_whole_and_the_connection_stays(
    body: str | bytes, status: int, problem: str
) -> None:
    async with serving(FAST) as loopback, polling(loopback) as poller:
        refused = await poller.post(body)
        assert refused.status_code == status
        assert problem in refused.json()["message"]
        assert loopback.conversations.sent == []
        assert (await poller.post(message("still here"))).status_code == 200
        assert len(loopback.conversations.sent) == 1


async def test_a_request_for_a_connection_that_is_not_there_is_refused_once() -> None:
    async with serving(FAST) as loopback, AsyncClient(base_url=f"http://127.0.0.1:{loopback.port}") as http:
        body = SEPARATOR.join(message("a") for _ in range(2 * MAX_PACKETS))
        refused = await http.post("/socket.io/?EIO=4&transport=polling&sid=none", content=body)
        assert (refused.status_code, refused.text) == (400, '"Invalid session none"')


async def test_thousands_of_packets_in_one_request_leave_others_their_turns_and_more_are_refused() -> None:
    """A few megabytes of pongs kept everybody else waiting for as long as they took."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with serving(FAST) as loopback, polling(loopback) as poller:
        task = asyncio.create_task(others())
        for count, status, least in ((MAX_POSTED, 200, MAX_POSTED // MAX_PACKETS), (MAX_POSTED + 1, 413, 0)):
            turns = 0
            answer = await poller.post(SEPARATOR.join(["3"] * count))
            assert answer.status_code == status
            assert turns > least
        assert f"more than the {MAX_POSTED} packets" in answer.json()["message"]
        task.cancel()
