"""Conversations over sockets of the whole server, as the protocol tells them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import socketio

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from tests.contract.rest.conftest import MODEL_SECONDS, Server
from tests.contract.rest.conftest import serving as serving_rest
from tests.contract.sockets.loopback import Client, Frame, until
from tests.serving import serving


class Doors:
    """A server with both of its doors."""

    def __init__(self, rest: Server, port: int) -> None:
        self.rest = rest
        self._port = port

    def _url(self, conversation_id: str) -> str:
        return f"http://127.0.0.1:{self._port}?conversation_id={conversation_id}&latest_event_id=-1"

    @asynccontextmanager
    async def client(self, conversation_id: str) -> AsyncIterator[Client]:
        async with Client() as client:
            await client.connect(self._url(conversation_id))
            yield client

    async def refusal(self, conversation_id: str) -> dict[str, Any]:
        """What a client is told that is refused."""
        told: list[dict[str, Any]] = []
        async with Client() as client:
            client.socket.on("connect_error", told.append)
            with pytest.raises(socketio.exceptions.ConnectionError):
                await client.connect(self._url(conversation_id))
            await until(lambda: told)
        return told[0]


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    async with (
        serving_rest(tmp_path / "data", generate_titles=False) as rest,
        serving(rest.app, log_level="error", lifespan="off") as port,
    ):
        yield Doors(rest, port)


def brief(frame: Frame) -> tuple[Any, ...]:
    """Type, source, and what matters of it."""
    name = frame.get("action") or frame.get("observation")
    details = {**(frame.get("args") or {}), **(frame.get("extras") or {})}
    told = [details[key] for key in ("agent_state", "confirmation_state") if key in details]
    family = "action" if "action" in frame else "observation"
    return (family, name, frame.get("source"), *told)


def events_of(client: Client) -> list[Frame]:
    """What came, without statuses."""
    return [frame for frame in client.frames if "action" in frame or "observation" in frame]


def states(client: Client) -> list[str]:
    return [f["extras"]["agent_state"] for f in client.frames if f.get("observation") == "agent_state_changed"]


def question(client: Client) -> Frame | None:
    """The action that awaits its user, once it is the last thing that came."""
    last = events_of(client)[-1] if events_of(client) else {}
    return last if last.get("args", {}).get("confirmation_state") == "awaiting_confirmation" else None


@asynccontextmanager
async def asking(doors: Doors) -> AsyncIterator[str]:
    """A conversation whose agent wants to do something risky."""
    risky = {"command": "rm -rf /workspace/x", "security_risk": "HIGH"}
    async with ModelServer([call("terminal", risky, text="I tidy up."), finish("Done.")]) as model:
        settings = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "k", "confirmation_mode": True}
        assert (await doors.rest.post("/api/settings", json=settings)).status_code == 200
        yield await doors.rest.create(initial_user_msg="Tidy up.")


def message(text: str) -> dict[str, Any]:
    return {"action": "message", "args": {"content": text, "image_urls": [], "file_urls": []}}


async def test_a_conversation_begins_goes_on_and_ends_as_the_protocol_tells_it(doors: Doors) -> None:
    made = await doors.rest.create()
    async with doors.client(made) as client:
        await until(lambda: "awaiting_user_input" in states(client))
        opening = await doors.rest.events(made)
        assert [brief(event) for event in opening] == [
            ("observation", "agent_state_changed", "environment", "loading"),
            ("action", "system", "agent"),
            ("action", "change_agent_state", "environment", "awaiting_user_input"),
            ("observation", "agent_state_changed", "environment", "awaiting_user_input"),
        ]
        before = len(events_of(client))
        await client.send(message("hello"))
        await until(lambda: events_of(client)[-1].get("observation") == "run")
        following = events_of(client)[before:]
        assert [brief(frame) for frame in following[:4]] == [
            ("action", "message", "user"),
            ("action", "recall", "user"),
            ("observation", "agent_state_changed", "agent", "running"),
            ("observation", "recall", "agent"),
        ]
        action, result = following[-2:]
        assert (action["action"], action["source"], result["source"]) == ("run", "agent", "agent")
        assert result["cause"] == action["id"]
        assert {"function_name", "tool_call_id", "model_response", "total_calls_in_response"} == set(
            action["tool_call_metadata"]
        )
        assert isinstance(action["llm_metrics"]["accumulated_cost"], float)
        assert [frame["id"] for frame in following] == list(range(following[0]["id"], following[-1]["id"] + 1))
    async with doors.client(made) as late:
        await until(lambda: states(late))
        names = [brief(frame)[:2] for frame in events_of(late)]
        assert ("action", "recall") not in names
        assert names.count(("observation", "agent_state_changed")) == 1
        assert [frame["source"] for frame in late.frames if frame.get("observation") == "recall"] == ["environment"]


@pytest.mark.parametrize(
    ("answer", "decision", "end"),
    [("user_confirmed", "confirmed", "running"), ("user_rejected", "rejected", "awaiting_user_input")],
)
async def test_a_question_and_its_answer_come_in_the_order_of_the_protocol(
    doors: Doors, answer: str, decision: str, end: str
) -> None:
    async with asking(doors) as made, doors.client(made) as client:
        await until(lambda: question(client), seconds=MODEL_SECONDS)
        state, asked = events_of(client)[-2:]
        assert brief(state) == ("observation", "agent_state_changed", "agent", "awaiting_user_confirmation")
        assert brief(asked) == ("action", "run", "agent", "awaiting_confirmation")
        assert (asked["args"]["thought"], asked["args"]["security_risk"]) == ("I tidy up.", 2)
        place = len(events_of(client))
        await client.send({"action": "change_agent_state", "args": {"agent_state": answer}})
        await until(lambda: len(events_of(client)) >= place + 5)
        echo, again, entered, result, gone_on = events_of(client)[place : place + 5]
        assert brief(echo) == ("action", "change_agent_state", "user", answer)
        assert brief(again) == ("action", "run", "agent", decision)
        assert again["id"] > asked["id"]
        assert again["args"] == {**asked["args"], "thought": "", "confirmation_state": decision}
        assert brief(entered) == ("observation", "agent_state_changed", "agent", answer)
        kind = "run" if decision == "confirmed" else "user_rejected"
        assert (result["observation"], result["cause"]) == (kind, again["id"])
        assert brief(gone_on) == ("observation", "agent_state_changed", "agent", end)


async def test_what_waits_when_the_agent_is_stopped_is_answered_by_an_error(doors: Doors) -> None:
    async with asking(doors) as made, doors.client(made) as client:
        await until(lambda: question(client), seconds=MODEL_SECONDS)
        asked = events_of(client)[-1]
        await client.send({"action": "change_agent_state", "args": {"agent_state": "stopped"}})
        await until(lambda: any(frame.get("observation") == "error" for frame in client.frames))
        (error,) = [frame for frame in client.frames if frame.get("observation") == "error"]
        assert error["cause"] == asked["id"]
        assert error["extras"]["error_id"] == "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_STOPPED"
        await until(lambda: states(client)[-1] == "stopped")


async def test_a_message_under_a_key_is_one_message_whichever_door_it_comes_through(doors: Doors) -> None:
    made = await doors.rest.create()
    async with doors.client(made) as client:
        await until(lambda: "awaiting_user_input" in states(client))
        body = {**message("hello"), "idempotency_key": "k-1"}
        answers = [await client.socket.call("oh_user_action", body) for _ in range(2)]
        over_rest = await doors.rest.post(f"/api/conversations/{made}/events", json=body)
        assert answers[0] == answers[1] == {"success": True, "id": int(over_rest.headers["X-Event-Id"])}
        other = await client.socket.call("oh_user_action", {**message("bye"), "idempotency_key": "k-1"})
        assert other["error"] == client.problems[0]
        assert "came with another request before" in other["error"]
        said = [event for event in await doors.rest.events(made) if event.get("action") == "message"]
        assert [event["args"]["content"] for event in said if event["source"] == "user"] == ["hello"]


async def test_nobody_reaches_or_makes_a_conversation_that_is_not_there(doors: Doors) -> None:
    for conversation in ("unknown", "c" * 200, "%00", "..%2Fc1"):
        assert "not found" in (await doors.refusal(conversation))["message"]
    assert (await doors.rest.get("/api/conversations")).json()["results"] == []


async def test_clients_are_told_why_their_conversation_ends(doors: Doors) -> None:
    def statuses(client: Client) -> list[tuple[str, str]]:
        return [(frame["type"], frame["id"]) for frame in client.frames if frame.get("status_update") and "id" in frame]

    made = await doors.rest.create()
    async with doors.client(made) as client:
        await until(lambda: "awaiting_user_input" in states(client))
        await doors.rest.post(f"/api/conversations/{made}/stop")
        await until(lambda: states(client)[-1] == "stopped")
        assert ("info", "STATUS$STOPPED") in statuses(client)
        await client.send(message("hello"))
        await until(lambda: "running" in states(client))
        await doors.rest.client.delete(f"/api/conversations/{made}")
        await until(lambda: client.goodbyes)
        assert statuses(client)[-1] == ("error", "CONVERSATION$NOT_FOUND")
    told = await doors.refusal(made)
    page = {"code": "CONVERSATION$NOT_FOUND", "docs": "/errors/CONVERSATION$NOT_FOUND"}
    assert told == {
        "message": f"Conversation {made} not found",
        "data": {"msg_id": "CONVERSATION$NOT_FOUND", **page},
    }
