"""Editors' sessions when something behind them breaks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from acp import RequestError

from agent_core.testing.fake_sandbox import BROKEN, FakeAnswer, FakeBehaviour, FakeRequest, command_result
from agent_core.testing.model_server import ModelRequest
from agent_core.testing.model_turns import Turn, call, say
from drydock_client import Action, DrydockClient, FailedError, LimitError, Observation
from server.doors.mcp.conversations import DoorConversations, DoorError
from server.session.crash_guard import FRUITLESS_LIVES, Life
from tests.contract.acp.conftest import (
    LIMIT,
    TOKEN,
    Desk,
    connection_to,
    introduced,
    sandboxes,
    server_at,
    server_with,
    settings_for,
)
from tests.small_disk import fill, small_disk
from tests.waiting import until


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


class Doors:
    """The same work, asked for at each door at once; `after` are the turns there once they are over."""

    def __init__(self, desk: Desk, client: DrydockClient, session_id: str) -> None:
        self.desk, self.client, self.session_id = desk, client, session_id
        self.door, self.told, self.pieces = DoorConversations(client), [""], [""]
        self.ids = [session_id]

    async def _tell(self, news: str) -> None:
        self.told.append(news)

    async def ask(self, text: str) -> None:
        self.prompt = asyncio.create_task(self.desk.prompt(self.session_id, text))
        asked = await self.door.start(text)
        self.ids.append(asked)
        self.outcome = asyncio.create_task(self.door.wait(asked, LIMIT, self._tell))
        self.chat = asyncio.create_task(self._chat(text))

    async def _chat(self, text: str, **headers: str) -> None:
        body = {"model": "drydock", "messages": [{"role": "user", "content": text}], "stream": True}
        headers |= {"Authorization": f"Bearer {TOKEN}"}
        chat = httpx.AsyncClient(base_url=self.desk.url, headers=headers, timeout=LIMIT)
        async with chat, chat.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for piece in answer.aiter_lines():
                self.pieces.append(piece)

    async def refusal(self, text: str) -> str:
        """What a chat is told that is refused."""
        seen = len(self.pieces)
        await self._chat(text)
        return str(self.pieces[seen:])

    async def until_told(self, sentence: str) -> None:
        """Until who is at each of the doors has read it."""

        def is_told() -> bool:
            heard = (self.desk.editor.said("agent_thought_chunk"), str(self.told), str(self.pieces))
            return all(sentence in one for one in heard)

        await until(is_told, seconds=LIMIT)

    async def explained(self, sentence: str) -> None:
        """A program that waits, and an assistant that looks, are told why."""
        for one in self.ids:
            with pytest.raises(LimitError, match=sentence):
                await self.client.wait(one, until={"finished"}, limit_seconds=0.05)
            assert sentence in (await self.client.conversation(one)).why_it_waits
            assert sentence in (await self.door.outcome(one)).detail

    async def all_finish(self) -> None:
        assert await self.prompt == "end_turn"
        await self.chat
        assert (await self.outcome).answer == self.desk.editor.said() == "Hello."
        assert "Hello." in str(self.pieces)


@contextlib.asynccontextmanager
async def doors_of(desk: Desk) -> AsyncIterator[Doors]:
    async with DrydockClient(desk.url, TOKEN) as client, connection_to(desk):
        await introduced(desk)
        yield Doors(desk, client, (await desk.new()).session_id)


async def test_an_engine_that_is_away_is_told_at_every_door_and_waited_for(lone_desk: Desk, tmp_path: Path) -> None:
    provider = sandboxes(FakeBehaviour(away="Waiting for the Docker engine. It does not answer."))
    settings = settings_for(lone_desk.model, tmp_path / "data")
    async with server_with(settings, provider) as lone_desk.url, doors_of(lone_desk) as doors:
        await doors.ask("Hello?")
        await doors.until_told("Waiting for the Docker engine")
        await doors.explained("Waiting for the Docker engine")
        for sandbox in provider.sandboxes.values():
            sandbox.behaviour = FakeBehaviour()
        await doors.all_finish()


class Commands:
    """Answers commands when it is let; `begun` knows how many were asked for."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.goes_on = asyncio.Event()
        self.sandboxes = sandboxes(run=self._run)

    async def _run(self, request: FakeRequest) -> FakeAnswer:
        self.begun.release()
        await self.goes_on.wait()
        return command_result("done")

    async def have_begun(self, number: int) -> None:
        async with asyncio.timeout(LIMIT):
            for _ in range(number):
                await self.begun.acquire()


def command_once(request: ModelRequest) -> Turn:
    return say("Hello.") if request.messages[-1]["role"] == "tool" else call("terminal", {"command": "x"})


async def test_a_frozen_sandbox_is_told_at_every_door_until_there_is_room(lone_desk: Desk, tmp_path: Path) -> None:
    lone_desk.answer, commands = command_once, Commands()
    with small_disk(tmp_path / "disk", 128) as disk:
        settings = settings_for(lone_desk.model, disk / "data").model_copy(update={"disk_reserve_mb": 32})
        async with server_with(settings, commands.sandboxes) as lone_desk.url, doors_of(lone_desk) as doors:
            await doors.ask("Be frozen.")
            await commands.have_begun(3)
            filling = fill(disk, 20 * 1024**2)
            await doors.until_told("those that run are frozen; then they go on by themselves")
            await doors.explained("nearly full")
            with pytest.raises(FailedError, match="kept in reserve") as refused:
                await doors.client.create_conversation(message="Hello?")
            assert refused.value.status == 507
            with pytest.raises(DoorError, match="kept in reserve"):
                await doors.door.start("Hello?")
            with pytest.raises(RequestError, match="kept in reserve"):
                await lone_desk.new()
            assert "kept in reserve" in await doors.refusal("Hello?")
            filling.unlink()
            commands.goes_on.set()
            await doors.all_finish()


async def test_a_lost_sandbox_is_told_at_every_door_and_the_agent_goes_on(lone_desk: Desk, tmp_path: Path) -> None:
    lone_desk.answer, commands = command_once, Commands()
    settings = settings_for(lone_desk.model, tmp_path / "data")
    async with server_with(settings, commands.sandboxes) as lone_desk.url, doors_of(lone_desk) as doors:
        await doors.ask("Lose it.")
        await commands.have_begun(3)
        for sandbox in commands.sandboxes.sandboxes.values():
            await sandbox.kill()
        await doors.until_told("The next command starts it again")
        await doors.all_finish()
        assert "was lost while this ran" in str(lone_desk.editor.of("tool_call_update")[-1])
        log = await doors.door.read(doors.ids[1], limit=50, max_chars=20_000, entry_chars=900)
        assert "was lost while this ran" in str(log.entries)
        commands.goes_on.set()
        for ident in doors.ids:
            sent = await doors.client.send(ident, "Again.")
            await doors.client.wait(ident, after=sent.id, limit_seconds=LIMIT)
            found = [event async for event in doors.client.events(ident)]
            run = [one.id for one in found if isinstance(one, Action) and one.action == "run"]
            answers = [one for one in found if isinstance(one, Observation) and one.cause in run]
            assert [one.cause for one in answers] == run
            assert ["was lost" in one.content for one in answers] == [True, False]
            assert answers[1].content.startswith("done")


async def test_what_is_held_back_is_told_at_every_door_and_goes_on_with_a_message(
    lone_desk: Desk, tmp_path: Path
) -> None:
    desk, settings = lone_desk, settings_for(lone_desk.model, tmp_path / "data")
    desk.answer = lambda request: say("One moment").then("hang")
    async with server_at(settings) as desk.url, doors_of(desk) as doors:
        held = await doors.client.create_conversation(message="Hello?")
        await doors.client.wait(held.id, until={"running"}, limit_seconds=LIMIT)
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / "drydock.db")) as database, database:
        life = json.dumps({"life": asdict(Life(fruitless=FRUITLESS_LIVES))})
        database.execute("UPDATE conversations SET options = ? WHERE id = ?", (life, held.id))
    desk.answer = lambda request: say("Hello.")
    async with server_at(settings) as desk.url, doors_of(desk) as doors:
        doors.ids = [held.id]
        await doors.explained("So it is held back")
        waiting = asyncio.create_task(doors.door.wait(held.id, LIMIT, doors._tell))
        await desk.limited(desk.conn.load_session(session_id=held.id, cwd=str(desk.folder), mcp_servers=[]))
        await desk.editor.until(lambda: "So it is held back" in desk.editor.said("agent_thought_chunk"))
        assert not waiting.done()
        assert "So it is held back" in str(doors.told)
        await doors._chat("Go on.", **{"X-Conversation-Id": held.id})
        assert "Hello." in str(doors.pieces)
        assert (await waiting).answer == "Hello."
