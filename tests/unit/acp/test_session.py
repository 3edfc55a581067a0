"""A session between an editor and a server that are both played."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from acp.connection import Connection

from drydock_client import DrydockClient, Sent
from drydock_client.live import Connector, Following, LiveConnection
from server.doors.acp.editor import EditorClient, Permissions
from server.doors.acp.editor_files import EditorFiles, Folders
from server.doors.acp.prompts import PromptMessage
from server.doors.acp.session import EditorSession
from tests.unit.acp.test_lines import Sink, lines_of
from tests.waiting import until

Frames = list[tuple[str, dict[str, Any]]]


def message(ident: int, text: str, source: str = "agent") -> tuple[str, dict[str, Any]]:
    data = {"id": ident, "timestamp": "2026-01-01T00:00:00Z", "source": source, "message": ""}
    return "oh_event", {**data, "action": "message", "args": {"content": text}}


class PlayedLine(LiveConnection):
    """Frames, one after the other, and then silence."""

    def __init__(self, frames: Frames) -> None:
        self._frames = iter(frames)

    async def receive(self) -> tuple[str, Any] | None:
        frame = next(self._frames, None)
        if frame is None:
            await asyncio.Event().wait()
        return frame

    async def close(self) -> None:
        """Nothing is open."""


class PlayedClient(DrydockClient):
    """Follows what is played, and keeps what is asked of it."""

    def __init__(self, *lines: Frames) -> None:
        super().__init__()
        self._lines = iter(lines)
        self.asked: list[str] = []
        self.may_send = asyncio.Event()
        self.was_paused_again = asyncio.Event()
        self.was_decided = asyncio.Event()

    async def _open(self, position: int, seen_at: str, seconds: float) -> LiveConnection:
        return PlayedLine(next(self._lines))

    def follow(
        self, conversation_id: str, *, after: int = -1, live: bool = False, reconnect_seconds: float = 120.0
    ) -> Following:
        maker = Connector(self._open, nothing, set())
        return Following(conversation_id, maker, after=after, live=live, reconnect_seconds=0)

    async def send(self, conversation_id: str, text: str, *, images: Sequence[str] = (), **more: Any) -> Sent:
        await self.may_send.wait()
        self.asked.append("send")
        return Sent(id=5)

    async def pause(self, conversation_id: str) -> Sent:
        self.asked.append("pause")
        if "send" in self.asked:
            self.was_paused_again.set()
        return Sent(id=6)

    async def confirm(self, conversation_id: str, *, accept: bool, remember: bool = False, feedback: str = "") -> Sent:
        self.asked.append(f"confirm {accept}")
        self.was_decided.set()
        return Sent(id=8)


async def nothing(*_: object) -> None:
    """Nobody asks here."""


def session_of(client: DrydockClient) -> tuple[EditorSession, Sink]:
    lines, sink = lines_of(b"")
    editor = EditorClient(Connection(nothing, lines, listening=False))
    folders = Folders(["/"])
    session = EditorSession(
        "c1",
        client,
        editor,
        permissions=Permissions("c1", client, editor),
        files=EditorFiles(client, editor, "c1", folders),
    )
    return session, sink


def said(sink: Sink) -> str:
    updates = [sent["params"]["update"] for sent in sink.messages]
    return "".join(one["content"]["text"] for one in updates if one["sessionUpdate"] == "agent_message_chunk")


async def test_a_log_that_was_reset_is_shown_from_its_beginning_with_a_word_about_it() -> None:
    resync = ("oh_resync", {"reason": "unknown_position", "latest_event_id": 7, "start_id": 0, "end_id": 0})
    session, sink = session_of(PlayedClient([message(7, "Old."), resync], [message(0, "New.")]))
    session.start()
    await until(lambda: "New." in said(sink))
    await session.aclose()
    assert said(sink).startswith("Old.")
    assert "The server was reset" in said(sink)


async def test_a_prompt_that_is_cancelled_while_it_is_sent_is_cancelled_behind_it_as_well() -> None:
    client = PlayedClient([])
    session, _ = session_of(client)
    prompt = asyncio.create_task(session.prompt(PromptMessage("Hi", [])))
    await asyncio.sleep(0)
    await session.cancel()
    client.may_send.set()
    async with asyncio.timeout(30):
        await client.was_paused_again.wait()
    assert client.asked == ["pause", "send", "pause"]
    await session.aclose()
    assert await prompt == "cancelled"


def waits(ident: int) -> tuple[str, dict[str, Any]]:
    extras = {"agent_state": "awaiting_user_confirmation", "reason": ""}
    data = {"id": ident, "timestamp": "2026-01-01T00:00:00Z", "source": "agent", "message": "", "content": ""}
    return "oh_event", {**data, "observation": "agent_state_changed", "extras": extras}


async def test_what_the_agent_asks_in_a_cancelled_turn_is_refused_for_no_pause_is_an_answer() -> None:
    client = PlayedClient([waits(7)])
    session, _ = session_of(client)
    prompt = asyncio.create_task(session.prompt(PromptMessage("Hi", [])))
    await asyncio.sleep(0)
    await session.cancel()
    async with asyncio.timeout(30):
        await client.was_decided.wait()
    assert client.asked == ["pause", "confirm False"]
    client.was_decided.clear()
    await session.cancel()
    assert client.was_decided.is_set()
    assert client.asked[1:] == ["confirm False", "confirm False"]
    await session.aclose()
    prompt.cancel()
