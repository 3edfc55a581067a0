"""Programs for the fake runner: they run on this host, and are spoken to as those of a real sandbox are."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from runtime_images.runner import wire

Send = Callable[[Mapping[str, Any], bytes | None], None]


class FakePrograms:
    """Starts, feeds and ends the programs of one stream; frames as `runtime_images/runner/programs.py` has them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._inputs: dict[int, asyncio.Queue[bytes | None]] = {}

    def take(self, frame: wire.Frame) -> None:
        """Serve a frame."""
        number, message = frame.message["stream"], frame.message
        if "open" in message:
            self._inputs[number] = asyncio.Queue()
            task = asyncio.create_task(self._run(number, message["open"]["program"]), name="fake-program")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif frame.blob is not None:
            self._inputs[number].put_nowait(frame.blob)
        elif "end" in message:
            self._inputs[number].put_nowait(None)
        elif "reset" in message and (process := self._running.get(number)) is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def close(self) -> None:
        """End all of them."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, number: int, order: Mapping[str, Any]) -> None:
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, **(order.get("env") or {})}
        try:
            process = await asyncio.create_subprocess_exec(
                *order["command"], stdin=pipe, stdout=pipe, stderr=pipe, env=environment
            )
        except OSError as error:
            code = "not_found" if isinstance(error, FileNotFoundError) else "failed"
            self._send({"stream": number, "error": {"code": code, "message": str(error)}}, None)
            return
        self._running[number] = process
        self._send({"stream": number, "opened": True}, None)
        feeding = asyncio.create_task(self._feed(number, process), name="fake-program-input")
        try:
            assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - pipes were asked for
            while data := await process.stdout.read(wire.TUNNEL_CHUNK):
                self._send({"stream": number}, data)
            words = (await process.stderr.read()).decode("utf-8", "replace")
            self._send({"stream": number, "end": True, "last_words": words}, None)
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])
            await process.wait()
            self._running.pop(number, None)

    async def _feed(self, number: int, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        with contextlib.suppress(OSError):
            while (data := await self._inputs[number].get()) is not None:
                process.stdin.write(data)
                await process.stdin.drain()
                self._send({"stream": number, "credit": len(data)}, None)
        process.stdin.close()
