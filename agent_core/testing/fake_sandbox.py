"""Sandboxes in memory for tests, working, slow or broken; handlers say what an operation does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_core.errors import SandboxError, SandboxLostError
from agent_core.events.transient import NETWORK_WARNING, WAITING_FOR_ENGINE
from agent_core.runtime.sandbox import (
    Attachment,
    Availability,
    DiskUsage,
    Progress,
    Sandbox,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)
from agent_core.runtime.workspace_archive import WorkspaceArchive, WritableFile
from runtime_images.runner import wire

SendFrame = Callable[[Mapping[str, Any], bytes | None], None]


@dataclass(frozen=True, slots=True)
class FakeBehaviour:
    """Faults of a fake sandbox.

    `error` is raised by each start; `never_ready` ends it with ``start_timeout``; `mute`: the runner greets and never
    answers; `away` says why there is no engine, for which a start waits as long as there is none.
    """

    start_seconds: float = 0.0
    error: SandboxError | None = None
    never_ready: bool = False
    attach_seconds: float = 0.0
    mute: bool = False
    network_warning: str = ""
    away: str = ""


SLOW = FakeBehaviour(start_seconds=0.3)
BROKEN = FakeBehaviour(error=SandboxError("The engine is on fire.", code="engine_unavailable", fix="Fetch some water."))
NEVER_READY = FakeBehaviour(never_ready=True)


class FakePrograms:
    """Starts, feeds and ends the programs of one stream; frames as in `runtime_images/runner/tunnels/tunnels.py`."""

    def __init__(self, send: SendFrame) -> None:
        self._send = send
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._inputs: dict[int, asyncio.Queue[bytes | None]] = {}

    def take(self, frame: wire.Frame) -> None:
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


@dataclass(slots=True)
class FakeRequest:
    """One operation as a handler sees it: what was asked, and how to send output while it runs."""

    op: str
    args: Mapping[str, Any]
    key: str | None
    blob: bytes | None
    output: Callable[[str], None]


async def _opened(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(sock=end)
    except BaseException:
        end.close()
        raise


FakeAnswer = Mapping[str, Any] | tuple[Mapping[str, Any], bytes]
FakeHandler = Callable[[FakeRequest], Awaitable[FakeAnswer]]


class FakeRunnerError(Exception):
    """Raised by a handler: answered as an error with this code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def command_result(output: str, exit_code: int = 0) -> FakeAnswer:
    """What a runner answers about a command that has ended: all fields of ``shell.run`` that are read."""
    return {
        "status": "completed",
        "exit_code": exit_code,
        "output": output,
        "omitted": 0,
        "working_dir": "/workspace",
        "pid": -1,
        "python": None,
        "username": "agent",
        "hostname": "fake",
        "running": False,
        "notice": "",
    }


@dataclass(slots=True, eq=False)
class _Work:
    task: asyncio.Task[None]
    listeners: set[tuple[_Stream, int]]


@dataclass(slots=True, eq=False)
class _Stream:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    reading: asyncio.Task[None] | None = None

    def send(self, message: Mapping[str, Any], blob: bytes | None = None) -> None:
        if not self.writer.is_closing():
            self.writer.write(wire.encode(dict(message), blob))


@dataclass(eq=False)
class FakeRunner:
    """Answers like the real runner: keys run once, results are kept, the newest stream wins, cancel interrupts.

    An operation without one of `handlers` is refused; `ran` really ran, in order; `hello` changes the greeting.
    """

    handlers: dict[str, FakeHandler] = field(default_factory=dict)
    hello: dict[str, Any] = field(default_factory=dict)
    ran: list[FakeRequest] = field(default_factory=list)
    acked: list[str] = field(default_factory=list)
    cancelled: list[Any] = field(default_factory=list)
    mute: bool = False
    boot: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self._streams: list[_Stream] = []
        self._work: dict[object, _Work] = {}
        self._journal: dict[str, tuple[Mapping[str, Any], bytes | None]] = {}

    async def connect(self) -> Attachment:
        ours, theirs = socket.socketpair()
        try:
            for stream in self._streams:
                stream.send({"error": {"code": "replaced", "message": "another server has attached"}})
                stream.writer.close()
            stream = _Stream(*await _opened(ours))
        except BaseException:
            theirs.close()
            raise
        self._streams = [stream]
        greeting = {
            "protocol": wire.PROTOCOL,
            "runner": "fake",
            "python": "3",
            "pid": 1,
            "boot": self.boot,
            "workspace": "/workspace",
            "user": "agent",
            "hostname": "fake",
            "programs": True,
        }
        stream.send({"hello": {**greeting, **self.hello}})
        stream.reading = asyncio.create_task(self._serve(stream), name="fake-runner")
        return Attachment(*await _opened(theirs))

    async def drop(self) -> None:
        """Close the stream, as a network does; what runs goes on."""
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.writer.close()
            if stream.reading is not None:
                await asyncio.wait({stream.reading})

    async def restart(self, *, keep_journal: bool = True) -> None:
        """End everything and be a new runner, with or without the results of the old one."""
        await self.drop()
        for work in list(self._work.values()):
            work.task.cancel()
            await asyncio.wait({work.task})
        self._work.clear()
        if not keep_journal:
            self._journal.clear()
        self.boot = secrets.token_hex(8)

    async def send_raw(self, data: bytes) -> None:
        for stream in self._streams:
            stream.writer.write(data)
            await stream.writer.drain()

    async def close(self) -> None:
        await self.restart()

    async def _serve(self, stream: _Stream) -> None:
        decoder = wire.Decoder()
        programs = FakePrograms(stream.send)
        try:
            while data := await stream.reader.read(65536):
                for frame in decoder.feed(data):
                    if self.mute:
                        continue
                    if "stream" in frame.message:
                        programs.take(frame)
                    else:
                        self._take(stream, frame)
        except OSError:
            return
        finally:
            await programs.close()
            stream.writer.close()

    def _take(self, stream: _Stream, frame: wire.Frame) -> None:
        message = frame.message
        ident, op, args, key = message["id"], message["op"], message["args"], message.get("key")
        self._forget(message.get("forget", ()))
        if op == "ping":
            stream.send({"id": ident, "ok": True, "result": {}})
        elif op == "cancel":
            cancelled: object = args["key"] if "key" in args else (stream, args["id"])
            self.cancelled.append(cancelled)
            if cancelled in self._work:
                self._work[cancelled].task.cancel()
            stream.send({"id": ident, "ok": True, "result": {}})
        elif op == "journal.lookup":
            requested = args["key"]
            state = "done" if requested in self._journal else "running" if requested in self._work else "unknown"
            stream.send({"id": ident, "ok": True, "result": {"state": state}})
        elif op == "log.end":
            ends, last = f"{args['log']}:", int(args["last"])
            self._forget([key for key in self._journal if key.startswith(ends) and int(key.split(":")[1]) > last])
            stream.send({"id": ident, "ok": True, "result": {}})
        elif op == "journal.ack":
            self._forget(args["keys"])
            stream.send({"id": ident, "ok": True, "result": {}})
        elif key is not None and key in self._journal:
            answer, blob = self._journal[key]
            stream.send({"id": ident, **answer}, blob)
        elif key is not None and key in self._work:
            self._work[key].listeners = {(stream, ident)}
        else:
            name: object = key if key is not None else (stream, ident)
            call = FakeRequest(op, args, key, frame.blob, lambda text: self._tell(name, text))
            task = asyncio.create_task(self._run(name, call), name=f"fake-runner {op}")
            self._work[name] = _Work(task, {(stream, ident)})

    def _tell(self, name: object, text: str) -> None:
        for listener, number in self._work[name].listeners:
            listener.send({"id": number, "output": text})

    def _forget(self, keys: Sequence[str]) -> None:
        self.acked.extend(keys)
        for key in keys:
            self._journal.pop(key, None)

    async def _run(self, name: object, call: FakeRequest) -> None:
        answer: Mapping[str, Any]
        blob: bytes | None = None
        self.ran.append(call)
        try:
            handler = self.handlers.get(call.op)
            if handler is None:
                raise FakeRunnerError("bad_request", f"unknown operation {call.op}")
            result = await handler(call)
            if isinstance(result, tuple):
                result, blob = result
            answer = {"ok": True, "result": dict(result)}
        except FakeRunnerError as error:
            answer = {"ok": False, "error": {"code": error.code, "message": str(error)}}
        except asyncio.CancelledError:
            if name not in self.cancelled:
                raise  # the runner itself ends
            answer = {"ok": True, "result": {"status": "interrupted", "exit_code": 130, "output": ""}}
        if call.key is not None:
            self._journal[call.key] = (answer, blob)
        work = self._work.pop(name)
        for stream, ident in work.listeners:
            stream.send({"id": ident, **answer}, blob)


class FakeSandbox:
    """A `Sandbox` without processes; `runner` is what is attached to, `files` what is seen of its disk."""

    provider = "fake"
    working_dir = "/workspace"

    def __init__(
        self, spec: SandboxSpec, handlers: Mapping[str, FakeHandler], behaviour: FakeBehaviour | None = None
    ) -> None:
        self.spec = spec
        self.behaviour = behaviour or FakeBehaviour()
        self.runner = FakeRunner(handlers=dict(handlers))
        self.status = SandboxStatus.ABSENT
        self.survived = False
        self.state: SandboxState = {"provider": self.provider, "name": spec.conversation_id}
        self.files: DiskUsage | None = None
        self.starts = 0
        self.attaches = 0

    async def start(self, progress: Progress) -> None:
        self.starts += 1
        progress("STATUS$STARTING_RUNTIME", "Starting the sandbox")
        if self.behaviour.error is not None:
            raise self.behaviour.error
        if self.behaviour.never_ready:
            await asyncio.sleep(self.spec.limits.start_seconds)
            raise SandboxError(
                f"The sandbox was not ready within {self.spec.limits.start_seconds:g} s.", code="start_timeout"
            )
        while self.behaviour.away:
            progress(WAITING_FOR_ENGINE, self.behaviour.away)
            await asyncio.sleep(0.02)
        await asyncio.sleep(self.behaviour.start_seconds)
        self.survived = self.status in (SandboxStatus.RUNNING, SandboxStatus.PAUSED)
        if not self.survived:
            await self.runner.restart(keep_journal=self.status is SandboxStatus.STOPPED)
        self.runner.mute = self.behaviour.mute
        self.status = SandboxStatus.RUNNING
        if self.behaviour.network_warning:
            progress(NETWORK_WARNING, self.behaviour.network_warning)
        progress("STATUS$RUNTIME_STARTED", "The sandbox runs")

    async def attach(self) -> Attachment:
        await asyncio.sleep(self.behaviour.attach_seconds)
        if self.status is not SandboxStatus.RUNNING:
            raise SandboxLostError("The sandbox is not running any more.")
        self.attaches += 1
        return await self.runner.connect()

    async def poll(self) -> SandboxStatus:
        return self.status

    async def pause(self) -> None:
        if self.status is SandboxStatus.RUNNING:
            self.status = SandboxStatus.PAUSED

    async def resume(self) -> None:
        if self.status is SandboxStatus.PAUSED:
            self.status = SandboxStatus.RUNNING

    async def stop(self) -> None:
        await self.runner.close()
        if self.status is not SandboxStatus.ABSENT:
            self.status = SandboxStatus.STOPPED

    async def destroy(self) -> None:
        await self.kill(SandboxStatus.ABSENT)

    async def snapshot(self) -> str:
        return f"snapshot-of-{self.spec.conversation_id}"

    async def archive(self, file: WritableFile) -> list[str]:
        with WorkspaceArchive(file, 0) as archive:
            return archive.left_out

    async def usage(self) -> DiskUsage | None:
        return self.files

    async def kill(self, left: SandboxStatus = SandboxStatus.STOPPED) -> None:
        """End it as somebody outside does."""
        self.status = left
        await self.runner.close()


@dataclass(eq=False)
class FakeProvider:
    """Makes fake sandboxes and keeps them by conversation, so that `restore` finds them again."""

    handlers: dict[str, FakeHandler] = field(default_factory=dict)
    behaviour: FakeBehaviour = field(default_factory=FakeBehaviour)
    availability: Availability = field(default_factory=lambda: Availability(True, "fake sandboxes always work"))
    name: str = "fake"
    missing: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sandboxes: dict[tuple[str, str], FakeSandbox] = {}

    async def check(self) -> Availability:
        return self.availability

    async def lacks(self) -> Mapping[str, str]:
        return self.missing

    async def folders(self) -> Sequence[str]:
        return ()

    def create(self, spec: SandboxSpec) -> Sandbox:
        key = (spec.instance_id, spec.conversation_id)
        if key not in self.sandboxes:
            self.sandboxes[key] = FakeSandbox(spec, self.handlers, self.behaviour)
        self.sandboxes[key].spec = spec  # as one that is made again from something else
        return self.sandboxes[key]

    def restore(self, spec: SandboxSpec, state: SandboxState) -> Sandbox:
        return self.create(spec)

    async def reap(self, instance_id: str, keep: Collection[str]) -> list[str]:
        removed = [key for key in self.sandboxes if key[0] == instance_id and key[1] not in keep]
        for key in removed:
            await self.sandboxes.pop(key).destroy()
        return sorted(conversation for _, conversation in removed)

    async def running(self, instance_id: str) -> Collection[str]:
        up = (SandboxStatus.RUNNING, SandboxStatus.PAUSED)
        return {key[1] for key, one in self.sandboxes.items() if key[0] == instance_id and one.status in up}

    async def prepare(self, spec: SandboxSpec) -> None:
        pass

    async def close(self) -> None:
        for sandbox in self.sandboxes.values():
            await sandbox.runner.close()
