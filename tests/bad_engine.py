"""A way to a real Docker engine that a test makes bad: slow, hanging, cut, gone, or with words of refusal."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from tests.listening import listening_at

_REAL = "/var/run/docker.sock"


class BadEngine:
    """What happens on the way; `host` is as in DOCKER_HOST. An engine that hangs takes everything and says nothing."""

    def __init__(self, path: Path, real: str) -> None:
        self.host = f"unix://{path}"
        self._path, self._away = path, path.with_suffix(".away")
        self._real = real
        self.delay = 0.0
        self.late: dict[bytes, float] = {}
        """By a part of a request's first line: after so long it is passed on."""
        self.refusals: dict[bytes, tuple[int, str]] = {}
        self.requests: list[bytes] = []
        self._answers = asyncio.Event()
        self._answers.set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._writers) // 2

    def hang(self) -> None:
        self._answers.clear()

    def go_on(self) -> None:
        self._answers.set()

    def cut(self) -> None:
        """Break every connection that there is, as an engine does that is restarted."""
        for writer in self._writers:
            writer.transport.abort()

    def vanish(self) -> None:
        """Nobody listens there any more, and what was open is broken."""
        self._path.rename(self._away)
        self.cut()

    def come_back(self) -> None:
        if self._away.exists():
            self._away.rename(self._path)

    def refuse(self, start: bytes, status: int, words: str) -> None:
        """Answer requests whose first line starts so with an error of the engine, until `refusals` is cleared."""
        self.refusals[start] = (status, words)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._real)
        pair = {writer, inner_writer}
        self._writers |= pair
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, inner_writer, writer))
                both.create_task(self._back(inner_reader, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers -= pair
            for end in pair:
                end.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, inner: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            if b" HTTP/1.1\r\n" in data:
                line = data.split(b" HTTP/1.1\r\n", 1)[0]
                self.requests.append(line)
                refusal = next((said for start, said in self.refusals.items() if line.startswith(start)), None)
                if refusal is not None:
                    back.write(_answer(*refusal))
                    await back.drain()
                    raise ConnectionAbortedError
                await asyncio.sleep(next((late for part, late in self.late.items() if part in line), self.delay))
            await self._answers.wait()
            inner.write(data)
            await inner.drain()
        inner.write_eof()

    async def _back(self, inner: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await inner.read(65536):
            await self._answers.wait()
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()


def _answer(status: int, words: str) -> bytes:
    body = json.dumps({"message": words}).encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextlib.asynccontextmanager
async def bad_engine(folder: Path, real: str = _REAL) -> AsyncIterator[BadEngine]:
    """An engine behind a socket file in this folder, which leads to the one at `real`."""
    path = folder / "engine.sock"
    engine = BadEngine(path, real)
    async with listening_at(path, engine.serve):
        yield engine
        engine.come_back()
        engine.go_on()
