"""The users of `make chaos` come back, whatever a server that goes leaves of their connection."""

from __future__ import annotations

import asyncio
import random

import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.chaos import users
from tests.chaos.users import Front, User


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
