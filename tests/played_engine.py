"""A Docker engine that is played: it says of itself what a test wants, and makes no containers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_core.runtime.sandbox import LABEL_CONVERSATION, LABEL_INSTANCE
from tests.listening import listening_at

GIGABYTE = 1024**3
_VERSION = re.compile(rb"^/v1\.\d+")


@dataclass
class PlayedEngine:
    """What it says; `memory` and the values of `running` (by the names of conversations) in bytes."""

    path: Path
    memory: int = 16 * GIGABYTE
    images: list[str] = field(default_factory=lambda: ["drydock/sandbox:base"])
    running: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    """Containers that are no sandboxes."""
    instance: str = "instance"
    refusals: dict[str, str] = field(default_factory=dict)
    """What it cannot do, by the end of a path, and why."""
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._answers = asyncio.Event()
        self._answers.set()
        self._serving = AsyncExitStack()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def hang(self) -> None:
        self._answers.clear()

    def go_on(self) -> None:
        self._answers.set()

    async def begin(self) -> None:
        await self._serving.enter_async_context(listening_at(self.path, self._serve))

    async def end(self) -> None:
        self.go_on()
        await self._serving.aclose()
        self._serving = AsyncExitStack()
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            method, target, _ = head.split(b"\r\n", 1)[0].split(b" ")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            path, _, query = _VERSION.sub(b"", target).decode().partition("?")
            self.requests.append(f"{method.decode()} {path}")
            await self._answers.wait()
            is_of_others = "drydock.instance%3D" in query and f"drydock.instance%3D{self.instance}%22" not in query
            why = next((why for end, why in self.refusals.items() if path.endswith(end)), None)
            said = [] if is_of_others and path == "/containers/json" else self._said(method.decode(), path)
            body = json.dumps({"message": why or f"no {path}"} if said is None or why else said).encode()
            status = "500 Internal Server Error" if why else "404 Not Found" if said is None else "200 OK"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await writer.drain()

    def _said(self, method: str, path: str) -> Any:
        if method == "DELETE":
            self.running.pop(path.rpartition("/")[2].removeprefix("id-"), None)
            return {}
        if (one := re.fullmatch(r"/containers/id-(.+)/stats", path)) is not None:
            used = {**self.running, **self.others}.get(one[1])
            return None if used is None else {"memory_stats": {"usage": used + 1000, "stats": {"inactive_file": 1000}}}
        if (one := re.fullmatch(r"/images/(.+)/json", path)) is not None:
            return {"Id": f"sha256:{one[1]}"} if one[1] in self.images else None
        match path:
            case "/_ping":
                return "OK"
            case "/version":
                return {"ApiVersion": "1.41", "Version": "20.10", "Os": "linux"}
            case "/info":
                return {"ServerVersion": "20.10", "NCPU": 4, "MemTotal": self.memory, "DockerRootDir": "/nowhere"}
            case "/containers/json":
                labels = {LABEL_INSTANCE: self.instance}
                ours = [{"Id": f"id-{name}", "Labels": {**labels, LABEL_CONVERSATION: name}} for name in self.running]
                return [*ours, *({"Id": f"id-{name}", "Labels": {}} for name in self.others)]
            case "/images/json":
                return [{"RepoTags": [name], "RepoDigests": None} for name in self.images]
            case "/volumes":
                return {"Volumes": []}
            case "/networks":
                return []
        return None


@contextlib.asynccontextmanager
async def played_engines(folder: Path, *names: str) -> AsyncIterator[list[PlayedEngine]]:
    """Engines behind socket files of these names in this folder."""
    engines = [PlayedEngine(folder / name) for name in names]
    try:
        for engine in engines:
            await engine.begin()
        yield engines
    finally:
        for engine in engines:
            await engine.end()
