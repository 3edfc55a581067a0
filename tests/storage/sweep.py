"""What a server does when the n-th call below its data folder fails, for each thing that it is asked for.

Each trial asks one thing while one call, or each from it on, fails, and lets the storage work again. Then: the request
was done and is there, or was refused in words (507, 503) and is not; nothing half made is left; every log is without a
gap and every action has one answer; and the server goes on by itself.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from agent_core.events.branches import active_branch
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent, UserRejectObservation
from agent_core.events.serialization import from_payload
from agent_core.events.store import SEPARATOR
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from tests.contract.workspace.git_server import GitServer
from tests.integration.server.conftest import ServerProcess
from tests.storage.faults import NUMBERS, Faults

CALLS = ("write", "fsync", "open", "rename", "ftruncate", "mkdir", "unlink", "read")
ERRORS = {
    "write": ("ENOSPC", "EIO", "EDQUOT"),
    "fsync": ("EIO", "ENOSPC"),
    "open": ("EROFS", "ENOSPC", "EIO"),
    "rename": ("ENOSPC", "EROFS", "EIO"),
    "ftruncate": ("EIO", "ENOSPC"),
    "mkdir": ("ENOSPC", "EDQUOT", "EROFS"),
    "unlink": ("EROFS", "EIO"),
    "read": ("EIO",),
}
LIMIT_SECONDS = 60.0
RETENTION_SECONDS = 0.3
NEVER = 10**9
"""More calls than there are."""
BIG = "a long message " * 80_000  # over a megabyte: kept as a blob
_ANSWERS = (ObservationEvent, AgentErrorEvent, UserRejectObservation)
_STATES = "SELECT id, agent_state FROM conversations"
_LOGGED = (
    "SELECT payload FROM events WHERE kind = 'AgentStateChanged' AND id ="
    " (SELECT max(id) FROM events AS newer WHERE newer.conversation_id = events.conversation_id AND kind = events.kind)"
)
_AT_REST = ("finished", "stopped", "awaiting_user_input", "error", "paused")
_KEPT = {
    *("drydock.db", "secret.key", "token", "instance-id", "instance.lock", "sandboxes", "forks", "blobs"),
    *("last-seen.json", ".last-seen.json", "audit-head.json"),
}


@dataclass(frozen=True)
class Trial:
    """One fault: the `skip` first of these calls pass, then one (or each) fails."""

    what: str
    call: str
    error: str
    skip: int
    lasts: bool

    @property
    def rule(self) -> str:
        return f"{self.call} {NUMBERS[self.error]} {self.skip} {-1 if self.lasts else 1}"

    @property
    def text(self) -> str:
        which = (
            f"every {self.call} from number {self.skip + 1}" if self.lasts else f"{self.call} number {self.skip + 1}"
        )
        return f"{self.what}: {which} fails with {self.error}"


@dataclass
class Outcome:
    """What came of a trial: which paths failed, of how many calls, the answer, and what is wrong."""

    trial: Trial
    failed: list[str] = field(default_factory=list)
    calls: int = 0
    status: int = 0
    findings: list[str] = field(default_factory=list)


def _model(request: ModelRequest) -> Turn:
    """A command that leaves a line, and the end; for whoever wants nothing of it the end alone."""
    if not request.json.get("tools"):
        return say("A title")
    last, said = "", 0
    for message in request.messages:
        if message["role"] == "assistant":
            said += 1
        elif message["role"] == "user":
            content = message["content"]
            for text in [content] if isinstance(content, str) else [one.get("text", "") for one in content]:
                if text.startswith(("RUN ", "SAY ", "SLOW ")):
                    last, said = text.split()[1], 0
                    wants = text.startswith(("RUN ", "SLOW "))
                    waits = "sleep 0.7; " if text.startswith("SLOW ") else ""
    if last and wants and said == 0:
        return call("execute_bash", {"command": f"{waits}echo {last} >> effects"})
    return finish("Done.")


class Sweep:
    """A server whose storage fails, and the things that it is asked for, by name in `things`."""

    def __init__(self, server: ServerProcess, faults: Faults, plugin_url: str) -> None:
        self.server = server
        self._plugin_url = plugin_url
        self.faults = faults
        self.client = client_of(server)
        self.things: dict[str, Callable[[str], Awaitable[tuple[httpx.Response, Callable[[], Awaitable[bool]]]]]] = {
            name.removeprefix("_do_").replace("_", " "): getattr(self, name)
            for name in dir(self)
            if name.startswith("_do_")
        }
        self._told: set[str] = set()
        self._archive = b""
        self._victim = ""
        self._main = ""
        self._printed = 0

    async def begin(self) -> None:
        """Have a conversation with files, and one exported."""
        self._main = (await self._ask("POST", "/api/conversations", json={"initial_user_msg": "RUN first"})).json()[
            "conversation_id"
        ]
        await self._at_rest(self._main)
        await self._ask("POST", "/api/settings", json={"language": "en"})
        self._archive = (await self._ask("GET", f"/api/conversations/{self._main}/archive")).content

    async def carry_out(self, trial: Trial) -> Outcome:
        """Ask for it under the fault, and look at what came of it."""
        outcome, mark = Outcome(trial), uuid.uuid4().hex
        before = self._known()
        if trial.what in ("delete", "retention"):
            self._victim = await self._new("RUN x")
        if trial.what == "plugin":
            await self.client.delete("/api/plugins/tools")
        if trial.what == "upload":
            await self._awake()
        if trial.what == "begin anew":
            await self._ask("POST", f"/api/conversations/{self._main}/stop")
        try:
            self.faults.switch(trial.rule)
            try:
                async with asyncio.timeout(LIMIT_SECONDS * 2):
                    answer, is_there = await self.things[trial.what](mark)
                if trial.lasts or trial.what.startswith(("message", "new")):
                    await asyncio.sleep(0.15)  # an agent at work meets it, too
            finally:
                calls = self.faults.calls()
                outcome.calls = len(calls)
                outcome.failed = [path for _, failed, path in calls if failed]
                self.faults.switch("")
            outcome.status = answer.status_code
            await self._until(self._ready, "it does not go on: /ready still refuses")
            await self._judge(outcome, answer, is_there)
            await self._clean(before)
            await self._until(self._quiet, "what it does is not ended")
            outcome.findings += self.wrong_in_the_log() or await self.settled()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this trial found
            outcome.findings.append(f"{type(error).__name__}: {error}")
        outcome.findings += self.traceback()
        return outcome

    async def begin_again(self) -> list[str]:
        """Start the server anew; what is wrong then."""
        await self.server.stop()
        await self.server.start()
        await asyncio.sleep(1)
        return [*self.wrong_in_the_log(), *self._left(with_payloads=True), *self.traceback()]

    async def _judge(self, outcome: Outcome, answer: httpx.Response, is_there: Callable[[], Awaitable[bool]]) -> None:
        text = answer.text if "tar" not in answer.headers.get("content-type", "") else ""
        there = await is_there()
        if answer.is_success and not there:
            outcome.findings.append(f"{answer.status_code} was said of what is not there: {text[:200]}")
        elif not answer.is_success:
            if answer.status_code not in (503, 507):
                outcome.findings.append(f"{answer.status_code}: {text[:300]}")
            elif (answer.status_code == 507) != ("full" in text) or str(self.server.data_dir) in text:
                outcome.findings.append(f"{answer.status_code} in the wrong words: {text[:300]}")
            if there and outcome.trial.what not in ("delete", "stop"):
                outcome.findings.append(f"{answer.status_code}, and it is there")

    # --- what is asked for: the answer, and whether it is there ---

    async def _do_message(self, mark: str) -> Any:
        answer = await self._post(f"/api/conversations/{self._main}/message", message=f"RUN {mark} now")
        return answer, lambda: self._said(self._main, mark)

    async def _do_long_message(self, mark: str) -> Any:
        answer = await self._post(f"/api/conversations/{self._main}/message", message=f"SAY {mark} {BIG}")
        return answer, lambda: self._said(self._main, mark)

    async def _do_new(self, mark: str) -> Any:
        answer = await self._post("/api/conversations", initial_user_msg=f"RUN {mark} now")
        new = answer.json().get("conversation_id", "")
        return answer, lambda: self._said(new or None, mark)

    async def _do_fork(self, mark: str) -> Any:
        identity = str(uuid.UUID(mark))
        answer = await self._post(f"/api/conversations/{self._main}/fork", conversation_id=identity)
        return answer, lambda: self._exists(identity)

    async def _do_import(self, mark: str) -> Any:
        said = {"action": "message", "source": "user", "timestamp": "2026-01-01T00:00:00", "id": 0}
        body = [{**said, "args": {"content": f"{mark} {BIG}"}}, {**said, "id": 1, "args": {"content": "short"}}]
        answer = await self.client.post("/api/conversations/import", json=body)
        return answer, lambda: self._said(None, mark)

    async def _do_import_archive(self, mark: str) -> Any:
        known = set(await self._ids())
        answer = await self.client.post("/api/conversations/import/archive", content=self._archive)

        async def is_there() -> bool:
            return bool(set(await self._ids()) - known)

        return answer, is_there

    async def _do_export(self, mark: str) -> Any:
        answer = await self.client.get(f"/api/conversations/{self._main}/archive")

        async def is_there() -> bool:
            return answer.is_success and answer.content.rstrip(b"\0").endswith(b"}") and len(answer.content) > 10_000

        return answer, is_there

    async def _do_rewind(self, mark: str) -> Any:
        place = _rows(self.server.data_dir, "SELECT max(id) FROM events WHERE conversation_id = ?", self._main)[0][0]
        answer = await self._post(f"/api/conversations/{self._main}/rewind", event_id=place)

        async def is_there() -> bool:
            query = "SELECT count(*) FROM events WHERE conversation_id = ? AND id > ? AND kind LIKE '%ewind%'"
            return bool(_rows(self.server.data_dir, query, self._main, place)[0][0])

        return answer, is_there

    async def _do_settings(self, mark: str) -> Any:
        answer = await self._post("/api/settings", git_user_name=mark)
        return answer, lambda: self._shown("/api/settings", mark)

    async def _do_secret(self, mark: str) -> Any:
        name = f"S{mark.upper()}"
        answer = await self._post("/api/secrets", name=name, value="value-of-it")
        return answer, lambda: self._shown("/api/secrets", name)

    async def _do_note(self, mark: str) -> Any:
        answer = await self._post("/api/notes", title=mark, content=f"note {mark}")
        return answer, lambda: self._shown("/api/notes", mark)

    async def _do_skill(self, mark: str) -> Any:
        body = {"content": f"---\nname: s{mark}\ndescription: d\n---\nText."}
        answer = await self.client.put(f"/api/skills/s{mark}", json=body)
        return answer, lambda: self._shown("/api/skills", mark)

    async def _do_webhook(self, mark: str) -> Any:
        answer = await self._post("/api/webhooks", url=f"http://127.0.0.1:9/{mark}")
        return answer, lambda: self._shown("/api/webhooks", mark)

    async def _do_title(self, mark: str) -> Any:
        answer = await self.client.patch(f"/api/conversations/{self._main}", json={"title": mark})
        return answer, lambda: self._shown(f"/api/conversations/{self._main}", mark)

    async def _do_begin_anew(self, mark: str) -> Any:
        return await self._do_message(mark)

    async def _do_stop(self, mark: str) -> Any:
        answer = await self._post(f"/api/conversations/{self._main}/stop")

        async def is_there() -> bool:
            return True

        return answer, is_there

    async def _do_delete(self, mark: str) -> Any:
        answer = await self.client.delete(f"/api/conversations/{self._victim}")

        async def is_there() -> bool:
            return not await self._exists(self._victim)

        return answer, is_there

    async def _do_retention(self, mark: str) -> Any:
        """It is not asked for: one that nobody has used for years is found by the next round, or the one after it."""
        answer = await self._post(f"/api/conversations/{self._victim}/stop")
        if answer.is_success:
            with suppress(sqlite3.OperationalError):
                _change(
                    self.server.data_dir,
                    "UPDATE conversations SET last_updated_at = 0, created_at = 0 WHERE id = ?",
                    self._victim,
                )
                await asyncio.sleep(2 * RETENTION_SECONDS)

        async def is_there() -> bool:
            if not answer.is_success:
                return False
            _change(
                self.server.data_dir,
                "UPDATE conversations SET last_updated_at = 0, created_at = 0 WHERE id = ?",
                self._victim,
            )

            async def is_gone() -> bool:
                return not await self._exists(self._victim)

            await self._until(is_gone, "what is too old is not deleted")
            return True

        return answer, is_there

    async def _do_plugin(self, mark: str) -> Any:
        answer = await self._post("/api/plugins", source=self._plugin_url)
        return answer, lambda: self._shown("/api/plugins", '"tools"')

    async def _do_upload(self, mark: str) -> Any:
        """The sandbox writes it, whose disk is another matter; the server only passes it on."""
        files = {"files": (f"{mark}.txt", b"u" * 300_000)}
        answer = await self.client.post(f"/api/conversations/{self._main}/upload-files", files=files)
        return answer, lambda: self._shown(f"/api/conversations/{self._main}/list-files", mark)

    # --- looking ---

    async def _post(self, path: str, **body: Any) -> httpx.Response:
        return await self.client.post(path, json=body)

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = await self.client.request(method, path, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        return answer

    async def _new(self, message: str) -> str:
        made: str = (await self._ask("POST", "/api/conversations", json={"initial_user_msg": message})).json()[
            "conversation_id"
        ]
        await self._at_rest(made)
        return made

    async def _awake(self) -> None:
        """Have the main conversation's sandbox at work."""
        await self._ask("POST", f"/api/conversations/{self._main}/start")

        async def shows_files() -> bool:
            return (await self.client.get(f"/api/conversations/{self._main}/list-files")).is_success

        await self._until(shows_files, "its sandbox does not start")

    async def _shown(self, path: str, mark: str) -> bool:
        return mark in (await self._ask("GET", path)).text

    async def _ids(self) -> list[str]:
        found = (await self._ask("GET", "/api/conversations", params={"limit": 100})).json()["results"]
        return [one["conversation_id"] for one in found]

    async def _exists(self, conversation_id: str) -> bool:
        return conversation_id.replace("-", "") in [one.replace("-", "") for one in await self._ids()]

    async def _said(self, conversation_id: str | None, mark: str) -> bool:
        """Whether this is in the log of that conversation, or of any."""
        for one in await self._ids() if conversation_id is None else [conversation_id]:
            found = (await self._ask("GET", f"/api/conversations/{one}/events", params={"reverse": True})).text
            if mark in found:
                return True
        return False

    async def _ready(self) -> bool:
        return (await self.client.get("/ready")).is_success

    async def _at_rest(self, conversation_id: str) -> None:
        async def rests() -> bool:
            record = _rows(self.server.data_dir, "SELECT agent_state FROM conversations WHERE id = ?", conversation_id)
            return bool(record) and record[0][0] in _AT_REST

        await self._until(rests, f"{conversation_id} does not come to rest")

    async def until_rest(self) -> None:
        """Wait until it stores again, and all agents rest."""
        await self._until(self._ready, "it does not go on: /ready still refuses")
        await self._until(self._quiet, "what it does is not ended")

    async def _quiet(self) -> bool:
        """Whether all rest, by the list and by their logs: what the list has may be a second late."""
        listed = [state for _, state in _rows(self.server.data_dir, _STATES) if state is not None]
        logged = [json.loads(payload)["agent_state"] for (payload,) in _rows(self.server.data_dir, _LOGGED)]
        return all(state in _AT_REST for state in (*listed, *logged))

    async def _until(self, condition: Callable[[], Awaitable[bool]], problem: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not await condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{problem}; states {_rows(self.server.data_dir, _STATES)}")
            await asyncio.sleep(0.02)

    def _known(self) -> set[str]:
        return {one for (one,) in _rows(self.server.data_dir, "SELECT id FROM conversations")}

    async def _clean(self, before: set[str]) -> None:
        for one in self._known() - before:
            await self._until(self._quiet, "what it does is not ended")
            await self._ask("DELETE", f"/api/conversations/{one}")

    async def settled(self) -> list[str]:
        """What is left over, once it had a moment to go; each thing is told once."""
        deadline = time.monotonic() + 3
        while found := [one for one in self._left() if one not in self._told]:
            if time.monotonic() > deadline:
                self._told.update(found)
                return found
            await asyncio.sleep(0.05)
        return []

    def wrong_in_the_log(self) -> list[str]:
        found, logs = [], dict[str, list[Any]]()
        query = "SELECT conversation_id, id, payload, blob FROM events ORDER BY conversation_id, id"
        for log, event_id, payload, blob in _rows(self.server.data_dir, query):
            kept = self.server.data_dir.joinpath("blobs", log, blob or "")
            if blob is not None and not kept.exists():
                found.append(f"event {event_id} of {log} has lost its payload")
                continue
            logs.setdefault(log, []).append(from_payload(payload if blob is None else kept.read_bytes(), event_id))
            if len(logs[log]) != event_id + 1:
                found.append(f"log {log} has a gap")
        for log, events in logs.items():
            branch = active_branch(events)  # behind a rewind to between an action and its answer there is another one
            answers = Counter(one.cause for one in branch if isinstance(one, _ANSWERS) and one.cause is not None)
            found += [
                f"log {log}: action {one.id} ({one.tool_name}) has {answers[one.id]} answers"
                for one in branch
                if isinstance(one, ActionEvent)
                and answers[one.id] != 1
                and not (one.tool_name == "finish" and not answers[one.id])
            ]
        for conversation_id, sandbox in _rows(self.server.data_dir, "SELECT id, sandbox FROM conversations"):
            name = (json.loads(sandbox) or {}).get("name") if sandbox else None
            if name and not (self.server.data_dir / "sandboxes" / name / "workspace").is_dir():
                found.append(f"{conversation_id} has lost its files")
        for effects in self.server.data_dir.glob("sandboxes/*/workspace/effects"):
            with suppress(FileNotFoundError):  # its conversation goes at this moment
                twice = [one for one, times in Counter(effects.read_text().split()).items() if times > 1]
                found += [f"the command of {one} ran twice" for one in twice]
        return found

    def text_of(self, log: str | None) -> str:
        """All that is in a log (None: in any), as it is stored."""
        query = "SELECT conversation_id, payload, blob FROM events WHERE ? IN (conversation_id, '')"
        found = []
        for conversation_id, payload, blob in _rows(self.server.data_dir, query, log or ""):
            kept = self.server.data_dir / "blobs" / conversation_id / (blob or "")
            found.append(payload if blob is None else kept.read_bytes())
        return b"\n".join(found).decode()

    def _left(self, *, with_payloads: bool = False) -> Iterator[str]:
        data_dir, known = self.server.data_dir, self._known()
        for (log,) in _rows(data_dir, "SELECT DISTINCT conversation_id FROM events"):
            if not any(log == one or log.startswith(one + SEPARATOR) for one in known):
                yield f"there are events of {log}, which is no conversation"
        used = {blob for (blob,) in _rows(data_dir, "SELECT blob FROM events WHERE blob IS NOT NULL")}
        # Payloads of what was refused may wait for the next start.
        for path in (*(data_dir.glob("blobs/*/*") if with_payloads else ()), *data_dir.glob("forks/*")):
            if path.name not in used and path.stem not in known:
                yield f"{path.relative_to(data_dir)} is left"
        for path in data_dir.iterdir():
            is_of_a_plugin = path.name.startswith(".plugin-")  # waits for the next start, too
            if (
                path.name not in _KEPT
                and not path.name.startswith("drydock.db-")
                and (with_payloads or not is_of_a_plugin)
            ):
                yield f"{path.name} is left"

    def traceback(self) -> list[str]:
        printed = self.server.printed()
        fresh, self._printed = printed[self._printed :], len(printed)
        return [f"in the log: {fresh[fresh.index('Traceback') - 300 :][:4000]}"] if "Traceback" in fresh else []


def _change(data_dir: Path, query: str, *values: Any) -> None:
    with closing(sqlite3.connect(data_dir / "drydock.db", timeout=10)) as database, database:
        database.execute(query, values)


def client_of(server: ServerProcess) -> httpx.AsyncClient:
    """A client of the server as it is now; it keeps no connection: one that is just being closed looks like a fault."""
    headers = {"X-Session-API-Key": server.token} if server.token else {}
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30, limits=limits, verify=False)  # noqa: S501


def _rows(data_dir: Path, query: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(f"file:{data_dir / 'drydock.db'}?mode=ro", uri=True, timeout=10)) as database:
        return database.execute(query, values).fetchall()


@asynccontextmanager
async def sweeping(library: Path, folder: Path) -> AsyncIterator[Sweep]:
    """Context with a server in this folder, and what it is asked for."""
    faults = Faults(library, folder)
    async with ModelServer(_model) as model:
        environment = {
            "LLM_MODEL": "openai/m",
            "LLM_API_KEY": "key",
            "LLM_BASE_URL": model.url,
            "DRYDOCK_GENERATE_TITLES": "false",
            "DRYDOCK_CULL_INTERVAL_SECONDS": "0.3",
            "DRYDOCK_RETENTION_DAYS": "365",
            "DRYDOCK_RETENTION_INTERVAL_SECONDS": str(RETENTION_SECONDS),
            "RUN_FIRST": "tests.storage.faults:alone",
        }
        server = ServerProcess(
            folder / "data", "--sandbox", "unconfined", environment={**faults.environment, **environment}
        )
        git = GitServer(folder / "repositories")
        try:
            git.publish("ann/tools", {"skills/boats.md": "Boats float."})
            await server.start()
            sweep = Sweep(server, faults, f"http://127.0.0.1:{git.url.rpartition(':')[2]}/ann/tools.git")
            try:
                await sweep.begin()
                yield sweep
            finally:
                await sweep.client.aclose()
        finally:
            faults.switch("")
            git.close()
            await server.close()


def evenly(count: int, most: int, chance: random.Random) -> list[int]:
    """At most so many of the numbers below `count`, one by chance out of each part of the same length."""
    if count <= most:
        return list(range(count))
    return [min(count - 1, int((part + chance.random()) * count / most)) for part in range(most)]


def trials(what: str, call: str, skip: int, errors: int) -> Iterator[Trial]:
    """The trials of one call; `errors` of its errors are tried, once and from then on."""
    for error in ERRORS[call][:errors] if errors > 1 else (ERRORS[call][skip % len(ERRORS[call])],):
        for lasts in (False, True):
            yield Trial(what, call, error, skip, lasts)
