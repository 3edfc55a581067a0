"""The real processes that are measured: the server as `drydock serve` runs it, and the model server."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
START_SECONDS = 60.0
END_SECONDS = 30.0
ADDRESS = re.compile(r" is at (http://[^/\s]+)")
LAST_LINE = "  database "


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    url: str
    pid: int
    data_dir: Path
    start_seconds: float

    def client(self) -> httpx.AsyncClient:
        """A client of its routes."""
        return httpx.AsyncClient(base_url=self.url, timeout=60)

    async def create(self, **body: object) -> str:
        """A new conversation's id."""
        async with self.client() as client:
            answer = await client.post("/api/conversations", json=body)
            answer.raise_for_status()
            return str(answer.json()["conversation_id"])

    async def post(self, path: str) -> None:
        """Ask for something that has no body."""
        async with self.client() as client:
            (await client.post(path)).raise_for_status()

    async def delete(self, conversation_id: str) -> None:
        """Remove a conversation and its sandbox."""
        async with self.client() as client:
            (await client.delete(f"/api/conversations/{conversation_id}")).raise_for_status()


@asynccontextmanager
async def server_process(data_dir: Path, sandbox: str, environment: Mapping[str, str]) -> AsyncIterator[Server]:
    """``python -m server serve`` on a free port, until it is left; `start_seconds` ends with the answer of /health."""
    log = data_dir.with_suffix(".log")
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--data-dir", str(data_dir)]
    began = time.perf_counter()
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--sandbox",
            sandbox,
            cwd=ROOT,
            env={**clean_environment(), **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        url = await _announced(process, ADDRESS, log)
        async with httpx.AsyncClient(base_url=url) as client:
            (await client.get("/health")).raise_for_status()
        taken = time.perf_counter() - began
        # What it runs on is known with its last line: from there on it is at rest.
        await _announced(process, re.compile(f"({re.escape(LAST_LINE)})"), log)
        yield Server(url, process.pid, data_dir, taken)
    finally:
        await end(process)


@asynccontextmanager
async def model_process(script: str, *, delay: float = 0.0, command_seconds: float = 0.0) -> AsyncIterator[str]:
    """A model server as a process of its own, which answers after `delay` seconds; yields its base URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.model_process",
        "--script",
        script,
        f"--delay={delay}",
        f"--command-seconds={command_seconds}",
        cwd=ROOT,
        env=clean_environment(),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield await _announced(process, re.compile(r"(http://\S+)"), None)
    finally:
        await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process of ours, by force where it does not within the limit."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def clean_environment() -> dict[str, str]:
    """Ours without what would configure a server, or make it compile itself at each start."""
    refused = ("DRYDOCK_", "LLM_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(refused)}


async def _announced(process: asyncio.subprocess.Process, pattern: re.Pattern[str], log: Path | None) -> str:
    """The first group of the first line of its output that fits."""
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        while line := await process.stdout.readline():
            if match := pattern.search(line.decode()):
                return match[1]
    printed = await asyncio.to_thread(log.read_text, errors="replace") if log is not None else ""
    raise RuntimeError(f"a process ended instead of starting: {printed[-2000:]}")
