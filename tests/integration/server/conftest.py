"""Real server processes on free ports, and real socket clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import socketio

from bench.load import opened_by
from server.db import leftovers
from tests.integration.audit import CAN_BE_AUDITED, PATIENCE
from tests.integration.server.forks import ROOT, ForkedProcess, fork_server

START_SECONDS = 90.0
WAIT_SECONDS = 120.0
CLOSE_SECONDS = 120.0
GAUGE = re.compile(r"^drydock_(tasks|sessions|sandboxes|connections|live_logs|working|waiting) (\S+)$", re.MULTILINE)
MAY_BE_KEPT = Counter({"connection": 500, "drydock.db": 4, "drydock.db-wal": 4, "/": 1, "pipe": 1})
"""Each made when first needed: connections to a model server, for two minutes and so many; the database's; what the
loop gives up for a moment when there is no other descriptor (/dev/null until then); the line to the guard of programs.
"""
TO_AN_ENGINE = Counter({"local socket": 16})
"""Connections of the pool to an engine, one for each thread that calls it. An engine that answers is asked for what
sandboxes need unless they are of another kind."""
TO_POSTGRESQL = Counter({"local socket": 8})
"""One that writes, four that read, two for large payloads, one that listens."""
WITHOUT_ENGINE = {"local", "unconfined"}
ADDRESS = re.compile(r" is at (https?://\S+?)(/#token=(\S+))?\s")


def _hear_of_terminals() -> None:
    """In a new process: take note of SIGHUP, also where the tests run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class ServerProcess:
    """``python -m server serve`` on a free port; can be killed and started again on the same data.

    ``plainly``: by the interpreter, where that is what a test is about; otherwise by a fork, which is faster.
    """

    def __init__(
        self, data_dir: Path, *options: str, environment: dict[str, str] | None = None, plainly: bool = False
    ) -> None:
        self.data_dir = data_dir
        self.plainly = plainly
        self.options = options
        self.environment = environment or {}
        self.log = data_dir.parent / f"{data_dir.name}.log"
        self.url = ""
        self.token: str | None = None
        self.start_seconds = 0.0
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None
        self._held = Counter[str]()
        self._was_killed = False

    async def start(self) -> None:
        """Start it; returns when it answers.

        Raises:
            RuntimeError: it ended instead; the message is what it printed.
        """
        began = time.perf_counter()
        offset = self.log.stat().st_size if self.log.exists() else 0
        arguments = ["serve", "--port", "0", "--data-dir", str(self.data_dir), *self.options]
        self._process = await self._begun(arguments, {**clean_environment(), **self.environment})
        async with asyncio.timeout(START_SECONDS):
            while (match := ADDRESS.search(self.printed(offset))) is None:
                if self._process.returncode is not None:
                    raise RuntimeError(self.printed(offset))
                await asyncio.sleep(0.01)  # a file says nothing by itself when it grows
        self.url, self.token = match[1], match[3]
        async with self.client() as client:
            assert (await client.get("/health")).json() == "OK"
            # Once: later it may be taking up what it was at.
            self._held = self._held or await self._holdings(client)
        self.start_seconds = time.perf_counter() - began

    async def _begun(
        self, arguments: list[str], environment: dict[str, str]
    ) -> asyncio.subprocess.Process | ForkedProcess:
        if not self.plainly:
            return fork_server(arguments, environment, self.log)
        command = [sys.executable, "-m", "server", *arguments]
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=environment, stdout=log, stderr=log, preexec_fn=_hear_of_terminals
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, -N if signal N has ended it; None while it runs or was never started."""
        return self._process.returncode if self._process is not None else None

    def printed(self, offset: int = 0) -> str:
        return self.log.read_bytes()[offset:].decode("utf-8", "replace")

    async def until_printed(self, text: str) -> None:
        """Wait until it has printed this."""
        async with asyncio.timeout(WAIT_SECONDS):
            while text not in self.printed():  # noqa: ASYNC110 - a file says nothing by itself when it grows
                await asyncio.sleep(0.05)

    def client(self) -> httpx.AsyncClient:
        headers = {"X-Session-API-Key": self.token} if self.token else {}
        # It speaks no TLS, and to load the certificates of all authorities takes longer than most requests.
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=90, verify=False)  # noqa: S501

    async def kill(self) -> None:
        """End it as a power cut does."""
        self._was_killed = True
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """End it as a service manager does; returns its exit status."""
        return await self._end(signal.SIGTERM)

    async def interrupt(self) -> int:
        """End it as Ctrl-C does; returns its exit status."""
        return await self._end(signal.SIGINT)

    async def hang_up(self) -> int:
        """End it as a terminal does that is closed; returns its exit status."""
        return await self._end(signal.SIGHUP)

    async def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(START_SECONDS):
            return await self._process.wait()

    async def close(self) -> None:
        """End it and leave nothing behind: conversations go with their sandboxes, those of killed servers too."""
        if not self.url:
            if self._process is not None:
                await self.kill()
            return
        if self._process is None or self._process.returncode is not None:
            self.environment = {**self.environment, "DRYDOCK_RESUME_ON_START": "false"}
            await self.start()
        async with self.client() as client:
            while results := (await client.get("/api/conversations", params={"limit": 100})).json()["results"]:
                paths = (f"/api/conversations/{info['conversation_id']}" for info in results)
                await asyncio.gather(*map(client.delete, paths))
        left = await self._left()
        await self.stop()
        if self._was_killed:
            self.sweep()
        assert not left, f"with its last conversation gone, the server at {self.data_dir} still holds {left}"

    def sweep(self) -> None:
        """Remove what killed ones have left among temporary files, as a start does when that is a minute old."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leftovers, "OLD_SECONDS", 0.0)
            leftovers._remove_files(self.data_dir, Path(self.environment.get("TMPDIR", tempfile.gettempdir())))

    async def _left(self) -> dict[str, int]:
        """What it holds that it did not when it had first started, and does not give back soon."""
        began = time.monotonic()
        without_engine = WITHOUT_ENGINE & {*self.options, self.environment.get("DRYDOCK_SANDBOX", "")}
        may_be_kept = MAY_BE_KEPT if without_engine else MAY_BE_KEPT + TO_AN_ENGINE
        if "DRYDOCK_DATABASE_URL" in self.environment:
            may_be_kept = may_be_kept + TO_POSTGRESQL
        async with self.client() as client:
            while left := await self._holdings(client) - self._held - may_be_kept:
                if PATIENCE.is_over(began):
                    break
                await asyncio.sleep(0.02)
        return dict(left)

    async def _holdings(self, client: httpx.AsyncClient) -> Counter[str]:
        answer = await client.get("/metrics")
        found = Counter({name: int(float(number)) for name, number in GAUGE.findall(answer.text)})
        return found + opened_by(self.pid, self.url) if CAN_BE_AUDITED else found


def clean_environment() -> dict[str, str]:
    """Ours without what would configure a server; it keeps no sandboxes ready, which most tests would not use."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("DRYDOCK_", "LLM_"))}
    return {**ours, "DRYDOCK_WARM_SANDBOXES": "0"}


class Follower:
    """A socket client that keeps every frame, and connects again after the last event that it has."""

    def __init__(self, server: ServerProcess, conversation_id: str) -> None:
        self.server = server
        self.conversation_id = conversation_id
        self.frames: list[dict[str, Any]] = []
        self.deltas: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self._socket: Any = None
        self._more = asyncio.Event()

    @property
    def events(self) -> dict[int, dict[str, Any]]:
        """The stored events that were seen, by id."""
        return {frame["id"]: frame for frame in self.frames if isinstance(frame.get("id"), int)}

    @property
    def is_connected(self) -> bool:
        return self._socket is not None and self._socket.connected

    async def connect(self) -> None:
        self._socket = socketio.AsyncClient(reconnection=False)
        self._socket.on("oh_event", self._take)
        self._socket.on("oh_delta", self._take_delta)
        self._socket.on("oh_tool_call", self._take_call)
        latest = max(self.events, default=-1)
        key = self.server.token or "null"
        query = f"conversation_id={self.conversation_id}&latest_event_id={latest}&providers_set=&session_api_key={key}"
        await self._socket.connect(f"{self.server.url}?{query}", transports=["websocket"], wait_timeout=90)

    async def disconnect(self) -> None:
        if self._socket is not None:
            await self._socket.disconnect()
            self._socket = None

    async def send(self, payload: dict[str, Any]) -> None:
        await self._socket.emit("oh_user_action", payload)

    async def run(self, command: str) -> None:
        await self.send({"action": "run", "args": {"command": command}})

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was seen fulfils a condition."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._more.clear()
                await self._more.wait()
                last = (self.frames[-1].get("extras") if self.frames else None) or {}
                assert last.get("agent_state") != "error", last

    def count(self, **fields: Any) -> int:
        return sum(all(frame.get(name) == value for name, value in fields.items()) for frame in self.frames)

    async def _take_call(self, frame: dict[str, Any]) -> None:
        self.calls.append(frame)
        self._more.set()

    async def _take(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        self._more.set()

    async def _take_delta(self, delta: dict[str, Any]) -> None:
        self.deltas.append(delta)
        self._more.set()


async def stored_events(server: ServerProcess, conversation_id: str) -> list[dict[str, Any]]:
    """The whole log, over REST."""
    found: list[dict[str, Any]] = []
    async with server.client() as client:
        while True:
            query = {"start_id": found[-1]["id"] + 1 if found else 0, "limit": 100}
            answer = await client.get(f"/api/conversations/{conversation_id}/events", params=query)
            page = answer.raise_for_status().json()
            found += page["events"]
            if not page["has_more"]:
                return found


def comparable(event: dict[str, Any]) -> str:
    """An event without what differs between history and live."""
    return json.dumps({key: value for key, value in event.items() if key != "source"}, sort_keys=True)


MakeProcess = Callable[..., Awaitable[ServerProcess]]


@pytest.fixture
def plainly() -> bool:
    """Whether `make_process` starts its servers plainly."""
    return False


@pytest.fixture
async def make_process(tmp_path: Path, plainly: bool) -> AsyncIterator[MakeProcess]:
    """Starts servers; all of them are ended."""
    made: list[ServerProcess] = []

    async def make(*options: str, name: str = "data", environment: dict[str, str] | None = None) -> ServerProcess:
        server = ServerProcess(tmp_path / name, *options, environment=environment, plainly=plainly)
        made.append(server)
        await server.start()
        return server

    yield make
    for server in made:
        async with asyncio.timeout(CLOSE_SECONDS):
            await server.close()


@asynccontextmanager
async def following(server: ServerProcess, conversation_id: str) -> AsyncIterator[Follower]:
    """A connected follower."""
    follower = Follower(server, conversation_id)
    await follower.connect()
    try:
        yield follower
    finally:
        await follower.disconnect()


async def create(server: ServerProcess, **body: Any) -> str:
    """A new conversation's id."""
    async with server.client() as client:
        response = await client.post("/api/conversations", json=body)
        assert response.status_code == 200, response.text
        return str(response.json()["conversation_id"])


async def info_of(server: ServerProcess, conversation_id: str) -> dict[str, Any]:
    """What REST says of it."""
    async with server.client() as client:
        return dict((await client.get(f"/api/conversations/{conversation_id}")).json())


async def states(server: ServerProcess, conversation_id: str) -> list[str]:
    """The states that its log has, in order."""
    return [
        event["extras"]["agent_state"]
        for event in await stored_events(server, conversation_id)
        if event.get("observation") == "agent_state_changed"
    ]


async def is_in(server: ServerProcess, conversation_id: str, state: str) -> bool:
    return (await states(server, conversation_id))[-1:] == [state]
