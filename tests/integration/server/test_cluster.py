"""Several servers over one PostgreSQL: any of them serves any client, and what one leaves another carries on."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from server.auth.secrets import SecretKeyError
from server.cli.rotate_key import rotate_key
from server.session.sandboxes import app_ports
from server.settings.settings import Settings
from tests.contract.webhooks.conftest import receiving
from tests.integration.server.conftest import (
    WAIT_SECONDS,
    Follower,
    MakeProcess,
    ServerProcess,
    comparable,
    create,
    following,
    info_of,
    is_in,
    stored_events,
)
from tests.integration.server.test_app_ports import SERVE, polled
from tests.waiting import until

pytestmark = [pytest.mark.postgresql]

CLUSTERED = "server.conversation_manager.clustered.ClusteredConversationManager"
LEASE_SECONDS = 3
COMMANDS = 6


class Writer:
    """A model that has each conversation write the numbers of its steps into a file, then finishes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, request: ModelRequest) -> Turn:
        name = re.findall(r"task-\d+", json.dumps(request.json["messages"]))[0]
        done = sum(one["role"] == "tool" for one in request.messages)
        if done == COMMANDS:
            return finish("Done.", delay=0.05)
        command = call("terminal", {"command": f"echo {done} >> {self.folder / name}; sleep 0.2"}, delay=0.05)
        return replace(command, text="On we go.")

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def has_written(self, name: str, lines: int) -> bool:
        return len(self.lines(name)) >= lines


class Cluster:
    """Servers with folders of their own and the same key; this machine's sandboxes are all theirs."""

    def __init__(self, make_process: MakeProcess, folder: Path, url: str, model: ModelServer) -> None:
        self._make = make_process
        self._folder = folder
        self._environment = {
            "DRYDOCK_DATABASE_URL": url,
            "DRYDOCK_CONVERSATION_MANAGER_CLASS": CLUSTERED,
            "DRYDOCK_CLUSTER_LEASE_SECONDS": str(LEASE_SECONDS),
            "DRYDOCK_GENERATE_TITLES": "false",
            "LLM_MODEL": "openai/x",
            "LLM_BASE_URL": model.url,
            "LLM_API_KEY": "k",
        }
        self.servers: list[ServerProcess] = []

    async def add(self, **variables: str) -> ServerProcess:
        name = f"server-{len(self.servers)}"
        if self.servers:
            first, own = self.servers[0].data_dir, self._folder / name
            own.mkdir(mode=0o700)
            shutil.copy2(first / "secret.key", own)
            (first / "sandboxes").mkdir(mode=0o711, exist_ok=True)
            (own / "sandboxes").symlink_to(first / "sandboxes")
        server = await self._make("--sandbox", "unconfined", name=name, environment=self._environment | variables)
        self.servers.append(server)
        return server


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[ModelServer]:
    async with ModelServer(Writer(tmp_path)) as server:
        yield server


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


@pytest.fixture
def cluster(new_postgresql_url: str, make_process: MakeProcess, tmp_path: Path, model: ModelServer) -> Cluster:
    return Cluster(make_process, tmp_path, new_postgresql_url, model)


def has_ended(follower: Follower) -> bool:
    return follower.count(observation="agent_state_changed") > 0 and any(
        (frame.get("extras") or {}).get("agent_state") == "finished" for frame in follower.frames
    )


async def check_whole(server: ServerProcess, conversation_id: str, *followers: Follower) -> None:
    """See that its log has no gap, that each action has one answer, and that these clients have seen all of it."""
    log = await stored_events(server, conversation_id)
    answers = Counter(event["cause"] for event in log if "observation" in event and event.get("cause") is not None)
    actions = [event["id"] for event in log if event.get("action") in ("run", "finish", "recall")]
    assert all(answers[one] == 1 for one in actions), log
    shown = {event["id"]: comparable(event) for event in log}
    for follower in followers:
        seen = {number: comparable(event) for number, event in follower.events.items()}
        assert set(seen) <= set(shown)
        ids = [frame["id"] for frame in follower.frames if isinstance(frame.get("id"), int)]
        assert ids == sorted(set(ids))
        assert max(seen) == max(shown)


async def test_any_server_serves_any_client(cluster: Cluster, writer: Writer) -> None:
    first, second = await cluster.add(), await cluster.add()
    conversation_id = await create(first)
    async with following(first, conversation_id) as here, following(second, conversation_id) as there:
        await there.send({"action": "message", "args": {"content": 'Write "task-1".'}})
        await until(lambda: has_ended(here) and has_ended(there), seconds=WAIT_SECONDS)
        assert {number: comparable(one) for number, one in here.events.items()} == {
            number: comparable(one) for number, one in there.events.items()
        }
        assert there.deltas
        assert any(frame.get("id") == "STATUS$READY" for frame in there.frames)
    assert writer.lines("task-1") == [str(number) for number in range(COMMANDS)]
    async with second.client() as client:  # what only the sandbox knows is asked where it is
        path = f"/api/conversations/{conversation_id}"
        assert (await client.post(f"{path}/upload-files", files={"files": ("a.txt", b"hello")})).status_code == 200
        assert "a.txt" in (await client.get(f"{path}/list-files")).json()
        assert (await client.get(path)).json()["status"] == "RUNNING"
        # It is made where the sandbox is, and its files are there wherever it is started.
        fork = (await client.post(f"{path}/fork", json={})).json()["conversation_id"]
        assert not list(first.data_dir.glob("forks/*.tar"))
        assert (await client.post(f"/api/conversations/{fork}/start", json={})).status_code == 200
        await until(partial(_has_file, second, fork, "a.txt"), seconds=WAIT_SECONDS)
        assert (await client.delete(f"/api/conversations/{fork}")).json() is True
        async with following(second, conversation_id) as there:
            await there.run(SERVE)
            hosts = (await client.get(f"{path}/web-hosts")).json()["hosts"]
            assert all(second.url.rpartition(":")[2] in host for host in hosts)
            await until(partial(_shows, list(hosts)[1], "hull\n"), seconds=WAIT_SECONDS)
        assert (await client.post(f"{path}/rewind", json={"event_id": 1})).status_code == 200
        assert (await client.post(f"{path}/stop")).status_code == 200
    await until(partial(is_in, first, conversation_id, "stopped"), seconds=WAIT_SECONDS)
    async with first.client() as client:
        assert (await client.delete(f"/api/conversations/{conversation_id}")).json() is True
        await until(partial(_is_gone, second, conversation_id), seconds=WAIT_SECONDS)


async def _is_gone(server: ServerProcess, conversation_id: str) -> bool:
    async with server.client() as client:
        return (await client.get(f"/api/conversations/{conversation_id}")).json() is None


async def _has_file(server: ServerProcess, conversation_id: str, name: str) -> bool:
    async with server.client() as client:
        answer = await client.get(f"/api/conversations/{conversation_id}/list-files")
        return answer.status_code == 200 and name in answer.json()


async def _shows(address: str, text: str) -> bool:
    return (await polled(address)).text == text


async def test_limits_and_webhooks_are_those_of_all_servers(cluster: Cluster, writer: Writer) -> None:
    one_at_a_time = {"DRYDOCK_MAX_WORKING_CONVERSATIONS": "1"}
    first, second = await cluster.add(**one_at_a_time), await cluster.add(**one_at_a_time)
    async with receiving() as receiver, second.client() as client:
        made = await client.post("/api/webhooks", json={"url": receiver.url})
        before = await create(first, initial_user_msg='Write "task-1".')
        await until(partial(writer.has_written, "task-1", 1), seconds=WAIT_SECONDS)
        behind = await create(second, initial_user_msg='Write "task-2".')
        waiting = {
            "position": 1,
            "message": "First in line: 1 agent is at work, as many as these servers have room for.",
        }

        async def waits() -> bool:
            return bool((await info_of(second, behind))["waiting"] == waiting)

        await until(waits, seconds=WAIT_SECONDS)
        for one in (before, behind):
            await until(partial(is_in, first, one, "finished"), seconds=WAIT_SECONDS)
        logs = [await stored_events(first, one) for one in (before, behind)]
        last, begun = max(event["timestamp"] for event in logs[0]), [e for e in logs[1] if e.get("action") == "run"]
        assert last <= min(event["timestamp"] for event in begun)
        for one, log in zip((before, behind), logs, strict=True):
            await receiver.until(lambda: max(receiver.events(one), default=-1) == log[-1]["id"])  # noqa: B023 - asked now
            told = receiver.events(one)
            assert told == sorted(set(told))
            done = {event["id"] for event in log if "run" in (event.get("action"), event.get("observation"))}
            assert done <= set(told)
        assert (await client.delete(f"/api/webhooks/{made.json()['id']}")).status_code == 204


async def test_the_sandbox_of_a_conversation_at_rest_is_stopped_where_its_server_is_gone(cluster: Cluster) -> None:
    at_once = {"DRYDOCK_SANDBOX_STOP_SECONDS": "0.2", "DRYDOCK_CULL_INTERVAL_SECONDS": "0.2"}
    first, second = await cluster.add(**at_once), await cluster.add(**at_once)
    conversation_id = await create(first, initial_user_msg='Write "task-1".')
    await until(partial(is_in, first, conversation_id, "finished"), seconds=WAIT_SECONDS)
    assert _has_processes(conversation_id)
    await first.kill()
    await until(lambda: not _has_processes(conversation_id), seconds=WAIT_SECONDS)
    assert second.returncode is None


def _has_processes(conversation_id: str) -> bool:
    """Whether a process of this conversation's sandbox is there."""
    mark = f"APP_PORT_1={app_ports(conversation_id)[0]}\0".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in environment.read_bytes():
                return True
    return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_another_server_carries_on_what_one_leaves(cluster: Cluster, writer: Writer, how: signal.Signals) -> None:
    first, second = await cluster.add(), await cluster.add()
    conversation_id = await create(first)
    async with following(first, conversation_id) as here, following(second, conversation_id) as there:
        await here.send({"action": "message", "args": {"content": 'Write "task-1".'}})
        await until(partial(writer.has_written, "task-1", 2), seconds=WAIT_SECONDS)
        await (first.kill() if how == signal.SIGKILL else first.stop())
        await until(partial(has_ended, there), seconds=WAIT_SECONDS)
        await check_whole(second, conversation_id, there)
    assert writer.lines("task-1") == [str(number) for number in range(COMMANDS)]


async def test_a_frozen_server_writes_nothing_when_it_goes_on(cluster: Cluster, writer: Writer) -> None:
    first, second = await cluster.add(), await cluster.add()
    conversation_id = await create(first)
    async with following(first, conversation_id) as here, following(second, conversation_id) as there:
        await here.send({"action": "message", "args": {"content": 'Write "task-1".'}})
        await until(partial(writer.has_written, "task-1", 2), seconds=WAIT_SECONDS)
        os.kill(first.pid, signal.SIGSTOP)
        try:
            # What is sent by way of the other is taken by whoever goes on.
            await there.send({"action": "message", "args": {"content": "And go on."}})
            await until(partial(has_ended, there), seconds=WAIT_SECONDS)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        await first.until_printed("lease_lost")
        await until(partial(has_ended, here), seconds=WAIT_SECONDS)
        await check_whole(second, conversation_id, there, here)
        said = [one["args"]["content"] for one in there.events.values() if one.get("action") == "message"]
        assert said.count("And go on.") == 1
    assert writer.lines("task-1") == [str(number) for number in range(COMMANDS)]


async def test_other_servers_ask_at_the_address_that_is_set(cluster: Cluster) -> None:
    first = await cluster.add(DRYDOCK_CLUSTER_URL="http://127.0.0.1:9")  # where nobody is
    second = await cluster.add()
    conversation_id = await create(first, initial_user_msg='Write "task-1".')
    async with second.client() as client:
        answer = await client.get(f"/api/conversations/{conversation_id}/list-files")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "does not answer; another one goes on with it" in answer.json()["detail"]
        assert (await client.get(f"/api/conversations/{conversation_id}/events")).status_code == 200


async def test_a_server_needs_the_key_of_the_others(
    cluster: Cluster, make_process: MakeProcess, new_postgresql_url: str, tmp_path: Path
) -> None:
    server = await cluster.add()
    environment = {"DRYDOCK_DATABASE_URL": new_postgresql_url, "DRYDOCK_CONVERSATION_MANAGER_CLASS": CLUSTERED}
    with pytest.raises(RuntimeError, match=r"secret\.key was missing, and other servers use the database"):
        await make_process("--sandbox", "unconfined", name="stranger", environment=environment)
    own = tmp_path / "rotating"
    own.mkdir(mode=0o700)
    shutil.copy2(server.data_dir / "secret.key", own)
    refused = await asyncio.to_thread(_rotated, Settings(data_dir=own, database_url=new_postgresql_url))
    assert f"({server.url})" in refused
    assert "end all of them, rotate the key, copy secret.key" in refused


def _rotated(settings: Settings) -> str:
    with pytest.raises(SecretKeyError) as refused:
        rotate_key(settings, io.StringIO())
    return str(refused.value)


async def test_servers_share_no_file(make_process: MakeProcess) -> None:
    environment = {"DRYDOCK_CONVERSATION_MANAGER_CLASS": CLUSTERED}
    with pytest.raises(RuntimeError, match="servers share a PostgreSQL, and database_url names none"):
        await make_process("--sandbox", "unconfined", name="alone", environment=environment)
