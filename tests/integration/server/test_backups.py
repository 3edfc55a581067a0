"""Backups of a server at work, restored and gone on with: what was at one moment, whole, with or without workspaces."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
import time
from collections import Counter
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.serialization import from_payload
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from server.db.blobs import folder_name
from tests.integration.server.conftest import (
    WAIT_SECONDS,
    MakeProcess,
    ServerProcess,
    clean_environment,
    create,
    following,
    stored_events,
)
from tests.integration.server.forks import fork_server
from tests.integration.server.test_conversation_archives import tree


async def drydock(log: Path, *arguments: str) -> tuple[int, str]:
    """Run a command; its exit status, and what it printed."""
    before = len(printed(log))
    process = fork_server(list(arguments), clean_environment(), log)
    async with asyncio.timeout(WAIT_SECONDS):
        return await process.wait(), printed(log)[before:]


def printed(log: Path) -> str:
    return log.read_text("utf-8") if log.exists() else ""


def workspace_of(server: ServerProcess, conversation_id: str) -> Path:
    for record in (server.data_dir / "sandboxes").glob("*/sandbox.json"):
        if json.loads(record.read_text())["conversation"] == conversation_id:
            return record.parent / "workspace"
    raise AssertionError(f"{conversation_id} has no sandbox")


def fill(workspace: Path, name: str) -> None:
    owner = workspace.stat()
    (workspace / "empty/deeper").mkdir(parents=True)
    (workspace / "node_modules").mkdir()
    (workspace / "node_modules/kept").write_text(name)
    (workspace / "large").write_bytes(bytes(range(256)) * 36_000)
    (workspace / "odd\nname").write_text(name)
    (workspace / "run.sh").write_text("#!/bin/sh\n")
    (workspace / "run.sh").chmod(0o751)
    (workspace / "link").symlink_to("/etc/passwd")
    for path in workspace.rglob("*"):
        os.lchown(path, owner.st_uid, owner.st_gid)
    (workspace / "empty").chmod(0o555)


async def until(condition: Any) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await condition():  # noqa: ASYNC110 - files and logs say nothing by themselves
            await asyncio.sleep(0.05)


def answer_of(gate: Path) -> Any:
    """One command that runs until there is a gate; whoever is asked again is done."""

    def turn(request: ModelRequest) -> Turn:
        if "Wait for it" not in str(request.messages) or "tool_call_id" in str(request.messages):
            return finish("Done.")
        return call("execute_bash", {"command": f"echo begun > begun; while [ ! -e {gate} ]; do sleep 0.05; done"})

    return turn


@pytest.mark.bubblewrap
async def test_workspaces_are_in_a_backup_and_go_on_where_it_is_restored(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    """One conversation is at work, one rests, one is stopped; then the server is gone, too."""
    log = tmp_path / "command.log"
    async with ModelServer(answer_of(tmp_path / "gate")) as model:
        asked = {"LLM_MODEL": "openai/m", "LLM_API_KEY": "key", "LLM_BASE_URL": model.url}
        asked |= {"DRYDOCK_GENERATE_TITLES": "false"}
        server = await make_process("--sandbox", "local", environment=asked)
        working = await create(server, initial_user_msg="Wait for it.")
        resting, stopped = [await create(server, initial_user_msg="Hello.") for _ in range(2)]
        async with following(server, working) as follower:
            await follower.until(lambda: follower.count(action="run") == 1)
        for conversation_id in (resting, stopped):
            async with following(server, conversation_id) as follower:
                await follower.until(lambda: follower.count(action="finish") == 1)
        async with server.client() as client:
            await client.post(f"/api/conversations/{stopped}/stop", json={})
        kept = (working, resting, stopped)
        for conversation_id in kept:
            fill(workspace_of(server, conversation_id), conversation_id)

        async def has_begun() -> bool:
            return (workspace_of(server, working) / "begun").exists()

        await until(has_begun)
        before = {one: tree(workspace_of(server, one)) for one in kept}
        file = tmp_path / "backup"
        status, words = await drydock(log, "backup", str(file), "--workspaces", "--data-dir", str(server.data_dir))
        assert (status, "3 workspaces" in words) == (0, True), words
        await server.stop()
        later = tmp_path / "later"
        await drydock(log, "backup", str(later), "--workspaces", "--data-dir", str(server.data_dir))

        for number, (name, options) in enumerate((("new", ()), ("same", ("--take-over",)))):
            data = tmp_path / name
            status, words = await drydock(log, "restore", str((file, later)[number]), "--data-dir", str(data), *options)
            assert (status, "The files of 3 workspaces" in words) == (0, True), words
            environment = asked | ({"DRYDOCK_RESUME_ON_START": "true"} if options else {})
            restored = await make_process("--sandbox", "local", name=name, environment=environment)
            for conversation_id in kept if not options else (working,):
                async with restored.client() as client:
                    info = (await client.get(f"/api/conversations/{conversation_id}")).json()
                    if not options:  # it is another server, and takes nothing up
                        assert info["status"] == "STOPPED"
                    if not options or conversation_id != working:
                        said = {"action": "message", "args": {"content": "Go on."}}
                        await client.post(f"/api/conversations/{conversation_id}/events", json=said)

                async def is_done(conversation_id: str = conversation_id, restored: ServerProcess = restored) -> bool:
                    last = (await stored_events(restored, conversation_id))[-1]
                    return bool(last.get("extras", {}).get("agent_state") == "finished")

                await until(is_done)
                found = tree(workspace_of(restored, conversation_id))
                assert {path: found.get(path) for path in before[conversation_id]} == before[conversation_id]
            # What ran when the backup was made has one answer, which says that nobody knows.
            events = await stored_events(restored, working)
            (run,) = [event for event in events if event.get("action") == "run"]
            (answer,) = [event for event in events if event.get("cause") == run["id"]]
            assert "it is unknown whether it took effect" in str(answer), answer
            await restored.stop()

        # On its own machine its sandboxes are found again, with what has been written since.
        (workspace_of(server, resting) / "since").write_text("since")
        status, words = await drydock(
            log, "restore", str(file), "--force", "--take-over", "--data-dir", str(server.data_dir)
        )
        assert (status, "3 sandboxes are still here" in words) == (0, True), words
        assert list((server.data_dir / "forks").glob("*.tar")) == []
        assert (workspace_of(server, resting) / "since").exists()


def audit(data_dir: Path) -> list[str]:
    """What is wrong with a data folder that no server uses."""
    found = []
    with closing(sqlite3.connect(data_dir / "drydock.db")) as database:
        known = {one for (one,) in database.execute("SELECT id FROM conversations")}
        logs: dict[str, list[tuple[int, bytes | None, str | None]]] = {}
        for log, *row in database.execute("SELECT conversation_id, id, payload, blob FROM events ORDER BY 1, 2"):
            logs.setdefault(log, []).append((row[0], row[1], row[2]))
        for table in ("events", "chat_turns", "feedback", "webhook_positions"):
            for (log,) in database.execute(f"SELECT DISTINCT conversation_id FROM {table}"):  # noqa: S608
                if log.split("~")[0] not in known:
                    found.append(f"{table} has rows of {log}, which is no conversation")
    for log, rows in logs.items():
        if [one for one, _, _ in rows] != list(range(len(rows))):
            found.append(f"log {log} has a gap")
        answers, asked = Counter[int](), set[int]()
        for event_id, payload, blob in rows:
            if blob is not None and not (data_dir / "blobs" / folder_name(log) / blob).exists():
                found.append(f"payload {blob} of {log} is missing")
            event = None if payload is None else from_payload(payload, event_id)
            if isinstance(event, ActionEvent):
                asked.add(event_id)
            if isinstance(event, ObservationEvent | AgentErrorEvent) and event.cause is not None:
                answers[event.cause] += 1
        found += [f"{log}: {one} has {count} answers" for one, count in answers.items() if one in asked and count > 1]
    found += [f"no log of {one}" for one in known - logs.keys()]
    found += [f"files of {path.stem}" for path in (data_dir / "forks").glob("*") if path.stem not in known]
    return found


async def test_backups_of_a_server_at_work_are_whole_whatever_is_done_meanwhile(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    log = tmp_path / "command.log"
    server = await make_process("--sandbox", "unconfined", environment={"DRYDOCK_GENERATE_TITLES": "false"})
    source, kept = await create(server), await create(server)
    async with following(server, source) as follower, server.client() as client:
        await follower.run("head -c 2000000 /dev/urandom | base64; echo files > file")
        await follower.until(lambda: follower.count(observation="run") == 1)
        archive = (await client.get(f"/api/conversations/{source}/archive")).content
        is_over, done = False, Counter[str]()

        async def keep(name: str, work: Any) -> None:
            while not is_over:
                answer: httpx.Response = await work()
                assert answer.status_code < 500, (name, answer.text)
                done[name] += answer.is_success

        async def fork_and_delete() -> httpx.Response:
            answer = await client.post(f"/api/conversations/{source}/fork", json={})
            if answer.is_success:
                await client.delete(f"/api/conversations/{answer.json()['conversation_id']}")
            return answer

        async def import_and_delete() -> httpx.Response:
            answer = await client.post("/api/conversations/import/archive", content=archive)
            if answer.is_success:
                await client.delete(f"/api/conversations/{answer.json()['conversation_id']}")
            return answer

        async def write_and_rewind() -> httpx.Response:
            before = follower.count(observation="run")
            await follower.run("date >> file")
            await follower.until(lambda: follower.count(observation="run") > before)
            return await client.post(f"/api/conversations/{source}/rewind", json={"event_id": 0})

        numbers = iter(range(1_000_000))
        works = {
            "fork": fork_and_delete,
            "import": import_and_delete,
            "rewind": write_and_rewind,
            "upload": lambda: client.post(
                f"/api/conversations/{kept}/upload-files", files={"files": ("up", b"u" * 10_000)}
            ),
            "title": lambda: client.patch(f"/api/conversations/{kept}", json={"title": f"{next(numbers)}"}),
            "settings": lambda: client.post("/api/settings", json={"language": f"l{next(numbers)}"}),
            "secret": lambda: client.post("/api/secrets", json={"name": f"S{next(numbers)}", "value": "v"}),
        }
        tasks = [asyncio.create_task(keep(name, work)) for name, work in works.items()]
        try:
            backups = []
            for number in range(4):
                file = tmp_path / f"backup{number}"
                options = ("--workspaces",) if number % 2 else ()
                status, words = await drydock(log, "backup", str(file), *options, "--data-dir", str(server.data_dir))
                assert status == 0, words
                backups.append(file)
            exported = [(await client.get(f"/api/conversations/{source}/archive")).content for _ in range(3)]
        finally:
            is_over = True
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [one for one in results if one is not None] == []
        assert min(done[name] for name in works) > 0, done
        for content in exported:
            answer = await client.post("/api/conversations/import/archive", content=content)
            assert answer.is_success, answer.text
    for file in backups:
        data = tmp_path / f"of-{file.name}"
        status, words = await drydock(log, "restore", str(file), "--data-dir", str(data))
        assert status == 0, words
        assert audit(data) == []
    await server.stop()
    assert audit(server.data_dir) == []


async def test_what_a_killed_backup_export_or_restore_leaves_goes_with_the_next_one(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    """Killed where each has its files open; what somebody else still writes stays."""
    log, out = tmp_path / "command.log", tmp_path / "out"
    out.mkdir()
    server = await make_process("--sandbox", "unconfined")
    data, known = str(server.data_dir), {**clean_environment(), "DRYDOCK_URL": server.url}
    conversation_id = await create(server)
    target = out / "b"
    assert (await drydock(log, "backup", str(target), "--data-dir", data))[0] == 0
    commands = {
        "server.db.backup Backup _add_files": ["backup", str(target), "--force", "--data-dir", data],
        "server.db.backup Backup _key": ["backup", "-", "--data-dir", data],
        "server.cli.recordings _write": ["export", conversation_id, str(out / "c")],
        "server.db.restore Restore _settle": ["restore", str(target), "--data-dir", str(out / "data")],
    }
    for number, (place, arguments) in enumerate(commands.items()):
        environment = {**known, "RUN_FIRST": "tests.integration.server.test_backups:hold", "HOLD_AT": place}
        alone = arguments[0] == "restore"  # a folder is one's alone
        logs = [tmp_path / f"held{number}-{one}" for one in range(1 if alone else 2)]
        killed, *others = [fork_server(arguments, environment, one) for one in logs]

        async def are_held(logs: list[Path] = logs) -> bool:
            return all("held" in printed(one) for one in logs)

        await until(are_held)
        killed.send_signal(signal.SIGKILL)
        await killed.wait()
        left = hidden(out, server.data_dir)
        process = fork_server(arguments, known, log)
        assert await process.wait() == 0, printed(log)
        remaining = hidden(out, server.data_dir)
        assert len(remaining) * (1 + len(others)) == len(left) * len(others), (place, left, remaining)
        assert left, place
        for other in others:
            other.send_signal(signal.SIGKILL)
            await other.wait()
        for path in (out / "c", out / "data"):
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
        process = fork_server(arguments, known, log)
        assert await process.wait() == 0, printed(log)
        assert hidden(out, server.data_dir) == [], place


def hidden(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob(".*") if "sandboxes" not in path.parts]


def hold() -> None:
    """Let a command stop at a function, for somebody to kill it there."""
    module, *names = os.environ["HOLD_AT"].split()
    owner: Any = import_module(module)
    for name in names[:-1]:
        owner = getattr(owner, name)

    def held(*_arguments: object, **_options: object) -> None:
        sys.stderr.write("held\n")
        sys.stderr.flush()
        time.sleep(WAIT_SECONDS)

    setattr(owner, names[-1], held)
