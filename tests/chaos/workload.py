"""What a server works at while it is killed: asked through the public protocol alone, for each thing until it is done.

A client of a server that may die at any moment asks again; where asking again could do something twice, the protocol
has keys for it, and the workload uses them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from acp import RequestError
from socketio.exceptions import SocketIOError

from agent_core.mcp.grants import sign_in_id
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import say
from drydock_client import DrydockClient
from server.db.blobs import folder_name
from server.doors.mcp.conversations import DoorConversations, DoorError
from tests.authorization_server import ToolServer
from tests.chaos.points import POINTS
from tests.chaos.script import PROGRAM, SECRET, SITE_PORT
from tests.contract.acp.conftest import Desk, FakeEditor, connection_to, introduced
from tests.contract.webhooks.conftest import Receiver
from tests.integration.server.conftest import Follower, ServerProcess, clean_environment, stored_events
from tests.integration.server.forks import fork_server

LIMIT_SECONDS = 240.0
DYING_SECONDS = 3.0
ENDING_SECONDS = 60.0
_BIG = "a long message " * 80_000  # over a megabyte: kept as a blob
_SKILL = "---\ntriggers: [boat]\n---\nBoats float."
_SANDBOX_LINE = re.compile(r"^  sandbox   (?!still)", re.MULTILINE)
"""What a server says once it knows how sandboxes are made, and those of no conversation are gone."""
_SIGNALS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM}


class WorkloadError(AssertionError):
    """Something did not happen that must happen, whatever was killed."""


@dataclass
class Workload:
    """One run: a server, its client, and what the client was told.

    `kills` says how each life of the server ends, in turn: a ``FAULT_POINT``, or ``KILL@1.5`` and ``TERM@0.3``, a
    signal so many seconds after it was started. When they are used up, it lives. `victim` is a word in the command line
    of another process that is killed, and after how many seconds of its life.
    """

    server: ServerProcess
    receiver: Receiver
    model: ModelServer
    trace: Path
    kills: list[str]
    parts: frozenset[str]
    victim: tuple[str, float] | None = None
    plugin_url: str = ""
    tools: ToolServer | None = None
    deaths: int = 0
    victims: int = 0
    followers: dict[str, Follower] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    """The ids of the conversations, by what they are for; ``""`` is the one that all is about."""
    title: str = ""
    webhook_id: str = ""
    _reviving: asyncio.Lock = field(default_factory=asyncio.Lock)
    _life_at: int = 0
    """Where in the server's log its present life begins."""
    _cut: asyncio.Task[None] | None = None

    @property
    def conversation_id(self) -> str:
        return self.made.get("", "")

    async def start(self) -> None:
        """Start the server until one lives long enough to say where it is."""
        while True:
            chosen = self._next_kill()
            self.server.environment = self._armed(chosen)
            self.spare()
            self._cut = asyncio.create_task(self._end_at(chosen)) if "@" in chosen else None
            self._life_at = len(self.server.log.read_bytes()) if self.server.log.exists() else 0
            try:
                await self.server.start()
                return
            except (RuntimeError, httpx.HTTPError, AssertionError) as error:
                # One that is told to end takes its time, and does not listen any more.
                if not await self.died(ENDING_SECONDS if chosen else DYING_SECONDS):
                    raise
                if not chosen and self.server.returncode != -signal.SIGKILL:
                    raise WorkloadError(f"the server does not start: {self.server.printed()[-2000:]}") from error
                self.deaths += 1

    def _next_kill(self, command: str = "") -> str:
        """The next of the kills that is meant for this command, or for the server; "" where there is none."""
        for kill in self.kills:
            if _command_of(kill) == command:
                self.kills.remove(kill)
                return kill
        return ""

    def _armed(self, kill: str) -> dict[str, str]:
        """The environment of a process that is killed there."""
        kept = {name: value for name, value in self.server.environment.items() if name != "FAULT_POINT"}
        point = {"FAULT_POINT": kill} if kill and "@" not in kill else {}
        return {**kept, "RUN_FIRST": "tests.chaos.points:arm", "FAULT_TRACE": str(self.trace), **point}

    async def command(self, name: str, *arguments: str, again: bool = True) -> None:
        """Run a command beside the server, or in its place; where it is killed, by default once more."""
        log = self.trace.with_name("commands.log")
        while True:
            kill = self._next_kill(name)
            process = fork_server([name, *arguments], {**clean_environment(), **self._armed(kill)}, log)
            async with asyncio.timeout(LIMIT_SECONDS):
                status = await process.wait()
            if status not in (0, -signal.SIGKILL if kill else 0):
                raise WorkloadError(f"drydock {name} ended with {status}: {log.read_text()[-2000:]}")
            self.deaths += status != 0
            if status == 0 or not again:
                return
            await asyncio.sleep(1.1)

    async def _end_at(self, moment: str) -> None:
        name, _, seconds = moment.partition("@")
        await asyncio.sleep(float(seconds))
        with suppress(ProcessLookupError):
            if not self.is_dead:
                os.kill(self.server.pid, _SIGNALS[name])

    def spare(self) -> None:
        """Let this life of the server go on beyond the moment that was chosen for its end."""
        if self._cut is not None:
            self._cut.cancel()

    @property
    def is_dead(self) -> bool:
        return self.server.returncode is not None

    async def died(self, limit_seconds: float = DYING_SECONDS) -> bool:
        """Whether the server, which does not answer, is dead: it is not gone the moment that it is killed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                while not self.is_dead:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.02)
        return self.is_dead

    async def revive(self) -> None:
        """If the server is dead, start it again."""
        async with self._reviving:
            if self.is_dead:
                self.deaths += 1
                await self.start()

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer to a request, which is made again when the server dies meanwhile."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                try:
                    async with self.server.client() as client:
                        answer = await client.request(method, path, **options)
                    if answer.status_code != 503:
                        return answer
                    await asyncio.sleep(0.1)
                except httpx.HTTPError:
                    await self.died()
                    await self.revive()

    async def done(self, method: str, path: str, *also: int, **options: Any) -> httpx.Response:
        """The same, for a request that has to be done; `also` are statuses that say that it was done before."""
        answer = await self.ask(method, path, **options)
        if not answer.is_success and answer.status_code not in also:
            raise WorkloadError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it is so, over every death of the server."""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while True:
                    await self.revive()
                    with suppress(httpx.HTTPError, SocketIOError, sqlite3.OperationalError):
                        if await condition():
                            return
                    await asyncio.sleep(0.03)
        except TimeoutError:
            raise WorkloadError(f"after {LIMIT_SECONDS:g} s still not so: {what}") from None

    async def follow(self, conversation_id: str, name: str = "") -> None:
        """Keep a socket client at a conversation, which connects again after each death."""
        follower = self.followers.setdefault(conversation_id + name, Follower(self.server, conversation_id))

        async def connected() -> bool:
            if not follower.is_connected:
                await follower.disconnect()
                await follower.connect()
            return True

        await self.until("a client is connected", connected)

    # --- the scenario ---

    async def run(self) -> None:
        """All of it, in order; raises `WorkloadError` where something does not come to its end."""
        await self.start()
        await self.configure()
        for part in ("sign-in", "rotation"):
            if part in self.parts:
                await getattr(self, f"have_{part.replace('-', '_')}")()
        await self.begin()
        await self.take_back()
        await self.upload()
        for part in ("queue", "import", "rest", "fork", "archive", "chat", "doors", "retention", "backup"):
            if part in self.parts:
                await getattr(self, f"have_{part}")()
        await self.change()
        # Whatever is still to be killed is killed at rest, too.
        await self.revive()

    async def configure(self) -> None:
        options: dict[str, Any] = {"enable_browsing": "browser" in self.parts, "enable_jupyter": "kernel" in self.parts}
        options["enable_sub_agents"] = "subagents" in self.parts
        if "condenser" in self.parts:
            options["condenser"] = {"type": "llm", "max_size": 14, "keep_first": 2}
        settings: dict[str, Any] = {
            "llm_model": "openai/scripted",
            "llm_base_url": self.model.url,
            "llm_api_key": "k-123456",
            "agent_options": options,
        }
        counter = {"name": "counter", "command": "python3", "args": ["-c", PROGRAM]}
        settings["mcp_config"] = {
            "stdio_servers": [counter] if "mcp" in self.parts else [],
            "shttp_servers": [{"url": self.tools.url}] if self.tools is not None else [],
        }
        if "confirm" in self.parts:
            settings |= {"confirmation_mode": True, "security_analyzer": ""}
        await self.done("POST", "/api/settings", json=settings)
        await self.done("POST", "/api/secrets", 400, json={"name": "FIRST", "value": "value-one-123"})
        await self.done("POST", "/api/secrets", 400, json={"name": "SECOND", "value": SECRET})
        self.webhook_id = await self.one("/api/webhooks", "results", {"url": self.receiver.url})
        if "plugin" in self.parts:
            await self.have_plugin()
        if "keeping" in self.parts:
            await self.have_kept()

    async def one(self, path: str, listed: str, body: dict[str, Any]) -> str:
        """The id of what is made so; of several, which were asked for since answers were lost, one is left."""
        await self.done("POST", path, json=body)
        made = (await self.done("GET", path)).json()[listed]
        for extra in made[1:]:
            await self.done("DELETE", f"{path}/{extra['id']}", 404)
        return str(made[0]["id"])

    async def have_plugin(self) -> None:
        """A plugin that is installed, updated and switched, and another one that is removed."""
        for path in ("", "boats"):
            await self.done("POST", "/api/plugins", 409, json={"source": self.plugin_url, "ref": "old", "path": path})
        await self.done("POST", "/api/plugins/tools/update", json={"ref": "main"})
        for enabled in (False, True):
            await self.done("PATCH", "/api/plugins/tools", json={"enabled": enabled})
        await self.done("DELETE", "/api/plugins/boats", 404)

    async def have_kept(self) -> None:
        """Notes, skills, and a webhook that is changed."""
        note = await self.one("/api/notes", "results", {"title": "Boats", "content": "They float."})
        await self.done("PATCH", f"/api/notes/{note}", json={"content": "They sink."})
        assert (await self.done("GET", "/api/notes", params={"query": "sink"})).json()["results"][0]["id"] == note
        passing = await self.done("POST", "/api/notes", json={"title": "Passing", "content": "Of no use."})
        await self.done("DELETE", f"/api/notes/{passing.json()['id']}", 404)
        for other in (await self.done("GET", "/api/notes", params={"query": "Passing"})).json()["results"]:
            await self.done("DELETE", f"/api/notes/{other['id']}", 404)
        for name in ("boats", "rafts"):
            await self.done("PUT", f"/api/skills/{name}", json={"content": _SKILL})
        await self.done("PATCH", "/api/skills/boats", json={"enabled": False})
        await self.done("DELETE", "/api/skills/rafts", 404)
        await self.done("PATCH", f"/api/webhooks/{self.webhook_id}", json={"active": True})

    async def have_sign_in(self) -> None:
        """The user signs in with an MCP server, in a browser that allows everything."""
        assert self.tools is not None
        name = sign_in_id(self.tools.url)

        async def signed_in() -> bool:
            listed = (await self.done("GET", "/api/mcp-sign-ins")).json()["results"]
            if any(one["id"] == name and one["state"] == "signed_in" for one in listed):
                return True
            begun = await self.done("POST", f"/api/mcp-sign-ins/{name}", headers={"origin": self.server.url})
            async with httpx.AsyncClient(trust_env=False) as browser:
                there = await browser.get(begun.json()["url"])
            async with self.server.client() as client:  # which may be another one by now, at another port
                client.cookies.update(begun.cookies)
                await client.get(httpx.URL(there.headers["location"]).raw_path.decode())
            return False

        await self.until("the user has signed in", signed_in)

    async def have_rotation(self) -> None:
        """Another key, while no server runs; an exchange that is killed the next start finishes, or drops."""
        is_done = False
        while not is_done:
            await self.end()
            await self.command("rotate-key", "--data-dir", str(self.server.data_dir), again=False)
            await self.start()
            is_done = "rotate-key" not in map(_command_of, self.kills)

    async def begin(self) -> None:
        await self.make("", "ONE")
        await self.follow(self.conversation_id)
        if "second" in self.parts:
            await self.follow(self.conversation_id, "second")
        if "queue" in self.parts:
            await self.make("queued", "QUEUED")
        if "late" in self.parts:
            await self.say("ALSO")
        await self.until_finished("one")
        if "browser" in self.parts and self.victim is None:
            await self.see_preview()

    async def make(self, name: str, text: str) -> None:
        body, headers = {"initial_user_msg": text}, {"Idempotency-Key": f"make-{name}"}
        made = await self.done("POST", "/api/conversations", json=body, headers=headers)
        self.made[name] = made.json()["conversation_id"]

    async def say(self, text: str) -> None:
        path = f"/api/conversations/{self.conversation_id}/message"
        await self.done("POST", path, json={"message": text}, headers={"Idempotency-Key": f"say-{text}"})

    async def until_finished(self, word: str, name: str = "") -> None:
        """Wait until the agent is at rest and its last word was this, as the client sees it, by itself."""
        where = self.made[name]

        async def finished() -> bool:
            await self.follow(where)
            frames = self.followers[where].frames  # who joins late is told the state by one that is no event
            states = [(one.get("extras") or {}).get("agent_state") for one in frames]
            latest = next(filter(None, reversed(states)), None)
            if latest == "awaiting_user_confirmation":
                yes = {"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}}
                await self.ask("POST", f"/api/conversations/{where}/events", json=yes)
            said = [n for n, one in enumerate(frames) if one.get("action") == "finish" and word in json.dumps(one)]
            messages = [n for n, one in enumerate(frames) if one.get("action") == "message" and one["source"] == "user"]
            behind = max(said[-1:] + messages[-1:], default=0)
            return bool(said) and "finished" in states[behind:]

        try:
            await self.until(f"the run {word!r} has ended", finished)
        except WorkloadError as error:
            frames = list(self.followers[where].events.values())[-3:]
            raise WorkloadError(f"{error}; its last events are {json.dumps(frames)[-1500:]}") from None

    async def see_preview(self) -> None:
        """The page of the program in the background, as a browser of the user's opens it."""

        async def shown() -> bool:
            await self.follow(self.conversation_id)
            ports = (await self.ask("GET", f"/api/conversations/{self.conversation_id}/ports")).json()["ports"]
            link = next((httpx.URL(one["url"]) for one in ports if one["port"] == SITE_PORT), None)
            if link is None:
                return False
            async with self.server.client() as client:
                host = link.netloc.decode()
                here = link.copy_with(scheme="http", host="127.0.0.1", port=httpx.URL(self.server.url).port)
                let_in = await client.get(here, headers={"host": host})
                cookie = let_in.headers.get("set-cookie", "").split(";")[0]
                page = await client.get(here.join("/"), headers={"host": host, "cookie": cookie})
            return "<title>Quay" in page.text

        await self.until("the preview is shown", shown)

    async def upload(self) -> None:
        path = f"/api/conversations/{self.conversation_id}/upload-files"

        async def uploaded() -> bool:
            await self.follow(self.conversation_id)  # which has it loaded
            answer = await self.ask("POST", path, files={"files": ("uploaded", b"from outside" * 1000)})
            if answer.status_code == 404 and "not yet initialized" in answer.text:
                return False
            if not answer.is_success or answer.json()["skipped_files"]:
                raise WorkloadError(f"the upload was not taken: {answer.status_code} {answer.text[:300]}")
            return True

        await self.until("a file is uploaded", uploaded)

    async def take_back(self) -> None:
        """A second run, which is taken back with its files, and a third one."""
        place = (await stored_events_of(self))[-1]["id"]
        await self.say("TWO")
        await self.until_finished("two")
        body = {"event_id": place}
        reply = (await self.done("POST", f"/api/conversations/{self.conversation_id}/rewind", json=body)).json()
        if reply.get("note"):
            raise WorkloadError(f"the files were not brought back: {reply['note']}")
        await self.say("THREE")
        await self.until_finished("three")

    async def have_import(self) -> None:
        said = {"action": "message", "source": "user", "timestamp": "2026-01-01T00:00:00", "args": {"content": _BIG}}
        made = await self.done(
            "POST", "/api/conversations/import", json=[{**said, "id": 0}], headers={"Idempotency-Key": "in"}
        )
        self.made["import"] = made.json()["conversation_id"]

    async def have_rest(self) -> None:
        """Nobody is there, so it is unloaded and its sandbox pauses; then somebody comes."""
        for follower in self.followers.values():
            await follower.disconnect()

        async def unloaded() -> bool:
            return bool((await self.info(self.conversation_id))["status"] == "STOPPED")

        await self.until("what is idle is unloaded", unloaded)
        await self.follow(self.conversation_id)

    async def info(self, conversation_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.done("GET", f"/api/conversations/{conversation_id}")).json()
        return found

    async def have_fork(self) -> None:
        path = f"/api/conversations/{self.conversation_id}/fork"
        made = await self.done("POST", path, json={}, headers={"Idempotency-Key": "fork"})
        self.made["fork"] = made.json()["conversation_id"]
        await self.follow(self.made["fork"])

    async def have_queue(self) -> None:
        await self.until_finished("queued", "queued")

    async def have_archive(self) -> None:
        """The conversation, taken out with its files and brought in as another one."""
        file = (await self.done("GET", f"/api/conversations/{self.conversation_id}/archive")).content
        headers = {"Idempotency-Key": "archive"}
        made = await self.done("POST", "/api/conversations/import/archive", content=file, headers=headers)
        self.made["archive"] = made.json()["conversation_id"]

    async def have_chat(self) -> None:
        """A chat; one whose answer was lost has begun another conversation, which is its user's to delete."""
        body = {"model": "drydock", "messages": [{"role": "user", "content": "CHAT"}]}
        made = await self.done("POST", "/v1/chat/completions", json=body)
        self.made["chat"] = made.json()["conversation_id"]
        await self._delete_others()

    async def have_doors(self) -> None:
        """A conversation begun through `drydock mcp`, one through `drydock acp`: who asked is told how it ended.

        What an editor is told to have failed its user says again where it is not in the log.
        """
        reviving = asyncio.create_task(self._keep_alive())
        try:
            await self.until("another agent's conversation", self._through_mcp)
            await self.until("an editor's conversation", self._through_acp)
        finally:
            reviving.cancel()
        await self.until_finished("door", "door")
        await self.until_finished("editor", "editor")
        await self._delete_others()

    async def _keep_alive(self) -> None:
        while True:
            await self.revive()
            await asyncio.sleep(0.05)

    async def _through_mcp(self) -> bool:
        async def hear(_news: str) -> None:
            pass

        async with DrydockClient(self.server.url, self.server.token) as client:
            door = DoorConversations(client)
            with suppress(DoorError):
                if "door" not in self.made:
                    self.made["door"] = await door.start("DOOR")
                outcome = await door.wait(self.made["door"], LIMIT_SECONDS, hear)
                return outcome.at_rest and "door" in outcome.answer
        return False

    async def _through_acp(self) -> bool:
        desk = Desk(self.server.url, self.model, lambda _request: say(""), FakeEditor(), self.trace.parent)
        async with connection_to(desk, self.server.token):
            with suppress(RequestError, TimeoutError):
                await introduced(desk)
                if "editor" not in self.made:
                    self.made["editor"] = (await desk.new()).session_id
                else:
                    await desk.limited(desk.conn.load_session(str(desk.folder), self.made["editor"], []))
                said = [one.get("args", {}).get("content") for one in await stored_events_of(self, self.made["editor"])]
                return "EDITOR" in said or await desk.prompt(self.made["editor"], "EDITOR") == "end_turn"
        return False

    async def _delete_others(self) -> None:
        """What was begun by somebody who was not told so is its user's to delete."""
        listed = (await self.done("GET", "/api/conversations", params={"limit": 100})).json()["results"]
        for one in {info["conversation_id"] for info in listed} - set(self.made.values()):
            await self.done("DELETE", f"/api/conversations/{one}", 404)

    async def have_retention(self) -> None:
        """A conversation with a large payload that nobody has used for years goes by itself."""
        said = {"action": "message", "source": "user", "timestamp": "2020-01-01T00:00:00", "args": {"content": _BIG}}
        headers = {"Idempotency-Key": "old"}
        made = await self.done("POST", "/api/conversations/import", json=[{**said, "id": 0}], headers=headers)
        old = made.json()["conversation_id"]
        age = "UPDATE conversations SET created_at = 1000000000000000, last_updated_at = NULL WHERE id = ?"
        with closing(sqlite3.connect(self.server.data_dir / "drydock.db", timeout=30)) as database, database:
            database.execute(age, (old,))

        async def gone() -> bool:
            return (await self.ask("GET", f"/api/conversations/{old}")).json() is None

        await self.until("what is old is gone", gone)

    async def have_backup(self) -> None:
        """A backup of the server at work, restored elsewhere and compared."""
        backups, restored = self.trace.with_name("backups"), self.trace.with_name("restored")
        backups.mkdir()
        query = "SELECT conversation_id, id, payload, blob FROM events"
        before = set(rows(self.server.data_dir, query))
        for _ in range(2):
            await asyncio.sleep(1.1)  # backups are named after the second
            await self.command("backup", str(backups), "--keep", "1", "--data-dir", str(self.server.data_dir))
        found = sorted(path.name for path in backups.iterdir())
        if len(found) != 1 or found[0].startswith("."):
            raise WorkloadError(f"beside the backup there is something else: {found}")
        await self.command("restore", str(backups / found[0]), "--force", "--data-dir", str(restored))
        events = set(rows(restored, query))
        if not before <= events <= set(rows(self.server.data_dir, query)):
            raise WorkloadError("the restored logs are others than those that were backed up")
        for log, blob in rows(restored, "SELECT conversation_id, blob FROM events WHERE blob IS NOT NULL"):
            if hashlib.sha256((restored / "blobs" / folder_name(log) / blob).read_bytes()).hexdigest() != blob:
                raise WorkloadError(f"a payload of {log} is restored otherwise")
        for table in ("settings", "secrets", "skills", "plugins", "notes"):
            if rows(restored, f"SELECT * FROM {table}") != rows(self.server.data_dir, f"SELECT * FROM {table}"):  # noqa: S608
                raise WorkloadError(f"{table} are restored otherwise")
        kept = {"drydock.db", "secret.key", "token", "instance-id", "instance.lock", "blobs", "forks"}
        strange = [path.name for path in restored.iterdir() if path.name not in kept]
        if [one for one in strange if not one.startswith(("drydock.db-", "replaced-"))]:
            raise WorkloadError(f"the restored folder holds {strange}")

    async def change(self) -> None:
        await self.done("POST", "/api/settings", json={"language": "de"})
        await self.done("PUT", "/api/secrets/SECOND", json={"name": "SECOND", "description": "changed"})
        await self.done("DELETE", "/api/secrets/FIRST", 404)
        if "keeping" in self.parts:
            path = f"/api/conversations/{self.conversation_id}/submit-feedback"
            await self.done("POST", path, json={"polarity": "positive"})
            path = f"/api/conversations/{self.conversation_id}/shares"
            await self.done("POST", path)
            for share in (await self.done("GET", path)).json()["results"]:
                await self.done("DELETE", f"{path}/{share['share_id']}")
        self.title = "Named by its user"
        await self.done("PATCH", f"/api/conversations/{self.conversation_id}", json={"title": self.title})

    async def text_of(self, conversation_id: str, file: str) -> str:
        """A file's text, from a sandbox that is woken if need be."""
        path = f"/api/conversations/{conversation_id}/select-file"
        found: list[str] = []

        async def read() -> bool:
            await self.follow(conversation_id)  # which has it loaded
            answer = await self.ask("GET", path, params={"file": file})
            if answer.is_success:
                found.append(answer.json()["code"])
            elif answer.status_code < 500 and "not yet initialized" not in answer.text:
                raise WorkloadError(f"{file} of {conversation_id}: {answer.status_code} {answer.text[:300]}")
            return bool(found)

        await self.until(f"{file} can be read", read)
        return found[0]

    async def leave(self) -> None:
        """Disconnect, delete everything, and end the server as a service manager does."""
        for follower in self.followers.values():
            with suppress(SocketIOError, httpx.HTTPError):
                await follower.disconnect()
        await self.done("POST", f"/api/conversations/{self.conversation_id}/stop")
        for conversation_id in reversed(self.made.values()):
            await self.done("DELETE", f"/api/conversations/{conversation_id}", 404)
        await self.done("DELETE", f"/api/webhooks/{self.webhook_id}", 404)
        if self.tools is not None:
            await self.done("DELETE", f"/api/mcp-sign-ins/{sign_in_id(self.tools.url)}", 404)

    async def end(self) -> None:
        """End the server as a service manager does; one that is killed meanwhile is started and ended again."""
        await self.revive()
        self.spare()
        try:
            await self._swept()
            while (status := await self.server.stop()) == -signal.SIGKILL:
                await self.revive()
                await self._swept()
        except TimeoutError:
            os.kill(self.server.pid, signal.SIGUSR2)  # it says in its log what it is about
            await asyncio.sleep(1)
            raise
        if status != 0:
            raise WorkloadError(f"the server ended with status {status}: {self.server.printed()[-1500:]}")

    async def _swept(self) -> None:
        """Wait until this life of the server has removed what the last one has left, or is over, too."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (self.is_dead or _SANDBOX_LINE.search(self.server.printed(self._life_at))):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.05)


async def stored_events_of(workload: Workload, conversation_id: str = "") -> list[dict[str, Any]]:
    """The whole log, over REST, over every death of the server."""
    found: list[list[dict[str, Any]]] = []

    async def read() -> bool:
        found.append(await stored_events(workload.server, conversation_id or workload.conversation_id))
        return True

    await workload.until("the log can be read", read)
    return found[-1]


def _command_of(kill: str) -> str:
    """The command that is killed so; "": the server."""
    return "" if "@" in kill else POINTS[int(kill.partition(":")[0])].command


def rows(data_dir: Path, query: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(f"file:{data_dir / 'drydock.db'}?mode=ro", uri=True)) as database:
        return database.execute(query, values).fetchall()
