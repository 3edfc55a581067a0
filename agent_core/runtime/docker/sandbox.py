"""One conversation's Docker container: started, attached to, paused, stopped and removed."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from agent_core.errors import SandboxError, SandboxUnmadeError
from agent_core.events.transient import NETWORK_WARNING, WAITING_FOR_ENGINE
from agent_core.runtime.channel import runner_stream
from agent_core.runtime.channel.runner_stream import RunnerEndedError, RunnerStream
from agent_core.runtime.disk import DiskLook, measured
from agent_core.runtime.docker.derived import DerivedImages
from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError, EngineUnavailableError
from agent_core.runtime.docker.images import PULL_SECONDS, ensure_image, missing_error, no_python_error
from agent_core.runtime.docker.networks import DockerNetworks
from agent_core.runtime.docker.objects import DockerObjects, DockerQuota, configured, made_from
from agent_core.runtime.processes import children_of, members_of_namespace
from agent_core.runtime.sandbox import (
    LABEL_CONFIGURED,
    LABEL_MADE_FROM,
    SOCKET,
    WORKSPACE,
    Attachment,
    DiskUsage,
    Progress,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)
from agent_core.runtime.workspace_archive import WritableFile
from agent_core.troubles import Trouble, coded

logger = logging.getLogger(__name__)

HOST = "host"
"""Key in the state of a sandbox on one of several hosts: the host's name."""

LISTENS_SECONDS = 2.0
"""How long the runner of a container that has just been started is waited for; then the exec's words tell more."""

_LOOK_SECONDS = 0.005
_STATUS = {
    "running": SandboxStatus.RUNNING,
    "restarting": SandboxStatus.RUNNING,
    "paused": SandboxStatus.PAUSED,
    "created": SandboxStatus.STOPPED,
    "exited": SandboxStatus.STOPPED,
    "removing": SandboxStatus.ABSENT,
    "dead": SandboxStatus.ABSENT,
}
_FIXES = {
    "start_timeout": "Is the machine overloaded? A longer limit can be set.",
    "disk_full": "Free some space on the engine's disk (docker system df).",
}
_RETRY_SECONDS = 0.05
AWAY_SECONDS = 86_400.0
"""How long one of several hosts is waited for by a sandbox that it has."""
_ENGINE_RETRY_SECONDS = 1.0
_CREATE_ATTEMPTS = 10
_CREATE_PAUSE_SECONDS = 0.5


class DockerSandbox:
    """A `Sandbox` in a container; for `direct` see `DockerProvider`. `known`: it existed."""

    provider = "docker"
    working_dir = WORKSPACE

    def __init__(
        self,
        engine: DockerEngine,
        networks: DockerNetworks,
        quota: DockerQuota,
        derived: DerivedImages,
        spec: SandboxSpec,
        name: str,
        *,
        known: bool,
        direct: bool,
    ) -> None:
        self.spec = spec
        self.state: SandboxState = {"provider": self.provider, "container": name} | (
            {HOST: engine.name} if engine.name else {}
        )
        self.survived = False
        self._engine = engine
        self._networks = networks
        self._derived = derived
        self._objects = DockerObjects(engine, quota, spec, name)
        self._known = known
        self._direct = direct
        self._fresh: RunnerStream | None = None
        self._look = DiskLook(spec.limits)
        self._places: HostFolders | None = None
        self._creation = ""
        self._is_begun = known
        self._last_words = ""

    async def start(self, progress: Progress) -> None:
        """Start it; an engine that has answered before and is away now is waited for as long as a start may take.

        One of several hosts is waited for by what it has for a day. The start of what it has nothing of yet, or no room
        on its disk for, ends with `SandboxUnmadeError`.
        """
        loop, host = asyncio.get_running_loop(), self._engine.name
        last, is_away = loop.time() + (AWAY_SECONDS if host and self._known else self.spec.limits.start_seconds), False
        while True:
            try:
                if is_away:  # so it is told until the engine answers, and not with each attempt anew
                    await self._engine.call("answer", lambda client: client.version())
                return await self._start(progress)
            except EngineUnavailableError as error:
                if host and not self._is_begun:
                    raise SandboxUnmadeError(str(error), code=error.code) from error
                if not (host or self._engine.has_answered) or loop.time() > last:
                    raise
                is_away = True
                progress(WAITING_FOR_ENGINE, f"Waiting for the Docker {'host' if host else 'engine'}. {error}")
            except SandboxError as error:
                if not host or self._known or error.code != "disk_full":
                    raise
                self._engine.full_at = time.monotonic()
                extra = coded(Trouble.DISK_FULL, self.spec.conversation_id)
                logger.warning("the Docker host %s has no space left", host, extra=extra)
                raise SandboxUnmadeError(str(error), code=error.code) from error
            await asyncio.sleep(_ENGINE_RETRY_SECONDS)

    async def _start(self, progress: Progress) -> None:
        self._let_go()
        self._places = None
        self._creation = ""
        progress("STATUS$STARTING_RUNTIME", "Starting the sandbox")
        limit = self.spec.limits.start_seconds
        await self._networks.ensure(self.spec)  # on its own time: the first one has a border to be set
        try:
            async with asyncio.timeout(limit) as clock:
                try:
                    self._fresh = await self._brought_up(progress, clock)
                except RunnerEndedError:
                    if not self.survived:
                        raise
                    self._fresh = await self._brought_up(progress, clock)  # it was about to end when it was found
        except RunnerEndedError as end:
            raise await self._failure(end.reason, end.code) from end
        except TimeoutError:
            words = f"; attaching to it gave: {self._last_words}" if self._last_words else ""
            raise await self._failure(f"it was not ready within {limit:g} s{words}", "start_timeout") from None
        self._known = True
        if warning := self._networks.warning(self.spec):
            logger.warning("conversation %s: %s", self.spec.conversation_id, warning)
            progress(NETWORK_WARNING, warning)
        progress("STATUS$RUNTIME_STARTED", "The sandbox runs")

    async def _brought_up(self, progress: Progress, clock: asyncio.Timeout) -> RunnerStream:
        status = await self._present() if self._known else SandboxStatus.ABSENT
        if status is SandboxStatus.ABSENT:
            status = await self._create(progress, clock)
        if self._known or not self._creation:
            await self._settle_in_network()
        await self._bring_up(status)
        return await self._connect()

    async def attach(self) -> Attachment:
        fresh, self._fresh = self._fresh, None
        return await runner_stream.attachment(self, fresh, self._connect)

    async def poll(self) -> SandboxStatus:
        return _status(await self._objects.inspect())

    async def pause(self) -> None:
        await self._objects.pause()

    async def resume(self) -> None:
        await self._objects.resume()

    async def stop(self) -> None:
        self._let_go()
        if await self.poll() is SandboxStatus.PAUSED:
            await self.resume()
        await self._objects.stop(max(1, round(self.spec.limits.stop_seconds)))

    async def destroy(self) -> None:
        self._let_go()
        await self._objects.remove_container()
        await self._objects.remove_volumes()

    async def snapshot(self) -> str:
        return await self._objects.copy_workspace()

    async def archive(self, file: WritableFile) -> list[str]:
        return await self._objects.archive_workspace(file, direct=self._direct)

    async def usage(self) -> DiskUsage | None:
        if self._places is None:
            found = await self._objects.inspect()
            if found is None:
                return None
            self._places = places_of(found)
        return await self._look.usage(self._measure, self._places.folders[0] if self._places.folders else "")

    async def _measure(self) -> DiskUsage | None:
        places, most = self._places, self.spec.limits.inodes
        if places is None or not places.folders:
            return await self._objects.measure_within(most)
        loop = asyncio.get_running_loop()
        return await measured(places.folders, await loop.run_in_executor(None, places.processes), most)

    # --- start-up, step by step ---

    async def _present(self) -> SandboxStatus:
        """What it is; one that was made from something else makes room, and leaves its volumes to the next.

        So does one with other variables or limits, where nothing runs in it and nothing but its volumes can change.
        """
        found = await self._objects.inspect()
        status = _status(found)
        labels = ((found or {}).get("Config") or {}).get("Labels") or {}
        wanted = {LABEL_MADE_FROM: made_from(self.spec)}
        if status is SandboxStatus.STOPPED and self.spec.limits.read_only:
            wanted[LABEL_CONFIGURED] = configured(self.spec)
        if all(labels.get(name, value) == value for name, value in wanted.items()):  # earlier releases have no label
            return status
        await self._objects.remove_container()
        return SandboxStatus.ABSENT

    async def _create(self, progress: Progress, clock: asyncio.Timeout) -> SandboxStatus:
        pulled = False
        for _ in range(_CREATE_ATTEMPTS):
            network = await self._networks.ensure(self.spec)
            self._creation = secrets.token_hex(8)
            try:
                image = await self._image(progress, clock)
                self._is_begun = True
                await self._objects.create(network, self._creation, image)
            except EngineRefusedError as error:
                self._creation = ""
                if error.status == 409:
                    status = await self.poll()
                    if status is not SandboxStatus.ABSENT:
                        return status
                    await self._objects.remove_container()
                    # An engine that comes back still makes what was asked of it while it hung, and long given up.
                    await asyncio.sleep(_CREATE_PAUSE_SECONDS)
                elif error.status == 404 and "network" in error.explanation:
                    self._networks.forget()
                elif error.status == 404 and not pulled:
                    await self._have_image(progress, clock)
                    pulled = True
                elif error.status == 404:
                    raise missing_error(self.spec.image, error.explanation) from error
                else:
                    raise _refused(error) from error
            else:
                return SandboxStatus.STOPPED
        raise SandboxError("The sandbox could not be created.", code="start_failed", fix="Look at the engine's log.")

    async def _image(self, progress: Progress, clock: asyncio.Timeout) -> str:
        if self.spec.extra_deps is None:
            return self.spec.image
        loop = asyncio.get_running_loop()
        longest = PULL_SECONDS + self.spec.extra_deps.limit_seconds * 2  # others may be installed before it
        clock.reschedule(loop.time() + longest + self.spec.limits.start_seconds)
        image = await self._derived.image(self.spec, progress)
        clock.reschedule(loop.time() + self.spec.limits.start_seconds)
        return image

    async def _have_image(self, progress: Progress, clock: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        clock.reschedule(loop.time() + PULL_SECONDS + self.spec.limits.start_seconds)
        await ensure_image(self._engine, self.spec.image, progress)
        clock.reschedule(loop.time() + self.spec.limits.start_seconds)
        progress("STATUS$STARTING_RUNTIME", "Starting the sandbox")

    async def _settle_in_network(self) -> None:
        found = await self._objects.inspect()
        if found is None:
            return
        network = await self._networks.ensure(self.spec)
        present = set(found["NetworkSettings"]["Networks"] or ())
        for other in sorted(present - {network}):
            await self._objects.disconnect(other)
        if network not in present:
            await self._objects.connect(network)

    async def _bring_up(self, status: SandboxStatus) -> None:
        self.survived = status in (SandboxStatus.RUNNING, SandboxStatus.PAUSED)
        if status is SandboxStatus.PAUSED:
            await self.resume()
        if status is not SandboxStatus.STOPPED:
            return
        try:
            try:
                await self._objects.inject_and_start(with_workspace=not self._known)
            except EngineRefusedError as error:
                if error.status != 404 or "network" not in error.explanation:
                    raise
                self._networks.forget()  # somebody has removed it; another one of the same name is not the same to it
                await self._objects.connect(await self._networks.ensure(self.spec))
                await self._objects.inject_and_start(with_workspace=not self._known)
        except EngineRefusedError as error:
            raise _refused(error) from error

    async def _connect(self) -> RunnerStream:
        """Attach to the runner once it listens; raises `RunnerEndedError` as soon as the container does not run."""
        while True:
            found = await self._objects.inspect()
            if found is None or _status(found) is not SandboxStatus.RUNNING:
                raise await self._end(found)
            stream = await connect(found) if self._direct else None
            try:
                stream = stream or await self._objects.open_exec()
            except SandboxError as error:
                if error.code not in ("engine_refused", "exec_refused"):
                    raise
                self._last_words = str(error)[-500:]
            if stream is not None:
                if await stream.first_word():
                    return stream
                self._last_words = str(stream.stray + stream.errors, "utf-8", "replace").strip()[-500:]
            await asyncio.sleep(_RETRY_SECONDS)

    # --- failures ---

    async def _end(self, found: Mapping[str, Any] | None) -> RunnerEndedError:
        if found is None:
            return RunnerEndedError("it was removed", "lost")
        state = found["State"]
        log = await self._objects.log()
        reason = f"it ended with exit code {state.get('ExitCode')}"
        if state.get("OOMKilled"):
            reason += ", out of memory"
        if state.get("Error"):
            reason += f" ({state['Error']})"
        code = _code_of(log)
        if code == "no_python" and state.get("ExitCode") not in (1, 126, 127):
            code = "start_failed"
        return RunnerEndedError(f"{reason}; its last words: {log or '(none)'}", code)

    async def _failure(self, reason: str, code: str) -> SandboxError:
        """The error for a start that failed. What it has made is removed; what was there before is only stopped."""
        self._let_go()
        try:
            if self._creation:
                await self._objects.remove_container()
                await self._objects.remove_volumes(self._creation)
            else:
                await self._objects.kill()
        except SandboxError as error:
            reason = f"{reason}; and cleaning up failed: {str(error).rstrip('.')}"
        if code == "no_python":
            return no_python_error(self.spec.image, reason, path=self.spec.environment.get("PATH"))
        return SandboxError(f"The sandbox did not start: {reason}.", code=code, fix=_FIXES.get(code, ""))

    def _let_go(self) -> None:
        if self._fresh is not None:
            self._fresh.abort()
            self._fresh = None


class HostFolders(NamedTuple):
    """Folders of this host; none when it is another one, or when this process may not look at them."""

    folders: tuple[str, ...]
    init: int
    container: str

    def processes(self) -> list[int]:
        """The container's processes, where they are seen from here. Blocks for as long as the process table takes."""
        return members_of_namespace(self.init) if _is_of(self.container, self.init) else []


def places_of(found: Mapping[str, Any]) -> HostFolders:
    """The folders of a container."""
    folders = {str(mount.get("Source")): None for mount in found.get("Mounts") or () if mount.get("Type") == "volume"}
    if not found["HostConfig"].get("ReadonlyRootfs"):
        upper = (found.get("GraphDriver") or {}).get("Data") or {}
        folders[str(upper.get("UpperDir"))] = None
    seen = all(os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK) for folder in folders)
    return HostFolders(tuple(folders) if seen else (), int(found["State"].get("Pid") or 0), str(found["Id"]))


async def connect(found: Mapping[str, Any]) -> RunnerStream | None:
    """A stream to the runner of a container as the engine describes it; None when there is no way past the engine.

    An exec's stream passes two processes of the engine each way. This one needs an engine on this machine, and the
    right to look into the container. The stream's first word has not been waited for.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + LISTENS_SECONDS
    init = int(found["State"].get("Pid") or 0)
    while loop.time() < end:
        with _root(init, str(found["Id"])) as root:
            if root is None:
                return None
            # The runner is the first child of its container's first process, which ends with it.
            runner = next(iter(children_of(init)), 0)
            stream = await runner_stream.connect_below(root, SOCKET, runner)
        if stream is not None:
            return stream
        await asyncio.sleep(_LOOK_SECONDS)
    return None


@contextmanager
def _root(pid: int, container: str) -> Iterator[int | None]:
    """The root folder of the process `pid` as a descriptor, if it is of this container and may be looked into."""
    try:
        descriptor = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if pid > 0 else None
    except OSError:
        descriptor = None
    try:
        yield descriptor if descriptor is not None and _is_of(container, pid) else None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _is_of(container: str, pid: int) -> bool:
    """Whether a process is of a container: one of that number may be another, here or since the container ended."""
    try:
        return bool(container) and container in Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace")
    except OSError:
        return False


def _status(found: Mapping[str, Any] | None) -> SandboxStatus:
    return SandboxStatus.ABSENT if found is None else _STATUS.get(found["State"]["Status"], SandboxStatus.ABSENT)


def _refused(error: EngineRefusedError) -> RunnerEndedError:
    code = _code_of(error.explanation)
    # Its own words have paths of its disk, which are nobody's business in a conversation.
    return RunnerEndedError("no space left on the engine's disk" if code == "disk_full" else error.explanation, code)


def _code_of(words: str) -> str:
    if re.search(r"(exec|executable|no such file).*python3|python3.*(not found|no such file)|Python 3\.8", words, re.I):
        return "no_python"
    if re.search("no space left", words, re.I):
        return "disk_full"
    return "start_failed"
