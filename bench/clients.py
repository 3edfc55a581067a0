"""Clients that behave badly: what they cost the server, and what all others notice of them."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import orjson

from bench.bad_clients import BadClients, Misbehaviour
from bench.client import following
from bench.figures import Figure
from bench.machine import resident_kb
from bench.processes import ROOT, Server, clean_environment
from bench.stage import Stage
from bench.witness import TOKEN

KEY = "a-token-of-the-bench-of-clients"
STEPS = 20
SECONDS, QUICK_SECONDS = 8.0, 0.3
CROWD = 2000
SILENT = 1000
LAZY = 50
LARGE = 64 * 1024 * 1024
LINE = b"GET /alive HTTP/1.1\r\nHost: 127.0.0.1\r\n"
NOTHING = "alone"


async def measure(stage: Stage) -> list[Figure]:
    """A witness in a process of its own asks all the time: first alone, then beside each kind of bad client."""
    async with (
        stage.model(f"steps:{STEPS}") as model,
        stage.server(model=model, token=KEY, max_live_logs="10000") as server,
    ):
        scene = Scene(stage, server)
        await scene.prepare()
        cases = scene.cases()
        figures: list[Figure] = []
        async with scene.witness() as witness:
            for name in stage.cases or cases:
                figures += await scene.observed(*cases[name], witness)
        return [*figures, Figure("tracebacks in the server's log", scene.tracebacks(), "", 0)]


class Scene:
    """One server, one conversation with a history, and who comes to it."""

    def __init__(self, stage: Stage, server: Server) -> None:
        self._stage = stage
        self._server = server
        self._id = ""
        self._events = 0

    async def prepare(self) -> None:
        """Let the agent work, so that there is something to replay, and put a large file into its workspace."""
        headers = {"X-Session-API-Key": KEY}
        async with httpx.AsyncClient(base_url=self._server.url, headers=headers, timeout=60) as client:
            answer = await client.post("/api/conversations", json={})
            answer.raise_for_status()
            self._id = str(answer.json()["conversation_id"])
            async with following(self._server.url, self._id, key=KEY) as watcher:
                await watcher.until_state("awaiting_user_input")
                await watcher.say("go")
                await watcher.until_state("finished")
                self._events = len(watcher.arrivals)
            large = bytes(self._stage.few(LARGE, 1024 * 1024))
            path = f"/api/conversations/{self._id}/upload-files"
            (await client.post(path, files={"files": ("large.bin", large)})).raise_for_status()

    def cases(self) -> dict[str, tuple[str, Misbehaviour, BadClients]]:
        """What can be asked for by its name: a title, what is done, and by whom."""
        bad = BadClients(self._server.url, KEY, self._id)
        few = self._stage.few
        crowd, silent, lazy = few(CROWD, 20), few(SILENT, 20), few(LAZY, 2)
        of_it = f"/api/conversations/{self._id}"
        large, whole = f"{of_it}/download?path=large.bin", f"{of_it}/zip-directory"
        live, archive = f"{of_it}/log/live", f"{of_it}/archive"
        wrong = "not-the-token-of-this-server"

        async def nothing() -> None:
            return

        kinds: dict[str, tuple[str, Misbehaviour]] = {
            NOTHING: ("nobody else", nothing),
            "storm": (f"{crowd} come back at once, with {self._events} events each", lambda: bad.storm(crowd)),
            "wrong-token": (f"{crowd} come at once with a wrong token", lambda: bad.storm(crowd, key=wrong)),
            "no-conversation": (f"{crowd} join what does not exist", lambda: bad.storm(crowd, conversation="none")),
            "wrong-loop": (f"{lazy} try a wrong token again and again", lambda: bad.again_and_again(lazy, key=wrong)),
            "polling": (f"{crowd} begin to poll and never ask again", lambda: bad.polled_once(crowd)),
            "unread-logs": (f"{lazy} follow and read nothing", lambda: bad.unread(lazy, live)),
            "unread-files": (
                f"{lazy} download {LARGE // 1024**2} MB, zips and archives, and read nothing",
                lambda: bad.unread(lazy, large, whole, archive),
            ),
            "unread-tools": (f"{lazy} call the MCP door and read nothing", lambda: bad.unread_tools(lazy)),
            "pipelined": (f"{lazy} ask 200 times ahead and read nothing", lambda: bad.pipelined(lazy)),
            "flood": ("one floods with messages", bad.flood),
            "packets": ("one floods with packets that nobody can read", bad.malformed_packets),
            "requests": ("8 flood with requests that nobody can read", lambda: bad.malformed_requests(8)),
            "ranges": ("8 ask for odd parts of a file", lambda: bad.ranges(8, large)),
            "half-messages": (
                f"{lazy} send 15 MB of a message and not its end",
                lambda: bad.half_messages(lazy, few(15_000_000, 100_000)),
            ),
            "half-bodies": (f"{few(400, 5)} send 1 MB but for a byte", lambda: bad.half_bodies(few(400, 5))),
            "large-heads": (
                f"{silent} send 60 KB of a head and not its end",
                lambda: bad.open(silent, lambda: LINE + b"X: " + b"a" * 60_000),
            ),
            "deep-bodies": (
                "8 send 10 MB of nested JSON, many values, or one number",
                lambda: bad.deep_bodies(8, few(10_000_000, 100_000)),
            ),
            "bombs": (
                "8 send packed bodies of a gigabyte",
                lambda: bad.bombs(8, few(1_000_000_000, 1_000_000)),
            ),
            "cut-uploads": (
                f"{lazy} upload and go in the middle",
                lambda: bad.cut_uploads(lazy, few(5_000_000, 10_000)),
            ),
            "whole-files": (
                f"20 download {LARGE // 1024**2} MB, zips and archives to the end",
                lambda: bad.whole(few(20, 2), large, whole, archive),
            ),
            "silent": (f"{few(500, 5)} never answer a ping", lambda: bad.silent(few(500, 5))),
            "connections": (f"{silent} open a connection and say nothing", lambda: bad.open(silent, bytes)),
            "half-heads": (f"{silent} send half a head", lambda: bad.open(silent, lambda: LINE)),
            "slow-heads": (f"{silent} send a byte of a head a second", lambda: bad.slow_heads(silent)),
            "slow-bodies": (f"{silent} send a byte of a body a second", lambda: bad.slow_bodies(silent)),
            # The last one, since its agents go on for a while.
            "unread-chats": (f"{lazy} chat through /v1 and read nothing", lambda: bad.unread_chats(lazy)),
        }
        return {name: (title, misbehave, bad) for name, (title, misbehave) in kinds.items()}

    async def observed(self, name: str, misbehave: Misbehaviour, bad: BadClients, witness: Process) -> list[Figure]:
        """What the witness sees meanwhile, and what the server takes more than before."""
        bad.answers.clear()
        before = resident_kb(self._server.pid)
        watching = asyncio.create_task(_seen(witness, QUICK_SECONDS if self._stage.quick else SECONDS))
        await asyncio.sleep(self._stage.pause(1.0))
        doing = asyncio.ensure_future(misbehave())
        peak = before
        while not watching.done():
            peak = max(peak, resident_kb(self._server.pid))
            await asyncio.wait({watching}, timeout=0.1)
        ended = doing.done()
        doing.cancel()
        await asyncio.wait({doing})
        if not doing.cancelled() and (error := doing.exception()) is not None:
            raise error
        seen = watching.result()
        result = doing.result() if ended else None
        notes = [f"p50 {seen['p50']:.1f}, at most {seen['max']:.0f} ms"]
        notes += [_counted(result)] if isinstance(result, Counter) else [] if ended else ["still at it at the end"]
        notes += [_counted(bad.answers)] if bad.answers else []
        self._stage.say(f"{name}: p99 {seen['p99']:.0f} ms, {(peak - before) / 1024:.0f} MB more; {'; '.join(notes)}")
        failed = sum(times for status, times in bad.answers.items() if status == 500)
        return [
            Figure(f"{name}: answer to others, p99", seen["p99"], "ms", note="; ".join(notes)),
            Figure("  memory of the server, at most", (peak - before) / 1024, "MB more"),
            *([Figure("  answers that were a 500", failed, "", 0)] if bad.answers else []),
        ]

    def tracebacks(self) -> int:
        """How often the server did not know what to do."""
        return Path(self._server.data_dir.with_suffix(".log")).read_text(errors="replace").count("Traceback")

    @asynccontextmanager
    async def witness(self) -> AsyncIterator[Process]:
        """A process of its own that looks when it is told to."""
        path = f"/api/conversations/{self._id}/events?limit=1"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.witness", self._server.url, path),
            cwd=ROOT,
            env={**clean_environment(), TOKEN: KEY},
            stdin=PIPE,
            stdout=PIPE,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


async def _seen(witness: Process, seconds: float) -> dict[str, float]:
    assert witness.stdin is not None
    assert witness.stdout is not None
    witness.stdin.write(f"{seconds}\n".encode())
    return dict(orjson.loads(await witness.stdout.readline()))


def _counted(found: Counter[int] | Counter[str]) -> str:
    return ", ".join(f"{times} × {what}" for what, times in found.most_common())
