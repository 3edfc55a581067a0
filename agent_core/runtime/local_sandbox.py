"""One conversation's sandbox without an engine: processes in namespaces of their own, or, by explicit wish, without."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from agent_core.errors import SandboxError, SandboxLostError
from agent_core.runtime import local_launch, local_view, processes
from agent_core.runtime.cgroups import ControlGroup
from agent_core.runtime.injection import boot_command, runner_files
from agent_core.runtime.naming import SOCKET, SOCKET_NAME, STATE_DIR, WORKSPACE
from agent_core.runtime.processes import ProcessId
from agent_core.runtime.runner_stream import RunnerStream
from agent_core.runtime.sandbox import Attachment, Progress, SandboxSpec, SandboxState, SandboxStatus

T = TypeVar("T")

_MOUNT_POINTS = ("/mnt", "/media", "/srv", "/opt")
_LAUNCH_SECONDS = 20.0
_LOOK_SECONDS = 0.005
_KILL_ROUNDS = 100
_LONGEST_SOCKET = 100
_FIRST_UID, _UIDS = 1_900_000_000, 50_000_000
_MARK = "DRYDOCK_SANDBOX"


class LocalSandbox:
    """A `Sandbox` of processes on this host (see the protocol for what each method promises).

    Everything is in ``<data_dir>/sandboxes/<name>/``: ``workspace``, ``home``, ``state`` (the runner's socket and
    journal), ``runner`` (its code), ``etc``, ``sandbox.json`` (whose it is) and ``process.json`` (what runs).

    Args:
        bwrap: path of bubblewrap, or None for no isolation at all.
        pool: threads for work on files.
    """

    def __init__(self, spec: SandboxSpec, name: str, *, bwrap: str | None, pool: ThreadPoolExecutor) -> None:
        self.spec = spec
        self.provider = "local" if bwrap else "unconfined"
        self._name = name
        self._folder = Path(spec.data_dir, "sandboxes", name).absolute()
        self._bwrap = bwrap
        self._pool = pool
        self._group = ControlGroup(name)
        self._fresh: tuple[RunnerStream, asyncio.Transport] | None = None

    @property
    def state(self) -> SandboxState:
        return {"provider": self.provider, "name": self._name}

    @property
    def working_dir(self) -> str:
        return WORKSPACE if self._bwrap else str(self._folder / "workspace")

    async def start(self, progress: Progress) -> None:
        self._let_go()
        progress("STATUS$STARTING_RUNTIME", "Starting the sandbox")
        limit = self.spec.limits.start_seconds
        try:
            async with asyncio.timeout(limit):
                status = await self.poll()
                if status is SandboxStatus.PAUSED:
                    await self.resume()
                elif status is not SandboxStatus.RUNNING:
                    await self._end()
                    uid = await self._blocking(self._prepare)
                    await self._launch(uid)
                self._fresh = await self._connect()
                await self._blocking(self._record_runner)
        except TimeoutError:
            await self._end()
            raise SandboxError(
                f"The sandbox did not start: it was not ready within {limit:g} s; "
                f"its last words: {self._log() or '(none)'}.",
                code="start_timeout",
                fix="Is the machine overloaded? A longer limit can be set.",
            ) from None
        except OSError as error:
            await self._end()
            code = "disk_full" if error.errno in (28, 122) else "start_failed"
            raise SandboxError(f"The sandbox did not start: {error}.", code=code) from error
        progress("STATUS$RUNTIME_STARTED", await self._blocking(self._describe))

    async def attach(self) -> Attachment:
        stream, transport = self._fresh or (None, None)
        self._fresh = None
        if stream is None or transport is None or stream.ended:
            if await self.poll() is not SandboxStatus.RUNNING:
                raise SandboxLostError("The sandbox is not running any more.")
            try:
                async with asyncio.timeout(self.spec.limits.start_seconds):
                    stream, transport = await self._connect()
            except TimeoutError:
                raise SandboxLostError("The sandbox runs, but the program in it does not answer.") from None
            except SandboxError as error:
                raise SandboxLostError(str(error)) from error
        return stream.attachment(transport, asyncio.get_running_loop())

    async def poll(self) -> SandboxStatus:
        return await self._blocking(self._status)

    async def pause(self) -> None:
        if await self.poll() is SandboxStatus.RUNNING:
            await self._blocking(lambda: self._freeze(True))

    async def resume(self) -> None:
        if await self.poll() is SandboxStatus.PAUSED:
            await self._blocking(lambda: self._freeze(False))

    async def stop(self) -> None:
        self._let_go()
        await self.resume()
        runner = await self._blocking(lambda: self._process("runner"))
        if runner is not None and runner.alive:
            processes.send(runner.pid, signal.SIGTERM)
            await processes.wait_gone(runner, self.spec.limits.stop_seconds)
        await self._end()

    async def destroy(self) -> None:
        self._let_go()
        if self._folder.exists():
            await self.resume()
            await self._end()
        await self._blocking(lambda: remove_tree(self._folder))

    async def snapshot(self) -> str:
        name = f"snapshot-{secrets.token_hex(4)}"
        target = self._folder / "snapshots" / name

        def copy() -> None:
            shutil.copytree(self._folder / "workspace", target, symlinks=True, ignore=_only_plain)

        try:
            await self._blocking(copy)
        except (OSError, shutil.Error) as error:
            raise SandboxError(
                f"The workspace could not be copied: {error}.", code="snapshot_failed", fix="Is the disk full?"
            ) from error
        return str(target)

    # --- start-up, step by step ---

    def _prepare(self) -> int | None:
        """Make folders and files; returns the user to run as when this process is root."""
        record = self._read("sandbox.json")
        uid = record.get("uid") if isinstance(record.get("uid"), int) else None
        if uid is None and os.geteuid() == 0 and self._bwrap:
            uid = _uid_for(self._name, Path("/proc/self/uid_map").read_text())
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o711, exist_ok=True)
        self._write(
            "sandbox.json",
            {"instance": self.spec.instance_id, "conversation": self.spec.conversation_id, "uid": uid},
        )
        for name in ("workspace", "home", "state"):
            path = self._folder / name
            path.mkdir(mode=0o700, exist_ok=True)
            if uid is not None and path.stat().st_uid != uid:
                os.chown(path, uid, uid)
        with contextlib.suppress(FileNotFoundError):
            (self._folder / "state" / SOCKET_NAME).unlink()
        own = self._folder / "etc"
        own.mkdir(mode=0o755, exist_ok=True)
        for name, text in local_view.OWN_FILES.items():
            (own / name).write_text(text)
        code = self._folder / "runner"
        remove_tree(code)
        for name, content in runner_files():
            target = code / name
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            target.write_bytes(content)
        (self._folder / "paused").unlink(missing_ok=True)
        (self._folder / "log").unlink(missing_ok=True)
        return uid

    async def _launch(self, uid: int | None) -> None:
        order = await self._blocking(lambda: self._order(uid))
        launcher = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", local_launch.__file__, json.dumps(order)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={},
        )
        try:
            async with asyncio.timeout(_LAUNCH_SECONDS):
                _, errors = await launcher.communicate()
        finally:
            if launcher.returncode is None:
                launcher.kill()
                await launcher.wait()
        if launcher.returncode != 0:
            reason = errors.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
            raise SandboxError(f"The sandbox did not start: {reason}.", code="start_failed")

    def _order(self, uid: int | None) -> dict[str, Any]:
        """What the launcher is told (see `local_launch.main`)."""
        limits = self.spec.limits
        joins, limited = self._group.make(limits)
        bounds = {"CORE": 0}
        if "memory" not in limited:
            bounds["DATA"] = limits.memory
        if uid is not None:
            bounds["NPROC"] = limits.processes
        runner = ["serve", "--socket", SOCKET, "--state-dir", STATE_DIR, "--workspace", WORKSPACE]
        python = local_view.interpreter().path
        mount = None
        view: list[str] = []
        if self._bwrap:
            mount = next((path for path in _MOUNT_POINTS if os.path.isdir(path)), None) if uid is not None else None
            seen = mount or str(self._folder)
            view = [*local_view.isolation(seen), *local_view.places(seen, limits)]
            inner = 0 if uid is not None or "pids" in limited else limits.processes
            argv = [self._bwrap, *boot_command(python, processes=inner), *runner]
            env = local_view.environment(local_view.HOME, self.spec.environment)
        else:
            own = {SOCKET: self._bindable_socket(), STATE_DIR: str(self._folder / "state"), WORKSPACE: self.working_dir}
            argv = [*boot_command(python, root=str(self._folder)), *(own.get(word, word) for word in runner)]
            env = local_view.environment(str(self._folder / "home"), self.spec.environment)
            env[_MARK] = self._name
        return {
            "argv": argv,
            "view": view,
            "env": env,
            "cwd": str(self._folder),
            "folder": str(self._folder),
            "uid": uid,
            "mount": mount,
            "joins": joins,
            "limits": bounds,
            "oom_score_adj": 500,
            "network": self._network() or "",
        }

    def _network(self) -> str | None:
        """The program that connects the sandbox, if it is wished and there."""
        wished = self._bwrap is not None and self.spec.network == "full"
        return shutil.which("slirp4netns") if wished else None

    def _bindable_socket(self) -> str:
        """The socket's path, by way of a short link when it would be too long for a socket address."""
        path = self._folder / "state" / SOCKET_NAME
        if len(os.fsencode(path)) <= _LONGEST_SOCKET:
            return str(path)
        link = Path(tempfile.mkdtemp(prefix="drydock-"), "s")
        link.symlink_to(path.parent)
        return str(link / SOCKET_NAME)

    async def _connect(self) -> tuple[RunnerStream, asyncio.Transport]:
        """Connect to the runner's socket once it listens; ends with an error when its process has ended."""
        while True:
            channel = await self._dial()
            if channel is not None:
                stream, transport = await _stream_over(channel)
                try:
                    if await stream.first_word():
                        return stream, transport
                except BaseException:
                    transport.abort()
                    raise
                transport.abort()
            init = await self._blocking(lambda: self._process("init"))
            if init is None or not init.alive:
                raise await self._early_end()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _dial(self) -> socket.socket | None:
        """A connected socket, or None while nobody listens.

        The path goes through a descriptor: it stays short, and a link put there from inside is not followed.
        """
        try:
            descriptor = os.open(self._folder / "state" / SOCKET_NAME, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            channel.setblocking(False)
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                raise ConnectionRefusedError
            await asyncio.get_running_loop().sock_connect(channel, f"/proc/self/fd/{descriptor}")
        except OSError:
            channel.close()
            return None
        except BaseException:
            channel.close()
            raise
        finally:
            os.close(descriptor)
        return channel

    async def _early_end(self) -> SandboxError:
        log = self._log()
        await self._end()
        if "bwrap:" in log:
            return SandboxError(
                f"The sandbox could not be isolated: {log}.",
                code="no_isolation",
                fix="To find out more: drydock doctor",
            )
        code = "disk_full" if "No space left" in log else "start_failed"
        return SandboxError(f"The sandbox did not start; its last words: {log or '(none)'}.", code=code)

    # --- what runs ---

    def _status(self) -> SandboxStatus:
        init, runner = self._process("init"), self._process("runner")
        if init is not None and init.alive and (runner is None or runner.alive):
            return SandboxStatus.PAUSED if (self._folder / "paused").exists() else SandboxStatus.RUNNING
        return SandboxStatus.STOPPED if (self._folder / "workspace").is_dir() else SandboxStatus.ABSENT

    def _record_runner(self) -> None:
        """Note which process is the runner: the sandbox counts as stopped when it has ended, whatever else is left."""
        record = self._read("process.json")
        if "runner" in record or "init" not in record:
            return
        children = processes.children_of(record["init"]) if self._bwrap else [record["init"]]
        runner = processes.identify(children[0]) if children else None
        if runner is not None:
            self._write("process.json", {**record, "runner": runner.pid, "runner_start": runner.start})

    def _describe(self) -> str:
        """What to tell people about the running sandbox."""
        if self._bwrap is None or self.spec.network != "full":
            return "The sandbox runs"
        network = self._process("network")
        if network is not None and network.alive:
            return "The sandbox runs"
        if self._network() is None:
            return "The sandbox runs, without a network: that needs slirp4netns, which is not installed"
        return f"The sandbox runs, without a network: slirp4netns failed ({self._log()[-300:] or 'no reason given'})"

    def _process(self, role: str) -> ProcessId | None:
        record = self._read("process.json")
        pid, start = record.get(role), record.get(f"{role}_start")
        return ProcessId(pid, start) if isinstance(pid, int) and isinstance(start, int) else None

    def _freeze(self, frozen: bool) -> None:
        marker = self._folder / "paused"
        if frozen:
            marker.touch()
        if not self._group.freeze(frozen):
            for pid in self._members():
                processes.send(pid, signal.SIGSTOP if frozen else signal.SIGCONT)
        if not frozen:
            marker.unlink(missing_ok=True)

    def _members(self) -> list[int]:
        init = self._process("init")
        if not self._bwrap:
            return processes.marked_with(f"{_MARK}={self._name}")
        return processes.members_of_namespace(init.pid) if init is not None and init.alive else []

    def _roots(self) -> list[ProcessId]:
        """The processes with which the sandbox ends: the kernel kills all others with the first of a namespace."""
        outer = self._process("outer")
        within = processes.children_of(outer.pid) if self._bwrap and outer is not None and outer.alive else []
        inner = [self._process("init"), *(processes.identify(pid) for pid in within)]
        found = [*inner, outer, self._process("network")]
        return [process for process in found if process is not None and process.alive]

    def _left(self) -> set[int]:
        """Processes that are still there after that, as far as they can be told apart from others."""
        marked = set() if self._bwrap else set(processes.marked_with(f"{_MARK}={self._name}"))
        return marked | self._group.processes()

    async def _end(self) -> None:
        """Kill whatever of the sandbox still runs, and wait until it is gone."""
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
        with contextlib.suppress(OSError):
            (self._folder / "process.json").unlink(missing_ok=True)

    # --- files ---

    def _read(self, name: str) -> dict[str, Any]:
        try:
            record = json.loads((self._folder / name).read_text())
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        path = self._folder / name
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(record))
        fresh.replace(path)

    def _log(self) -> str:
        try:
            with (self._folder / "log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 1500))
                return file.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _let_go(self) -> None:
        if self._fresh is not None:
            self._fresh[1].abort()
            self._fresh = None

    async def _blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it, also what its owner may not write; links are not followed."""

    def allow(function: Callable[..., Any], path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                function(path)

    if folder.is_symlink() or not folder.exists():
        return
    shutil.rmtree(folder, onerror=allow)


async def _stream_over(channel: socket.socket) -> tuple[RunnerStream, asyncio.Transport]:
    loop = asyncio.get_running_loop()
    stream = RunnerStream(loop)
    try:
        transport, _ = await loop.create_unix_connection(lambda: stream, sock=channel)
    except BaseException:
        channel.close()
        raise
    return stream, transport


def _only_plain(folder: str, names: list[str]) -> list[str]:
    """Sockets, pipes and devices are not copied."""
    kinds = ((name, os.lstat(os.path.join(folder, name)).st_mode) for name in names)
    return [name for name, mode in kinds if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))]


def _uid_for(name: str, uid_map: str) -> int:
    """A user id for one sandbox that nobody else has, as far as this process's user namespace reaches."""
    number = int(name.rsplit("-", 1)[-1], 16)
    for line in uid_map.splitlines():
        first, _, count = (int(word) for word in line.split())
        if first <= _FIRST_UID and first + count >= _FIRST_UID + _UIDS:
            return _FIRST_UID + number % _UIDS
    return 50_000 + number % 10_000
