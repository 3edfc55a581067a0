"""Clients that behave badly: what they cost the server, and what all others notice of them."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
import orjson
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from bench.client import CONNECT, EVENT, PING, PONG, following
from bench.figures import Figure
from bench.machine import resident_kb
from bench.processes import ROOT, Server, clean_environment
from bench.stage import Stage
from bench.witness import TOKEN

KEY = "a-token-of-the-bench-of-clients"
STEPS = 20
SECONDS = 8.0
CROWD = 2000
SILENT = 1000
LAZY = 50
LINE = b"GET /alive HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def measure(stage: Stage) -> list[Figure]:
    """A witness in a process of its own asks all the time: first alone, then beside each kind of bad client."""
    async with (
        stage.model(f"steps:{STEPS}") as model,
        stage.server(model=model, token=KEY, max_live_logs="10000") as server,
    ):
        scene = Scene(stage, server)
        await scene.prepare()
        crowd, silent, lazy = stage.few(CROWD, 20), stage.few(SILENT, 20), stage.few(LAZY, 2)
        kinds: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("nobody else", lambda: asyncio.sleep(0)),
            (f"{crowd} come back at once, with {scene.events} events each", lambda: scene.storm(crowd, KEY)),
            (f"{crowd} come with a wrong token", lambda: scene.storm(crowd, "not-the-token-of-this-server")),
            (f"{lazy} follow and read nothing", lambda: scene.lazy(lazy)),
            ("one floods with messages", scene.flood),
            (f"{silent} open a connection and say nothing", lambda: scene.open(silent, b"")),
            (f"{silent} send half a head", lambda: scene.open(silent, LINE)),
        ]
        figures: list[Figure] = []
        for name, misbehave in kinds:
            figures += await scene.observed(name, misbehave)
        return figures


class Scene:
    """One server, one conversation with a history, and who comes to it."""

    def __init__(self, stage: Stage, server: Server) -> None:
        self._stage = stage
        self._server = server
        self._id = ""
        self.events = 0

    async def prepare(self) -> None:
        """Let the agent work, so that there is something to replay."""
        async with httpx.AsyncClient(base_url=self._server.url, headers={"X-Session-API-Key": KEY}) as client:
            answer = await client.post("/api/conversations", json={}, timeout=60)
            answer.raise_for_status()
            self._id = str(answer.json()["conversation_id"])
        async with following(self._server.url, self._id, key=KEY) as watcher:
            await watcher.until_state("awaiting_user_input")
            await watcher.say("go")
            await watcher.until_state("finished")
            self.events = len(watcher.arrivals)

    async def observed(self, name: str, misbehave: Callable[[], Awaitable[None]]) -> list[Figure]:
        """What the witness sees meanwhile, and what the server takes more than before."""
        seconds = self._stage.pause(SECONDS)
        before = resident_kb(self._server.pid)
        watching = asyncio.create_task(self._witness(seconds))
        await asyncio.sleep(self._stage.pause(1.0))
        doing = asyncio.ensure_future(misbehave())
        peak = before
        while not watching.done():
            peak = max(peak, resident_kb(self._server.pid))
            await asyncio.wait({watching}, timeout=0.1)
        took_part = doing.done()
        doing.cancel()
        await asyncio.wait({doing})
        if not doing.cancelled() and (error := doing.exception()) is not None:
            raise error
        seen = watching.result()
        self._stage.say(f"{name}: p99 {seen['p99']:.0f} ms, {(peak - before) / 1024:.0f} MB more")
        note = f"p50 {seen['p50']:.1f}, at most {seen['max']:.0f} ms" + (
            "" if took_part else "; still at it at the end"
        )
        return [
            Figure(f"{name}: answer to others, p99", seen["p99"], "ms", note=note),
            Figure("  memory of the server, at most", (peak - before) / 1024, "MB more"),
        ]

    async def _witness(self, seconds: float) -> dict[str, float]:
        path = f"/api/conversations/{self._id}/events?limit=1"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.witness", self._server.url, path, str(seconds)),
            cwd=ROOT,
            env={**clean_environment(), TOKEN: KEY},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()
        return dict(orjson.loads(printed))

    async def storm(self, count: int, key: str) -> None:
        """All of them connect at the same moment, read what there is, and go."""

        async def come() -> None:
            with suppress(OSError, TimeoutError, WebSocketException):
                async with asyncio.timeout(60), connect(self._address(key), compression=None, max_size=None) as client:
                    await client.recv()
                    await client.send(CONNECT)
                    got = 0
                    while got < self.events:
                        message = await client.recv()
                        if message == PING:
                            await client.send(PONG)
                        got += str(message).startswith(EVENT)

        await asyncio.gather(*(come() for _ in range(count)))

    async def lazy(self, count: int) -> None:
        """Live logs and sockets with little room, of which nothing is read."""
        path = f"/api/conversations/{self._id}/log/live"
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Session-API-Key: {KEY}\r\n\r\n".encode()
        await self.open(count, head, room=4096)

    async def flood(self) -> None:
        """As many messages as the connection takes: events that are none, and pings."""
        with suppress(OSError, WebSocketException):
            async with connect(self._address(KEY), compression=None, max_size=None) as client:
                await client.recv()
                await client.send(CONNECT)
                reading = asyncio.ensure_future(_read(client))
                try:
                    while True:
                        await client.send(EVENT + '["oh_user_action",{"action":"no such thing","args":{}}]')
                        await client.send(PONG)
                finally:
                    reading.cancel()

    async def open(self, count: int, said: bytes, *, room: int | None = None) -> None:
        """So many connections that stay."""
        async with AsyncExitStack() as stack:
            for _ in range(count):
                await stack.enter_async_context(self._connection(said, room))
            await asyncio.Event().wait()

    @asynccontextmanager
    async def _connection(self, said: bytes, room: int | None) -> AsyncIterator[None]:
        with socket.socket() as raw:
            raw.setblocking(False)
            if room is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(raw, ("127.0.0.1", int(self._server.url.rsplit(":", 1)[1])))
            if said:
                await loop.sock_sendall(raw, said)
            yield

    def _address(self, key: str) -> str:
        query = f"EIO=4&transport=websocket&conversation_id={self._id}&latest_event_id=-1&session_api_key={key}"
        return f"{self._server.url.replace('http', 'ws', 1)}/socket.io/?{query}"


async def _read(client: object) -> None:
    async for _ in client:  # type: ignore[attr-defined]
        pass
