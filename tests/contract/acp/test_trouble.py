"""Editors' sessions when something behind them breaks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from acp import RequestError

from agent_core.testing.fake_sandbox import BROKEN
from agent_core.testing.model_turns import say
from tests.contract.acp.conftest import Desk, connection_to, introduced, server_at, settings_for


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
