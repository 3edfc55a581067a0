"""A way to an engine's socket over ssh: a socket file here that the system's ssh carries there."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agent_core.errors import SandboxError

SOCKET: Final = "/var/run/docker.sock"
_LOOK_SECONDS: Final = 0.05
_END_SECONDS: Final = 3.0
_WORDS: Final = 300
# With a command that ends with our end of its input, ssh ends with this process however that one ends.
_WAITS: Final = "cat >/dev/null"
_OPTIONS: Final = (
    "BatchMode=yes",
    "ClearAllForwardings=no",
    "ConnectTimeout=10",
    "ControlMaster=no",
    "ControlPath=none",
    "ExitOnForwardFailure=yes",
    "LogLevel=ERROR",
    "ServerAliveCountMax=3",
    "ServerAliveInterval=5",
    "StreamLocalBindUnlink=yes",
)


class SshTunnel:
    """Carries to ``ssh://[user@]host[:port][/path/of/docker.sock]``.

    Which key is shown and which hosts are known is ssh's own configuration, or that of the file `config`.
    """

    def __init__(self, url: str, config: str | None = None) -> None:
        parts = urlsplit(url)
        self._url = url
        self._config = ["-F", config] if config else []
        self._target = f"{parts.username}@{parts.hostname}" if parts.username else str(parts.hostname)
        self._port = parts.port
        self._remote = parts.path if parts.path not in ("", "/") else SOCKET
        self._opening = asyncio.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def opened(self, limit: float) -> str:
        """Where the engine is here, as in DOCKER_HOST; ssh is started anew where it has ended.

        Raises `SandboxError` (``engine_unavailable``) with ssh's last words, or after `limit` seconds.
        """
        async with self._opening:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="drydock-ssh-")
            path = Path(self._folder.name) / "docker.sock"
            if self._process is None or self._process.returncode is not None:
                path.unlink(missing_ok=True)
                await self._start(path, Path(self._folder.name) / "words", limit)
            return f"unix://{path}"

    async def close(self) -> None:
        await self._end()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def _start(self, path: Path, words: Path, limit: float) -> None:
        options = [part for option in _OPTIONS for part in ("-o", option)]
        port = ["-p", str(self._port)] if self._port else []
        way = ["-T", "-L", f"{path}:{self._remote}", *port, "--", self._target, _WAITS]
        try:
            with words.open("wb") as errors:
                self._process = await asyncio.create_subprocess_exec(
                    "ssh",
                    *self._config,
                    *options,
                    *way,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,  # Ctrl-C is meant for the server
                )
        except FileNotFoundError:
            raise self._failed("ssh is not installed here", "Install OpenSSH's client.") from None
        try:
            async with asyncio.timeout(limit):
                while not os.path.exists(path):  # noqa: ASYNC240 - in memory, mostly
                    if self._process.returncode is not None:
                        raise self._failed(_said(words) or f"ssh ended with exit code {self._process.returncode}")
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            await self._end()
            raise self._failed(f"ssh did not come through within {limit:g} s") from None

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _failed(self, why: str, fix: str = "") -> SandboxError:
        fix = fix or f"Try as the server's own user: ssh -o BatchMode=yes {self._target} docker version."
        return SandboxError(f"No way to {self._url}: {why.rstrip('.')}.", code="engine_unavailable", fix=fix)


def _said(words: Path) -> str:
    return words.read_text("utf-8", "replace").strip()[-_WORDS:]
