"""The users of `make chaos` come back, whatever a server that goes leaves of their connection."""

from __future__ import annotations

import asyncio
import random

import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.chaos import users
from tests.chaos.users import ANSWER_SECONDS, Front, User


@pytest.mark.parametrize("leaves", ["an end", "a broken connection", "silence"])
async def test_a_client_that_was_not_greeted_comes_back(leaves: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade was answered, and then the server was gone."""
    monkeypatch.setattr(users, "CONNECT_SECONDS", 0.1)
    connections, came_back = list[ServerConnection](), asyncio.Event()

    async def accept(connection: ServerConnection) -> None:
        connections.append(connection)
        if len(connections) > 1:
            came_back.set()
        if leaves == "a broken connection":
            connection.transport.abort()
        elif leaves == "silence":
            await came_back.wait()

    async with serve(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        user = User(Front(f"http://127.0.0.1:{port}", "t"), "u1", 1, random.Random(1))
        user.conversation_id = "c"
        user.stay()
        async with asyncio.timeout(10):
            await came_back.wait()
        await user.leave()
    assert user.findings == []


async def test_what_was_not_answered_when_the_connection_was_lost_is_said_again_at_once() -> None:
    said = list[str]()

    async def play(connection: ServerConnection) -> None:
        await connection.send('0{"sid":"a","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1000}')
        await connection.recv()
        await connection.send('40{"sid":"b"}')
        async for packet in connection:
            said.append(str(packet))
            if len(said) == 1:
                connection.transport.abort()
            else:
                number = str(packet).removeprefix("42").partition("[")[0]
                await connection.send(f'43{number}[{{"success":true}}]')

    async with serve(play, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        user = User(Front(f"http://127.0.0.1:{port}", "t"), "u1", 1, random.Random(1))
        user.conversation_id = "c"
        user.stay()
        async with asyncio.timeout(ANSWER_SECONDS / 2):
            await user.say_by_socket("word")
        await user.leave()
    assert len(said) == 2
