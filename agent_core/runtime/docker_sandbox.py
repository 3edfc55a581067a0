"""One conversation's Docker container: hardened, limited, labelled; no published port, no mounted host folder."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping
from typing import Any, Protocol

from agent_core.errors import SandboxError, SandboxLostError
from agent_core.runtime import injection
from agent_core.runtime.docker import DockerEngine, EngineRefusedError, ignoring
from agent_core.runtime.docker_stream import ExecStream
from agent_core.runtime.images import ensure_image, missing_error, no_python_error
from agent_core.runtime.naming import (
    LABEL_CONVERSATION,
    LABEL_INSTANCE,
    LABEL_MAKING,
    LABEL_ROLE,
    RUNNER_ROOT,
    SOCKET,
    STATE_DIR,
    WORKSPACE,
    object_name,
)
from agent_core.runtime.sandbox import Attachment, Progress, SandboxSpec, SandboxState, SandboxStatus

UID = GID = 1000
_USER = f"{UID}:{GID}"
_PYTHON = injection.boot_command("python3")
_STATUS = {
    "running": SandboxStatus.RUNNING,
    "restarting": SandboxStatus.RUNNING,
    "paused": SandboxStatus.PAUSED,
    "created": SandboxStatus.STOPPED,
    "exited": SandboxStatus.STOPPED,
    "removing": SandboxStatus.ABSENT,
    "dead": SandboxStatus.ABSENT,
}
_LOG_LINES = 15
_RETRY_SECONDS = 0.05


class Networks(Protocol):
    """Gives the engine's network for a wish of the spec."""

    async def ensure(self, spec: SandboxSpec) -> str:
        """Name of the network, made if need be."""
        ...

    def forget(self) -> None:
        """Look anew next time."""
        ...


class DockerSandbox:
    """A `Sandbox` in a container (see the protocol for what each method promises)."""

    provider = "docker"

    def __init__(
        self,
        engine: DockerEngine,
        networks: Networks,
        spec: SandboxSpec,
        name: str,
        *,
        known: bool,
        pull_seconds: float,
    ) -> None:
        self.spec = spec
        self._engine = engine
        self._networks = networks
        self._name = name
        self._volume = f"{name}-workspace"
        self._known = known
        self._pull_seconds = pull_seconds
        self._fresh: tuple[ExecStream, asyncio.Transport] | None = None
        self._last_words = ""

    @property
    def state(self) -> SandboxState:
        return {"provider": self.provider, "container": self._name}

    @property
    def working_dir(self) -> str:
        return WORKSPACE

    async def start(self, progress: Progress) -> None:
        self._let_go()
        progress("STATUS$STARTING_RUNTIME", "Starting the sandbox")
        status = await self.poll() if self._known else SandboxStatus.ABSENT
        limit = self.spec.limits.start_seconds
        try:
            async with asyncio.timeout(limit) as clock:
                if status is SandboxStatus.ABSENT:
                    status = await self._create(progress, clock)
                await self._bring_up(status)
                self._fresh = await self._connect()
        except TimeoutError:
            words = f"; the last words of the attempts to attach: {self._last_words}" if self._last_words else ""
            raise await self._failure(f"it was not ready within {limit:g} s{words}", "start_timeout") from None
        self._known = True
        progress("STATUS$RUNTIME_STARTED", "The sandbox runs")

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
        return stream.attachment(transport, asyncio.get_running_loop())

    async def poll(self) -> SandboxStatus:
        found = await self._inspect()
        return SandboxStatus.ABSENT if found is None else _status(found)

    async def pause(self) -> None:
        with ignoring(409):  # paused already, or not running
            await self._engine.call("pause the sandbox", lambda client: client.pause(self._name))

    async def resume(self) -> None:
        with ignoring(409, 500):  # not paused: 500 in older engines
            await self._engine.call("resume the sandbox", lambda client: client.unpause(self._name))

    async def stop(self) -> None:
        self._let_go()
        grace = max(1, round(self.spec.limits.stop_seconds))
        with ignoring(304, 404):
            if await self.poll() is SandboxStatus.PAUSED:
                await self.resume()
            await self._engine.call("stop the sandbox", lambda client: client.stop(self._name, timeout=grace))

    async def destroy(self) -> None:
        self._let_go()
        await self._remove_container()
        await self._remove_volumes()

    async def snapshot(self) -> str:
        name = f"{self._volume}-{secrets.token_hex(4)}"
        helper = f"{name}-copy"
        config = self._config(self.spec.network)
        config["Entrypoint"] = ["python3", "-E", "-s", "-S", "-c", _COPY]
        config["Cmd"] = []
        config["Labels"][LABEL_ROLE] = "snapshot"
        host = config["HostConfig"]
        host["NetworkMode"] = "none"
        host["Mounts"] = [
            {"Type": "volume", "Source": self._volume, "Target": "/from", "ReadOnly": True},
            {**host["Mounts"][0], "Source": name, "Target": WORKSPACE},
        ]
        archive = injection.runner_archive(UID, GID, True)

        def copy(client: Any) -> int:
            client.create_container_from_config(config, helper)
            try:
                client.put_archive(helper, "/", archive)
                client.start(helper)
                return int(client.wait(helper, timeout=self.spec.limits.start_seconds)["StatusCode"])
            finally:
                client.remove_container(helper, v=True, force=True)

        if await self._engine.call("keep the workspace", copy, limit=self.spec.limits.start_seconds * 2) != 0:
            raise SandboxError("The workspace could not be copied.", code="snapshot_failed", fix="Is the disk full?")
        return name

    # --- start-up, step by step ---

    async def _create(self, progress: Progress, clock: asyncio.Timeout) -> SandboxStatus:
        """Make the container; one of the same name that is there already is taken as it is."""
        for attempt in range(3):
            network = await self._networks.ensure(self.spec)
            config = self._config(network)
            try:
                await self._make(config)
            except EngineRefusedError as error:
                if error.status == 409:
                    found = await self._inspect()
                    if found is not None and _status(found) is not SandboxStatus.ABSENT:
                        return _status(found)
                    await self._remove_container()
                elif error.status == 404 and "network" in error.explanation:
                    self._networks.forget()
                elif error.status == 404 and attempt == 0:
                    await self._have_image(progress, clock)
                elif error.status == 404:
                    raise missing_error(self.spec.image, error.explanation) from error
                else:
                    raise
            else:
                return SandboxStatus.STOPPED
        raise SandboxError("The sandbox could not be created.", code="start_failed", fix="Look at the engine's log.")

    async def _have_image(self, progress: Progress, clock: asyncio.Timeout) -> None:
        """Get the image, on its own time: a pull may take longer than a start."""
        loop = asyncio.get_running_loop()
        clock.reschedule(loop.time() + self._pull_seconds + self.spec.limits.start_seconds)
        await ensure_image(self._engine, self.spec.image, progress, self._pull_seconds)
        clock.reschedule(loop.time() + self.spec.limits.start_seconds)
        progress("STATUS$STARTING_RUNTIME", "Starting the sandbox")

    async def _bring_up(self, status: SandboxStatus) -> None:
        if status is SandboxStatus.PAUSED:
            await self.resume()
        if status is not SandboxStatus.STOPPED:
            return
        archive = injection.runner_archive(UID, GID, not self._known)

        def inject_and_start(client: Any) -> None:
            client.put_archive(self._name, "/", archive)
            client.start(self._name)

        try:
            try:
                await self._engine.call("start the sandbox", inject_and_start)
            except EngineRefusedError as error:
                if error.status != 404 or "network" not in error.explanation:
                    raise
                self._networks.forget()  # somebody has removed it; of the same name it is found again
                await self._networks.ensure(self.spec)
                await self._engine.call("start the sandbox", inject_and_start)
        except EngineRefusedError as error:
            if "python3" in error.explanation:
                raise await self._failure(error.explanation, "no_python") from error
            if "no space left" in error.explanation:
                raise await self._failure(error.explanation, "disk_full") from error
            raise await self._failure(error.explanation, "start_failed") from error

    async def _connect(self) -> tuple[ExecStream, asyncio.Transport]:
        """Attach to the runner once it listens; ends with an error as soon as the container has ended."""
        while True:
            try:
                stream, transport = await self._engine.open_exec(
                    self._name, [*_PYTHON, "attach", "--socket", SOCKET], user=_USER, folder=RUNNER_ROOT
                )
            except SandboxError as error:
                if error.code not in ("engine_refused", "exec_refused"):
                    raise
                found = await self._inspect()
                if found is None or _status(found) is not SandboxStatus.RUNNING:
                    raise await self._early_end(found) from error
            else:
                try:
                    if await stream.first_word():
                        return stream, transport
                except BaseException:
                    transport.abort()
                    raise
                transport.abort()
                self._last_words = str(stream.stray + stream.errors, "utf-8", "replace").strip()[-500:]
                found = await self._inspect()
                if found is None or _status(found) is not SandboxStatus.RUNNING:
                    raise await self._early_end(found)
            await asyncio.sleep(_RETRY_SECONDS)

    # --- failures ---

    async def _early_end(self, found: Mapping[str, Any] | None) -> SandboxError:
        """The error for a container that ended while it was wanted, with its last words."""
        if found is None:
            return SandboxLostError("The sandbox was removed.")
        state = found["State"]
        log = await self._log()
        reason = f"it ended at once with exit code {state.get('ExitCode')}"
        if state.get("OOMKilled"):
            reason += ", out of memory"
        if state.get("Error"):
            reason += f" ({state['Error']})"
        code = "start_failed"
        if ("python3" in log and state.get("ExitCode") in (126, 127)) or re.search(r"Python 3\.8|SyntaxError", log):
            code = "no_python"
        elif "No space left" in log:
            code = "disk_full"
        return await self._failure(f"{reason}; its last words: {log or '(none)'}", code)

    async def _failure(self, reason: str, code: str) -> SandboxError:
        """The error for a start that failed; whatever was made for it is removed, an older workspace stays."""
        self._let_go()
        try:
            await self._remove_container()
            await self._remove_volumes(only_new=True)
        except SandboxError as error:
            reason = f"{reason}; and cleaning up failed: {error}"
        if code == "no_python":
            return no_python_error(self.spec.image, reason)
        fixes = {
            "start_timeout": "Is the machine overloaded? A longer limit can be set.",
            "disk_full": "Free some space on the engine's disk (docker system df).",
        }
        return SandboxError(f"The sandbox did not start: {reason}.", code=code, fix=fixes.get(code, ""))

    async def _log(self) -> str:
        try:
            text = await self._engine.call(
                "read the sandbox's log",
                lambda client: client.logs(self._name, tail=_LOG_LINES, stdout=True, stderr=True),
            )
        except SandboxError:
            return ""
        return str(text, "utf-8", "replace").strip()[-1500:]

    # --- objects in the engine ---

    async def _inspect(self) -> Mapping[str, Any] | None:
        try:
            found = await self._engine.call("look at the sandbox", lambda client: client.inspect_container(self._name))
        except EngineRefusedError as error:
            if error.status == 404:
                return None
            raise
        return dict(found)

    async def _make(self, config: Mapping[str, Any]) -> None:
        await self._engine.call(
            "create the sandbox", lambda client: client.create_container_from_config(config, self._name)
        )

    async def _remove_container(self) -> None:
        with ignoring(404, 409):  # not there, or being removed already
            await self._engine.call(
                "remove the sandbox", lambda client: client.remove_container(self._name, v=True, force=True)
            )

    async def _remove_volumes(self, *, only_new: bool = False) -> None:
        labels = [f"{LABEL_INSTANCE}={self.spec.instance_id}", f"{LABEL_CONVERSATION}={self.spec.conversation_id}"]
        if only_new:
            labels.append(f"{LABEL_MAKING}={self._making}")

        def remove(client: Any) -> None:
            for volume in client.volumes(filters={"label": labels})["Volumes"] or ():
                client.remove_volume(volume["Name"], force=True)

        with ignoring(404):
            await self._engine.call("remove the sandbox's workspace", remove)

    def _let_go(self) -> None:
        if self._fresh is not None:
            self._fresh[1].abort()
            self._fresh = None

    def _config(self, network: str) -> dict[str, Any]:
        """The container as the engine's API wants it (architecture section 6)."""
        self._making = secrets.token_hex(8)
        spec, limits = self.spec, self.spec.limits
        labels = {LABEL_INSTANCE: spec.instance_id, LABEL_CONVERSATION: spec.conversation_id, LABEL_ROLE: "sandbox"}
        return {
            "Image": spec.image,
            "Hostname": "sandbox",
            "User": _USER,
            "Entrypoint": _PYTHON,
            "Cmd": ["serve", "--socket", SOCKET, "--state-dir", STATE_DIR, "--workspace", WORKSPACE],
            "WorkingDir": RUNNER_ROOT,
            "Env": [f"{name}={value}" for name, value in spec.environment.items()],
            "Labels": labels,
            "Healthcheck": {"Test": ["NONE"]},
            "StopSignal": "SIGTERM",
            "AttachStdin": False,
            "AttachStdout": False,
            "AttachStderr": False,
            "HostConfig": {
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "Privileged": False,
                "Init": True,
                "IpcMode": "private",
                "NetworkMode": network,
                "Memory": limits.memory,
                "MemorySwap": limits.memory,
                "NanoCpus": int(limits.cpus * 1e9),
                "PidsLimit": limits.processes,
                "OomScoreAdj": 500,
                "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
                "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
                "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.tmp_size}"},  # noqa: S108
                "RestartPolicy": {"Name": "no"},
                "Mounts": [
                    {
                        "Type": "volume",
                        "Source": self._volume,
                        "Target": WORKSPACE,
                        "VolumeOptions": {"Labels": {**labels, LABEL_ROLE: "workspace", LABEL_MAKING: self._making}},
                    }
                ],
            },
        }


_COPY = f"""
import os, shutil, stat
plain = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
special = lambda folder, names: [
    name for name in names if stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) not in plain
]
shutil.copytree("/from", "{WORKSPACE}", symlinks=True, ignore=special, dirs_exist_ok=True)
"""


def docker_name(spec: SandboxSpec) -> str:
    """The container's name for a spec."""
    return object_name(spec.instance_id, spec.conversation_id)


def _status(found: Mapping[str, Any]) -> SandboxStatus:
    return _STATUS.get(found["State"]["Status"], SandboxStatus.ABSENT)
