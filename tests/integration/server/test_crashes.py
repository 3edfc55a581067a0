"""kill -9 of the server at many moments: nothing that a client saw is lost, and everything goes on."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from tests.integration.server.conftest import (
    WAIT_SECONDS,
    Follower,
    MakeProcess,
    ServerProcess,
    comparable,
    create,
    following,
    stored_events,
)

LIGHTEST = ("--sandbox", "unconfined")
LOCAL = ("--sandbox", "local")
DOCKER = ("--sandbox", "docker")


def assert_nothing_was_lost(follower: Follower, stored: list[dict[str, Any]]) -> None:
    """Every event that the client was shown is in the log, the same; and the log has no gaps."""
    file = follower.server.data_dir / "drydock.db"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        query = "SELECT id FROM events WHERE conversation_id = ? ORDER BY id"
        numbers = [row[0] for row in database.execute(query, (follower.conversation_id,))]
    assert numbers == list(range(len(numbers)))
    by_id = {event["id"]: event for event in stored}
    for event_id, seen in follower.events.items():
        assert event_id in by_id, f"event {event_id} was shown and is gone"
        assert comparable(by_id[event_id]) == comparable(seen)


@pytest.mark.bubblewrap
async def test_killed_while_commands_run_one_after_the_other(make_process: MakeProcess) -> None:
    rng = random.Random(4)
    server = await make_process(*LOCAL)
    conversation_id = await create(server)
    follower = Follower(server, conversation_id)
    for round_number in range(4):
        await follower.connect()
        wanted = follower.count(observation="run") + 1 + rng.randrange(3)
        sending = asyncio.create_task(keep_sending(follower, rng, f"round {round_number}"))
        await follower.until(lambda wanted=wanted: follower.count(observation="run") >= wanted)  # type: ignore[misc]
        await asyncio.sleep(rng.random() / 20)
        await server.kill()
        sending.cancel()
        await asyncio.wait([sending])
        await follower.disconnect()
        await server.start()
        assert_nothing_was_lost(follower, await stored_events(server, conversation_id))
        async with server.client() as client:
            listed = (await client.get("/api/conversations")).json()["results"]
        assert [info["conversation_id"] for info in listed] == [conversation_id]
    await follower.connect()
    await follower.run("echo the end")
    await follower.until(lambda: any("the end" in str(f.get("content")) for f in follower.frames))
    stored = await stored_events(server, conversation_id)
    assert_nothing_was_lost(follower, stored)
    assert_every_command_has_one_answer(stored)
    await follower.disconnect()


async def keep_sending(follower: Follower, rng: random.Random, name: str) -> None:
    for number in range(10_000):
        await follower.run(f"echo {name} number {number}; echo {number} >> sent")
        await asyncio.sleep(rng.random() / 50)


def assert_every_command_has_one_answer(stored: list[dict[str, Any]]) -> None:
    asked = [event["id"] for event in stored if event.get("action") == "run"]
    answered = [event["cause"] for event in stored if event.get("observation") in {"run", "error"} and "cause" in event]
    assert sorted(answered) == asked


async def test_killed_while_a_fork_is_made(make_process: MakeProcess) -> None:
    server = await make_process(*LIGHTEST)
    conversation_id = await create(server)
    async with following(server, conversation_id) as follower:
        await follower.run("for n in 1 2 3; do head -c 20M /dev/urandom > $n; done")
        await follower.until(lambda: follower.count(observation="run") == 1)
        async with server.client() as client:
            forking = asyncio.create_task(client.post(f"/api/conversations/{conversation_id}/fork", json={}))
            notes = server.data_dir / "forks"
            async with asyncio.timeout(WAIT_SECONDS):
                while not list(notes.glob("*.tar")):  # noqa: ASYNC110 - a folder says nothing by itself
                    await asyncio.sleep(0.001)
            await server.kill()
            await asyncio.wait([forking])
            assert forking.exception() is not None
    assert list(notes.glob("*.making"))
    assert len(logs(server)) == 2
    await server.start()
    assert list(notes.iterdir()) == []
    assert logs(server) == {conversation_id}


async def test_killed_while_a_recording_is_imported(make_process: MakeProcess) -> None:
    server = await make_process(*LIGHTEST)
    notes = server.data_dir / "forks"
    said = {"action": "message", "source": "user", "timestamp": "2026-01-01T00:00:00"}
    recording = [{**said, "id": number, "args": {"content": f"word {number}"}} for number in range(4_000)]

    async def importing() -> str:
        async with server.client() as client:
            answer = await client.post(
                "/api/conversations/import", json=recording, headers={"Idempotency-Key": "recording"}
            )
            assert answer.status_code == 200, answer.text
            return str(answer.json()["conversation_id"])

    asking = asyncio.create_task(importing())
    async with asyncio.timeout(WAIT_SECONDS):
        while not logs(server):  # noqa: ASYNC110 - a database says nothing by itself
            await asyncio.sleep(0.001)
    await server.kill()
    await asyncio.wait([asking])
    was_unfinished = bool(list(notes.glob("*.making")))
    await server.start()
    assert list(notes.glob("*")) == []
    if was_unfinished:  # mostly; a busy machine may have let it come to its end
        assert asking.exception() is not None
        assert logs(server) == set()
    made = await importing()
    assert await importing() == made
    assert logs(server) == {made}
    stored = await stored_events(server, made)
    messages = [event["args"]["content"] for event in stored if event.get("action") == "message"]
    assert messages == [f"word {number}" for number in range(len(recording))]


def logs(server: ServerProcess) -> set[str]:
    """The ids under which there are events."""
    with closing(sqlite3.connect(f"file:{server.data_dir / 'drydock.db'}?mode=ro", uri=True)) as database:
        return {row[0] for row in database.execute("SELECT DISTINCT conversation_id FROM events")}


async def test_killed_while_conversations_are_made(make_process: MakeProcess) -> None:
    rng = random.Random(7)
    server = await make_process(*LIGHTEST)
    acknowledged: dict[str, str] = {}
    one_more = asyncio.Event()

    async def keep_creating(name: str) -> None:
        for step in range(1000):
            text = f"hello {name} {step}"
            acknowledged[await create(server, initial_user_msg=text)] = text
            one_more.set()

    for round_number in range(3):
        tasks = [asyncio.create_task(keep_creating(f"{round_number}-{n}")) for n in range(3)]
        one_more.clear()
        async with asyncio.timeout(WAIT_SECONDS):
            await one_more.wait()
        await asyncio.sleep(rng.random() / 2)
        await server.kill()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.environment = {"DRYDOCK_RESUME_ON_START": "false"}
        await server.start()
    async with server.client() as client:
        listed: dict[str, dict[str, Any]] = {}
        page_id = None
        while True:
            query = {"limit": 100, **({"page_id": page_id} if page_id else {})}
            page = (await client.get("/api/conversations", params=query)).json()
            listed |= {info["conversation_id"]: info for info in page["results"]}
            page_id = page["next_page_id"]
            if page_id is None:
                break
    assert acknowledged.keys() <= listed.keys()
    for conversation_id, text in list(acknowledged.items())[-20:]:
        messages = [e["message"] for e in await stored_events(server, conversation_id) if e.get("action") == "message"]
        assert messages == [text]


WORK: list[Turn] = [
    call("terminal", {"command": "echo one > a.txt"}),
    call("file_editor", {"command": "str_replace", "path": "a.txt", "old_str": "one", "new_str": "two"}),
    call("terminal", {"command": "sleep 2; cat a.txt"}),
    call("file_editor", {"command": "view", "path": "a.txt"}),
    finish("Done."),
]


def work(request: ModelRequest) -> Turn:
    """The next step of the work; asked again after a kill, the same one."""
    if not request.json.get("tools"):
        return say("A title")
    done: int = sum(message["role"] == "assistant" for message in request.messages)
    return WORK[done]


@pytest.mark.parametrize(
    ("sandbox", "actions_before_the_kill"),
    [
        pytest.param(LOCAL, 1, marks=pytest.mark.bubblewrap, id="local"),
        pytest.param(DOCKER, 3, marks=pytest.mark.docker, id="docker"),
    ],
)
async def test_an_agent_that_was_at_work_goes_on_by_itself_and_finishes(
    make_process: MakeProcess, sandbox: tuple[str, ...], actions_before_the_kill: int
) -> None:
    async with ModelServer(work) as model:
        environment = {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "key-123456"}
        server = await make_process(*sandbox, environment=environment)
        conversation_id = await create(server, initial_user_msg="Work.")
        follower = Follower(server, conversation_id)
        await follower.connect()
        await follower.until(lambda: steps(follower) >= actions_before_the_kill)
        await server.kill()
        await follower.disconnect()
        await server.start()
        await follower.connect()
        await follower.until(lambda: any(has_finished(frame) for frame in follower.frames))
        stored = await stored_events(server, conversation_id)
        assert_nothing_was_lost(follower, stored)
        made = [event["id"] for event in stored if event.get("tool_call_metadata") and "action" in event]
        assert len(made) == len(WORK)
        causes = [event["cause"] for event in stored if "observation" in event and event.get("cause") in made]
        needing_answers = [
            event["id"] for event in stored if event["id"] in made and event["action"] in {"run", "edit", "read"}
        ]
        assert sorted(set(causes)) == sorted(causes)
        assert set(needing_answers) <= set(causes)
        await follower.disconnect()


def steps(follower: Follower) -> int:
    """How many actions of the agent it was shown."""
    return sum("action" in frame and "tool_call_metadata" in frame for frame in follower.frames)


def has_finished(frame: dict[str, Any]) -> bool:
    return bool((frame.get("extras") or {}).get("agent_state") == "finished")
