"""What has to be true after a run in which the server was killed, each thing that is not as one sentence."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path

from docker import APIClient
from docker.errors import DockerException

from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.store import SEPARATOR
from agent_core.runtime.docker.engine import connect
from agent_core.runtime.local.cgroups import find_hierarchies
from agent_core.runtime.local.folder import SandboxFolder
from agent_core.runtime.processes import ProcessId
from agent_core.runtime.sandbox import LABEL_INSTANCE
from server.db.data_folder import instance_id
from server.wire.envelope import is_hidden
from tests.chaos.script import EFFECTS, FORBIDDEN, SECRET, wanted_lines
from tests.chaos.workload import Workload, rows, stored_events_of
from tests.integration.server.conftest import comparable

END_SECONDS = 60.0
_ANSWERS = (ObservationEvent, AgentErrorEvent, UserRejectObservation)
_KEPT_FILES = {
    *("drydock.db", "secret.key", "token", "instance-id", "instance.lock", "last-backup.json", "last-seen.json"),
    "audit-head.json",
}
_OF_CONVERSATIONS = ("events", "webhook_positions", "chat_turns", "feedback", "shares")
SCRATCH = {"tmp": "TMPDIR", "home": "HOME", "runtime": "XDG_RUNTIME_DIR", "cache": "XDG_CACHE_HOME"}
"""Folders beside that of the data in which nothing may stay, and the variables that name them to the server."""
_SHARED_PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_COUNTS = {
    **dict.fromkeys((*_OF_CONVERSATIONS, "conversations", "webhooks"), (0, "")),
    # Of several servers:
    **dict.fromkeys(("servers", "leases", "inbox", "payloads", "shared_facts", "waiting_files"), (0, "")),
    # Of several users:
    **dict.fromkeys(
        ("users", "user_identities", "used_states", "access_tokens", "sign_ins", "one_time_links"), (0, "")
    ),
    **dict.fromkeys(("settings", "secrets", "sealing_keys", "alembic_version", "audit_heads"), (1, "")),
    **dict.fromkeys(("skills", "notes", "notes_index"), (1, "keeping")),
    "plugins": (2, "plugin"),
    "mcp_sign_ins": (1, "sign-in"),
}
"""How many rows each table may have when every conversation is deleted, and with which part of the workload alone."""
_ALLOWED = {
    "owners": "epoch > 0",
    "audit": "number <= (SELECT number FROM audit_heads)",
    "idempotency_keys": "scope NOT LIKE 'send:%'",
    "mcp_sign_ins": "state IS NULL AND pending IS NULL",
}
"""What each row of these is: kept on purpose; in the signed chain; remembered for a week, of no conversation; waiting
for no browser."""


async def audit_of_the_run(workload: Workload, excused: Collection[str] = ()) -> list[str]:
    """What is wrong after the scenario, while everything is still there; lines that are `excused` may be missing."""
    found = [*await _told(workload), *_logs(workload), *await _files(workload, excused), *await _confirmed(workload)]
    await _webhooks(workload, found)
    return [*found, *_called(workload), *await _queue(workload)]


async def _told(workload: Workload) -> list[str]:
    """What a client was shown is in the log, the same."""
    found = []
    for follower in workload.followers.values():
        conversation_id = follower.conversation_id
        stored = {event["id"]: event for event in await stored_events_of(workload, conversation_id)}
        for event_id, seen in follower.events.items():
            if event_id not in stored:
                found.append(f"event {event_id} of {conversation_id} was shown and is gone")
            elif comparable(stored[event_id]) != comparable(seen):
                found.append(f"event {event_id} of {conversation_id} was shown otherwise")
        ids = [frame["id"] for frame in follower.frames if isinstance(frame.get("id"), int)]
        found += [f"event {one} of {conversation_id} was shown {n} times" for one, n in Counter(ids).items() if n > 1]
    return found


def _logs(workload: Workload) -> list[str]:
    """Every log is without a gap, and every action in it has one answer."""
    found = []
    for log, events in logs(workload.server.data_dir).items():
        if [event.id for event in events] != list(range(len(events))):
            found.append(f"log {log} has a gap")
        answers = Counter(event.cause for event in events if isinstance(event, _ANSWERS) and event.cause is not None)
        asked = {event.id: event.tool_name for event in events if isinstance(event, ActionEvent)}
        for event_id, tool in asked.items():
            if answers[event_id] != 1 and not (tool == "finish" and answers[event_id] == 0):
                found.append(f"log {log}: action {event_id} ({tool}) has {answers[event_id]} answers")
        said = [
            event.llm_message.text for event in events if isinstance(event, MessageEvent) and event.source == "user"
        ]
        found += [f"log {log}: {one!r} is there {n} times" for one, n in Counter(said).items() if n > 1]
    if rows(workload.server.data_dir, "SELECT 1 FROM events WHERE instr(payload, ?)", SECRET.encode()):
        found.append("a secret is in a log")
    known = [one for (one,) in rows(workload.server.data_dir, "SELECT id FROM conversations")]
    for table in _OF_CONVERSATIONS:
        for (log,) in rows(workload.server.data_dir, f"SELECT DISTINCT conversation_id FROM {table}"):  # noqa: S608
            if not any(log == one or log.startswith(one + SEPARATOR) for one in known):  # or one of its sub-agents
                found.append(f"{table} has rows of {log}, which is no conversation")
    return found


def logs(data_dir: Path) -> dict[str, list[AnyEvent]]:
    """Every log whose payloads are in the database."""
    found: dict[str, list[AnyEvent]] = {}
    query = "SELECT conversation_id, id, payload FROM events WHERE payload IS NOT NULL ORDER BY conversation_id, id"
    for log, event_id, payload in rows(data_dir, query):
        found.setdefault(log, []).append(from_payload(payload, event_id))
    return found


async def _queue(workload: Workload) -> list[str]:
    """Nobody keeps a place, which is noted within about a second."""
    deadline = time.monotonic() + 5.0
    while waiting := rows(workload.server.data_dir, "SELECT id FROM conversations WHERE waiting_number IS NOT NULL"):
        if time.monotonic() > deadline:
            return [f"{len(waiting)} conversations still have a place in the queue"]
        await asyncio.sleep(0.1)
    return []


async def _files(workload: Workload, lost: Collection[str]) -> list[str]:
    """Each command has written its line once, what was taken back is gone, and copies have the same files."""
    found = []
    wanted = wanted_lines(workload.parts)
    excused = {*_excused(workload), *lost}
    text = await workload.text_of(workload.conversation_id, EFFECTS)
    counted = Counter(text.split())
    for line in sorted({*wanted, *counted}):
        if counted[line] > 1:
            found.append(f"the side effect {line!r} is there {counted[line]} times")
        elif line not in wanted:
            what = "may not be" if line == FORBIDDEN else "was taken back and is"
            found.append(f"the side effect {line!r} {what} there")
        elif not counted[line] and line not in excused:
            found.append(f"the side effect {line!r} is not there, and its answer does not say so")
    if await workload.text_of(workload.conversation_id, "/workspace/uploaded") != "from outside" * 1000:
        found.append("the uploaded file is another one")
    same = {"fork": text, "archive": text, **{name: f"{name}\n" for name in ("queued", "chat", "door", "editor")}}
    for name in same.keys() & workload.made.keys():
        files = await workload.text_of(workload.made[name], EFFECTS)
        found += [f"the conversation {name!r} has other files: {files!r}"] if files != same[name] else []
    return found


def _called(workload: Workload) -> Iterator[str]:
    """The MCP server that wants a sign-in was called once, unless the answer says that nobody knows."""
    if workload.tools is None:
        return
    called, events = workload.tools.called, [one for log in logs(workload.server.data_dir).values() for one in log]
    failed = {event.cause for event in events if isinstance(event, AgentErrorEvent)}
    asked = [event.id for event in events if isinstance(event, ActionEvent) and event.tool_name == "whoami"]
    if len(called) > 1 or (not called and not failed.intersection(asked)):
        yield f"the MCP server with a sign-in was called {len(called)} times"


def _excused(workload: Workload) -> set[str]:
    """The lines of actions whose answer says that they, or whether they ran, is not known."""
    done, failed = list[str](), list[str]()
    for events in logs(workload.server.data_dir).values():
        causes = {event.cause for event in events if isinstance(event, AgentErrorEvent)}
        for event in events:
            if isinstance(event, ActionEvent):
                (failed if event.id in causes else done).append(json.dumps(event.model_dump(mode="json")))
    return {
        line
        for line, marks in wanted_lines(workload.parts).items()
        if any(mark in action for mark in marks for action in failed)
        or (workload.victims and not any(mark in action for mark in marks for action in done))
    }


async def _confirmed(workload: Workload) -> list[str]:
    """What REST confirmed is so."""
    found = []
    settings = (await workload.done("GET", "/api/settings")).json()
    if (settings["language"], settings["llm_model"]) != ("de", "openai/scripted"):
        found.append("the settings are not as they were confirmed")
    secrets = {one["name"]: one for one in (await workload.done("GET", "/api/secrets")).json()["custom_secrets"]}
    if set(secrets) != {"SECOND"} or secrets["SECOND"]["description"] != "changed":
        found.append(f"the secrets are not as they were confirmed: {sorted(secrets)}")
    if (await workload.info(workload.conversation_id))["title"] != workload.title:
        found.append("the title is not as it was confirmed")
    listed = (await workload.done("GET", "/api/conversations", params={"limit": 100})).json()["results"]
    known = set(workload.made.values())
    if {one["conversation_id"] for one in listed} != known:
        found.append(f"{len(listed)} conversations are listed instead of {len(known)}")
    if "keeping" in workload.parts:
        notes = (await workload.done("GET", "/api/notes")).json()["results"]
        if [(one["title"], one["content"]) for one in notes] != [("Boats", "They sink.")]:
            found.append(f"the notes are not as they were confirmed: {notes}")
        skills = (await workload.done("GET", "/api/skills")).json()["skills"]
        if [(one["name"], one["enabled"]) for one in skills] != [("boats", False)]:
            found.append(f"the skills are not as they were confirmed: {skills}")
    if "plugin" in workload.parts:
        plugins = (await workload.done("GET", "/api/plugins")).json()["plugins"]
        own = [(one["name"], one["enabled"], one["ref"]) for one in plugins if one["name"] != "common"]
        if own != [("tools", True, "main")]:
            found.append(f"the plugins are not as they were confirmed: {plugins}")
    return found


async def _webhooks(workload: Workload, found: list[str]) -> None:
    """Every event that a webhook is for arrives; what arrives twice has the same id and the same words."""
    last = max(
        event["id"]
        for event in await stored_events_of(workload)
        if event.get("observation") != "null" and not is_hidden(event)
    )

    async def arrived() -> bool:
        return last in workload.receiver.events(workload.conversation_id)

    try:
        await workload.until("the webhook was told of everything", arrived)
    except AssertionError as error:
        found.append(str(error))
    bodies: dict[str, bytes] = {}
    for headers, body in workload.receiver.requests:
        data = json.loads(body)
        data.pop("timestamp", None)
        same = json.dumps(data, sort_keys=True).encode()
        if bodies.setdefault(headers["webhook-id"], same) != same:
            found.append(f"webhook message {headers['webhook-id']} was sent with other words the second time")
    told = workload.receiver.events(workload.conversation_id)
    public = [
        event["id"]
        for event in await stored_events_of(workload)
        if event.get("observation") != "null" and not is_hidden(event)
    ]
    if missing := [one for one in public if one not in told]:
        found.append(f"the webhook was not told of the events {missing[:5]}")


class Belongings:
    """What a run has on this machine under names that say nothing of its folder; made before all is deleted."""

    def __init__(self, workload: Workload) -> None:
        data_dir = workload.server.data_dir
        self.networks = networks_of(data_dir)
        self._names = {path.name for path in data_dir.glob("sandboxes/*")}
        self._names |= {instance_id(data_dir), *workload.made.values()}
        self._place = str(data_dir.parent)

    def left(self) -> Iterator[str]:
        """Control groups, mounts, loop devices, and files in places that all programs share."""
        for root in set(find_hierarchies(Path("/proc/self/mounts").read_text("utf-8").splitlines()).values()):
            yield from (f"the control group {path} is left" for path in self._ours(root / "drydock"))
        for place in _SHARED_PLACES:
            yield from (f"the file {path} is left" for path in self._ours(Path(place)))
        for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
            if self._place in line:
                yield f"a mount is left: {line}"
        for path in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):
                if self._place in path.read_text("utf-8"):
                    yield f"the loop device {path.parts[3]} is left"

    def _ours(self, folder: Path) -> Iterator[Path]:
        with suppress(OSError):
            yield from (path for path in folder.iterdir() if any(name in path.name for name in self._names))


def audit_of_what_is_left(workload: Workload, there: Belongings) -> list[str]:
    """What is left when every conversation was deleted and the server has ended; `there` was made before."""
    data_dir = workload.server.data_dir
    found = list(_rows_left(workload))
    for folder in ("sandboxes", "forks", "blobs"):
        found += [f"the file {path.relative_to(data_dir)} is left" for path in _left_in(data_dir / folder)]
    found += [f"the file {one.name} is left in the data folder" for one in data_dir.iterdir() if not _is_known(one)]
    for name in SCRATCH:
        found += [f"the file {path} is left" for path in (data_dir.parent / name).rglob("*")]
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        left = [*processes_of(data_dir), *(f"{one.pid} of a network" for one in there.networks if one.alive)]
        if not left:
            break
        time.sleep(0.1)
    found += [f"a process is left: {one[:150]}" for one in left]
    return [*found, *there.left()]


def _rows_left(workload: Workload) -> Iterator[str]:
    """Rows that belong to nothing, in every table that there is, and whether the database is sound."""
    data_dir = workload.server.data_dir
    sound = rows(data_dir, "PRAGMA integrity_check")
    if sound != [("ok",)]:
        yield f"the database is damaged: {sound}"
    tables = {one for (one,) in rows(data_dir, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in sorted(tables):
        if table in _COUNTS:
            number, part = _COUNTS[table]
            wanted = number if part in ("", *workload.parts) else 0
            count = rows(data_dir, f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608 - names of ours
            if count > wanted:
                yield f"{table} has {count} rows, and may have {wanted}"
        if table in _ALLOWED:
            other = rows(data_dir, f"SELECT * FROM {table} WHERE NOT ({_ALLOWED[table]})")  # noqa: S608 - names of ours
            yield from (f"{table} has a row of nobody: {str(one)[:200]}" for one in other)
        if not (table in _COUNTS or table in _ALLOWED or table.startswith(("notes_index_", "sqlite_"))):
            yield f"nobody says what may be left in the table {table}"


def _left_in(folder: Path) -> Iterator[Path]:
    """What is below a folder, of sandboxes the folders alone."""
    if folder.name == "sandboxes":
        yield from folder.iterdir() if folder.is_dir() else ()
    else:
        yield from folder.rglob("*")


def _is_known(path: Path) -> bool:
    return (
        path.name in _KEPT_FILES or path.name.startswith("drydock.db-") or path.name in ("sandboxes", "forks", "blobs")
    )


def networks_of(data_dir: Path) -> set[ProcessId]:
    """The processes that carry the networks of sandboxes, which see nothing of the folder."""
    names = [path.parent.name for path in data_dir.glob("sandboxes/*/process.json")]
    return {one for name in names if (one := SandboxFolder(str(data_dir), name).process("network")) is not None}


def processes_of(data_dir: Path) -> Iterator[str]:
    """The processes that work in this folder, see it or were started with its name, each as its command line."""
    mark, networks = str(data_dir).encode(), {str(one.pid) for one in networks_of(data_dir)}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        with suppress(OSError):
            place = Path("/proc", pid)
            command = place.joinpath("cmdline").read_bytes()
            if not command:
                continue
            known = command + place.joinpath("environ").read_bytes() + place.joinpath("mountinfo").read_bytes()
            if mark in known or (pid in networks and b"slirp4netns" in command):
                yield f"{pid} {command.replace(bytes(1), b' ').decode(errors='replace')}"


async def audit_of_the_engine(workload: Workload) -> list[str]:
    """What Docker's engine has left of this server."""

    def look() -> list[str]:
        with closing(connect(None, 20)[0]) as engine:
            return [f"{kind} {name} is left" for kind, name in _in_the_engine(engine, workload.server.data_dir)]

    return await asyncio.to_thread(look)


def _in_the_engine(engine: APIClient, data_dir: Path) -> Iterator[tuple[str, str]]:
    ours = {"label": f"{LABEL_INSTANCE}={instance_id(data_dir)}"}
    yield from (("container", one["Names"][0]) for one in engine.containers(all=True, filters=ours))
    yield from (("network", one["Name"]) for one in engine.networks(filters=ours))
    yield from (("volume", one["Name"]) for one in engine.volumes(filters=ours)["Volumes"] or ())


def remove_what_is_left(workload: Workload) -> None:
    """By hand, what a run that failed or was broken off has left: processes, and what the engine has."""
    data_dir = workload.server.data_dir
    deadline = time.monotonic() + END_SECONDS
    while (left := list(processes_of(data_dir))) and time.monotonic() < deadline:
        for one in left:
            with suppress(OSError):
                os.kill(int(one.split()[0]), signal.SIGKILL)
        time.sleep(0.1)
    if "docker" in workload.server.options:
        with closing(connect(None, 20)[0]) as engine:
            remove = {
                "container": lambda name: engine.remove_container(name, v=True, force=True),
                "network": engine.remove_network,
                "volume": lambda name: engine.remove_volume(name, force=True),
            }
            for kind, name in list(_in_the_engine(engine, data_dir)):
                with suppress(DockerException):
                    remove[kind](name)
