"""A plain client of the runner, and the runner as a process, for tests that look at it from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agent_core.runtime.channel.channel import RunnerChannel
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.runtime.channel.tunnels import PortConnection
from agent_core.runtime.sandbox import Attachment
from runtime_images.runner.wire import Decoder, Frame, FrameMessage, encode

PYTHON = os.environ.get("RUNNER_PYTHON", sys.executable)
"""Set RUNNER_PYTHON to run these tests with the runner on another Python than their own."""
PACKAGE = Path(__file__).parents[3] / "runtime_images"
PATIENCE_SECONDS = 60.0


@dataclass
class Answer:
    """What came back for one request."""

    message: FrameMessage
    blob: bytes | None = None
    live: list[str] = field(default_factory=list)

    @property
    def result(self) -> dict[str, Any]:
        assert self.message.get("ok") is True, self.message
        result: dict[str, Any] = self.message["result"]
        return result

    @property
    def error(self) -> dict[str, str]:
        assert self.message.get("ok") is False, self.message
        error: dict[str, str] = self.message["error"]
        return error


class Client:
    """One connection. Requests are numbered; answers may be waited for in any order."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.stream.settimeout(PATIENCE_SECONDS)
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        self._live: dict[int, list[str]] = {}
        self._answers: dict[int, Answer] = {}
        self._number = 0
        self._tunnels: dict[int, list[Frame]] = {}
        self.hello: dict[str, Any] = self.receive().message["hello"]

    def send(self, op: str, *, key: str | None = None, blob: bytes | None = None, **args: Any) -> int:
        """Send a request and return its number."""
        self._number += 1
        message: FrameMessage = {"id": self._number, "op": op, "args": args}
        if key is not None:
            message["key"] = key
        self.stream.sendall(encode(message, blob))
        return self._number

    def wait(self, number: int) -> Answer:
        """Return the answer to a request."""
        while number not in self._answers:
            self._take(self.receive())
        return self._answers.pop(number)

    def wait_for_output(self, number: int, text: str) -> str:
        """Return the live output of a request as soon as it contains the text."""
        while text not in "".join(self._live.get(number, [])):
            assert number not in self._answers, self._answers[number]
            self._take(self.receive())
        return "".join(self._live[number])

    def call(self, op: str, *, key: str | None = None, blob: bytes | None = None, **args: Any) -> Answer:
        """Send a request and return its answer."""
        return self.wait(self.send(op, key=key, blob=blob, **args))

    def run(self, command: str, **args: Any) -> dict[str, Any]:
        """Run a command in the default terminal and return the result."""
        return self.call("shell.run", command=command, **args).result

    def output(self, command: str, **args: Any) -> str:
        """Run a command that succeeds and return what it printed."""
        result = self.run(command, **args)
        assert (result["status"], result["exit_code"]) == ("completed", 0), result
        text: str = result["output"]
        return text

    def send_to(self, stream: int, blob: bytes | None = None, **message: Any) -> None:
        """Send a frame of a tunnel."""
        self.stream.sendall(encode({"stream": stream, **message}, blob))

    def wait_for_tunnel(self, stream: int) -> Frame:
        """Return the next frame of a tunnel."""
        while not self._tunnels.get(stream):
            self._take(self.receive())
        return self._tunnels[stream].pop(0)

    def receive(self) -> Frame:
        """Return the next frame; EOFError at the end of the stream."""
        while not self._frames:
            data = self.stream.recv(1 << 20)
            if not data:
                raise EOFError
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def close(self) -> None:
        self.stream.close()

    def _take(self, frame: Frame) -> None:
        if "stream" in frame.message:
            self._tunnels.setdefault(frame.message["stream"], []).append(frame)
            return
        number = frame.message["id"]
        if "output" in frame.message:
            self._live.setdefault(number, []).append(frame.message["output"])
        else:
            self._answers[number] = Answer(frame.message, frame.blob, self._live.pop(number, []))


class Runner:
    """A runner process on a socket of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        before: tuple[str, ...] = (),
        python: str = PYTHON,
        package: Path = PACKAGE,
    ) -> None:
        self.socket = directory / "runner.sock"
        self.state = directory / "state"
        self.workspace = directory / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self._options = options
        self._python = (*before, python)
        self._package = package
        self._env = {"HOME": str(directory), "PATH": os.environ["PATH"], **(env or {})}
        self._clients: list[Client] = []
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *(*self._python, "-S", "-E", "-m", "runner", "serve"),
                *("--socket", str(self.socket), "--state-dir", str(self.state), "--workspace", str(self.workspace)),
                *self._options,
            ],
            cwd=self._package,
            env=self._env,
            stdin=subprocess.DEVNULL,
        )

    def connect(self) -> Client:
        """Attach, as soon as the runner listens."""
        client = Client(connect(self.socket))
        self._clients.append(client)
        return client

    def restart(self, how: int = signal.SIGKILL) -> None:
        """End the process and start another on the same state."""
        self.process.send_signal(how)
        self.process.wait(PATIENCE_SECONDS)
        self.process = self._start()

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()

    def memory_kilobytes(self) -> int:
        """Return the resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])


def connect(path: Path) -> socket.socket:
    """Connect to a socket that is about to listen."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        stream = socket.socket(socket.AF_UNIX)
        try:
            stream.connect(str(path))
        except OSError:
            stream.close()
            assert time.monotonic() < deadline, f"nothing listens at {path}"
            time.sleep(0.002)
        else:
            return stream


async def attached(path: Path) -> RunnerChannel:
    """Return a channel to the runner that is about to listen there."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await RunnerChannel.open(Attachment(*await asyncio.open_unix_connection(str(path))))
            except OSError:
                await asyncio.sleep(0.005)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.002)


def processes_with(text: str) -> list[int]:
    """Return the living processes whose command line contains the text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if text in line and state not in "ZX":
                found.append(int(entry.name))
    return found


def ports_and_programs(channel: RunnerChannel) -> ConversationSandbox:
    """As much of a sandbox as its ports and programs need."""

    class Connections:
        async def connect_port(self, port: int) -> PortConnection:
            return await channel.connect({"port": port})

        async def start_program(self, order: Mapping[str, Any]) -> PortConnection:
            return await channel.connect({"program": order})

    return cast(ConversationSandbox, Connections())
