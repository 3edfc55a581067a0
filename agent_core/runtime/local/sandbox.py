"""One conversation's sandbox without an engine: processes in namespaces of their own, or, by explicit wish, without."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import secrets
import shutil
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from agent_core.errors import STORAGE_UNAVAILABLE, SandboxError, SandboxLostError, storage_code
from agent_core.events.transient import NETWORK_WARNING
from agent_core.runtime import processes
from agent_core.runtime.channel import runner_stream
from agent_core.runtime.channel.runner_stream import RunnerStream
from agent_core.runtime.disk import DiskLook, measured
from agent_core.runtime.local import launch as local_launch
from agent_core.runtime.local.cgroups import ControlGroup
from agent_core.runtime.local.folder import SandboxFolder
from agent_core.runtime.local.launch_order import MARK, launch_order, network_program
from agent_core.runtime.processes import ProcessId
from agent_core.runtime.sandbox import (
    WITH_A_WAY_OUT,
    WORKSPACE,
    Attachment,
    DiskUsage,
    Progress,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)
from agent_core.runtime.workspace_archive import WritableFile, archive_folder

T = TypeVar("T")

NO_NETWORK = "This sandbox has no network"
DISK_FULL = "The server's disk is full: free some space, then send a message or start the conversation."
INSTALL_NETWORK = "Install it: sudo apt-get install slirp4netns (or your system's equivalent)."
_LOOK_SECONDS = 0.005
_WORDS_OF_A_PROGRAM = 200
_KILL_ROUNDS = 100


class LocalSandbox:
    """A `Sandbox` of processes on this host; `bwrap` is the path of bubblewrap, or None for no isolation at all."""

    def __init__(self, spec: SandboxSpec, name: str, *, bwrap: str | None, pool: ThreadPoolExecutor) -> None:
        self.spec = spec
        self.provider = "local" if bwrap else "unconfined"
        self.state: SandboxState = {"provider": self.provider, "name": name}
        self._folder = SandboxFolder(spec.data_dir, name, spec.workspace)
        self.working_dir = WORKSPACE if bwrap and not spec.workspace else str(self._folder.workspace)
        self.survived = False
        self._bwrap = bwrap
        self._pool = pool
        self._group = ControlGroup(name)
        self._look = DiskLook(spec.limits)
        self._fresh: RunnerStream | None = None

    async def start(self, progress: Progress) -> None:
        self._let_go()
        progress("STATUS$STARTING_RUNTIME", "Starting the sandbox")
        limit = self.spec.limits.start_seconds
        try:
            async with asyncio.timeout(limit):
                await self._bring_up()
        except TimeoutError:
            await self._end()
            raise SandboxError(
                f"The sandbox did not start: it was not ready within {limit:g} s; "
                f"its last words: {self._folder.log() or '(none)'}.",
                code="start_timeout",
                fix="Is the machine overloaded? A longer limit can be set.",
            ) from None
        except OSError as error:
            await self._end()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise SandboxError("The sandbox did not start.", code="disk_full", fix=DISK_FULL) from error
            if error.errno in (errno.EROFS, errno.EIO):
                reason = f"The sandbox did not start: {error.strerror}."
                raise SandboxError(reason, code=STORAGE_UNAVAILABLE, fix="See to the server's disk.") from error
            raise SandboxError(f"The sandbox did not start: {error}.", code="start_failed") from error
        warning = await self._blocking(self._network_warning)
        if warning:
            progress(NETWORK_WARNING, warning)
        progress("STATUS$RUNTIME_STARTED", "The sandbox runs")

    async def attach(self) -> Attachment:
        fresh, self._fresh = self._fresh, None
        try:
            return await runner_stream.attachment(self, fresh, self._connect)
        except SandboxLostError:
            raise
        except SandboxError as error:
            raise SandboxLostError(str(error)) from error

    async def poll(self) -> SandboxStatus:
        return await self._blocking(self._status)

    async def pause(self) -> None:
        if await self.poll() is SandboxStatus.RUNNING:
            await self._changed(lambda: self._freeze(True), "The sandbox could not be paused")

    async def resume(self) -> None:
        if await self.poll() is SandboxStatus.PAUSED:
            await self._changed(lambda: self._freeze(False), "The sandbox could not go on")

    async def stop(self) -> None:
        self._let_go()
        await self.resume()
        runner = await self._blocking(lambda: self._folder.runner)
        if runner is not None and runner.alive:
            processes.send(runner.pid, signal.SIGINT)
            await processes.wait_gone(runner, self.spec.limits.stop_seconds)
        await self._end()

    async def destroy(self) -> None:
        self._let_go()
        await self.resume()
        await self._end()
        await self._changed(self._folder.remove, "The sandbox's files could not be removed")

    async def snapshot(self) -> str:
        name = f"snapshot-{secrets.token_hex(4)}"
        running = await self.poll() is SandboxStatus.RUNNING
        try:
            if running:  # frozen, so that nothing inside can put a link where a folder is being read
                await self.pause()
            return await self._blocking(lambda: self._folder.copy_workspace(name))
        except (OSError, shutil.Error) as error:
            raise SandboxError(
                f"The workspace could not be copied: {error}.", code="snapshot_failed", fix="Is the disk full?"
            ) from error
        finally:
            if running:
                await self.resume()

    async def archive(self, file: WritableFile) -> list[str]:
        return await self._blocking(lambda: archive_folder(self._folder.workspace, file, self.spec.limits.disk_bound))

    async def usage(self) -> DiskUsage | None:
        return await self._look.usage(self._measure, str(self._folder.path))

    async def _measure(self) -> DiskUsage | None:
        members = await self._blocking(self._members)
        return await measured([str(self._folder.path)], members, self.spec.limits.inodes)

    # --- start-up, step by step ---

    async def _bring_up(self) -> None:
        status = await self.poll()
        self.survived = status in (SandboxStatus.RUNNING, SandboxStatus.PAUSED)
        if status is SandboxStatus.PAUSED:
            await self.resume()
        if self.survived:
            with contextlib.suppress(SandboxError):  # it was about to end, and has
                self._fresh = await self._connect()
                return
            self.survived = False
        await self._end()
        uid = await self._blocking(lambda: self._folder.prepare(self.spec, confined=self._bwrap is not None))
        await self._launch(uid)
        self._fresh = await self._connect()

    async def _launch(self, uid: int | None) -> None:
        order = await self._blocking(lambda: launch_order(self.spec, self._folder, self._group, uid, self._bwrap))
        launcher = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", local_launch.__file__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={},
        )
        try:
            _, errors = await launcher.communicate(json.dumps(order).encode())
        finally:
            if launcher.returncode is None:
                launcher.kill()
                await launcher.wait()
        if launcher.returncode != 0:
            await self._end()
            reason = errors.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
            raise SandboxError(f"The sandbox did not start: {reason}.", code="start_failed")

    async def _connect(self) -> RunnerStream:
        while True:
            stream = await runner_stream.connect(self._folder.socket)
            if stream is not None and await stream.first_word():
                return stream
            init = await self._blocking(lambda: self._folder.process("init"))
            if init is None or not init.alive:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        log = self._folder.log()
        await self._end()
        if "bwrap:" in log:
            reason = f"The sandbox could not be isolated: {log}."
            raise SandboxError(reason, code="no_isolation", fix="To find out more: drydock doctor")
        if "No space left" in log:
            raise SandboxError("The sandbox has ended.", code="disk_full", fix=DISK_FULL)
        raise SandboxError(f"The sandbox has ended; its last words: {log or '(none)'}.", code="start_failed")

    def _network_warning(self) -> str:
        if self._bwrap is None or self.spec.network not in WITH_A_WAY_OUT:
            return ""
        network = self._folder.process("network")
        if network is not None and network.alive:
            return ""
        if network_program(self.spec) is None:
            return f"{NO_NETWORK}: slirp4netns is not installed. {INSTALL_NETWORK}"
        reason = self._folder.missing_network() or "its process has ended"
        if words := " ".join(self._folder.log()[-_WORDS_OF_A_PROGRAM:].split()):
            reason = f"{reason} ({words})"
        return f"{NO_NETWORK}: {reason}. {_advice(reason)}"

    # --- what runs ---

    def _status(self) -> SandboxStatus:
        if self._folder.is_up:
            return SandboxStatus.PAUSED if self._folder.frozen.exists() else SandboxStatus.RUNNING
        return SandboxStatus.STOPPED if (self._folder.path / "workspace").is_dir() else SandboxStatus.ABSENT

    def _freeze(self, frozen: bool) -> None:
        if frozen:
            self._folder.frozen.touch()
        if not self._group.freeze(frozen):
            for pid in self._members():
                processes.send(pid, signal.SIGSTOP if frozen else signal.SIGCONT)
        if not frozen:
            self._folder.frozen.unlink(missing_ok=True)

    def _members(self) -> list[int]:
        init = self._folder.process("init")
        first = [init.pid] if init is not None and init.alive else []
        if self._bwrap:
            return processes.members_of_namespace(first[0]) if first else []
        return [*first, *processes.marked_with(f"{MARK}={self._folder.name}")]  # the runner hides its own mark

    def _roots(self) -> list[ProcessId]:
        """The processes with which the sandbox ends: the kernel kills all others with the first of a namespace."""
        outer = self._folder.process("outer")
        within = processes.children_of(outer.pid) if self._bwrap and outer is not None and outer.alive else []
        inner = [self._folder.process("init"), *(processes.identify(pid) for pid in within)]
        found = [*inner, outer, self._folder.process("network")]
        return [process for process in found if process is not None and process.alive]

    def _left(self) -> set[int]:
        """Processes that are still there after that, as far as they can be told apart from others."""
        marked = set() if self._bwrap else set(processes.marked_with(f"{MARK}={self._folder.name}"))
        return marked | self._group.processes()

    async def _end(self) -> None:
        for process in await self._blocking(self._roots):
            processes.send(process.pid, signal.SIGKILL)
            await processes.wait_gone(process, self.spec.limits.stop_seconds)
        for _ in range(_KILL_ROUNDS):
            left = await self._blocking(self._left)
            if not left:
                break
            for pid in left:
                processes.send(pid, signal.SIGKILL)
            await asyncio.sleep(_LOOK_SECONDS)
        await self._blocking(self._group.remove)
        await self._blocking(self._folder.forget_processes)

    def _let_go(self) -> None:
        if self._fresh is not None:
            self._fresh.abort()
            self._fresh = None

    async def _changed(self, work: Callable[[], None], problem: str) -> None:
        """Have `work` done, which writes to its folder; `SandboxError` where the disk does not let it."""
        try:
            await self._blocking(work)
        except OSError as error:
            raise SandboxError(f"{problem}: {error.strerror or error}.", code=storage_code(error)) from error

    async def _blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _advice(reason: str) -> str:
    if "packet filter" in reason:
        return (
            "Let the kernel load its filter (sudo modprobe nf_tables), "
            "or accept that sandboxes reach this host: sandbox_network = host-access."
        )
    if "network devices" in reason:
        return (
            "Give users the device (sudo chmod 0666 /dev/net/tun), or let the kernel have another: sudo modprobe veth."
        )
    return "To find out more: drydock doctor"
