"""Editors' sessions when something behind them breaks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from acp import RequestError

from agent_core.testing.fake_sandbox import BROKEN
from agent_core.testing.model_turns import say
from drydock_client import DrydockClient, LimitError
from server.doors.mcp.conversations import DoorConversations
from tests.contract.acp.conftest import LIMIT, TOKEN, Desk, connection_to, introduced, server_at, settings_for


async def test_a_turn_goes_on_after_the_server_has_restarted(lone_desk: Desk, tmp_path: Path) -> None:
    desk, settings = lone_desk, settings_for(lone_desk.model, tmp_path / "data")
    turns = iter([say("One moment").then("hang"), say("Back again.")])
    desk.answer = lambda request: next(turns)
    async with server_at(settings) as desk.url:
        connection = connection_to(desk)
        await connection.__aenter__()
        await introduced(desk)
        session = await desk.new()
        prompt = asyncio.create_task(desk.prompt(session.session_id, "Talk."))
        await desk.editor.until(lambda: "One moment" in desk.editor.said())
    async with server_at(settings, port=urlsplit(desk.url).port or 0):
        assert await prompt == "end_turn"
        assert desk.editor.said().endswith("Back again.")
        await connection.__aexit__(None, None, None)


async def test_a_sandbox_that_cannot_start_is_the_answer_each_time(lone_desk: Desk, tmp_path: Path) -> None:
    desk = lone_desk
    async with server_at(settings_for(desk.model, tmp_path / "data"), BROKEN) as desk.url, connection_to(desk):
        await introduced(desk)
        session = await desk.new()
        for _ in range(2):
            with pytest.raises(RequestError, match="The engine is on fire"):
                await desk.prompt(session.session_id, "Hello?")


async def test_what_waits_in_line_says_so_at_every_door_and_goes_on(lone_desk: Desk, tmp_path: Path) -> None:
    desk, line = lone_desk, "First in line: 1 of your conversations is at work"
    settings = settings_for(desk.model, tmp_path / "data").model_copy(update={"max_concurrent_conversations": 1})
    desk.answer = lambda request: say("One moment").then("hang") if b"Hold." in request.content else say("Hello.")
    async with server_at(settings) as desk.url, DrydockClient(desk.url, TOKEN) as client, connection_to(desk):
        await introduced(desk)
        session = await desk.new()
        holding = await client.create_conversation(message="Hold.")
        await client.wait(holding.id, until={"running"}, limit_seconds=LIMIT)

        waiting = asyncio.create_task(desk.prompt(session.session_id, "Hello?"))
        await desk.editor.until(lambda: line in desk.editor.said("agent_thought_chunk"))
        assert not waiting.done()
        with pytest.raises(LimitError, match=line):
            await client.wait(session.session_id, until={"finished"}, limit_seconds=0.1)
        assert (await client.conversation(session.session_id)).why_it_waits.startswith(line)
        told: list[str] = []

        async def tell(news: str) -> None:
            told.append(news)

        outcome = await DoorConversations(client).wait(session.session_id, 2, tell)
        assert (outcome.at_rest, line in outcome.detail, line in str(told)) == (False, True, True)

        body = {"model": "drydock", "messages": [{"role": "user", "content": "Hello?"}], "stream": True}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        chat = httpx.AsyncClient(base_url=desk.url, headers=headers, timeout=LIMIT)
        async with chat, chat.stream("POST", "/v1/chat/completions", json=body) as answer:
            pieces = answer.aiter_lines()
            async for piece in pieces:
                if "Second in line" in piece:
                    break
            await client.delete(holding.id)
            assert await waiting == "end_turn"
            assert "Hello." in "".join([piece async for piece in pieces])
        assert desk.editor.said() == "Hello."
