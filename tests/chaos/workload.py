"""What a server works at while it is killed: asked through the public protocol alone, for each thing until it is done.

A client of a server that may die at any moment asks again; where asking again could do something twice, the protocol
has keys for it, and the workload uses them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from socketio.exceptions import SocketIOError

from agent_core.testing.model_server import ModelRequest
from agent_core.testing.model_turns import Call, Turn, call, calls, finish, say
from tests.contract.webhooks.conftest import Receiver
from tests.integration.server.conftest import Follower, ServerProcess, stored_events

LIMIT_SECONDS = 120.0
DYING_SECONDS = 3.0
EFFECTS = "/workspace/effects"
PARTS = frozenset({"kernel", "mcp", "subagents", "import", "rest", "fork"})
_BIG = "a long message " * 80_000  # over a megabyte: kept as a blob
_PROGRAM = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "tools/call":
        open("/workspace/effects", "a").write("mcp\\\\n")
    version = asked.get("params", {}).get("protocolVersion")
    result = {
        "initialize": {"protocolVersion": version, "capabilities": {"tools": {}},
                       "serverInfo": {"name": "counter", "version": "1"}},
        "tools/list": {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "counted"}]},
    }.get(asked["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def line(text: str) -> Turn:
    return call("terminal", {"command": f"echo {text} >> {EFFECTS}"})


def turns_of(phase: str, parts: frozenset[str]) -> list[Turn]:
    """What the model says after the user's message that begins with this word."""
    if phase == "TWO":
        return [line("taken-back"), finish("two")]
    if phase == "THREE":
        return [line("third"), finish("three")]
    turns = [line("first"), call("file_editor", {"command": "create", "path": "/workspace/notes", "file_text": "one"})]
    if "kernel" in parts:
        turns.append(call("execute_ipython_cell", {"code": f"open('{EFFECTS}', 'a').write('cell\\n')"}))
    if "mcp" in parts:
        turns.append(call("count"))
    if "subagents" in parts:
        turns.append(call("delegate", {"command": "spawn", "ids": ["a", "b"], "agent_types": ["bash"]}))
        turns.append(call("delegate", {"command": "delegate", "tasks": {"a": "CHILD a", "b": "CHILD b"}}))
    two = (
        Call("terminal", {"command": f"echo left >> {EFFECTS}"}),
        Call("file_editor", {"command": "view", "path": "/workspace/notes"}),
    )
    return [*turns, calls(*two), finish("one")]


def wanted_lines(parts: frozenset[str]) -> list[str]:
    """What is in the file of effects in the end, once each."""
    wanted = ["first", "left", "third"]
    wanted += ["cell"] if "kernel" in parts else []
    wanted += ["mcp"] if "mcp" in parts else []
    wanted += ["child-a", "child-b"] if "subagents" in parts else []
    return sorted(wanted)


def model(parts: frozenset[str]) -> Callable[[ModelRequest], Turn]:
    """The scripted model: asked again after a kill it says the same again."""

    def answer(request: ModelRequest) -> Turn:
        if not request.json.get("tools"):
            return say("A title")
        phase, said = "", 0
        for message in request.messages:
            if message["role"] == "assistant":
                said += 1
            elif message["role"] == "user":
                content = message["content"]
                texts = [content] if isinstance(content, str) else [one.get("text", "") for one in content]
                for text in texts:
                    if text.startswith(("ONE", "TWO", "THREE", "CHILD")):
                        phase, said = text.strip().partition("\n")[0], 0
        if phase.startswith("CHILD"):
            name = phase.split()[1]
            return [line(f"child-{name}"), finish(f"{name} is done")][said]
        return turns_of(phase.split()[0], parts)[said]

    return answer


class WorkloadError(AssertionError):
    """Something did not happen that must happen, whatever was killed."""


@dataclass
class Workload:
    """One run: a server, its client, and what the client was told.

    `kills` are the ``FAULT_POINT`` of each life of the server, in turn; when they are used up, it lives.
    """

    server: ServerProcess
    receiver: Receiver
    model_url: str
    trace: Path
    kills: list[str]
    parts: frozenset[str]
    rng: random.Random
    deaths: int = 0
    followers: dict[str, Follower] = field(default_factory=dict)
    conversation_id: str = ""
    fork_id: str = ""
    import_id: str = ""
    title: str = ""
    webhook_id: str = ""
    _reviving: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        """Start the server until one lives long enough to say where it is."""
        while True:
            first = {"RUN_FIRST": "tests.chaos.points:arm", "FAULT_TRACE": str(self.trace)}
            point = {"FAULT_POINT": self.kills.pop(0)} if self.kills else {}
            kept = {name: value for name, value in self.server.environment.items() if name != "FAULT_POINT"}
            self.server.environment = {**kept, **first, **point}
            try:
                await self.server.start()
                return
            except (RuntimeError, httpx.HTTPError) as error:
                if not await self.died():
                    raise
                if not point:
                    if self.server.returncode == -signal.SIGKILL:  # that was at a moment
                        self.deaths += 1
                        continue
                    raise WorkloadError(f"the server does not start: {self.server.printed()[-2000:]}") from error
                self.deaths += 1

    @property
    def is_dead(self) -> bool:
        return self.server.returncode is not None

    async def died(self) -> bool:
        """Whether the server, which does not answer, is dead: it is not gone the moment that it is killed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DYING_SECONDS):
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
                        return await client.request(method, path, **options)
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

    async def follow(self, conversation_id: str) -> None:
        """Keep a socket client at a conversation, which connects again after each death."""
        follower = self.followers.setdefault(conversation_id, Follower(self.server, conversation_id))

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
        await self.begin()
        await self.take_back()
        await self.upload()
        if "import" in self.parts:
            await self.bring_in()
        if "rest" in self.parts:
            await self.rest_and_wake()
        if "fork" in self.parts:
            await self.fork()
        await self.change()
        # Whatever is still to be killed is killed at rest, too.
        await self.revive()

    async def configure(self) -> None:
        options = {"enable_browsing": False, "enable_jupyter": "kernel" in self.parts, "enable_sub_agents": True}
        counter = {"name": "counter", "command": "python3", "args": ["-c", _PROGRAM.replace("\\\\", "\\")]}
        settings: dict[str, Any] = {
            "llm_model": "openai/scripted",
            "llm_base_url": self.model_url,
            "llm_api_key": "k-123456",
        }
        settings |= {"agent_options": options}
        if "mcp" in self.parts:
            settings["mcp_config"] = {"stdio_servers": [counter]}
        await self.done("POST", "/api/settings", json=settings)
        await self.done("POST", "/api/secrets", 400, json={"name": "FIRST", "value": "value-one-123"})
        await self.done("POST", "/api/secrets", 400, json={"name": "SECOND", "value": "value-two-123"})
        await self.done("POST", "/api/webhooks", json={"url": self.receiver.url})
        hooks = (await self.done("GET", "/api/webhooks")).json()["results"]
        for extra in hooks[1:]:  # asked for twice, because the first answer was lost
            await self.done("DELETE", f"/api/webhooks/{extra['id']}", 404)
        self.webhook_id = hooks[0]["id"]

    async def begin(self) -> None:
        body = {"initial_user_msg": "ONE"}
        made = await self.done("POST", "/api/conversations", json=body, headers={"Idempotency-Key": "begin"})
        self.conversation_id = made.json()["conversation_id"]
        await self.follow(self.conversation_id)
        await self.until_finished("one")

    async def say(self, text: str) -> None:
        path = f"/api/conversations/{self.conversation_id}/message"
        await self.done("POST", path, json={"message": text}, headers={"Idempotency-Key": f"say-{text}"})

    async def until_finished(self, word: str) -> None:
        """Wait until the agent is at rest and its last word was this, as the client sees it, by itself."""

        async def finished() -> bool:
            await self.follow(self.conversation_id)
            frames = list(self.followers[self.conversation_id].events.values())
            said = [n for n, one in enumerate(frames) if one.get("action") == "finish" and word in json.dumps(one)]
            states = [(one.get("extras") or {}).get("agent_state") for one in frames[said[-1] :]] if said else []
            return "finished" in states

        await self.until(f"the run {word!r} has ended", finished)

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

    async def bring_in(self) -> None:
        said = {"action": "message", "source": "user", "timestamp": "2026-01-01T00:00:00", "args": {"content": _BIG}}
        made = await self.done(
            "POST", "/api/conversations/import", json=[{**said, "id": 0}], headers={"Idempotency-Key": "in"}
        )
        self.import_id = made.json()["conversation_id"]

    async def rest_and_wake(self) -> None:
        """Nobody is there, so it is unloaded and its sandbox pauses; then somebody comes."""
        await self.followers[self.conversation_id].disconnect()

        async def unloaded() -> bool:
            return bool((await self.info(self.conversation_id))["status"] == "STOPPED")

        await self.until("what is idle is unloaded", unloaded)
        await self.follow(self.conversation_id)

    async def info(self, conversation_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.done("GET", f"/api/conversations/{conversation_id}")).json()
        return found

    async def fork(self) -> None:
        path = f"/api/conversations/{self.conversation_id}/fork"
        made = await self.done("POST", path, json={}, headers={"Idempotency-Key": "fork"})
        self.fork_id = made.json()["conversation_id"]
        await self.follow(self.fork_id)

    async def change(self) -> None:
        await self.done("POST", "/api/settings", json={"language": "de"})
        await self.done("PUT", "/api/secrets/SECOND", json={"name": "SECOND", "description": "changed"})
        await self.done("DELETE", "/api/secrets/FIRST", 404)
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
        for conversation_id in (self.fork_id, self.import_id, self.conversation_id):
            if conversation_id:
                await self.done("DELETE", f"/api/conversations/{conversation_id}", 404)
        await self.done("DELETE", f"/api/webhooks/{self.webhook_id}", 404)

    async def end(self) -> None:
        """End the server as a service manager does; one that is killed meanwhile is started and ended again."""
        await self.revive()
        try:
            while (status := await self.server.stop()) == -signal.SIGKILL:
                await self.revive()
        except TimeoutError:
            os.kill(self.server.pid, signal.SIGUSR2)  # it says in its log what it is about
            await asyncio.sleep(1)
            raise
        if status != 0:
            raise WorkloadError(f"the server ended with status {status}: {self.server.printed()[-1500:]}")


async def stored_events_of(workload: Workload, conversation_id: str = "") -> list[dict[str, Any]]:
    """The whole log, over REST, over every death of the server."""
    found: list[list[dict[str, Any]]] = []

    async def read() -> bool:
        found.append(await stored_events(workload.server, conversation_id or workload.conversation_id))
        return True

    await workload.until("the log can be read", read)
    return found[-1]


def rows(data_dir: Path, query: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(f"file:{data_dir / 'drydock.db'}?mode=ro", uri=True)) as database:
        return database.execute(query, values).fetchall()
