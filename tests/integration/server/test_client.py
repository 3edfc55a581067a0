"""The Python client against a real server: a whole life, a killed server, approval, and threads."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import pytest
import pytest_asyncio

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from drydock_client import (
    Action,
    ClientError,
    DrydockClient,
    InvalidError,
    KeyRefusedError,
    NotFoundError,
    Observation,
    OutputDelta,
    State,
    SyncDrydockClient,
    UnreachableError,
)
from tests.integration.server.conftest import MakeProcess, ServerProcess, stored_events

pytestmark = [pytest.mark.bubblewrap]

LIMIT = 60.0
TOKEN = "a-token-for-tests-of-clients"
beside_the_model = pytest.mark.asyncio(loop_scope="module")
"""The model's server lives in the module's loop: only what runs there lets it answer."""


def run(command: str, risk: str = "LOW") -> Turn:
    return call("terminal", {"command": command, "security_risk": risk})


def scripts() -> dict[str, Iterator[Turn]]:
    """What the model does, by what it is asked."""
    begin = "git init -q . && echo one > notes.txt && git add . && cat notes.txt"
    told = {
        "Note it.": [run(begin), finish("Noted.")],
        "And again?": [finish("Again.")],
        "Write.": [run("echo 1 > one", "HIGH"), run("echo 2 > two", "HIGH")],
        "Not two, please.": [run("echo 3 > three", "HIGH"), say("As you wish.")],
        "Write three lines into notes.txt.": [run("seq 3 > notes.txt; cat notes.txt"), finish("Written.")],
    }
    return {message: iter(turns) for message, turns in told.items()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A server with the scripted model, for all tests here that do not end it."""
    told = scripts()

    def answer(request: ModelRequest) -> Turn:
        said = [str(message["content"]) for message in request.json["messages"] if message["role"] == "user"]
        turn = next(next(turns for message, turns in told.items() if message in said[-1]))
        return replace(turn, headers={"connection": "close"})  # none stays from test to test

    async with ModelServer(answer) as model:
        environment = {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "key-123456"}
        environment |= {"DRYDOCK_GENERATE_TITLES": "false", "DRYDOCK_REQUESTS_PER_SECOND": "0"}
        data_dir = tmp_path_factory.mktemp("client") / "data"
        server = ServerProcess(data_dir, "--sandbox", "local", environment=environment)
        try:
            await server.start()
            yield server.url
        finally:
            await server.close()


@beside_the_model
async def test_a_conversation_from_its_creation_to_its_end(url: str) -> None:
    async with DrydockClient(url) as client:
        made = [await client.create_conversation(message="Note it.", idempotency_key="k") for _ in range(2)]
        conversation = made[0]
        assert made[1].id == conversation.id
        state = await client.wait(conversation.id, limit_seconds=LIMIT)
        assert state.state == "finished"

        log = [event async for event in client.events(conversation.id)]
        assert [event.id for event in log] == list(range(len(log)))
        assert all(isinstance(event, Action | Observation | State) for event in log)
        back = [event async for event in client.events(conversation.id, reverse=True)]
        assert back == list(reversed(log))
        assert [event async for event in client.events(conversation.id, after=2, limit=3)] == log[3:6]
        (command,) = [event for event in log if isinstance(event, Action) and event.action == "run"]
        (output,) = [event for event in log if isinstance(event, Observation) and event.observation == "run"]
        assert (output.content.strip(), output.success, output.cause) == ("one", True, command.id)
        assert command.llm_metrics is not None
        assert [item["id"] for item in await client.trajectory(conversation.id)] == [event.id for event in log]

        sent = await client.send(conversation.id, "And again?", idempotency_key="s")
        assert (await client.send(conversation.id, "And again?", idempotency_key="s")).id == sent.id
        state = await client.wait(conversation.id, after=sent.id, limit_seconds=LIMIT)
        assert (state.state, (state.id or 0) > sent.id) == ("finished", True)

        await its_workspace(client, conversation.id)
        await its_branches(client, conversation.id, command.id)
        await client.rename(conversation.id, "Notes")
        assert "Notes" in [one.title async for one in client.conversations() if one.id == conversation.id]
        with pytest.raises(InvalidError) as caught:
            await client.rename(conversation.id, "")
        assert caught.value.field == "title"
        assert (await client.stop(conversation.id)).status == "STOPPED"
        assert (await client.start(conversation.id)).status != "STOPPED"
        assert (await client.delete(conversation.id), await client.delete(conversation.id)) == (True, False)
        with pytest.raises(NotFoundError):
            await client.conversation(conversation.id)


async def its_workspace(client: DrydockClient, conversation_id: str) -> None:
    folder = await client.files.list(conversation_id)
    assert [(entry.name, entry.kind) for entry in folder.entries if not entry.hidden] == [("notes.txt", "file")]
    content = bytes(range(256)) * 2000
    uploaded = await client.files.upload(conversation_id, {"deep/ö.bin": content}, folder="in")
    assert (uploaded.uploaded_files, uploaded.skipped_files) == (("/workspace/in/deep/ö.bin",), ())
    assert await client.files.download(conversation_id, "in/deep/ö.bin") == content
    with zipfile.ZipFile(io.BytesIO(await client.files.zip(conversation_id, "in"))) as archive:
        assert archive.namelist()
    with pytest.raises(NotFoundError):
        await client.files.download(conversation_id, "nowhere")
    changes = await client.git.changes(conversation_id)
    assert {change.path for change in changes} == {"notes.txt", "in/deep/ö.bin"}
    assert (await client.git.diff(conversation_id, "notes.txt")).modified == "one\n"


async def its_branches(client: DrydockClient, conversation_id: str, event_id: int) -> None:
    forks = [await client.fork(conversation_id, event_id=event_id, idempotency_key="f") for _ in range(2)]
    fork = forks[0].id
    assert (forks[1].id, forks[0].status) == (fork, "STOPPED")
    assert [event.id async for event in client.events(fork) if event.id is not None][:3] == [0, 1, 2]
    assert len(await client.trajectory(fork)) < len(await client.trajectory(conversation_id))
    rewound = await client.rewind(fork, 1)
    assert (rewound.event_id, rewound.id > event_id) == (1, True)
    with pytest.raises(InvalidError) as caught:
        await client.rewind(fork, 10_000)
    assert caught.value.field == "event_id"
    assert (await client.ports(conversation_id), await client.ports(fork)) == ([], [])
    assert await client.delete(fork)


@beside_the_model
async def test_webhooks_are_made_changed_and_deleted(url: str) -> None:
    async with DrydockClient(url) as client:
        conversation = await client.create_conversation()
        made = await client.webhooks.create("http://127.0.0.1:9/", events=["finish"], conversation_id=conversation.id)
        assert (made.events, made.active, made.secret[:6]) == (("finish",), True, "whsec_")
        assert made.secret not in repr(made)
        changed = await client.webhooks.change(made.id, active=False, events=[])
        assert (changed.active, changed.events, changed.conversation_id) == (False, (), conversation.id)
        assert await client.webhooks.list() == [changed] == [await client.webhooks.get(made.id)]
        await client.webhooks.replay(made.id, conversation.id, after=-1)
        with pytest.raises(InvalidError) as caught:
            await client.webhooks.create("ftp://x")
        assert caught.value.field == "url"
        assert (await client.webhooks.delete(made.id), await client.webhooks.delete(made.id)) == (True, False)
        await client.delete(conversation.id)


@beside_the_model
async def test_settings_and_secrets_are_changed_one_by_one(url: str) -> None:
    async with DrydockClient(url) as client:
        await client.settings.change(language="en")
        await client.settings.change(git_user_name="Ada")
        settings = await client.settings.get()
        assert settings is not None
        assert (settings.language, settings.git_user_name) == ("en", "Ada")
        await client.secrets.create("A_NAME", "a value of mine", description="for a test")
        await client.secrets.change("A_NAME", new_name="B_NAME")
        assert [(one.name, one.description) for one in await client.secrets.list()] == [("B_NAME", "for a test")]
        with pytest.raises(InvalidError):
            await client.secrets.create("B_NAME", "another")
        await client.secrets.delete("B_NAME")
        assert await client.secrets.list() == []


@beside_the_model
async def test_actions_are_approved_and_refused_with_a_reason(url: str) -> None:
    asks = "awaiting_user_confirmation"
    async with DrydockClient(url) as client:
        await client.settings.change(confirmation_mode=True, security_analyzer="llm")
        conversation = await client.create_conversation(message="Write.")
        assert (await client.wait(conversation.id, limit_seconds=LIMIT)).state == asks
        sent = await client.confirm(conversation.id, accept=True)
        await client.wait(conversation.id, until=[asks], after=sent.id, limit_seconds=LIMIT)
        sent = await client.confirm(conversation.id, accept=False, feedback="Not two, please.")
        await client.wait(conversation.id, until=[asks], after=sent.id, limit_seconds=LIMIT)
        sent = await client.confirm(conversation.id, accept=False)
        state = await client.wait(conversation.id, after=sent.id, limit_seconds=LIMIT)
        assert state.state == "awaiting_user_input"
        names = {entry.name for entry in (await client.files.list(conversation.id)).entries}
        refused = [
            event.content
            async for event in client.events(conversation.id)
            if isinstance(event, Observation) and event.observation == "user_rejected"
        ]
        await client.settings.change(confirmation_mode=False)
    assert names == {"one"}
    assert "Not two, please." in refused[0]


@beside_the_model
async def test_the_blocking_client_works_in_threads_and_under_a_running_loop(url: str) -> None:
    def work() -> str:
        with SyncDrydockClient(url) as client:
            conversation = client.create_conversation()
            client.wait(conversation.id, limit_seconds=LIMIT)
            sent = client.send_action(conversation.id, "run", {"command": "echo begun; sleep 1000"})
            with client.follow(conversation.id, after=sent.id, live=True) as items:
                for item in items:
                    if isinstance(item, OutputDelta) and "begun" in item.text:
                        break
                threading.Timer(0.2, items.close).start()  # one thread waits, another one ends it
                assert not [item for item in items if isinstance(item, Observation)]
            client.pause(conversation.id)
            assert conversation.id in [one.id for one in client.conversations()]
            assert client.delete(conversation.id)
        with pytest.raises(ClientError, match="is not open"):
            client.conversation(conversation.id)
        return conversation.id

    assert await asyncio.to_thread(work)
    assert work()  # blocks this thread's loop, and does not need it


async def test_a_follower_outlives_a_kill_of_the_server_without_gap_or_duplicate(make_process: MakeProcess) -> None:
    environment = {"DRYDOCK_TOKEN": TOKEN}
    server = await make_process("--sandbox", "local", "--port", str(free_port()), environment=environment)
    await wrong_keys_are_told_with_the_fix(server.url)
    async with DrydockClient(server.url, TOKEN) as client:
        conversation = await client.create_conversation()
        await client.wait(conversation.id, limit_seconds=LIMIT)
        seen: list[int] = []
        said: list[str] = []

        async def follow() -> None:
            async for item in client.follow(conversation.id):
                if isinstance(item, Action | Observation):
                    seen.append(item.id)
                if isinstance(item, Observation) and item.observation == "run":
                    said.append(item.content.strip())

        following = asyncio.create_task(follow())
        try:
            await client.send_action(conversation.id, "run", {"command": "echo $((1 + 1))"})
            await until(lambda: said == ["2"], following)
            await server.kill()
            with pytest.raises(UnreachableError):
                await client.conversation(conversation.id)
            await server.start()
            await client.send_action(conversation.id, "run", {"command": "echo $((2 + 2))"})
            await until(lambda: said == ["2", "4"], following)
        finally:
            following.cancel()
    log = await stored_events(server, conversation.id)
    shown = [
        event["id"]
        for event in log
        if event.get("observation") not in ("agent_state_changed", "null") and event.get("action") not in HIDDEN
    ]
    assert [number for number in seen if number in shown] == shown
    assert seen == sorted(set(seen))


HIDDEN = ("recall", "null", "change_agent_state")
"""What a client may be shown of a history and not live, or the other way round."""


async def wrong_keys_are_told_with_the_fix(url: str) -> None:
    for key in (None, "a-wrong-token"):
        async with DrydockClient(url, key) as client:
            for attempt in (client.create_conversation(), anext(client.follow("c1"))):
                with pytest.raises(KeyRefusedError, match="Give the server's access token as api_key"):
                    await attempt


async def until(condition: Callable[[], bool], following: asyncio.Task[None]) -> None:
    """Wait until what was followed fulfils a condition."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            assert not following.done(), following
            await asyncio.sleep(0.01)


def free_port() -> int:
    """A port for a server that is started twice."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
